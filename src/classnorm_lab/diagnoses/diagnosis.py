"""A diagnosis as a task of the engine: a function of `analysis` on a dataset, with its numbers stored in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from classnorm.data import ZeroShotDataset
from classnorm.errors import TrainingError
from classnorm.io.documents import read_json
from classnorm.io.files import digest, write_json
from classnorm.lazy import Lazy
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.progress import OnProgress
from classnorm.runs.engine import Engine, run_tasks

_MARKER = "diagnosis.json"
_FUNCTIONS = {
    "variance": Lazy("classnorm_lab.diagnoses.variance", "training_variance"),
    "smoothness": Lazy("classnorm_lab.diagnoses.smoothness", "gradient_norms"),
    "seen-scales": Lazy("classnorm_lab.diagnoses.seen_scales", "seen_scale_curves"),
}


@dataclass(frozen=True)
class Diagnosis:
    """A measurement. Equal diagnoses give equal numbers."""

    dataset: ZeroShotDataset
    kind: str
    config: ClassNormConfig
    settings: dict[str, Any] = field(default_factory=dict)
    marker = _MARKER

    @cached_property
    def name(self) -> str:
        key = digest([self.dataset.checksum, self.kind, self.config.as_dict(), self.settings])
        return f"{self.kind}-{key[:16]}"

    def run(self, folder: Path) -> None:
        numbers = _FUNCTIONS[self.kind](self.dataset, self.config, **self.settings)
        write_json(folder / _MARKER, {"kind": self.kind, "dataset": self.dataset.name, "numbers": numbers})

    def read(self, root: Path) -> Any:
        """The numbers of a finished diagnosis."""
        return read_json(root / self.name / _MARKER, dict[str, Any], "delete it")["numbers"]


Key = TypeVar("Key")


def diagnose(
    tasks: Mapping[Key, Diagnosis], root: Path, engine: Engine, progress: OnProgress | None = None
) -> dict[Key, Any]:
    """Run the unfinished diagnoses in folders below `root`, and return the numbers of all."""
    failed = run_tasks(list(tasks.values()), root, engine, progress, repeat_diverged=False)
    for task in tasks.values():
        if task.name in failed:
            raise TrainingError(f"{task.kind}: {failed[task.name].message}")
    return {key: task.read(root) for key, task in tasks.items()}
