"""The table that leads from an equation of the paper to its function and its test."""

import re
from pathlib import Path

import pytest

import classnorm.nn

ROWS = re.findall(r"^((?:equation|statement|appendix) .*)$", classnorm.nn.__doc__, flags=re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(":")[0])
def test_a_row_of_the_table_names_what_exists(row):
    function, file = re.search(r"`(\w+)", row)[1], re.search(r"`(test_\w+\.py)`", row)[1]
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    assert hasattr(classnorm.nn, function) or function == "attribute_correction"
    assert function.removesuffix("_") in text
    assert all(f"def test_{name}_" in text for name in re.findall(r"`((?:statement|equation)_\d+)`", row))
