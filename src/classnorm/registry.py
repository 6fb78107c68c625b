"""Imports on first use, and plug-ins: methods, strategies and encoders from installed packages or a Python file.

A package declares its objects as entry points in the group `classnorm.methods`, `classnorm.strategies` or
`classnorm.encoders`, and its commands as a table in the group `classnorm.commands`. A file adds its objects to the
registries itself (``METHODS["mine"] = ...``). Only the caller can load a file: no model, recipe or run folder can make
one run.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from classnorm.errors import ConfigError

T = TypeVar("T")

_SOURCES: dict[str, str] = {}
"""Module name → source code of each file loaded in this process."""


class Registry(UserDict[str, T]):
    """Objects by name. Those of classnorm and of installed packages are imported when they are looked up.

    >>> numbers = Registry("classnorm.numbers", float, {"pi": "math:pi"})
    >>> numbers["pi"]
    3.141592653589793
    """

    def __init__(self, group: str, kind: type | None, references: Mapping[str, str]) -> None:
        """Each object of the group of entry points must be an instance of `kind`, unless that is None.

        Args:
            references: name → "module:attribute" of classnorm's own objects.
        """
        super().__init__()
        self.group, self.kind = group, kind
        self.own = tuple(references)  # names, without those of plug-ins
        points = [EntryPoint(name, value, group) for name, value in references.items()]
        self.data: dict[str, Any] = {point.name: point for point in (*points, *entry_points(group=group))}

    def __getitem__(self, name: str) -> T:
        if self.reference(name):
            self.data[name] = self._imported(self.data[name])
        found: T = self.data[name]
        return found

    def reference(self, name: str) -> str:
        """The "module:attribute" of an object that is not imported yet; empty for others."""
        point = self.data[name]
        return point.value if isinstance(point, EntryPoint) else ""

    def _imported(self, point: EntryPoint) -> Any:
        found = _loaded(point)
        if self.kind is not None and not isinstance(found, self.kind):
            raise ConfigError(
                f"plug-in {point.value} ({self.group}) is not a {self.kind.__name__}; correct its entry point"
            )
        return found


def plugin_tables(group: str) -> Iterator[Mapping[str, Any]]:
    """The tables that the entry points of a group name; they must load without PyTorch."""
    for point in entry_points(group=group):
        yield _loaded(point)


def not_installed() -> str:
    """What to do if classnorm's own entry points are missing, as in a checkout that is not installed; else empty."""
    points = entry_points(group="classnorm.commands")
    own = any(point.dist is not None and point.dist.name == "classnorm" for point in points)
    return "" if own else "the laboratory is not registered: install classnorm again"


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise ConfigError(f"plug-in {point.value} cannot be loaded: {type(error).__name__}: {error}") from error


def load_plugin(path: Path) -> None:
    """Run a Python file that adds objects to the registries."""
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"plug-in {path}: no such file; give a Python file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"plug-in {path}: not a readable text file; give a Python file") from error
    _run(f"classnorm_plugin_{path.stem}", source, str(path))


def _run(name: str, source: str, path: str) -> None:
    if _SOURCES.get(name) == source:
        return
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # lets its classes be pickled and its dataclasses resolve annotations
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"plug-in {path} cannot be loaded: {type(error).__name__}: {error}") from error
    _SOURCES[name] = source


class LoadedPlugins:
    """The plug-in files of this process. Unpickling it in another process loads them there.

    Pass it before any object whose class may come from a plug-in.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(_SOURCES),)


def _restored(sources: Mapping[str, str]) -> LoadedPlugins:
    for name, source in sources.items():
        _run(name, source, f"{name.removeprefix('classnorm_plugin_')}.py")
    return LoadedPlugins()


class Lazy:
    """A function that is imported when it is called.

    >>> Lazy("math", "sqrt")(9)
    3.0
    """

    def __init__(self, module: str, name: str) -> None:  # no dataclass: that import takes longer than all of this
        self.module, self.name = module, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*arguments, **keywords)


def lazy_names(package: str, sources: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package: its public names, of which some are imported on first use.

    Args:
        sources: submodule → its public names, separated by spaces.
    """
    source_of = {name: source for source, names in sources.items() for name in names.split()}

    def get(name: str) -> Any:
        if name in sources:
            return import_module(f".{name}", package)
        if name in source_of:
            return getattr(import_module(f".{source_of[name]}", package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return get, names
