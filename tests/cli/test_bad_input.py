"""Mistakes at the command line: exit code 2, one line on stderr that names the culprit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch

from classnorm.io.files import digest

Arrays = dict[str, Any]
Arguments = list[Any]


@dataclass(frozen=True)
class Kit:
    """What a case makes its mistake with."""

    folder: Path  # inputs
    out: Path  # outputs: must stay empty
    arrays: Arrays
    write_bundle: Callable[..., Path]
    write_gbu: Callable[..., Path]
    world: Any
    trained: Path

    def bundle(self, **changes: Any) -> Path:
        return self.write_bundle(self.folder / "zoo.npz", self.arrays | changes)

    def gbu(self, **changes: Any) -> Path:
        return self.write_gbu(self.folder / "zoo", self.arrays, **changes)

    def model(self, edit: Callable[[Arrays], object] | None = None) -> Path:
        """A copy of the trained model, its document changed."""
        model = Path(shutil.copytree(self.trained, self.folder / "model"))
        if edit is not None:
            document = json.loads((model / "model.json").read_text())
            (model / "model.json").write_text(json.dumps(edit(document)))
        return model

    def features(self, **changes: Any) -> Path:
        np.save(self.folder / "features.npy", changes.get("rows", self.world.features[:5]))
        return self.folder / "features.npy"

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def train(self, data: object, *flags: Any) -> Arguments:
        small = ["--hidden", 8, "--epochs", 1, "--calibration", "none", "--quiet"]
        return ["train", data, "--out", self.out, *small, *flags]

    def predict(self, *flags: Any, model: Path | None = None, features: Path | None = None) -> Arguments:
        return ["predict", model or self.trained, features or self.features(), "--quiet", *flags]


@pytest.fixture
def kit(tmp_path, arrays, write_bundle, write_gbu, world, trained) -> Kit:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    return Kit(tmp_path / "in", tmp_path / "out", arrays, write_bundle, write_gbu, world, trained)


def changed(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[index] = value
    return copy


def cut(path: Path) -> Path:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * 0.6)])
    return path


def flip(path: Path) -> None:
    """Inverts a byte: of weights one near the end, of a document one near its start."""
    raw = bytearray(path.read_bytes())
    raw[20 if path.suffix == ".json" else -100] ^= 0xFF
    path.write_bytes(raw)


def spoiled(folder: Path, name: str, damage: Callable[[Path], object]) -> Path:
    damage(folder / name)
    return folder


def without(content: Arrays, *keys: str) -> Arrays:
    return {name: value for name, value in content.items() if name not in keys}


def signed(document: Arrays) -> Arrays:
    """The document with its own checksum."""
    content = without(document, "document_sha256")
    return content | {"document_sha256": digest(content)}


# The words that the error must hold, and what makes the mistake.
CASES: dict[str, tuple[str, Callable[[Kit], Arguments]]] = {
    # Files of a dataset
    "missing dataset": (r"no/such/place: no such dataset", lambda kit: kit.train(kit.folder / "no/such/place")),
    "missing feature file": (
        r"res101\.mat: no such file; use --features vit",
        lambda kit: kit.train(kit.gbu(features="vit")),
    ),
    "missing variable of a folder": (
        r"res101\.mat: the variable 'labels' is missing",
        lambda kit: kit.train(
            spoiled(kit.gbu(), "res101.mat", lambda path: scipy.io.savemat(path, {"features": np.ones((7, 30))}))
        ),
    ),
    "truncated mat v5": (
        r"res101\.mat: not a readable MATLAB file",
        lambda kit: kit.train(spoiled(kit.gbu(version="v5"), "res101.mat", cut)),
    ),
    "truncated mat v73": (
        r"res101\.mat: not a readable MATLAB file",
        lambda kit: kit.train(spoiled(kit.gbu(version="v7.3"), "res101.mat", cut)),
    ),
    "not a mat file": (
        r"att_splits\.mat: not a readable MATLAB file",
        lambda kit: kit.train(
            spoiled(kit.gbu(), "att_splits.mat", lambda path: path.write_text("<!DOCTYPE html><title>404</title>" * 30))
        ),
    ),
    "npz that is something else": (
        r"zoo\.npz: not a readable \.npz bundle",
        lambda kit: kit.train(kit.file("zoo.npz", "a text")),
    ),
    "synthetic with a negative seed": (
        r"seed is -1; it must lie between 0",
        lambda kit: kit.train("synthetic:seed=-1"),
    ),
    # What a dataset holds: one case; the others are in tests/data
    "nan in the features": (
        r"zoo\.npz: features of row 17 \(0-based\) hold NaN or infinity",
        lambda kit: kit.train(kit.bundle(features=changed(kit.arrays["features"], (17, 3), np.nan))),
    ),
    # Names and settings
    "unknown command": (r"unknown command 'trian'; did you mean 'train'\?", lambda kit: ["trian", kit.bundle()]),
    "unknown data command": (
        r"unknown command 'data chek'; did you mean 'data check'\?",
        lambda kit: ["data", "chek", kit.bundle()],
    ),
    "unknown recipe": (
        r"unknown recipe 'refrence'; did you mean 'reference'\?",
        lambda kit: kit.train(kit.bundle(), "--recipe", "refrence"),
    ),
    "unknown method": (
        r"unknown method 'clasnorm'; did you mean 'classnorm'\?",
        lambda kit: kit.train(kit.bundle(), "--method", "clasnorm"),
    ),
    "seed and seeds": (
        r"--seed and --seeds exclude each other",
        lambda kit: kit.train(kit.bundle(), "--seed", 1, "--seeds", 2),
    ),
    "no seeds": (r"--seeds is 0; it must be at least 1", lambda kit: kit.train(kit.bundle(), "--seeds", 0)),
    "negative seed": (r"--seed is -1; it must lie between 0 and", lambda kit: kit.train(kit.bundle(), "--seed", -1)),
    "calibration that is not understood": (
        r"calibration 'sometimes' is not understood",
        lambda kit: kit.train(kit.bundle(), "--calibration", "sometimes"),
    ),
    "calibration with a negative scale": (
        r"calibration 'scale:-1' is not understood",
        lambda kit: kit.train(kit.bundle(), "--calibration", "scale:-1"),
    ),
    "calibration by an unknown validation": (
        r"calibration 'validation:best' is not understood",
        lambda kit: kit.train(kit.bundle(), "--calibration", "validation:best"),
    ),
    "calibration by validation when evaluating": (
        r"calibration 'validation' is not understood",
        lambda kit: ["evaluate", kit.trained, kit.world.bundle, "--calibration", "validation"],
    ),
    "no epochs": (r"epochs is 0; it must be at least 1", lambda kit: kit.train(kit.bundle(), "--epochs", 0)),
    "learning rate that is no number": (
        r"lr is nan; it must be positive",
        lambda kit: kit.train(kit.bundle(), "--lr", "nan"),
    ),
    "top zero": (r"--top is 0; it must be at least 1", lambda kit: kit.predict("--top", 0)),
    "only an unknown class": (
        r"unknown class 'clas 17'; did you mean 'class 17'\?",
        lambda kit: kit.predict("--only", "clas 17"),
    ),
    "predictions in an unknown format": (
        r"--out .*answers\.xlsx: must end in \.csv or \.json",
        lambda kit: kit.predict("--out", kit.out / "answers.xlsx"),
    ),
    "half precision in a folder": (
        r"--float16 is for bundles",
        lambda kit: ["data", "convert", kit.bundle(), kit.out / "folder", "--float16"],
    ),
    # Models, features and descriptors
    "missing model": (r"nothing/model\.json: no such file", lambda kit: kit.predict(model=kit.folder / "nothing")),
    "model named wrongly inside a run": (
        r"typo/model\.json: no such file",
        lambda kit: kit.predict(model=kit.trained / "typo"),
    ),
    "model of another kind": (
        r"model\.json: not a classnorm model",
        lambda kit: kit.predict(model=kit.model(lambda document: {"model": "resnet", "layers": 101})),
    ),
    "model that is a list": (
        r"model\.json: the document is \[1, 2\], but must be an object",
        lambda kit: kit.predict(model=kit.model(lambda document: [1, 2])),
    ),
    "model of a later version": (
        r"model\.json: model format 99 is not understood; update classnorm",
        lambda kit: kit.predict(model=kit.model(lambda document: document | {"version": 99})),
    ),
    "model whose config does not fit its weights": (
        r"the model files do not fit together",
        lambda kit: kit.predict(
            model=kit.model(lambda document: signed(document | {"config": document["config"] | {"hidden": 32}}))
        ),
    ),
    "model whose description was edited": (
        r"model\.json: is not as it was written",
        lambda kit: kit.predict(model=kit.model(lambda document: document | {"temperature": 3.5})),
    ),
    "model that lacks an entry": (
        r"model\.json: seen is missing; train the model again",
        lambda kit: kit.predict(model=kit.model(lambda document: signed(without(document, "seen")))),
    ),
    "model with a flipped byte": (
        r"model\.safetensors: damaged",
        lambda kit: kit.predict(model=spoiled(kit.model(), "model.safetensors", flip)),
    ),
    "model with truncated weights": (
        r"model\.safetensors: damaged",
        lambda kit: kit.predict(model=spoiled(kit.model(), "model.safetensors", cut)),
    ),
    "model with a truncated description": (
        r"model\.json: not readable",
        lambda kit: ["evaluate", spoiled(kit.model(), "model.json", cut), kit.world.bundle],
    ),
    "model description with a flipped byte": (
        r"model\.json: not readable",
        lambda kit: ["evaluate", spoiled(kit.model(), "model.json", flip), kit.world.bundle],
    ),
    "features of another dimension": (
        r"features\.npy: features have 63 dimensions; the model was trained on 64",
        lambda kit: kit.predict(features=kit.features(rows=np.ones((4, 63)))),
    ),
    "features to predict that are not finite": (
        r"features\.npy: features of row 2 \(0-based\) hold NaN or infinity",
        lambda kit: kit.predict(features=kit.features(rows=changed(np.ones((4, 64)), (2, 0), np.nan))),
    ),
    "descriptors of another dimension": (
        r"new\.csv: the descriptor of class 'okapi' has 3 dimensions; the model was trained on 30",
        lambda kit: kit.predict("--descriptors", kit.file("new.csv", "okapi,1,2,3\n")),
    ),
    "new descriptor that is all zero": (
        r"new\.json: the descriptor of class 'okapi' is all zero",
        lambda kit: kit.predict("--descriptors", kit.file("new.json", json.dumps({"okapi": [0] * 30}))),
    ),
    "new descriptor that is one number": (
        r"new\.json: class 'okapi' must be a list of numbers",
        lambda kit: kit.predict("--descriptors", kit.file("new.json", '{"okapi": 3}')),
    ),
    "descriptors in an unknown format": (
        r"new\.xlsx: descriptors cannot be read from a \.xlsx file",
        lambda kit: kit.predict("--descriptors", kit.file("new.xlsx", "PK")),
    ),
    "evaluation on other features": (
        r"zoo: features have 7 dimensions; the model was trained on 64",
        lambda kit: ["evaluate", kit.trained, kit.bundle()],
    ),
    "evaluation on another dataset": (
        r"zoo: shares no class name with the model",
        lambda kit: ["evaluate", kit.trained, kit.bundle(features=np.ones((30, 64)))],
    ),
    "report of nothing": (
        r"no/such/run: no such folder",
        lambda kit: ["report", kit.folder / "no/such/run", "--out", kit.out],
    ),
    "report of an unfinished run": (r"in: holds no finished run", lambda kit: ["report", kit.folder, "--out", kit.out]),
    # Sizes that are mistakes
    "seed beyond 64 bits": (
        r"--seed is 99999999999999999999; it must lie between 0 and 9,223,372,036,854,775,807",
        lambda kit: kit.train(kit.bundle(), "--seed", "99999999999999999999"),
    ),
    "a billion layers": (
        r"layers is 1000000000; it must be at most 100",
        lambda kit: kit.train(kit.bundle(), "--layers", "1000000000"),
    ),
    "epochs without end": (
        r"epochs is 10000000000000000000; it must be at most 1,000,000",
        lambda kit: kit.train(kit.bundle(), "--epochs", "10000000000000000000"),
    ),
    "negative jobs": (
        r"--jobs is -5; it must be at least 1, or 0 for one per core",
        lambda kit: ["search", kit.bundle(), "--jobs", "-5", "--out", kit.out],
    ),
    "recipe of a huge model": (
        r"recipe\.json: hidden is 10000000; it must be at most 32,768",
        lambda kit: kit.train(
            kit.bundle(),
            "--recipe",
            kit.file(
                "recipe.json",
                json.dumps({"format": "classnorm-recipe", "method": "classnorm", "config": {"hidden": 10**7}}),
            ),
        ),
    ),
    # Outputs
    "runs below a file": (
        r"cannot write .*file\.txt/runs: Not a directory",
        lambda kit: kit.train(kit.bundle(), "--out", kit.file("file.txt", "x") / "runs"),
    ),
    "predictions below a file": (
        r"cannot write .*file\.txt.*: (Not a directory|File exists)",
        lambda kit: kit.predict("--out", kit.file("file.txt", "x") / "answers.csv"),
    ),
    "bundle below a file": (
        r"cannot write .*file\.txt.*: (Not a directory|File exists)",
        lambda kit: ["data", "convert", kit.bundle(), kit.file("file.txt", "x") / "copy.npz"],
    ),
    "folder below a file": (
        r"cannot write .*file\.txt.*: (Not a directory|File exists)",
        lambda kit: ["data", "convert", kit.bundle(), kit.file("file.txt", "x") / "copy"],
    ),
    "report below a file": (
        r"cannot write .*file\.txt.*: (Not a directory|File exists)",
        lambda kit: ["report", kit.trained, "--out", kit.file("file.txt", "x") / "page"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_ends_in_one_line_and_leaves_nothing_behind(refused, kit, name):
    message, make = CASES[name]
    line = refused(*make(kit))
    assert re.search(message, line), line
    assert [path for path in kit.out.rglob("*") if path.is_file()] == []


def test_a_device_that_is_not_there_is_refused(classnorm, kit):
    device = "mps" if torch.cuda.is_available() else "cuda"
    outcome = classnorm(*kit.train(kit.bundle(), "--device", device))
    assert outcome.code == 2
    assert outcome.err == f"classnorm: error: device {device!r} is not available on this machine; use --device auto\n"
    assert list(kit.out.iterdir()) == []


@pytest.mark.parametrize(
    "flags", [["--device", "mps"], ["--calibration", "scale:x"], ["--epochs", 0], ["--recipe", "papre"]]
)
def test_a_mistake_leaves_the_result_of_an_earlier_run_alone(classnorm, kit, flags):
    result = kit.out / "seed-0" / "result.json"
    result.parent.mkdir()
    result.write_text("{}")
    assert classnorm(*kit.train(kit.bundle(), *flags)).code == 2
    assert result.read_text() == "{}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "glyphs", "--no-such-flag", "1"],
        ["train", "glyphs", "--epochs", "many"],
        ["train", "glyphs", "--device", "abacus"],
        ["predict"],
        ["evaluate", "model", "data", "--average", "median"],
        ["data", "check"],
    ],
    ids=" ".join,
)
def test_a_usage_error_exits_with_code_2(classnorm, arguments):
    outcome = classnorm(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err + outcome.out


# The same through a real process


def run_process(arguments: Arguments, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it; with `limit`, no file may grow beyond so many bytes."""
    return subprocess.run(
        [sys.executable, "-m", "classnorm", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unknown command", "bundle below a file", "model with a flipped byte"])
def test_a_process_ends_in_one_line_without_a_traceback(kit, name):
    message, make = CASES[name]
    ended = run_process(make(kit))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"classnorm: error: .*{message}.*\n", ended.stderr)


# A full disk: no file may grow beyond a limit, so that writes fail half-way

FULL = r"classnorm: error: cannot write .*: File too large; .*free some space\n"


@pytest.fixture
def on_a_full_disk(classnorm) -> Iterator[Callable[..., Any]]:
    """Runs the command in this process while no file may grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def run(arguments: Arguments, limit: int) -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            return classnorm(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    yield run
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def weights(kit: Kit) -> Arguments:
    return kit.train(kit.world.bundle, "--hidden", 64, "--checkpoint-every", 0)


def checkpoint(kit: Kit) -> Arguments:
    return kit.train(kit.world.bundle, "--hidden", 64, "--epochs", 2, "--checkpoint-every", 1)


def converted_bundle(kit: Kit) -> Arguments:
    return ["data", "convert", kit.world.bundle, kit.out / "copy.npz", "--quiet"]


def converted_folder(kit: Kit) -> Arguments:
    return ["data", "convert", kit.world.bundle, kit.out / "copy", "--quiet"]


def predictions(kit: Kit) -> Arguments:
    return kit.predict("--top", 35, "--out", kit.out / "answers.csv", features=kit.features(rows=kit.world.features))


@pytest.mark.parametrize("make", [weights, checkpoint, converted_bundle, converted_folder, predictions])
def test_a_full_disk_is_reported_and_leaves_no_piece_of_a_file(on_a_full_disk, kit, make):
    arguments = make(kit)  # writes its inputs
    outcome = on_a_full_disk(arguments, limit=20_000)
    assert outcome.code == 2
    assert re.fullmatch(FULL, outcome.err)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("make", [converted_bundle, converted_folder])
def test_a_process_on_a_full_disk_says_nothing_more_when_it_exits(kit, make):
    ended = run_process(make(kit), limit=20_000)
    assert ended.returncode == 2
    assert re.fullmatch(FULL, ended.stderr)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []


def test_a_disk_that_fills_up_after_the_weights_leaves_nothing(on_a_full_disk, kit):
    tiny = kit.train(kit.world.bundle, "--hidden", 2, "--layers", 2, "--checkpoint-every", 0)
    outcome = on_a_full_disk(tiny, limit=6_800)  # between model.safetensors and predictions.npz
    assert outcome.code == 2
    assert re.fullmatch(FULL, outcome.err)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []
