"""Reports: right numbers, self-contained pages, readable pictures."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import resolve
from classnorm.report import by_dataset, group_results, terminal_table, write_report
from classnorm.report.plots import class_plot, group_styles
from classnorm.results.run_folder import Result, find_results, write_arrays
from classnorm.runs.experiment import Experiment


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    dataset = synthetic(SyntheticConfig(classes=30, unseen=8, rows=900, features=32, attributes=20))
    for recipe in ("reference", "baseline"):
        _, config = resolve(dataset, recipe=recipe, hidden=32, epochs=3, calibration="none")
        for seed in (0, 1, 2):
            Experiment(dataset, "classnorm", recipe, config, seed).run(folder / recipe / f"seed-{seed}")
    return group_results(find_results([folder]))


def test_runs_that_differ_in_the_seed_form_a_group(groups):
    assert [(g.label, len(g.results)) for g in groups] == [("classnorm · baseline", 3), ("classnorm · reference", 3)]


def test_mean_and_deviation_are_those_of_the_seeds(groups):
    values = [result.scores["harmonic"] for result in groups[0].results]
    mean = sum(values) / 3
    assert groups[0].mean("harmonic") == pytest.approx(mean)
    assert groups[0].std("harmonic") == pytest.approx((sum((v - mean) ** 2 for v in values) / 2) ** 0.5)


def test_groups_with_the_same_recipe_are_labelled_by_the_settings_that_differ(tmp_path):
    dataset = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8))
    for hidden in (8, 16):
        _, config = resolve(dataset, hidden=hidden, epochs=1, calibration="none")
        Experiment(dataset, "classnorm", "reference", config, 0).run(tmp_path / str(hidden))
    labels = sorted(group.label for group in group_results(find_results([tmp_path])))
    assert labels == ["classnorm · reference, hidden 16", "classnorm · reference, hidden 8"]


def test_the_terminal_table_prints(groups):
    from rich.console import Console

    console = Console(width=140, file=io.StringIO())
    console.print(terminal_table(groups, "title"))
    assert groups[0].cell("ausuc") in console.file.getvalue()


@pytest.fixture(scope="module")
def report(groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_report(groups, folder, "A <title> & more")
    return folder


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


def test_the_page_is_well_formed_and_loads_nothing_from_outside(report):
    text = (report / "index.html").read_text()
    links = Links()
    links.feed(text)
    assert links.open == []
    assert links.sources
    assert all(source.startswith("data:") for source in links.sources)
    assert "A &lt;title&gt; &amp; more" in text
    assert not re.search(r"@import|url\(", text)


def test_the_plots_are_valid_images(report):
    with Image.open(report / "curve.png") as image:
        assert image.size[0] > 600
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    embedded = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", (report / "index.html").read_text())
    assert base64.b64decode(embedded[0])[:4] == b"\x89PNG"


def test_a_model_on_its_own_and_one_that_has_no_unseen_rows_can_be_reported(write_run, tmp_path):
    scores = {"unseen": None, "seen": 50.0, "harmonic": None, "zsl": None, "ausuc": None}
    result = write_run(tmp_path / "run", scores=scores)
    arrays = result.arrays("predictions")
    mine = arrays["seen"][arrays["label"]]
    per_row = {k: v[mine] for k, v in arrays.items() if len(v) == len(mine)}
    np.savez(tmp_path / "run" / "predictions.npz", **(arrays | per_row))
    written = write_report(group_results(find_results([tmp_path])), tmp_path / "out", "one-sided")
    assert {path.name for path in written} >= {"index.html", "results.md", "results.csv", "results.tex", "classes.png"}
    assert "calibration.png" not in {path.name for path in written}
    assert "| – |" in (tmp_path / "out" / "results.md").read_text()


def test_several_datasets_get_a_section_and_plots_each(report_on_two_datasets):
    names = sorted(path.name for path in report_on_two_datasets.glob("curve*.png"))
    assert names == ["curve-two-three-with-a-rather-long-name-and-no-spaces-in-it-to-break-at.png", "curve.png"]
    assert len({(report_on_two_datasets / name).read_bytes() for name in names}) == 2
    headings = re.findall(r"<h2>(.*?)</h2>", (report_on_two_datasets / "index.html").read_text())
    assert [heading[:9] for heading in headings] == ["one", "two/three", "What the "]


def test_two_versions_of_a_dataset_are_not_mixed(write_run, tmp_path):
    for features in ("hog", "res101"):
        write_run(tmp_path / features, features=features)
    groups = group_results(find_results([tmp_path]))
    assert [(g.dataset, g.label) for g in groups] == [
        ("toy, hog features", "classnorm · reference"),
        ("toy, res101 features", "classnorm · reference"),
    ]


def test_the_page_shows_the_provenance_of_every_model(report_on_two_datasets):
    text = (report_on_two_datasets / "index.html").read_text()
    details = re.findall(r"<details><summary>.*?</details>", text)
    assert len(details) == 4
    for part, extra in zip(details, ("scale:0.9", "cuda:3") * 2, strict=True):
        for fact in (" hog", "5p117", "toy split v2", "torch 2.99", "classnorm train", extra):
            assert fact in part


def test_without_test_rows_of_unseen_classes_there_is_no_empty_plot_of_them(write_run, tmp_path):
    result = write_run(tmp_path / "seed-0")
    arrays = result.arrays("predictions")
    rows = arrays["seen"][arrays["label"]]
    per_row = ("row", "label", "top1", "best_seen", "best_unseen", "best_seen_score", "best_unseen_score")
    write_arrays(result.folder / "predictions.npz", {k: v[rows] if k in per_row else v for k, v in arrays.items()})
    scores = {**result.scores, "unseen": None, "harmonic": None, "zsl": None, "ausuc": None}
    document = result.document | {"scores": scores}
    groups = group_results([Result(result.folder, document)])
    names = {path.name for path in write_report(groups, tmp_path / "report", "one side")}
    assert "classes.png" in names and "curve.png" not in names


def test_two_datasets_of_one_name_are_told_apart_by_the_folders_of_their_runs(write_run, tmp_path):
    results = [
        write_run(tmp_path / "runs" / folder / f"seed-{seed}", seed=seed, dataset="photos", features=features)
        for folder, features in (("march", "x"), ("april", "y"))
        for seed in (0, 1)
    ]
    for result in results:
        result.document["dataset"]["provenance"].pop("features")
    assert list(by_dataset(group_results(results))) == ["photos, runs/march", "photos, runs/april"]


def test_ticks_of_a_few_classes_are_whole_numbers(write_run, tmp_path):
    groups = group_results([write_run(tmp_path / "seed-0", classes=6)])
    figure = class_plot(groups, group_styles(groups))
    for axes in figure.axes:
        assert all(float(tick).is_integer() for tick in axes.get_xticks())
