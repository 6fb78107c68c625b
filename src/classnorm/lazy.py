"""Imports on first use: whatever needs PyTorch loads it when it is called, not when help is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
