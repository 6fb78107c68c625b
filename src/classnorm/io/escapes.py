"""Texts of others on their way into file names, spreadsheets and terminals, where some characters are commands."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER_LIKE = re.compile(r"[+\-−][\d.,\s±%+\-−–\[\]e]*")
_LONGEST = 80  # characters of a file name: with an ending and a temporary name it stays below 255 bytes


def file_name(text: str) -> str:
    """A name for a file or folder, made of a text that may hold anything: one component, not hidden, and not too long.

    Texts that are names already stay as they are; others get a checksum, which keeps them apart.

    >>> file_name("CUB"), file_name("my birds (2)"), file_name("../../etc")
    ('CUB', 'my birds (2)', 'etc-74ccf3c5')
    """
    name = re.sub(r"[^\w\-+=()\[\]{},;@# .·]+", "-", text.strip())[:_LONGEST].strip("-. ")
    return (
        name
        if name and name == text
        else f"{name or 'data'}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"
    )


def one_line(text: str) -> str:
    """The text with a space for each run of white space."""
    return " ".join(text.split())


def printable(text: str) -> str:
    r"""The text with characters that control a terminal, or reverse the writing, as escapes.

    >>> print(printable("a\x1b[31mb"))
    a\x1b[31mb
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def markdown_text(text: str) -> str:
    r"""Markdown that shows a text as it is, on one line.

    >>> print(markdown_text("my_birds | <b>"))
    my\_birds \| \<b>
    """
    escaped = "".join(f"\\{c}" if c in "|*_`<" else c for c in one_line(text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", escaped).replace("](", "]\\(")  # entities and links


def csv_text(text: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula.

    >>> csv_text("=HYPERLINK(1)"), csv_text("-0.5"), csv_text("Indigo Bunting")
    ("'=HYPERLINK(1)", '-0.5', 'Indigo Bunting')
    """
    is_formula = text[:1] in ("=", "@", "\t", "\r") or (text[:1] in ("+", "-") and not _NUMBER_LIKE.fullmatch(text))
    return f"'{text}" if is_formula else text


def csv_cells(values: Iterable[Any]) -> list[Any]:
    """The values with each text as `csv_text`."""
    return [csv_text(value) if isinstance(value, str) else value for value in values]
