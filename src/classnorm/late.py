"""Imports on first use: whatever needs PyTorch loads it when it is called, not when help is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["Late", "late_names"]


class Late:
    """A function that is imported when it is called.

    >>> Late("math", "sqrt")(9)
    3.0
    """

    def __init__(self, module: str, name: str) -> None:  # no dataclass: that import takes longer than all of this
        self.module, self.name = module, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*arguments, **keywords)


def late_names(module: str, *sources: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: submodules, and names of its `__all__`, of these sources, loaded on first use."""

    def get(name: str) -> Any:
        if f".{name}" in sources:
            return import_module(f".{name}", module)
        if name in sys.modules[module].__all__:
            for source in (import_module(source, module) for source in sources):
                if name in source.__all__:
                    return getattr(source, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get
