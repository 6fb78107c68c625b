"""The specifications of the paper's tables agree with the published figures and with each other."""

from dataclasses import replace

import pytest

from classnorm_lab.paper.published import published
from classnorm_lab.paper.tables import TABLES

OURS = ("no final ReLU", "by the root", "(ours)", "f-CLSWGAN")
"""Parts of labels of rows that the paper's tables do not have."""


@pytest.mark.parametrize("table", [name for name, spec in TABLES.items() if spec.of_the_paper])
def test_every_variant_is_in_the_papers_table_or_said_not_to_be(table):
    labels = [variant.paper_label for variant in TABLES[table].variants]
    assert [label for label in labels if label not in published(table) and not label.endswith(OURS)] == []


@pytest.mark.parametrize("table", TABLES)
def test_claims_are_about_variants_of_some_table(table):
    known = [replace(variant, label="", published="") for spec in TABLES.values() for variant in spec.variants]
    for claim in TABLES[table].claims:
        assert claim.margin > 0
        for variant in (claim.better, claim.worse):
            assert replace(variant, label="", published="") in known


def test_labels_are_unique_within_a_table():
    for spec in TABLES.values():
        labels = [variant.label for variant in spec.variants]
        assert len(labels) == len(set(labels))
