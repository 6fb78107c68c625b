"""What docs/architecture.md says is where it says: files, the names in them, and the rooms of the drawing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DRAWING = PAGE.split("```")[1]
PLACES = sorted(set(re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", PAGE)))


def found(path: str) -> Path | None:
    folders = ("src/classnorm", "src", ".")
    return next((ROOT / folder / path for folder in folders if (ROOT / folder / path).is_file()), None)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_file_that_is_named_exists_and_defines_the_name(path, name):
    file = found(path)
    assert file is not None
    text = file.read_text(encoding="utf-8")
    for part in filter(None, name.split(".")):
        assert re.search(rf"^ *(?:async )?(?:def|class) {part}\b|^{part}\b.* = ", text, re.MULTILINE), part


@pytest.mark.parametrize("package", ["classnorm", "classnorm_lab"])
def test_the_drawing_has_every_room(package):
    rooms = {path.parent.name for path in (ROOT / "src" / package).glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / "src" / package).glob("*.py") if not path.name.startswith("__")}
    missing = {room for room in rooms | modules if not re.search(rf"\b{re.escape(room)}(?!\w)", DRAWING)}
    assert missing == set()


def test_the_rooms_of_the_drawing_exist():
    names = re.findall(r"^│ ([\w.]+) ", DRAWING, re.MULTILINE) + re.findall(r"\w+\.py", DRAWING)
    folders = [ROOT / "src" / package for package in ("classnorm", "classnorm_lab")]
    assert len(names) > 20
    assert [name for name in names if not any((folder / name).exists() for folder in folders)] == []
