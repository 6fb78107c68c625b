"""Shared fixtures: real data, a small valid dataset and its files, and runs written without training."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import settings
from PIL import Image

from classnorm.cli import main
from classnorm.data import SyntheticConfig, save_bundle, synthetic
from classnorm.io.files import digest, write_json
from classnorm.methods import METHODS
from classnorm.metrics import Calibration, best_seen_and_unseen, gzsl_scores
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.progress import Display, OnProgress, Progress, shown_on, stage
from classnorm.results.run_folder import Result, write_arrays
from classnorm.scoring import fit

# Property tests draw the same examples on every run, and a busy machine does not fail them.
settings.register_profile("classnorm", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("classnorm")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # A background job of a shell ignores Ctrl-C, and so would the commands under test, which inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

Arrays = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[1]
_MATLAB_HEADER = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2018 HDF5 schema 1.00 ."


@pytest.fixture
def watching() -> Callable[..., AbstractContextManager[list[str]]]:
    """`with watching(on_progress) as stages:` collects names of stages; `on_progress(stage, step)` gets each step."""

    @contextmanager
    def watch(on_progress: Callable[[str, Progress], None] = lambda name, step: None) -> Iterator[list[str]]:
        stages: list[str] = []

        class Watcher(Display):
            def stage(self, name: str) -> AbstractContextManager[OnProgress]:
                stages.append(name)
                return nullcontext(partial(on_progress, name))

        with shown_on(Watcher()), stage("work"):  # for what is reported outside of any stage
            stages.clear()
            yield stages

    return watch


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the workers have: more threads may add in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data: `CLASSNORM_DATA`, or `../shared/data`."""
    folder = Path(os.environ.get("CLASSNORM_DATA", _ROOT.parent / "shared" / "data"))
    if not (folder / "xlsa17" / "data" / "CUB" / "att_splits.mat").is_file():
        pytest.skip("skipped: real data not found")
    return folder


@pytest.fixture(scope="session")
def rewrite_model() -> Callable[[Path, Callable[[dict[str, Any]], Any]], None]:
    """Changes model.json as somebody would who knows its format, so that no checksum helps."""

    def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        document = json.loads((folder / "model.json").read_text())
        del document["document_sha256"]
        change(document)
        document["document_sha256"] = digest(document)
        (folder / "model.json").write_text(json.dumps(document))

    return rewrite


@pytest.fixture
def arrays() -> Arrays:
    """A valid bundle: 5 classes (2 unseen) of 6 rows; rows of one class are next to each other, the last is a test."""
    generator = np.random.default_rng(5)
    labels = np.repeat(np.arange(5), 6)
    rows = np.arange(30)
    return {
        "features": generator.random((30, 7), dtype=np.float32),
        "labels": labels,
        "descriptors": generator.uniform(0.5, 2.0, (5, 4)).astype(np.float32),
        "class_names": np.array(["ant", "bee", "cow", "okapi", "zebra"]),
        "train_idx": rows[(labels < 3) & (rows % 6 < 4)],
        "test_seen_idx": rows[(labels < 3) & (rows % 6 >= 4)],
        "test_unseen_idx": rows[labels >= 3],
    }


@pytest.fixture
def write_image() -> Callable[..., Path]:
    """A picture of smooth noise, so that JPEG keeps most of it; the seed tells one from another."""

    def write(path: Path, seed: int = 0, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path)
        return path

    return write


@pytest.fixture(scope="session")
def write_bundle() -> Callable[[Path, Arrays], Path]:
    def write(path: Path, content: Arrays) -> Path:
        np.savez(path, **content)
        return path

    return write


@pytest.fixture(scope="session")
def gbu_variables() -> Callable[[Arrays], tuple[Arrays, Arrays]]:
    """The variables of `att_splits.mat` and of the feature file, as MATLAB shows them: [dimension, n], 1-based."""

    def variables(content: Arrays) -> tuple[Arrays, Arrays]:
        table = np.asarray(content["descriptors"], dtype=np.float64)
        splits = {
            "att": (table / np.sqrt((table**2).sum(axis=1, keepdims=True))).T,
            "original_att": table.T,
            "allclasses_names": list(map(str, content["class_names"])),
            "trainval_loc": content["train_idx"][:, None] + 1.0,
            "test_seen_loc": content["test_seen_idx"][:, None] + 1.0,
            "test_unseen_loc": content["test_unseen_idx"][:, None] + 1.0,
        }
        return splits, {"features": content["features"].T, "labels": content["labels"][:, None] + 1.0}

    return variables


@pytest.fixture(scope="session")
def write_mat() -> Callable[..., None]:
    """Writes variables (lists of strings are cell arrays) as MATLAB v5 or, the way MATLAB itself does, as v7.3."""

    def write(path: Path, variables: Arrays, version: str = "v5") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if version == "v5":
            scipy.io.savemat(path, {key: _cells(value) for key, value in variables.items()})
        else:
            _write_v73(path, variables)

    return write


