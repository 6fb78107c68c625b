"""SUN's stream of 15 tasks, from features of the GBU layout and from a folder of images."""

import json
import shutil

import numpy as np
import pytest
import scipy.io
from PIL import Image

from classnorm.continual import TaskStream
from classnorm.data import load
from classnorm.data.images import files_below
from classnorm.errors import DataError

CLASSES, ROWS = 717, 2
MADE_IN = "/BS/work/data/SUN/images"  # where the features of the benchmark were made


@pytest.fixture(scope="module")
def sun(tmp_path_factory):
    """A GBU folder with SUN's number of classes and its tree of images by letter, class and place."""
    folder = tmp_path_factory.mktemp("SUN")
    generator = np.random.default_rng(0)
    names = [f"{chr(97 + c % 26)}_scene{c}{'_outdoor' * (c % 7 == 0)}" for c in range(CLASSES)]
    labels = np.repeat(np.arange(CLASSES), ROWS)
    attributes = generator.random((CLASSES, 102))
    rows = np.arange(len(labels))
    unseen = labels >= 645
    last = rows % ROWS == ROWS - 1
    splits = {
        "att": (attributes / np.linalg.norm(attributes, axis=1, keepdims=True)).T,
        "original_att": attributes.T,
        "allclasses_names": np.array(names, dtype=object)[:, None],
        "trainval_loc": rows[~unseen & ~last][:, None] + 1.0,
        "test_seen_loc": rows[~unseen & last][:, None] + 1.0,
        "test_unseen_loc": rows[unseen][:, None] + 1.0,
    }
    places = [name.removesuffix("_outdoor") + "/outdoor" * name.endswith("_outdoor") for name in names]
    files = [f"{MADE_IN}/{places[c][0]}/{places[c]}/sun_{row:05d}.jpg" for row, c in enumerate(labels)]
    features = np.maximum(attributes[labels] @ generator.standard_normal((102, 8)), 0).astype(np.float32)
    table = {
        "features": features.T,
        "labels": labels[:, None] + 1.0,
        "image_files": np.array(files, dtype=object)[:, None],
    }
    scipy.io.savemat(folder / "att_splits.mat", splits)
    scipy.io.savemat(folder / "res101.mat", table)
    return folder


@pytest.fixture(autouse=True)
def _is_sun(monkeypatch):
    """SUN is recognised by its class names, which these files do not have."""
    for module in ("dataset", "xlsa17"):
        monkeypatch.setattr(f"classnorm.data.{module}.recognise", lambda *_: "SUN")


@pytest.fixture
def images(sun, tmp_path):
    """The image files of the folder, tiny, in a copy of the tree."""
    for row, file in enumerate(load(sun).image_files):
        path = tmp_path / "SUN397" / file.removeprefix(MADE_IN + "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (row % 256, row // 256, 99)).save(path, quality=90)
    return tmp_path / "SUN397"


def test_the_stream_of_sun_has_15_tasks_and_half_of_the_rows_to_learn_from(sun):
    stream = TaskStream.make(load(sun))
    assert [len(task) for task in stream.tasks] == [47] * 3 + [48] * 12
    assert [len(stream.train(t)) for t in range(15)] == [47] * 3 + [48] * 12
    assert stream.dataset.d_a == 102 and stream.dataset.provenance["features"] == "res101"


def test_the_stream_of_sun_is_learnt_from_features(classnorm, sun, tmp_path):
    arguments = ["--strategy", "analytic"]
    document = json.loads(classnorm("continual", sun, *arguments, "--quiet", "--json", "--out", tmp_path).out)
    assert document["runs"][0]["stream"]["tasks"] == [47] * 3 + [48] * 12
    assert document["dataset"]["name"] == "SUN"
    assert document["scores"]["mJA"] > 5  # chance is 0.2 %


@pytest.mark.slow
def test_the_stream_of_sun_is_learnt_from_a_folder_of_images(classnorm, sun, images, tmp_path):
    arguments = ["--images", images, "--encoder", "convnet", "--size", "16", "--epochs", "1", "--quiet", "--json"]
    document = json.loads(classnorm("continual", sun, *arguments, "--out", tmp_path / "out").out)
    [run] = document["runs"]
    assert run["stream"]["tasks"] == [47] * 3 + [48] * 12
    assert json.loads((tmp_path / "out" / "seed-0" / "result.json").read_text())["encoder"] == "convnet"
    assert run["rows_passed"] == CLASSES


def test_images_are_found_below_a_folder_whatever_came_before_their_names(sun, images):
    files = load(sun).image_files
    expected = [images / file.removeprefix(MADE_IN + "/") for file in files]
    assert files_below(images, files) == expected
    shutil.copytree(images, images.parent / "copy" / "images")
    found = files_below(images.parent / "copy", files)
    assert found[0] == images.parent / "copy" / "images" / files[0].removeprefix(MADE_IN + "/")
    assert files_below(images, [file.replace("/", "\\") for file in files]) == expected


def test_a_folder_without_the_images_is_named(sun, tmp_path):
    with pytest.raises(DataError, match=r"no outdoor/sun_00000.jpg there"):
        files_below(tmp_path, load(sun).image_files)
