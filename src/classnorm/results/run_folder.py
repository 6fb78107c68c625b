"""The run folder: all that a report ever needs of a run, whether of a method or of a stream.

===================== ====================================================================================
`result.json`         scores, settings, seed, checksums, versions, timing; written last, so a folder without
                      it is unfinished
`model.safetensors`   and `model.json`: the scorer
`encoder.json`        what made the features, where the dataset says
`history.jsonl`       one line per epoch
`predictions.npz`     per test row: label, top-1, best seen and best unseen class and their raw scores
`examples.npz`        a few test images of unseen classes, where the dataset has images
===================== ====================================================================================

A stream (`"kind": "stream"` in its result) has two files only. Version 0.1 called the first `continual.json`.

===================== ====================================================================================
`result.json`         as above, with the scores after each task and the accuracy on each task after each
`state.safetensors`   the learner and its strategy after the last task
===================== ====================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError, ModelError
from classnorm.files import replacing, write_json, write_text
from classnorm.metrics import SideScores

__all__ = [
    "ENCODER",
    "RESULT",
    "Result",
    "encoder_file",
    "find_results",
    "read_encoder",
    "result_file",
    "write_arrays",
    "write_result",
]

RESULT = "result.json"
_OLD_STREAM = "continual.json"  # what version 0.1 called the result of a stream
ENCODER = "encoder.json"


@dataclass(frozen=True)
class Result:
    """A finished run, read from its folder."""

    folder: Path
    document: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Result:
        path = result_file(folder)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            document["scores"], document["dataset"]["checksum"]
            if path.name == _OLD_STREAM:
                document["kind"] = "stream"
            if document.get("kind") == "stream":
                document["stream"]["part"], document["per_task"], document["matrix"]
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; give the folder of a finished run") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a readable result; run it again") from error
        return cls(folder, document)

    @property
    def kind(self) -> Literal["run", "stream"]:
        """A run of a method, or a stream of tasks."""
        return "stream" if self.document.get("kind") == "stream" else "run"

    @property
    def is_trial(self) -> bool:
        """Whether the run only chose settings: it ends with the first tasks of a stream."""
        return self.kind == "stream" and self.document["stream"]["part"][1] is not None

    @property
    def scores(self) -> dict[str, float]:
        """Percentages, but for the forgetting of a stream, a fraction; NaN where a score is undefined."""
        return {k: float("nan") if v is None else float(v) for k, v in self.document["scores"].items()}

    @cached_property
    def history(self) -> list[dict[str, float]]:
        lines = (self.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]] | None:
        """The arrays of `predictions` or `examples`, None if the run has none."""
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not readable; run it again") from error

    @cached_property
    def sides(self) -> SideScores:
        """What the seen–unseen curve needs, from `predictions.npz`."""
        stored = self.arrays("predictions")
        if stored is None:
            raise DataError(f"{self.folder / 'predictions.npz'}: no such file; run it again")
        labels, seen = stored["label"], stored["seen"]
        return SideScores(
            stored["best_seen_score"].astype(np.float64),
            stored["best_unseen_score"].astype(np.float64),
            stored["best_seen"],
            stored["best_unseen"],
            labels,
            seen[labels],
        )


def result_file(folder: Path) -> Path:
    """The file with the result of a run; a folder without it is unfinished."""
    old = folder / _OLD_STREAM
    return old if old.is_file() and not (folder / RESULT).is_file() else folder / RESULT


def find_results(paths: Sequence[Path], may_be_empty: bool = False) -> list[Result]:
    """All finished runs in or below the given folders, in a stable order, without trials of a validation."""
    results: dict[Path, Result] = {}
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder")
        folders = sorted({file.parent for name in (RESULT, _OLD_STREAM) for file in path.rglob(name)})
        reported = [result for result in map(Result.read, folders) if not result.is_trial]
        if not reported and not may_be_empty:
            trials = " but trials of a validation sequence" if folders else ""
            raise DataError(f"{path}: holds no finished run{trials}; look for {RESULT}")
        results |= {result.folder: result for result in reported}
    return list(results.values())


def encoder_file(model: Path) -> Path:
    """Where a run folder, or that of a file in it, says what made its features, if it does."""
    return (model if model.is_dir() else model.parent) / ENCODER


def read_encoder(model: Path) -> dict[str, Any]:
    """What made the features that the model of this run folder, or file in it, was trained on."""
    path = encoder_file(model)
    if not path.is_file():
        raise ModelError(
            f"{path}: no such file: the model was trained on features and knows no encoder; give `encoder`"
        )
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["name"], record["weights"], record["sha256"], record["preprocessing"]["crop"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not a readable record of an encoder; give `encoder`") from error
    return record


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write an `.npz` file, whole or not at all."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_result(folder: Path, document: dict[str, Any], history: list[dict[str, float]]) -> Result:
    """Write the history and, last, the result."""
    write_text(folder / "history.jsonl", "".join(json.dumps(record) + "\n" for record in history))
    write_json(folder / RESULT, document)
    return Result(folder, document)
