"""Where pictures and their labels are found, and how they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from classnorm.data import ZeroShotDataset
from classnorm.data.images import ImageTable, find_images, image_signature, read_images
from classnorm.errors import DataError

Write = Callable[..., Path]


@pytest.fixture
def zoo(tmp_path: Path, write_image: Write) -> Path:
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


def test_a_folder_per_class_gives_sorted_classes_and_files_and_keeps_empty_classes(zoo: Path) -> None:
    table = find_images(zoo)
    assert table.class_names == ("ant", "okapi", "quagga")
    expected = ["ant/1.jpeg", "ant/2.webp", "okapi/b.JPG", "okapi/deep/a.png"]
    assert rows(table) == [(file, file.split("/")[0]) for file in expected]
    assert (table.name, table.is_train, table.descriptors, table.split) == ("zoo", None, None, None)


def test_a_csv_names_files_relative_to_itself_and_labels_by_name(zoo: Path) -> None:
    path = zoo / "list.csv"
    path.write_text(f"label, path\nokapi,okapi/b.JPG\n ant,{zoo / 'ant' / '1.jpeg'}\n")
    table = find_images(path)
    assert rows(table) == [("okapi/b.JPG", "okapi"), (str(zoo / "ant" / "1.jpeg"), "ant")]
    assert all(file.is_file() for file in table.images)  # type: ignore[union-attr]


def test_cub_is_joined_by_ids(cub: Path) -> None:
    table = find_images(cub)
    files = ["002.Wren/b.png", "001.Owl/z.png", "001.Owl/a.png", "002.Wren/a.png"]
    assert rows(table) == [(file, file.split("/")[0]) for file in files]
    assert table.is_train is not None and table.is_train.tolist() == [True, True, False, False]
    assert table.descriptors is not None
    by_name = dict(zip(table.class_names, table.descriptors.tolist(), strict=True))
    assert by_name == {"002.Wren": [0.0, 5.0, 50.5], "001.Owl": [100.0, 7.0, 1.0]}


def test_cub_without_split_and_attributes_is_understood(cub: Path) -> None:
    (cub / "train_test_split.txt").unlink()
    (cub / "attributes" / "class_attribute_labels_continuous.txt").unlink()
    table = find_images(cub)
    assert (table.is_train, table.descriptors) == (None, None)


def test_glyphs_bring_their_descriptors_and_split() -> None:
    table = find_images("glyphs-light")
    assert table.pixels is not None and table.pixels.shape[0] == len(table) == len(table.labels)
    assert table.descriptors is not None and table.split is not None
    assert "features" not in table.provenance


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (("images.txt", "1\n"), "images.txt: the line '1' is not of the form"),
        (("image_class_labels.txt", "1 7\n"), r"no class of classes.txt for image 3 \(002.Wren/b.png\)"),
        (("image_class_labels.txt", None), "image_class_labels.txt: not readable"),
        (("train_test_split.txt", "1 1\n2 2\n3 0\n4 0\n"), "must say 0 or 1"),
        (("attributes/class_attribute_labels_continuous.txt", "1 2\n"), "1 rows for 2 classes"),
        (("attributes/class_attribute_labels_continuous.txt", "1 x\n2 3\n"), "not a table of numbers"),
    ],
)
def test_a_spoilt_cub_says_which_file(cub: Path, spoil: tuple[str, str | None], message: str) -> None:
    name, text = spoil
    (cub / name).unlink() if text is None else (cub / name).write_text(text)
    with pytest.raises(DataError, match=message):
        find_images(cub)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,ant\n", "no column 'path'"),
        ("path,label\na.png,\n", "line 2 lacks a label"),
        ("path,label\n", "no images there"),
        ("", "no column 'path'"),
    ],
)
def test_a_spoilt_csv_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        find_images(tmp_path / "x.csv")


def test_images_are_read_in_order_and_what_cannot_be_read_says_why(tmp_path: Path, write_image: Write) -> None:
    files = [write_image(tmp_path / f"{i}.png", seed=i) for i in range(12)]
    files[3].write_bytes(files[3].read_bytes()[:100])  # truncated
    files[5].write_bytes(b"")
    files[7].unlink()
    results = list(read_images(files, range(12), np.asarray, ahead=2, threads=3))
    for i, result in enumerate(results):
        if i in (3, 5, 7):
            assert isinstance(result, str) and result
        else:
            np.testing.assert_array_equal(result, np.asarray(Image.open(files[i])))
    assert results[5:8:2] == ["not an image", "no such file"]


def test_no_more_images_are_decoded_than_may_wait(tmp_path: Path, write_image: Write) -> None:
    files = [write_image(tmp_path / f"{i}.png", seed=i) for i in range(20)]
    decoded = threading.Semaphore(0)

    def prepare(image: Image.Image) -> Any:
        decoded.release()
        return np.asarray(image)

    reading = read_images(files, range(20), prepare, ahead=4, threads=2)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    count = 0
    while decoded.acquire(blocking=False):
        count += 1
    assert count <= 5


def test_a_photograph_taken_sideways_is_read_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90°
    image.save(tmp_path / "x.jpg", exif=exif)
    (turned,) = read_images([tmp_path / "x.jpg"], [0], np.asarray)
    assert not isinstance(turned, str) and turned.shape == (30, 10, 3)


def test_the_signature_changes_with_a_file_and_with_a_pixel(tmp_path: Path, write_image: Write) -> None:
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


def dataset(files: list[str], labels: list[int], names: list[str], train: list[int], unseen: list[int]) -> Any:
    return ZeroShotDataset.from_arrays(
        np.zeros((len(files), 1)), labels, np.eye(len(names)) + 1, names, train=train, test_unseen=unseen,
        image_files=files, provenance={"features": "other", "split": "GBU 12"},
    )  # fmt: skip


def test_a_join_takes_order_labels_and_split_of_the_dataset_and_drops_what_either_lacks(cub: Path) -> None:
    table = find_images(cub)
    files = ["/data/001.Owl/a.png", "x\\002.Wren\\gone.png", "/data/002.Wren/a.png", "/data/001.Owl/z.png"]
    other = dataset(files, [1, 0, 0, 1], ["002.Wren", "001.Owl"], train=[0, 3], unseen=[1, 2])
    joined = table.like(other)
    assert joined.files == ("001.Owl/a.png", "002.Wren/a.png", "001.Owl/z.png")
    assert rows(joined) == [(file, file.split("/")[0]) for file in joined.files]
    assert joined.is_train is not None and joined.is_train.tolist() == [False, False, True]
    assert joined.split is not None
    assert (joined.split.train.tolist(), joined.split.test_unseen.tolist()) == ([0, 2], [1])
    assert joined.provenance == {"split": "GBU 12"}


def test_a_join_of_strangers_is_refused(cub: Path) -> None:
    stranger = dataset(["a/b.jpg", "c/d.jpg"], [0, 1], ["a", "c"], train=[0], unseen=[1])
    with pytest.raises(DataError, match=r"none of the 4 images is one of data's, such as a/b\.jpg"):
        find_images(cub).like(stranger)
