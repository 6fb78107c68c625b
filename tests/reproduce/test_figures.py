"""Figures of the paper on small data: complete, cached, and consistent with their data."""

import json

import numpy as np
import pytest

from classnorm.analysis.seen_scales import SCALES
from classnorm.data import save_gbu
from classnorm.reproduce.benchmarks import Benchmark, find_benchmarks
from classnorm.reproduce.figures import FIGURES

EFFORT = {
    "seeds": 2,
    "diagnosis_width": 8,
    "variance_iterations": 12,
    "smoothness_iterations": 6,
    "smoothness_every": 3,
    "formula_dimension": 1024,
}


@pytest.fixture(scope="module")
def reproduction(reproduce, tiny, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), tiny, **EFFORT)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "variance-formula"])
def test_a_figure_has_plots_a_table_and_data(reproduction, name):
    artifact = FIGURES[name].make(reproduction)
    assert artifact.name == name
    assert artifact.plots and all(plot.series for plot in artifact.plots)
    assert len({plot.name for plot in artifact.plots}) == len(artifact.plots)
    assert artifact.tables[0].body
    json.dumps([artifact.data, [vars(s) for plot in artifact.plots for s in plot.series]], allow_nan=False)


@pytest.mark.parametrize(("name", "count"), [("variance", 4), ("smoothness", 4), ("normality", 1), ("correlations", 1)])
def test_a_diagnosis_has_the_conclusion_of_the_paper_and_verdicts(reproduction, name, count):
    artifact = FIGURES[name].make(reproduction)
    assert (artifact.title, artifact.text) == (FIGURES[name].title, FIGURES[name].conclusion)
    assert len(artifact.verdicts) == count
    assert {verdict.dataset.split(",")[0].removesuffix(" (simulated)") for verdict in artifact.verdicts} == {"tiny"}


def test_a_figure_is_measured_once(reproduction):
    first = FIGURES["smoothness"].make(reproduction)
    before = {path: path.stat().st_mtime_ns for path in reproduction.runs.glob("smoothness-*/*")}
    assert len(before) == len(first.data["smoothness"])
    assert first == FIGURES["smoothness"].make(reproduction)
    assert {path: path.stat().st_mtime_ns for path in reproduction.runs.glob("smoothness-*/*")} == before


def test_the_best_seen_scale_is_at_the_peak_of_the_mean_curve(reproduction):
    artifact = FIGURES["seen-scales"].make(reproduction)
    curves = {series.label: series.y for series in artifact.plots[0].series}
    assert len(curves) == 6
    row = [cell.text for cell in artifact.tables[0].body[0]]
    for text, part in ((row[1], "validation"), (row[2], "test")):
        assert float(text) == SCALES[int(np.argmax(curves[f"H, {part}"]))]
    assert float(row[3]) >= 0


def test_file_names_do_not_depend_on_the_name_of_the_dataset(reproduce, tiny, tmp_path):
    odd = Benchmark("../my data", "", "own", loaded=tiny.dataset)
    for name in ("normality", "histograms"):
        for plot in FIGURES[name].make(reproduce(tmp_path, odd)).plots:
            assert not set("/ .") & set(plot.name)


def test_the_formula_is_tested_on_gaussians_and_on_the_data(reproduction):
    artifact = FIGURES["variance-formula"].make(reproduction)
    assert artifact.verdicts[0].verdict == "holds"
    assert [verdict.dataset for verdict in artifact.verdicts[1:]] == ["tiny (simulated)"]
    assert [plot.kind for plot in artifact.plots] == ["lines", "boxes"]


def test_attributes_suffice_for_attribute_figures(reproduce, tiny, tmp_path):
    save_gbu(tiny.dataset, tmp_path / "data" / "CUB", "hog")
    (tmp_path / "data" / "CUB" / "hog.mat").unlink()
    benchmarks = find_benchmarks(["CUB", "SUN"], tmp_path / "data", None)
    assert all(benchmark.missing for benchmark in benchmarks)
    reproduction = reproduce(tmp_path / "out", *benchmarks, **EFFORT)
    normality = FIGURES["normality"].make(reproduction)
    assert [row[0].text for row in normality.tables[0].body] == ["CUB"]
    assert normality.notes[0].startswith("Raw attributes")
    assert any(note.startswith("SUN: put att_splits.mat") for note in normality.notes)
    assert not any(note.startswith("CUB") for note in normality.notes)


def test_a_figure_without_data_is_empty(reproduce, tmp_path):
    reproduction = reproduce(tmp_path, *find_benchmarks(["CUB"], None, None))
    for name in ("variance", "seen-scales", "normality"):
        artifact = FIGURES[name].make(reproduction)
        assert artifact.tables[0].body == []
        assert any("CUB: give `data_root" in note for note in artifact.notes)
