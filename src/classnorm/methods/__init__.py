"""Methods, one file each under one contract, and their registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.methods import (
    ale,
    classnorm,
    conse,
    cvc,
    dem,
    devise,
    eszsl,
    fclswgan,
    kernel,
    relationnet,
    sae,
    sje,
    sync,
)
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

_MODULES = (classnorm, relationnet, cvc, dem, devise, ale, sje, eszsl, sae, conse, sync, fclswgan, kernel)

METHODS: dict[str, Method] = {module.__name__.rpartition(".")[2]: module.METHOD for module in _MODULES}
METHODS.update(plugins("classnorm.methods", Method))
METHODS.update({name: replace(method, name=name) for name, method in METHODS.items()})


def method_named(name: str) -> Method:
    """The registered method with this name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS, "a plug-in's method needs `plugin`")
    method = METHODS[name]
    return method if method.name == name else replace(method, name=name)


def resolve(
    dataset: ZeroShotDataset, method: str = "classnorm", recipe: str = "reference", **changes: Any
) -> tuple[Method, MethodConfig]:
    """The method and its config for a dataset: a recipe with some settings changed."""
    entry = method_named(method)
    if recipe.endswith(".json"):
        return entry, read_recipe(Path(recipe), entry).replace(**changes)
    if recipe not in entry.recipes:
        raise unknown_name("recipe", recipe, entry.recipes)
    return entry, entry.recipes[recipe](dataset).replace(**changes)


def read_recipe(path: Path, method: Method) -> MethodConfig:
    """The config in a recipe file written by `classnorm search`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != "classnorm-recipe":
            raise ValueError("another format")
        settings, name = dict(document["config"]), document["method"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a readable recipe; use a recipe name or the recipe.json of a search") from error
    if name != method.name:
        raise ConfigError(f"{path}: a recipe for the method {name!r}; use `method={name!r}`")
    return method.config().replace(**settings)
