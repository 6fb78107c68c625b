"""The run folder: everything a report needs to know about a run of a method or a stream.

===================== ====================================================================================
`result.json`         scores, settings, seed, checksums, versions, timing; written last, so a folder without
                      it is unfinished
`model.safetensors`   and `model.json`: the scorer
`encoder.json`        the encoder of the features, if known
`history.jsonl`       one line per epoch
`predictions.npz`     per test row: label, top-1, best seen and best unseen class and their raw scores
`examples.npz`        a few test images of unseen classes, if the dataset has images
===================== ====================================================================================

A stream (`"kind": "stream"` in its result) has only `result.json`, here with the scores after each task and the task ×
task matrix of accuracies, and `state.safetensors`, the learner and its strategy after the last task. In version 0.1 its
result was `continual.json`.
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
    "model_files",
    "read_encoder",
    "result_file",
    "write_arrays",
    "write_result",
]

RESULT = "result.json"
_OLD_STREAM = "continual.json"  # the result of a stream in version 0.1
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
            raise DataError(f"{path}: not a readable result; repeat the run") from error
        return cls(folder, document)

    @property
    def kind(self) -> Literal["run", "stream"]:
        """`run` of a method or `stream` of tasks."""
        return "stream" if self.document.get("kind") == "stream" else "run"

    @property
    def is_trial(self) -> bool:
        """Whether the run only served to choose settings, on the first tasks of a stream."""
        return self.kind == "stream" and self.document["stream"]["part"][1] is not None

    @property
    def scores(self) -> dict[str, float]:
        """Percentages, except for the forgetting of a stream, a fraction. NaN if undefined."""
        return {k: float("nan") if v is None else float(v) for k, v in self.document["scores"].items()}

    @cached_property
    def history(self) -> list[dict[str, float]]:
        lines = (self.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]] | None:
        """The arrays of `predictions` or `examples`; None if the run has no such file."""
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not readable; repeat the run") from error

    @property
    def predictions(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of `predictions.npz`, which every run of a method has."""
        arrays = self.arrays("predictions")
        if arrays is None:
            raise DataError(f"{self.folder / 'predictions.npz'}: no such file; repeat the run")
        return arrays

    @cached_property
    def sides(self) -> SideScores:
        """The best seen and unseen class of each test row, for the seen–unseen curve."""
        arrays = self.predictions
        return SideScores(
            arrays["best_seen_score"].astype(np.float64),
            arrays["best_unseen_score"].astype(np.float64),
            arrays["best_seen"],
            arrays["best_unseen"],
            arrays["label"],
            arrays["seen"][arrays["label"]],
        )


def result_file(folder: Path) -> Path:
    """The result file of a run; it is missing until the run is finished."""
    old = folder / _OLD_STREAM
    return old if old.is_file() and not (folder / RESULT).is_file() else folder / RESULT


def find_results(paths: Sequence[Path], may_be_empty: bool = False) -> list[Result]:
    """All finished runs in or below the folders, in a stable order, without trials of a validation sequence."""
    results: dict[Path, Result] = {}
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder")
        folders = sorted({file.parent for name in (RESULT, _OLD_STREAM) for file in path.rglob(name)})
        reported = [result for result in map(Result.read, folders) if not result.is_trial]
        if not reported and not may_be_empty:
            trials = " but trials of a validation sequence" if folders else ""
            raise DataError(f"{path}: holds no finished run{trials}; choose a folder with a {RESULT}")
        results |= {result.folder: result for result in reported}
    return list(results.values())


def model_files(model: Path) -> tuple[Path, Path]:
    """The JSON and the tensors of a model, which must exist; `model` is its folder or either file."""
    names = ("model.json", "model.safetensors")
    folder = model.parent if model.name in names and not model.is_dir() else model
    for path in (folder / name for name in names):
        if not path.is_file():
            below = min((file.parent for file in folder.glob("*/model.json")), default=None)
            hint = f"did you mean {below}?" if below else "give the folder of a finished run"
            raise ModelError(f"{path}: no such file; {hint}")
    return folder / names[0], folder / names[1]


def encoder_file(model: Path) -> Path:
    """The path of the encoder record; `model` is a run folder or a file in it."""
    return (model if model.is_dir() else model.parent) / ENCODER


def read_encoder(model: Path) -> dict[str, Any]:
    """Read the record of the encoder whose features the model was trained on."""
    path = encoder_file(model)
    if not path.is_file():
        raise ModelError(f"{path}: no such file; a model of bare features knows no encoder; give `encoder`")
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        record["name"], record["weights"], record["sha256"], record["preprocessing"]["crop"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not a readable encoder record; set `encoder`") from error
    return record


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write an `.npz` file atomically."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_result(folder: Path, document: dict[str, Any], history: list[dict[str, float]]) -> Result:
    """Write the history and then the result, which marks the run as finished."""
    write_text(folder / "history.jsonl", "".join(json.dumps(record) + "\n" for record in history))
    write_json(folder / RESULT, document)
    return Result(folder, document)
