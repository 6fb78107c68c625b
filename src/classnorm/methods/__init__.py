"""Methods: one file each, all with the same contract, and the registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.methods import ale as _ale
from classnorm.methods import classnorm as _classnorm
from classnorm.methods import conse as _conse
from classnorm.methods import cvc as _cvc
from classnorm.methods import dem as _dem
from classnorm.methods import devise as _devise
from classnorm.methods import eszsl as _eszsl
from classnorm.methods import fclswgan as _fclswgan
from classnorm.methods import kernel as _kernel
from classnorm.methods import relationnet as _relationnet
from classnorm.methods import sae as _sae
from classnorm.methods import sje as _sje
from classnorm.methods import sync as _sync
from classnorm.methods.classnorm import ClassNormConfig
from classnorm.methods.method import FitJob, Fitted, Method, MethodConfig, TrainingRows, ZeroShotModel
from classnorm.methods.space import Choice, Range, Space
from classnorm.plugins import plugins
from classnorm.training import FitContext

__all__ = [
    "METHODS",
    "Choice",
    "ClassNormConfig",
    "FitContext",
    "FitJob",
    "Fitted",
    "Method",
    "MethodConfig",
    "Range",
    "Space",
    "TrainingRows",
    "ZeroShotModel",
    "method_named",
    "resolve",
]

METHODS: dict[str, Method] = {
    "classnorm": _classnorm.METHOD,
    "relationnet": _relationnet.METHOD,
    "cvc": _cvc.METHOD,
    "dem": _dem.METHOD,
    "devise": _devise.METHOD,
    "ale": _ale.METHOD,
    "sje": _sje.METHOD,
    "eszsl": _eszsl.METHOD,
    "sae": _sae.METHOD,
    "conse": _conse.METHOD,
    "sync": _sync.METHOD,
    "fclswgan": _fclswgan.METHOD,
    "kernel": _kernel.METHOD,
}

METHODS.update(plugins("classnorm.methods", Method))
METHODS.update({name: replace(method, name=name) for name, method in METHODS.items()})


def method_named(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    method = METHODS[name]
    return method if method.name == name else replace(method, name=name)


def resolve(
    dataset: ZeroShotDataset, method: str = "classnorm", recipe: str = "reference", **changes: Any
) -> tuple[Method, MethodConfig]:
    """The method and its config for this dataset: the recipe, with some fields changed."""
    entry = method_named(method)
    if recipe.endswith(".json"):
        return entry, read_recipe(Path(recipe), entry).replace(**changes)
    if recipe not in entry.recipes:
        raise unknown_name("recipe", recipe, entry.recipes)
    return entry, entry.recipes[recipe](dataset).replace(**changes)


def read_recipe(path: Path, method: Method) -> MethodConfig:
    """The config of a recipe file, as `classnorm search` writes it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != "classnorm-recipe":
            raise ValueError("another format")
        settings = dict(document["config"])
        written_for = document["method"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a readable recipe; give a name or the recipe.json of a search") from error
    if written_for != method.name:
        raise ConfigError(f"{path}: a recipe for the method {written_for!r}; use `method={written_for!r}`")
    return method.config().replace(**settings)
