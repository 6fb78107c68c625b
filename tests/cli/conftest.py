"""A small model, trained once through the command line, and a way to run the command and look at what it did."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from classnorm.cli import main
from classnorm.data import SyntheticConfig, ZeroShotDataset, save_bundle, synthetic


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


@dataclass(frozen=True)
class World:
    """A dataset of 35 classes to train on, and 5 more classes that no file of the training mentions."""

    bundle: Path
    data: ZeroShotDataset
    features: np.ndarray  # rows of the 5 new classes
    truth: list[str]
    descriptors: dict[str, np.ndarray]  # of the 5 new classes


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    whole = synthetic(
        SyntheticConfig(classes=40, unseen=10, rows=2000, features=64, attributes=30, noise=0.3),
    )
    new = np.flatnonzero(~whole.seen)[:5]
    known = np.setdiff1d(np.arange(40), new)
    rows = np.flatnonzero(np.isin(whole.labels, known))
    data = ZeroShotDataset.from_arrays(
        whole.features[rows],
        np.searchsorted(known, whole.labels[rows]),
        whole.descriptors[known],
        [whole.class_names[c] for c in known],
        train=np.flatnonzero(np.isin(rows, whole.split.train)),
        test_seen=np.flatnonzero(np.isin(rows, whole.split.test_seen)),
        test_unseen=np.flatnonzero(np.isin(rows, whole.split.test_unseen)),
        name="world",
    )
    bundle = tmp_path_factory.mktemp("world") / "world.npz"
    save_bundle(data, bundle)
    is_new = np.isin(whole.labels, new)
    return World(
        bundle,
        data,
        whole.features[is_new],
        [whole.class_names[c] for c in whole.labels[is_new]],
        {whole.class_names[c]: whole.descriptors[c] for c in new},
    )


@pytest.fixture(scope="session")
def trained(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a model trained on `world`."""
    out = tmp_path_factory.mktemp("runs")
    small = ["--hidden", "64", "--epochs", "20", "--calibration", "none", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()):
        main(["train", str(world.bundle), *small, "--out", str(out)])
    return out / "seed-0"
