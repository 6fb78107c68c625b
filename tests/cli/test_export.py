"""`classnorm export`: what it writes, what it says, and how it refuses."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classnorm import Scorer

pytestmark = pytest.mark.slow

Command = Callable[..., Any]


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an export, and what the command said."""
    folder = tmp_path_factory.mktemp("onnx")
    words = [sys.executable, "-m", "classnorm", "export", str(trained), "world.onnx"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == "", "the exporter of PyTorch has nothing to say to users"
    return folder, done.stdout


def test_two_files_and_what_to_do_with_them(exported: tuple[Path, str]) -> None:
    folder, said = exported
    assert sorted(path.name for path in folder.iterdir()) == ["world.onnx", "world.prototypes.onnx"]
    lines = said.splitlines()
    assert lines[0].startswith("wrote world.onnx (features → scores, ")
    assert lines[1].startswith("wrote world.prototypes.onnx (descriptors → prototypes, ")
    assert len(lines) == 6


def test_the_hint_works_as_it_is_printed(exported: tuple[Path, str], trained: Path, world: Any) -> None:
    folder, said = exported
    np.save(folder.parent / "features.npy", world.features)
    hint = "\n".join(line.strip() for line in said.splitlines()[3:])
    script = f"""import json, numpy as np, onnxruntime
onnxruntime.set_default_logger_severity(3)
features = np.load("../features.npy")
{hint}
print(json.dumps([names[c] for c in best]))"""
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == Scorer.load(trained, "cpu").predict(world.features)


@pytest.fixture
def quick(exported: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The command without the export itself."""
    files = [exported[0] / name for name in ("world.onnx", "world.prototypes.onnx")]
    monkeypatch.setattr("classnorm.scoring.onnx_export.export_onnx", lambda scorer, path, opset: files)
    return files


def test_json_names_the_files_with_their_checksums(classnorm: Command, trained: Path, quick: list[Path]) -> None:
    outcome = classnorm("export", trained, "any.onnx", "--json")
    document = json.loads(outcome.out)
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in quick]
    assert document["files"] == [{"path": str(file), "sha256": s} for file, s in zip(quick, sums, strict=True)]
    assert (document["method"], document["classes"], document["opset"]) == ("classnorm", 35, 18)
    assert (document["feature_dim"], document["descriptor_dim"]) == (64, 30)


def test_a_model_that_takes_no_new_classes_is_announced(
    classnorm: Command, trained: Path, quick: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("classnorm.scoring.onnx_export.export_onnx", lambda scorer, path, opset: quick[:1])
    assert "no classes can be added to any.onnx" in classnorm("export", trained, "any.onnx").err
    assert classnorm("export", trained, "any.onnx", "--quiet").err == ""


@pytest.mark.parametrize(
    ("model", "file", "message"),
    [
        (None, "world.pt", "world.pt: the name of an ONNX file must end in .onnx"),
        ("nowhere", "world.onnx", "model.json: no such file; give the folder of a finished run"),
        (None, "taken/world.onnx", "cannot write"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(
    classnorm: Command,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str | None,
    file: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file where a folder should be")
    outcome = classnorm("export", model or trained, file)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_missing_package_ends_with_one_line(
    classnorm: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    outcome = classnorm("export", trained, tmp_path / "world.onnx")
    assert outcome.code == 2
    assert outcome.err == "classnorm: error: export needs onnx; pip install 'classnorm[onnx]'\n"
