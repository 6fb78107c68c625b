"""Reports: right numbers, self-contained pages, readable pictures."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from classnorm.data import SyntheticConfig, synthetic
from classnorm.experiments.run import Experiment, run
from classnorm.experiments.run_folder import find_results
from classnorm.methods import resolve
from classnorm.report import group_results, markdown_table, terminal_table, write_report


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    dataset = synthetic(SyntheticConfig(classes=30, unseen=8, rows=900, features=32, attributes=20))
    for recipe in ("reference", "baseline"):
        method, config = resolve(dataset, recipe=recipe, hidden=32, epochs=3, calibration="none")
        for seed in (0, 1, 2):
            run(Experiment(dataset, "classnorm", method, recipe, config, seed), folder / recipe / f"seed-{seed}")
    return group_results(find_results([folder]))


def test_runs_that_differ_in_the_seed_form_a_group(groups):
    assert [(g.label, len(g.results)) for g in groups] == [("classnorm · baseline", 3), ("classnorm · reference", 3)]


def test_mean_and_deviation_are_those_of_the_seeds(groups):
    values = [result.scores["harmonic"] for result in groups[0].results]
    mean = sum(values) / 3
    assert groups[0].mean("harmonic") == pytest.approx(mean)
    assert groups[0].std("harmonic") == pytest.approx((sum((v - mean) ** 2 for v in values) / 2) ** 0.5)


def test_the_markdown_table_has_a_row_per_group_with_the_right_numbers(groups):
    lines = markdown_table(groups).splitlines()
    assert len(lines) == 4
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[0] == "classnorm · baseline"
    assert cells[4] == f"{groups[0].mean('harmonic'):.1f} ± {groups[0].std('harmonic'):.1f}"


def test_groups_with_the_same_recipe_are_told_apart_by_what_differs(tmp_path):
    dataset = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8))
    for hidden in (8, 16):
        method, config = resolve(dataset, hidden=hidden, epochs=1, calibration="none")
        run(Experiment(dataset, "classnorm", method, "reference", config, 0), tmp_path / str(hidden))
    labels = sorted(group.label for group in group_results(find_results([tmp_path])))
    assert labels == ["classnorm · reference, hidden 16", "classnorm · reference, hidden 8"]


def test_the_terminal_table_prints(groups):
    from rich.console import Console

    console = Console(width=140, file=io.StringIO())
    console.print(terminal_table(groups, "title"))
    assert groups[0].cell("ausuc") in console.file.getvalue()


class Links(HTMLParser):
    """Collects whatever the page would load."""

    def __init__(self):
        super().__init__()
        self.sources = []
        self.open = []

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing_from_outside(groups, tmp_path):
    write_report(groups, tmp_path, "A <title> & more")
    text = (tmp_path / "index.html").read_text()
    links = Links()
    links.feed(text)
    assert links.open == []
    assert links.sources
    assert all(source.startswith("data:") for source in links.sources)
    assert "A &lt;title&gt; &amp; more" in text
    assert not re.search(r"@import|url\(", text)


def test_the_pictures_are_pictures(groups, tmp_path):
    write_report(groups, tmp_path, "title")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size[0] > 600
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    embedded = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", (tmp_path / "index.html").read_text())
    assert base64.b64decode(embedded[0])[:4] == b"\x89PNG"
