"""Methods by name: those of classnorm, whose settings load without PyTorch, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.io.documents import read_json
from classnorm.methods.method import Method, MethodConfig
from classnorm.registry import Registry, not_installed

_OWN = {
    "classnorm": "classnorm:METHOD",
    "kernel": "kernel:METHOD",
    "devise": "ranking:DEVISE",
    "ale": "ranking:ALE",
    "sje": "ranking:SJE",
    "eszsl": "linear:ESZSL",
    "sae": "linear:SAE",
    "conse": "linear:CONSE",
    "sync": "linear:SYNC",
    "clip": "clip:METHOD",
}
"""Name → where in `settings`."""


class _Methods(Registry[Method]):
    """Methods that know their name."""

    def __getitem__(self, name: str) -> Method:
        method = super().__getitem__(name)
        if method.name != name:
            method = self[name] = replace(method, name=name)
        return method


METHODS = _Methods("classnorm.methods", Method, {name: f"classnorm.methods.settings.{at}" for name, at in _OWN.items()})


def method_named(name: str) -> Method:
    """The registered method with this name."""
    if name not in METHODS:
        hint = not_installed() or "a plug-in's method needs `plugin`"
        raise unknown_name("method", name, METHODS, hint)
    return METHODS[name]


def check_parallel(name: str, processes: int) -> None:
    """Raise if several processes are to train a method that cannot be divided among them."""
    if processes > 1 and not method_named(name).parallel:
        able = ", ".join(other for other, method in METHODS.items() if method.parallel)
        raise ConfigError(f"the method {name} trains in one process: run it without torchrun, or choose one of {able}")


def resolve(
    dataset: ZeroShotDataset, method: str = "classnorm", recipe: str = "reference", **changes: Any
) -> tuple[Method, MethodConfig]:
    """The method and its config for a dataset: a recipe with some settings changed."""
    entry = method_named(method)
    return entry, recipe_named(entry, recipe)(dataset).replace(**changes)


def recipe_named(method: Method, recipe: str) -> Callable[[ZeroShotDataset], MethodConfig]:
    """A recipe of the method, or that of a file."""
    if recipe.endswith(".json"):
        config = read_recipe(Path(recipe), method)
        return lambda dataset: config
    if recipe not in method.recipes:
        raise unknown_name("recipe", recipe, method.recipes)
    return method.recipes[recipe]


class RecipeDocument(TypedDict):
    """A recipe file."""

    format: Literal["classnorm-recipe"]
    method: str
    config: dict[str, Any]


def read_recipe(path: Path, method: Method) -> MethodConfig:
    """The config in a recipe file written by `classnorm search`."""
    document = read_json(path, RecipeDocument, "use a recipe name or the recipe.json of a search", ConfigError)
    if (name := document["method"]) != method.name:
        raise ConfigError(f"{path}: a recipe for the method {name!r}; use `method={name!r}`")
    try:
        return method.config().replace(**document["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
