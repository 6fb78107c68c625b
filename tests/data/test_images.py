"""Where pictures and their labels are found, and how they are read."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from classnorm.data.decoding import image_signature, read_images
from classnorm.data.image_table import ImageTable
from classnorm.data.images import find_images, read_image_split
from classnorm.errors import DataError


@pytest.fixture
def zoo(tmp_path, write_image) -> Path:
    root = tmp_path / "zoo"
    for seed, file in enumerate(("okapi/b.JPG", "okapi/deep/a.png", "ant/1.jpeg", "ant/2.webp")):
        write_image(root / file, seed=seed)
    (root / "quagga").mkdir()  # extinct: a class without a single picture
    (root / "okapi" / "notes.txt").write_text("not a picture")
    (root / ".cache").mkdir()
    write_image(root / "ant" / "._1.jpeg")
    return root


def rows(table: ImageTable) -> list[tuple[str, str]]:
    return [(file, table.class_names[label]) for file, label in zip(table.files, table.labels, strict=True)]


def test_a_folder_per_class_gives_sorted_classes_and_files_and_keeps_empty_classes(zoo):
    table = find_images(zoo)
    assert table.class_names == ("ant", "okapi", "quagga")
    expected = ["ant/1.jpeg", "ant/2.webp", "okapi/b.JPG", "okapi/deep/a.png"]
    assert rows(table) == [(file, file.split("/")[0]) for file in expected]
    assert (table.name, table.is_train, table.descriptors, table.split) == ("zoo", None, None, None)


def test_a_csv_names_files_relative_to_itself_and_labels_by_name(zoo):
    path = zoo / "list.csv"
    path.write_text(f"label, path\nokapi,okapi/b.JPG\n ant,{zoo / 'ant' / '1.jpeg'}\n")
    table = find_images(path)
    assert rows(table) == [("okapi/b.JPG", "okapi"), (str(zoo / "ant" / "1.jpeg"), "ant")]
    assert all(file.is_file() for file in table.images)  # type: ignore[union-attr]


def test_glyphs_bring_their_descriptors_and_split():
    table = find_images("glyphs-light")
    assert table.pixels is not None and table.pixels.shape[0] == len(table) == len(table.labels)
    assert table.descriptors is not None and table.split is not None
    assert "features" not in table.provenance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,ant\n", "no column 'path'"),
        ("path,label\na.png,\n", "line 2 has no label"),
        ("path,label\n", "no images there"),
        ("", "no column 'path'"),
    ],
)
def test_an_invalid_csv_raises_an_error_that_says_why(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        find_images(tmp_path / "x.csv")


def test_images_are_read_in_order_and_what_cannot_be_read_says_why(tmp_path, write_image):
    files = [write_image(tmp_path / f"{i}.png", seed=i) for i in range(12)]
    files[3].write_bytes(files[3].read_bytes()[:100])  # truncated
    files[5].write_bytes(b"")
    files[7].unlink()
    results = list(read_images(files, range(12), np.asarray, ahead=2))
    for i, result in enumerate(results):
        if i in (3, 5, 7):
            assert isinstance(result, str) and result
        else:
            np.testing.assert_array_equal(result, np.asarray(Image.open(files[i])))
    assert results[5:8:2] == ["not an image", "no such file"]


def test_no_more_images_are_decoded_than_may_wait(tmp_path, write_image):
    files = [write_image(tmp_path / f"{i}.png", seed=i) for i in range(20)]
    decoded = threading.Semaphore(0)

    def prepare(image: Image.Image) -> Any:
        decoded.release()
        return np.asarray(image)

    reading = read_images(files, range(20), prepare, ahead=4)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    count = 0
    while decoded.acquire(blocking=False):
        count += 1
    assert count <= 5


def test_a_photograph_taken_sideways_is_read_upright(tmp_path):
    image = Image.new("RGB", (30, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90°
    image.save(tmp_path / "x.jpg", exif=exif)
    (turned,) = read_images([tmp_path / "x.jpg"], [0], np.asarray)
    assert not isinstance(turned, str) and turned.shape == (30, 10, 3)


def test_the_signature_changes_with_a_file_and_with_a_pixel(tmp_path, write_image):
    files = [write_image(tmp_path / f"{i}.png", seed=i) for i in range(2)]
    before = image_signature(files, [0, 1])
    assert image_signature(files, [0, 1]) == before
    write_image(files[1], size=(41, 30))
    assert image_signature(files, [0, 1]) != before
    assert image_signature(files, [0]) == image_signature(files, [0])
    pixels = np.zeros((2, 4, 4), dtype=np.uint8)
    before = image_signature(pixels, [0, 1])
    pixels[1, 2, 3] = 1
    assert image_signature(pixels, [0, 1]) != before


FILES = ["/data/CUB/images/001.Albatross/a.jpg", "002.Finch/b.jpg", "C:\\cub\\images\\001.Albatross\\c.jpg"]


def write_cub(folder: Path, flags: str = "1 1\n2 0\n3 0\n") -> Path:
    (folder / "images.txt").write_text("1 001.Albatross/a.jpg\n2 002.Finch/b.jpg\n3 001.Albatross/c.jpg\n")
    (folder / "train_test_split.txt").write_text(flags)
    return folder / "train_test_split.txt"


def test_the_split_of_CUB_is_joined_by_folder_and_file(tmp_path):
    path = write_cub(tmp_path)
    assert read_image_split(path, FILES).tolist() == [True, False, False]
    assert read_image_split(path, FILES[::-1]).tolist() == [False, False, True]


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("True", "False")])
def test_a_csv_split_is_joined_by_folder_and_file(tmp_path, yes, no):
    path = tmp_path / "split.csv"
    path.write_text(f"is_train,path\n{no},x/001.Albatross/a.jpg\n{yes},y/002.Finch/b.jpg\n{yes},001.Albatross/c.jpg\n")
    assert read_image_split(path, FILES).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("1 1\n2 0\n", "1 of the 3 images are not in this split, first C:"),
        ("1 1\n2 0\n4 1\n", "image 4 is not in .*images.txt"),
        ("1 1\n2 maybe\n3 0\n", "is_train of 002.Finch/b.jpg is 'maybe'"),
        ("1 1\n2\n", "the line '2' is not of the form"),
    ],
)
def test_a_split_of_CUB_that_does_not_fit_is_refused(tmp_path, flags, says):
    with pytest.raises(DataError, match=says):
        read_image_split(write_cub(tmp_path, flags), FILES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file,is_train\na,1\n", "no column 'path'; the first line must name path and is_train"),
        ("path,is_train\na/b.jpg,1\nx/a/b.jpg,0\n", "both a training and a test image"),
        ("path,is_train\na/b.jpg\n", "must be 1 or 0"),
    ],
)
def test_a_csv_split_that_does_not_fit_is_refused(tmp_path, text, says):
    path = tmp_path / "split.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_image_split(path, ["a/b.jpg"])


def test_a_split_that_is_missing_or_cannot_be_joined_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no such file; use CUB's train_test_split\.txt or a CSV file"):
        read_image_split(tmp_path / "train_test_split.txt", FILES)
    with pytest.raises(DataError, match="has no image file names"):
        read_image_split(write_cub(tmp_path), None)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n0 0 10 10 rectfill\nshowpage\n%%EOF\n"


def test_an_eps_file_named_png_is_not_an_image_and_starts_no_program(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(EPS)
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: started.append(a))
    assert list(read_images([tmp_path / "a.png"], [0], np.asarray)) == ["not an image"]
    assert not started


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_among_the_images_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    assert list(read_images([tmp_path / "a.png"], [0], np.asarray)) == ["not a file"]


def test_large_pictures_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    files = [tmp_path / f"{i}.png" for i in range(8)]
    for file in files:
        Image.new("L", (40, 40)).save(file)
    monkeypatch.setattr("classnorm.data.decoding._LARGE_PIXELS", 40 * 40 - 1)
    inside = most = 0

    def prepare(image: Image.Image) -> np.ndarray:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return np.asarray(image)

    assert len(list(read_images(files, range(8), prepare))) == 8
    assert most == 1