def _cells(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    cells = np.empty((len(value), 1), dtype=object)
    cells[:, 0] = value
    return cells


def _write_v73(path: Path, variables: Arrays) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, value in variables.items():
            if isinstance(value, list):
                _write_cell_array(file, key, value)
            elif value.size == 0:  # MATLAB stores the size of an empty matrix instead of its values
                file[key] = np.array(value.shape, dtype=np.uint64)
                file[key].attrs["MATLAB_empty"] = np.uint8(1)
            else:
                file[key] = value.T  # column-major: the transpose is what lies in the file
    with path.open("r+b") as file:
        file.write(_MATLAB_HEADER.ljust(124) + b"\x00\x02IM")


def _write_cell_array(file: h5py.File, key: str, strings: list[str]) -> None:
    references = file.create_dataset(key, (1, len(strings)), dtype=h5py.ref_dtype)
    references.attrs["MATLAB_class"] = np.bytes_("cell")
    for i, text in enumerate(strings):
        codes = file.create_dataset(f"#refs#/{key}{i}", data=np.array([[ord(c)] for c in text], dtype=np.uint16))
        codes.attrs["MATLAB_class"] = np.bytes_("char")
        references[0, i] = codes.ref


@pytest.fixture
def write_gbu(
    gbu_variables: Callable[[Arrays], tuple[Arrays, Arrays]], write_mat: Callable[..., None]
) -> Callable[..., Path]:
    """Writes a GBU folder of a bundle's arrays; further variables replace or join those of either file."""

    def write(
        folder: Path,
        content: Arrays,
        *,
        version: str = "v5",
        features: str = "res101",
        in_splits: Arrays | None = None,
        in_features: Arrays | None = None,
    ) -> Path:
        splits, table = gbu_variables(content)
        write_mat(folder / "att_splits.mat", splits | (in_splits or {}), version)
        write_mat(folder / f"{features}.mat", table | (in_features or {}), version)
        return folder

    return write


SMALL = {"hidden": 64, "epochs": 8, "lr": 3e-3}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def classnorm(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command in this process."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def small_dataset():
    return synthetic(SyntheticConfig(classes=40, unseen=10, rows=2000, features=64, attributes=30, noise=0.7))


@pytest.fixture(scope="session")
def seen_only(small_dataset):
    """The rows and classes of `small_dataset` that are seen."""
    return small_dataset.restricted(np.flatnonzero(small_dataset.seen))


@pytest.fixture(scope="session")
def tiny_data():
    """14 classes of 30 rows, 4 of them unseen: enough for whatever does not depend on what is learnt."""
    names = ("red", "blue", "striped", "spotted", "large", "small", "winged", "hoofed")
    return replace(
        synthetic(SyntheticConfig(classes=14, unseen=4, rows=420, features=16, attributes=8)), attribute_names=names
    )


@pytest.fixture(scope="session")
def easy_data():
    """24 classes with little noise, 6 of them unseen: what is learnt shows after a few epochs."""
    return synthetic(SyntheticConfig(classes=24, unseen=6, rows=480, features=16, attributes=12, noise=0.5))


@pytest.fixture(scope="session")
def tiny_bundle(tiny_data, tmp_path_factory):
    """`tiny_data` as a file."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.npz"
    save_bundle(tiny_data, path)
    return path


# ConSE combines few classes: the standardized descriptors of all of them cancel out, and rounding error is left.
FAST = {
    "epochs": 3,
    "hidden": 32,
    "relation_hidden": 32,
    "batch_size": 64,
    "ways": 5,
    "tasks": 10,
    "critic_steps": 2,
    "steps": 4,
    "synthesized": 20,
    "classifier_epochs": 3,
    "top": 3,
}


@pytest.fixture(scope="session")
def fast_settings():
    """Settings of a method that make training short, without calibration; further ones join them."""

    def settings(method, **changes):
        names = {field.name for field in dataclasses.fields(METHODS[method].config)}
        return {"calibration": "none"} | {name: value for name, value in FAST.items() if name in names} | changes

    return settings


@pytest.fixture(scope="session")
def tiny_scorer(tiny_data, fast_settings):
    """The scorer of a method on the tiny dataset, trained once."""
    return functools.cache(lambda method: fit(tiny_data, method, **fast_settings(method)))


@pytest.fixture(scope="session")
def accuracies():
    """The accuracies of a scorer on the test rows of a dataset."""

    def accuracies(scorer, dataset):
        rows = dataset.test_rows
        return gzsl_scores(scorer.scores(dataset.features[rows]), dataset.labels[rows], dataset.seen)

    return accuracies


@pytest.fixture
def small():
    return dict(SMALL)


@pytest.fixture(scope="session")
def write_run():
    """Writes a run of random logits; the higher the skill, the better they are."""

    def write(
        folder,
        recipe="reference",
        seed=0,
        *,
        dataset="toy",
        skill=2.0,
        classes=24,
        calibration="none",
        features="hog",
        validated=False,
        **changes,
    ):
        generator = np.random.default_rng([seed, classes, round(100 * skill)])
        seen = np.arange(classes) % 3 > 0
        labels = np.repeat(np.arange(classes), 5)
        logits = 5 + generator.normal(size=(len(labels), classes)) + 0.4 * seen
        logits[np.arange(len(labels)), labels] += skill
        chosen = Calibration.parse(calibration)
        calibrated = chosen.apply(logits, seen)
        best_scores = best_seen_and_unseen(logits, labels, seen)
        write_arrays(
            folder / "predictions.npz",
            {
                "row": np.arange(len(labels)),
                "label": labels.astype(np.int32),
                "top1": calibrated.argmax(axis=1).astype(np.int32),
                "best_seen": best_scores.seen_class.astype(np.int32),
                "best_unseen": best_scores.unseen_class.astype(np.int32),
                "best_seen_score": best_scores.best_seen.astype(np.float32),
                "best_unseen_score": best_scores.best_unseen.astype(np.float32),
                "seen": seen,
                "class_names": np.array([f"class_{i} & <co>" for i in range(classes)]),
            },
        )
        validation = {"harmonic": 50.0, "splits": 1, "kind": "matched"} if validated else None
        if validation is not None:
            validation["curves"] = {
                kind: calibration_curves([best_scores], kind, calibration_values([best_scores], kind, chosen)).rounded()
                for kind in ("scale", "bias")
            }
        sizes = {"seen_classes": int(seen.sum()), "unseen_classes": int((~seen).sum()), "train_rows": 10}
        sizes |= {"test_seen_rows": 1, "test_unseen_rows": 1, "feature_dim": 7}
        document = {
            "dataset": {
                "name": dataset,
                "checksum": f"{dataset} {features}",
                "split_checksum": "5p117",
                "sizes": sizes,
                "provenance": {"features": features, "split": "toy split v2"},
            },
            "method": "classnorm",
            "recipe": recipe,
            "config": {"hidden": 8},
            "seed": seed,
            "scores": dict(gzsl_scores(calibrated, labels, seen)),
            "calibration": calibration,
            "validation": validation,
            "train_seconds": 1.5,
            "fit_seconds": 2.5,
            "device": "cpu",
            "threads": 1,
            "versions": {"python": "3.11", "torch": "2.99"},
            "command": f"classnorm train {dataset} --recipe {recipe}",
        } | changes
        history = [{"epoch": epoch, "loss": 3.0 / epoch} for epoch in (1, 2, 3)]
        (folder / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in history))
        write_json(folder / "result.json", document)
        return Result(folder, document)

    return write


@pytest.fixture(scope="session")
def write_stream():
    """Writes a stream whose scores after each task, and on each task, are given."""

    def write(folder, matrix, *, seed=0, dataset="toy", strategy="ewc", class_norm=True, part=(0, None), **changes):
        tasks = len(matrix)
        known = {name: [10.0 * (t + 1) + seed for t in range(tasks)] for name in ("seen", "joint")}
        open_ = {name: [5.0 * (t + 1) + seed for t in range(tasks - 1)] + [None] for name in ("unseen", "harmonic")}
        steps = known | open_ | {"ausuc": open_["unseen"], "forgetting": [None, *(0.1 * t for t in range(1, tasks))]}
        document = {
            "kind": "stream",
            "dataset": {
                "name": dataset,
                "checksum": f"{dataset} hog",
                "split_checksum": "5p117",
                "sizes": {"classes": 2 * tasks},
                "provenance": {"features": "hog"},
            },
            "stream": {
                "tasks": [2] * tasks,
                "checksum": f"order {seed}",
                "image_split": "stratified",
                "part": list(part),
            },
            "encoder": None,
            "image_size": None,
            "strategy": strategy,
            "config": {"class_norm": class_norm, "lr": 0.1},
            "chosen": None,
            "seed": seed,
            "scores": {"mSA": 40.0, "mUA": 20.0, "mH": 25.0, "mAUC": 15.0, "mJA": 30.0, "forgetting": 0.1},
            "per_task": [dict(zip(steps, values, strict=True)) for values in zip(*steps.values(), strict=True)],
            "matrix": matrix,
            "train_seconds": 1.5,
            "device": "cpu",
            "threads": 1,
            "versions": {"python": "3.11", "torch": "2.99"},
            "command": f"classnorm continual {dataset} --strategy {strategy}",
        } | changes
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(document))
        return document

    return write
