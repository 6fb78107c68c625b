"""The catalog of tables and figures."""

from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.tables import TABLES


def test_every_table_and_figure_is_in_the_catalog():
    assert set(TABLES) <= set(CATALOG)
    assert {"variance", "variance-formula", "smoothness", "seen-scales", "normality", "correlations", "histograms"} <= {
        name for name, item in CATALOG.items() if item.kind == "figure"
    }
