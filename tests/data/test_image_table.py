"""Image tables joined to a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from classnorm.data import ZeroShotDataset
from classnorm.data.images import find_images
from classnorm.errors import DataError


def dataset(files: list[str], labels: list[int], names: list[str], train: list[int], unseen: list[int]) -> Any:
    return ZeroShotDataset.from_arrays(
        np.zeros((len(files), 1)), labels, np.eye(len(names)) + 1, names, train=train, test_unseen=unseen,
        image_files=files, provenance={"features": "other", "split": "GBU 12"},
    )  # fmt: skip


def test_a_join_takes_order_labels_and_split_of_the_dataset_and_drops_what_either_lacks(cub):
    table = find_images(cub)
    files = ["/data/001.Owl/a.png", "x\\002.Wren\\gone.png", "/data/002.Wren/a.png", "/data/001.Owl/z.png"]
    other = dataset(files, [1, 0, 0, 1], ["002.Wren", "001.Owl"], train=[0, 3], unseen=[1, 2])
    joined = table.like(other)
    assert joined.files == ("001.Owl/a.png", "002.Wren/a.png", "001.Owl/z.png")
    assert [joined.class_names[label] for label in joined.labels] == [file.split("/")[0] for file in joined.files]
    assert joined.is_train is not None and joined.is_train.tolist() == [False, False, True]
    assert joined.split is not None
    assert (joined.split.train.tolist(), joined.split.test_unseen.tolist()) == ([0, 2], [1])
    assert joined.provenance == {"split": "GBU 12"}


def test_a_join_of_strangers_is_refused(cub):
    stranger = dataset(["a/b.jpg", "c/d.jpg"], [0, 1], ["a", "c"], train=[0], unseen=[1])
    with pytest.raises(DataError, match=r"none of the 4 images is one of data's, such as a/b\.jpg"):
        find_images(cub).like(stranger)
