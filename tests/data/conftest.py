"""CUB's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def cub(tmp_path: Path, write_image: Callable[..., Path]) -> Path:
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
