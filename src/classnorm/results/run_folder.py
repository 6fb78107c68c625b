"""The run folder: everything a report needs to know about a run of a method or a stream, and the key that finds it.

===================== ====================================================================================
`result.json`         scores, settings, seed, checksums, versions, timing; written last, so a folder without
                      it is unfinished
`model.safetensors`   and `model.json`: the scorer
`encoder.json`        the encoder of the features, if known
`history.jsonl`       one line per epoch
`predictions.npz`     per test row: `row` in the dataset, `label`, `top1` after calibration, `best_seen` and
                      `best_unseen` class, and `best_seen_score` and `best_unseen_score` before calibration; per
                      class: `seen` and `class_names`
`examples.npz`        a few test images of unseen classes, if the dataset has images
`README.md`           all of this in words
===================== ====================================================================================

A stream (`"kind": "stream"` in its result) has `result.json`, here with the scores after each task and the task × task
matrix of accuracies, `state.safetensors`, the learner and its strategy after the last task, and `README.md`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from classnorm.errors import ConfigError, DataError, ModelError, OutputError
from classnorm.io.arrays import Array, read_arrays
from classnorm.io.documents import check_shape, parse_json, read_json, read_regular
from classnorm.io.files import digest, make_folder, replacing
from classnorm.metrics import BestScores, Calibration
from classnorm.results.shapes import EncoderRecord, EpochRecord, RunDocument, StreamDocument

RESULT = "result.json"
ENCODER = "encoder.json"
HISTORY = "history.jsonl"
STATE = "state.safetensors"
CARD = "README.md"
CHECKPOINT = "checkpoint"
"""The folder of what an unfinished run has done so far."""
_FILES = (ENCODER, "model.json", "model.safetensors", HISTORY, "predictions.npz", "examples.npz", STATE)
_REPEAT = "repeat the run"


@dataclass(frozen=True)
class Result:
    """A finished run, read from its folder."""

    folder: Path
    document: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Result:
        path = folder / RESULT
        if not path.exists():
            raise DataError(f"{path}: no such file; give the folder of a finished run")
        document = read_json(path, dict[str, Any], _REPEAT)
        is_stream = document.get("kind") == "stream"
        check_shape(document, StreamDocument if is_stream else RunDocument, str(path), _REPEAT)
        (_check_stream if is_stream else _check_run)(document, path)
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
        """One record per epoch; empty if the run has no such file."""
        path = self.folder / HISTORY
        lines = read_regular(path, _REPEAT).splitlines() if path.exists() else []
        return [parse_json(line, EpochRecord, f"{path}, line {n}", _REPEAT) for n, line in enumerate(lines, start=1)]

    def arrays(self, name: str) -> dict[str, Array] | None:
        """The arrays of `predictions` or `examples`; None if the run has no such file."""
        path = self.folder / f"{name}.npz"
        return read_arrays(path) if path.exists() else None

    @cached_property
    def predictions(self) -> dict[str, Array]:
        """The arrays of `predictions.npz`, which every run of a method has."""
        path = self.folder / "predictions.npz"
        arrays = self.arrays("predictions")
        if arrays is None:
            raise DataError(f"{path}: no such file; {_REPEAT}")
        if not _are_predictions(arrays):
            raise DataError(f"{path}: its arrays do not belong together; {_REPEAT}")
        return arrays

    @cached_property
    def examples(self) -> dict[str, Array] | None:
        """`position` [n] in the predictions and `image` [n, height, width(, 3)]; None if the run has none."""
        arrays = self.arrays("examples")
        if arrays is not None and not _are_examples(arrays, len(self.predictions["label"])):
            raise DataError(f"{self.folder / 'examples.npz'}: its arrays do not belong together; {_REPEAT}")
        return arrays

    @cached_property
    def best_scores(self) -> BestScores:
        """The best seen and unseen class of each test row, for the seen–unseen curve."""
        arrays = self.predictions
        return BestScores(
            arrays["best_seen_score"].astype(np.float64),
            arrays["best_unseen_score"].astype(np.float64),
            arrays["best_seen"],
            arrays["best_unseen"],
            arrays["label"],
            arrays["seen"][arrays["label"]],
        )


def is_finished(folder: Path, marker: str = RESULT) -> bool:
    """Whether a task has written its last file to its folder, in most cases the result."""
    return (folder / marker).is_file()


def find_results(paths: Sequence[Path], may_be_empty: bool = False) -> list[Result]:
    """All finished runs in or below the folders, in a stable order, without trials of a validation sequence."""
    results: dict[Path, Result] = {}
    for path in paths:
        if not path.is_dir():
            raise DataError(f"{path}: no such folder")
        folders = sorted(file.parent for file in path.rglob(RESULT))
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
        raise ModelError(
            f"{path}: no such file; the model was trained on features made elsewhere, so pictures need the encoder "
            "that made them: give `encoder`. A model of the embedded glyphs takes features; only classnorm serve "
            "takes pictures for it"
        )
    record: dict[str, Any] = read_json(path, EncoderRecord, "set `encoder`", ModelError)
    return record


def _check_run(document: dict[str, Any], path: Path) -> None:
    try:
        Calibration.parse(document["calibration"])
    except ConfigError as error:
        raise DataError(f"{path}: {error}; {_REPEAT}") from None
    for kind, curves in ((document.get("validation") or {}).get("curves") or {}).items():
        if len({len(curve) for curve in curves.values()}) > 1 or not curves["value"]:
            raise DataError(f"{path}: validation.curves.{kind} must be lists of one length; {_REPEAT}")


def _check_stream(document: dict[str, Any], path: Path) -> None:
    """Raise unless there is a score for each of its tasks."""
    stream, n = document["stream"], len(document["stream"]["tasks"])
    if len(stream["part"]) != 2 or stream["part"][0] is None:
        raise DataError(f"{path}: stream.part must be the first and the last of the tasks; {_REPEAT}")
    if not n or [len(row) for row in [document["per_task"], *document["matrix"]]] != [n] * (n + 1):
        raise DataError(f"{path}: per_task and matrix must have an entry for each of the {n} tasks; {_REPEAT}")
    unknown = [name for name in (document.get("chosen") or {}).get("settings", ()) if name not in document["config"]]
    if unknown:
        raise DataError(f"{path}: chosen.settings names {unknown[0]!r}, which config lacks; {_REPEAT}")


_PREDICTIONS = {"label": "iu", "top1": "iu", "best_seen": "iu", "best_unseen": "iu"}
_SCORES = {"best_seen_score": "f", "best_unseen_score": "f"}


def _are_predictions(arrays: dict[str, Array]) -> bool:
    """Whether the arrays are complete, of one length each, and name only known classes."""
    kinds = _PREDICTIONS | _SCORES | {"seen": "b", "class_names": "US"}
    if any(
        name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind not in kinds[name] for name in kinds
    ):
        return False
    n, n_classes = len(arrays["label"]), len(arrays["class_names"])
    if any(len(arrays[name]) != n for name in _PREDICTIONS | _SCORES) or len(arrays["seen"]) != n_classes:
        return False
    if any(np.isnan(arrays[name]).any() for name in _SCORES):
        return False
    # −1 stands for no class of that side.
    return all(not n or (arrays[name].min() >= -1 and arrays[name].max() < n_classes) for name in _PREDICTIONS) and (
        not n or (arrays["label"].min() >= 0 and arrays["top1"].min() >= 0)
    )


def _are_examples(arrays: dict[str, Array], n: int) -> bool:
    position, image = arrays.get("position"), arrays.get("image")
    if position is None or image is None or position.ndim != 1 or position.dtype.kind not in "iu":
        return False
    is_picture = image.dtype == np.uint8 and (image.ndim == 3 or (image.ndim == 4 and image.shape[3] == 3))
    inside = not len(position) or (position.min() >= 0 and position.max() < n)
    return is_picture and len(image) == len(position) and bool(inside) and 0 not in image.shape[1:3]


def write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write an `.npz` file atomically."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for the files of a run; when they are complete, they replace those of an earlier run.

    The result, which marks a run as finished, goes first and comes last.
    """
    new = make_folder(folder / CHECKPOINT / "new")
    try:
        yield new
        (folder / RESULT).unlink(missing_ok=True)
        for name in _FILES:
            if not (new / name).exists():
                (folder / name).unlink(missing_ok=True)
        for file in sorted(new.iterdir(), key=lambda file: file.name == RESULT):
            file.replace(folder / file.name)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}; choose another location") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


VERSIONS = {"calibration": 1, "validation": 1, "scores": 1, "stream scores": 1}
"""Versions of the rules that decide numbers and are in no config: how a calibration is chosen, what is held out for
validation, how test rows and streams are scored. Raise the version of a rule with a change of it that changes numbers,
and results under the old rule are no longer found. `method NAME` and `strategy NAME` are rules too: how they fit. Rules
that are not listed have version 1."""


def key_of(facts: Sequence[Any], *rules: str) -> str:
    """The SHA-256 of all that determines a result.

    >>> key_of(["data", 0], "calibration") == digest(["data", 0])
    True
    """
    return digest(versioned(facts, *rules))


def versioned(facts: Sequence[Any], *rules: str) -> list[Any]:
    """The facts, and the versions of the rules; the first version of a rule adds nothing."""
    changed = {rule: version for rule in rules if (version := VERSIONS.get(rule, 1)) > 1}
    return [*facts, changed] if changed else [*facts]
