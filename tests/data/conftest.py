"""CUB's files, and whether a dataset holds the arrays that it was written from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classnorm.data import ZeroShotDataset


@pytest.fixture
def cub(tmp_path, write_image) -> Path:
    """CUB's layout with two classes whose ids are not in the order of their names, and images in no order at all."""
    root = tmp_path / "CUB_tiny"
    files = {3: "002.Wren/b.png", 1: "001.Owl/z.png", 2: "001.Owl/a.png", 4: "002.Wren/a.png"}
    for number, file in files.items():
        write_image(root / "images" / file, seed=number)
    lines = {
        "images.txt": [f"{number} {file}" for number, file in files.items()],
        "image_class_labels.txt": ["1 7", "2 7", "3 5", "4 5"],
        "classes.txt": ["5 002.Wren", "7 001.Owl"],
        "train_test_split.txt": ["1 1", "2 0", "3 1", "4 0"],
        "attributes/class_attribute_labels_continuous.txt": ["0.0 5.0 50.5", "100.0 7.0 1.0"],
    }
    (root / "attributes").mkdir()
    for name, text in lines.items():
        (root / name).write_text("\n".join(text) + "\n")
    return root


@pytest.fixture(scope="session")
def assert_holds() -> Callable[[ZeroShotDataset, dict[str, Any]], None]:
    def check(data: ZeroShotDataset, arrays: dict[str, Any]) -> None:
        np.testing.assert_array_equal(data.features, arrays["features"])
        np.testing.assert_array_equal(data.labels, arrays["labels"])
        np.testing.assert_array_equal(data.descriptors, arrays["descriptors"])
        np.testing.assert_array_equal(data.split.train, arrays["train_idx"])
        np.testing.assert_array_equal(data.split.test_seen, arrays["test_seen_idx"])
        np.testing.assert_array_equal(data.split.test_unseen, arrays["test_unseen_idx"])
        assert data.class_names == tuple(arrays["class_names"])

    return check
