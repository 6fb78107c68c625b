"""A diagnosis as a task of the engine: one function of `analysis` on one dataset, its numbers kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from classnorm import analysis
from classnorm.data import ZeroShotDataset
from classnorm.files import digest, write_json
from classnorm.methods.classnorm import ClassNormConfig

__all__ = ["Diagnosis"]

_MARKER = "diagnosis.json"


def _variance(dataset: ZeroShotDataset, config: dict[str, Any], **settings: Any) -> Any:
    return analysis.training_variance(dataset, ClassNormConfig(**config), **settings)


def _smoothness(dataset: ZeroShotDataset, config: dict[str, Any], **settings: Any) -> Any:
    return analysis.gradient_norms(dataset, ClassNormConfig(**config), **settings)


def _seen_scales(dataset: ZeroShotDataset, config: dict[str, Any], **settings: Any) -> Any:
    return analysis.seen_scale_curves(dataset, ClassNormConfig(**config), **settings)


_KINDS: dict[str, Callable[..., Any]] = {
    "variance": _variance,
    "smoothness": _smoothness,
    "seen-scales": _seen_scales,
}


@dataclass(frozen=True)
class Diagnosis:
    """What is measured. Two equal ones give equal numbers."""

    dataset: ZeroShotDataset
    kind: str
    config: ClassNormConfig
    settings: dict[str, Any] = field(default_factory=dict)
    marker = _MARKER

    @cached_property
    def name(self) -> str:
        document = [self.dataset.checksum, self.kind, self.config.as_dict(), self.settings]
        return f"{self.kind}-{digest(document)[:16]}"

    def run(self, folder: Path) -> None:
        numbers = _KINDS[self.kind](self.dataset, self.config.as_dict(), **self.settings)
        write_json(folder / _MARKER, {"kind": self.kind, "dataset": self.dataset.name, "numbers": numbers})

    def read(self, root: Path) -> Any:
        """The numbers of a finished one."""
        return json.loads((root / self.name / _MARKER).read_text(encoding="utf-8"))["numbers"]
