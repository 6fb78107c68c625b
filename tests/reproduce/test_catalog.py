"""The catalog of what can be reproduced."""

from classnorm.reproduce.catalog import CATALOG
from classnorm.reproduce.table_specs import TABLES


def test_everything_is_in_the_catalog_once():
    assert set(TABLES) <= set(CATALOG)
    assert {"variance", "variance-formula", "smoothness", "seen-scales", "normality", "correlations", "histograms"} <= {
        name for name, item in CATALOG.items() if item.kind == "figure"
    }
