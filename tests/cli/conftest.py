"""A small model, trained once through the command line, and a way to run the command and look at what it did."""

from __future__ import annotations

import contextlib
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from classnorm.cli import main
from classnorm.data import SyntheticConfig, ZeroShotDataset, save_bundle, synthetic
from classnorm.preparation import extraction


@dataclass(frozen=True)
class World:
    """A dataset of 35 classes to train on, and 5 more classes that no file of the training mentions."""

    bundle: Path
    data: ZeroShotDataset
    features: np.ndarray  # rows of the 5 new classes
    truth: list[str]
    descriptors: dict[str, np.ndarray]  # of the 5 new classes


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
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
def trained(world, tmp_path_factory) -> Path:
    """The run folder of a model trained on `world`."""
    out = tmp_path_factory.mktemp("runs")
    small = ["--hidden", "64", "--epochs", "20", "--calibration", "none", "--quiet"]
    with contextlib.redirect_stdout(io.StringIO()):
        main(["train", str(world.bundle), *small, "--out", str(out)])
    return out / "seed-0"


class BagOfWords:
    """In the place of a text encoder: sentences with the same words are alike."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[list[str]] = []

    def record(self) -> dict[str, str]:
        return {"name": self.name, "weights": "none", "sha256": ""}

    def encode(self, sentences: list[str]) -> np.ndarray:
        self.calls.append(list(sentences))
        vectors = np.zeros((len(sentences), 64), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            for word in sentence.casefold().split():
                vectors[row, zlib.crc32(word.encode()) % 64] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def bag_of_words(monkeypatch) -> BagOfWords:
    """Encodes all text from now on, and remembers what it was asked."""
    encoder = BagOfWords("words")
    monkeypatch.setattr("classnorm.preparation.describing.load_text_encoder", lambda name: encoder)
    return encoder


SHAPES = ("circle", "square", "bar")
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (40, 60, 220), "yellow": (230, 220, 30)}


def draw(path: Path, colour: str, shape: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    picture = Image.new("RGB", (40, 36), tuple(generator.integers(100, 150, 3).tolist()))
    x, y = generator.integers(2, 14, 2).tolist()
    pen = ImageDraw.Draw(picture)
    box = (x, y, x + 6, y + 21) if shape == "bar" else (x, y, x + 18, y + 18)
    (pen.ellipse if shape == "circle" else pen.rectangle)(box, fill=COLOURS[colour])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


@pytest.fixture
def shapes(tmp_path) -> Path:
    """Ten folders of ten drawings; of blue squares and yellow circles there are none."""
    for c, colour in enumerate(COLOURS):
        for s, shape in enumerate(SHAPES):
            if (colour, shape) not in (("blue", "square"), ("yellow", "circle")):
                for i in range(10):
                    draw(tmp_path / "shapes" / f"{colour}_{shape}" / f"{i}.png", colour, shape, 100 * c + 10 * s + i)
    return tmp_path / "shapes"


@pytest.fixture
def said(tmp_path) -> Path:
    """A description of all twelve shapes."""
    lines = [f"{c.title()} {s},a {s} painted in {c},{c} {s}" for c in COLOURS for s in SHAPES]
    (tmp_path / "said.csv").write_text("\n".join(["name,first,second", *lines]))
    return tmp_path / "said.csv"


@pytest.fixture
def train_on_shapes(classnorm, shapes, bag_of_words, monkeypatch, tmp_path):
    """Trains on the drawings, described in a file, and returns the model; no report, which takes most of the time."""
    monkeypatch.setattr("classnorm.cli.train.write_report", lambda *_: [])
    small = ("--encoder", "convnet", "--size", 32, "--device", "cpu", "--method", "kernel", "--calibration", "none")

    def train(descriptions, *flags):
        flags = ["--descriptions", descriptions, *flags, "--out", tmp_path / "out", "--quiet"]
        outcome = classnorm("train", "--images", shapes, *small, *flags)
        assert outcome.code == 0, outcome.err
        return tmp_path / "out" / "seed-0"

    return train


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """How many images each batch had that was encoded."""
    counts: list[int] = []
    encode = extraction._encode

    def counting(encoder: Any, pictures: list[Any], device: Any) -> Any:
        counts.append(len(pictures))
        return encode(encoder, pictures, device)

    monkeypatch.setattr(extraction, "_encode", counting)
    return counts


@pytest.fixture
def refused(classnorm):
    """Runs a command that must end with code 2 and one line, and returns that line."""

    def run(*arguments) -> str:
        outcome = classnorm(*arguments)
        assert (outcome.code, outcome.out) == (2, "")
        [line] = outcome.err.splitlines()
        assert line.startswith("classnorm: error: ")
        return line

    return run
