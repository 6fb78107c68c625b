"""The blocks of code on the pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def blocks() -> Callable[..., list[str]]:
    """The blocks of a page (its path in the repository) in a language, in their order."""

    def find(page: str, language: str = "python") -> list[str]:
        text = (ROOT / page).read_text(encoding="utf-8")
        found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
        return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]

    return find


@pytest.fixture(scope="session")
def pages() -> list[str]:
    """All pages of the documentation, as paths in the repository."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)
