"""A job fills a run folder: it fits, scores the test rows once, and writes what it found."""

from __future__ import annotations

import platform
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.io.arrays import Array
from classnorm.io.files import locked_folder, write_json, write_text
from classnorm.results.card import run_card
from classnorm.results.run_folder import CARD, CHECKPOINT, RESULT, Result, is_finished, new_run
from classnorm.settings import Config
from classnorm.training import SINGLE_PROCESS, Device, Processes


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a job is run; nothing in it changes its scores."""

    device: Device = "auto"
    processes: Processes = SINGLE_PROCESS
    """Processes that run the job together. Only the first writes."""
    resume: bool = True
    """Read a finished run of the same job, and continue an interrupted one. Otherwise a run in the folder is replaced
    when the new one is complete: one that fails leaves it as it is."""
    checkpoint_every: int = 10
    """Epochs between checkpoints; 0 writes none."""
    command: str = ""
    """The command line, for the record."""
    label: str = ""
    """Name of the run in reports."""
    examples: Callable[[], dict[str, Array]] | None = None
    """Makes the arrays of `examples.npz`; by default they are of the dataset's own images, if it has any."""


_IN_ENGINE = Execution()


@dataclass(frozen=True)
class Outcome:
    """What a job has found."""

    document: dict[str, Any]
    """Its entries in `result.json`."""
    write: Callable[[Path], object]
    """Writes its other files to a folder."""


class Job(ABC):
    """A run of a method or a strategy. Equal jobs give equal results."""

    marker: ClassVar[str] = RESULT
    dataset: ZeroShotDataset
    config: Config
    seed: int

    @property
    @abstractmethod
    def key(self) -> str:
        """Identifies everything that determines the result."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.key[:16]

    @abstractmethod
    def compute(self, checkpoint: Path, execution: Execution) -> Outcome:
        """Fit and score. What is in the folder `checkpoint` at the end is deleted; `execution.resume` continues it."""

    def run(self, folder: Path, execution: Execution = _IN_ENGINE) -> Result:
        """Run the job and write the result to a folder, unless it is there. Waits for another process in the folder."""
        processes, checkpoint = execution.processes, folder / CHECKPOINT
        with locked_folder(folder) if processes.is_first else nullcontext():
            if processes.from_first(execution.resume and self._is_finished(folder)):
                document = Result.read(folder).document
            else:
                outcome = self.compute(checkpoint, execution)
                document = self._recorded(outcome, execution)
                if processes.is_first:
                    _write(folder, document, outcome)
            if processes.is_first:
                shutil.rmtree(checkpoint, ignore_errors=True)  # also that of a process killed at the very end
            processes.from_first()  # the others wait until it is written
            return Result(folder, document)

    def _is_finished(self, folder: Path) -> bool:
        """Whether the folder holds the result of this job; raises if that of another, with nothing to resume."""
        if not is_finished(folder):
            return False
        document = Result.read(folder).document
        if document.get("key") == self.key:
            return True
        if (folder / CHECKPOINT).is_dir():
            return False  # this job was to replace that run
        old, new = document["config"], self.config.as_dict()
        settings = [f"{name} {old.get(name)} instead of {new[name]}" for name in new if old.get(name) != new[name]]
        difference = ", ".join(settings[:3]) or "other data, method or seed"
        raise ConfigError(f"{folder}: holds a finished run with {difference}; choose another `out`")

    def _recorded(self, outcome: Outcome, execution: Execution) -> dict[str, Any]:
        """The document of `result.json`."""
        import torch

        return {
            "key": self.key,
            "dataset": dataset_record(self.dataset),
            "seed": self.seed,
            "average": "class",
            **outcome.document,
            "threads": torch.get_num_threads(),
            "versions": versions(),
            "command": execution.command,
            **({"label": execution.label} if execution.label else {}),
        }


def _write(folder: Path, document: dict[str, Any], outcome: Outcome) -> None:
    with new_run(folder) as new:
        outcome.write(new)
        files = [path.name for path in new.iterdir()]
        write_text(new / CARD, run_card(document, files))
        write_json(new / RESULT, document)


def dataset_record(dataset: ZeroShotDataset) -> dict[str, Any]:
    """The dataset's entry in a result."""
    return {
        "name": dataset.name,
        "checksum": dataset.checksum,
        "split_version": dataset.provenance.get("split", "own"),
        "split_checksum": dataset.split.checksum,
        "sizes": dataset.sizes,
        "provenance": dict(dataset.provenance),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that can change a result."""
    packages = ("classnorm", "torch", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
