"""A diagnosis as a task of the engine, with its numbers stored in a folder; its curves and colours in plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.errors import TrainingError
from classnorm.io.documents import read_json
from classnorm.io.files import digest, write_json
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.report.draw import COLORS
from classnorm.results.artifact import Series
from classnorm.runs.engine import Engine, run_tasks

_MARKER = "diagnosis.json"
BLUE, ORANGE, GREEN, PINK, SKY, RED = COLORS
MODEL_COLORS = {
    "3-layer MLP + CN": BLUE,
    "3-layer MLP": ORANGE,
    "Linear": GREEN,
    "2-layer MLP": SKY,
    "MLP classifier": PINK,
}
"""The same in all plots."""
SCORE_COLORS = {"H": "#262626", "U": RED, "S": SKY}
VARIANCES = {"between": "between classes", "total": "of all logits"}
"""The variance between the classes of a row, averaged over a batch; and that of all logits of a batch."""


@dataclass(frozen=True)
class Diagnosis:
    """A measurement. Equal diagnoses give equal numbers."""

    kind: str
    measure: Callable[..., Any]
    """From the dataset, the config and the settings to numbers, as JSON."""
    dataset: ZeroShotDataset
    config: ClassNormConfig
    settings: dict[str, Any] = field(default_factory=dict)
    marker = _MARKER

    @cached_property
    def name(self) -> str:
        key = digest([self.dataset.checksum, self.kind, self.config.as_dict(), self.settings])
        return f"{self.kind}-{key[:16]}"

    def run(self, folder: Path) -> None:
        numbers = self.measure(self.dataset, self.config, **self.settings)
        write_json(folder / _MARKER, {"kind": self.kind, "dataset": self.dataset.name, "numbers": numbers})

    def read(self, root: Path) -> Any:
        """The numbers of a finished diagnosis."""
        return read_json(root / self.name / _MARKER, dict[str, Any], "delete it")["numbers"]


Key = TypeVar("Key")


def diagnose(tasks: Mapping[Key, Diagnosis], root: Path, engine: Engine) -> dict[Key, Any]:
    """Run the unfinished diagnoses in folders below `root`, and return the numbers of all."""
    failed = run_tasks(list(tasks.values()), root, engine, repeat_diverged=False)
    for task in tasks.values():
        if task.name in failed:
            raise TrainingError(f"{task.kind}: {failed[task.name].message}")
    return {key: task.read(root) for key, task in tasks.items()}


def mean_series(
    label: str, model: str, variant: str, runs: Sequence[Sequence[float]], x: Sequence[float], shift: float = 0
) -> Series:
    """Mean and range over seeds, up to the length of the shortest run; `x` may be longer."""
    length = min(map(len, runs))
    values = np.array([run[:length] for run in runs])
    low, high = (rounded(values.min(axis=0)), rounded(values.max(axis=0))) if len(runs) > 1 else (None, None)
    at = [float(value + shift) for value in x[:length]]
    return Series(label, model, at, rounded(values.mean(axis=0)), low, high, variant)


def rounded(values: Iterable[float]) -> list[float]:
    """Values with 5 significant digits."""
    return [float(f"{value:.5g}") for value in values]
