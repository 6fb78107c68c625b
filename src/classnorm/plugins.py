"""Plug-ins: methods, strategies and encoders from installed packages or a Python file.

A package declares its objects as entry points in the group `classnorm.methods`, `classnorm.strategies` or
`classnorm.encoders`. A file adds them to the registries itself (``METHODS["mine"] = ...``). Only the caller can load a
file: no model, recipe or run folder can make one run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from classnorm.errors import ConfigError

__all__ = ["LoadedPlugins", "load_plugin", "plugins"]

_SOURCES: dict[str, str] = {}
"""Module name → source code of each file loaded in this process."""


def plugins(group: str, kind: type | None = None) -> dict[str, Any]:
    """Load the entry points of `group`. Each object must be an instance of `kind`, unless that is None."""
    objects = {}
    for point in entry_points(group=group):
        try:
            objects[point.name] = point.load()
        except Exception as error:
            raise ConfigError(f"plug-in {point.value} cannot be loaded: {type(error).__name__}: {error}") from error
        if kind is not None and not isinstance(objects[point.name], kind):
            raise ConfigError(f"plug-in {point.value} ({group}) is not a {kind.__name__}; correct its entry point")
    return objects


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
