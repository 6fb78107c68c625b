"""Figures of the paper on small data: complete, kept, and consistent with what they are made of."""

import json
from contextlib import nullcontext

import numpy as np
import pytest

from classnorm.analysis import SMOOTHNESS_MODELS, attribute_statistics, gradient_norms
from classnorm.analysis.seen_scales import SCALES
from classnorm.data import SyntheticConfig, save_gbu, synthetic
from classnorm.experiments.engine import Engine
from classnorm.methods.classnorm import reference
from classnorm.reproduce.benchmarks import Column, find_columns
from classnorm.reproduce.figures import FIGURES
from classnorm.reproduce.reproduction import Effort, Workshop

EFFORT = Effort(
    seeds=2,
    changes={"hidden": 16, "epochs": 2},
    variance_iterations=12,
    smoothness_iterations=6,
    smoothness_every=3,
    smoothness_width=8,
)


def workshop(folder, *columns):
    return Workshop(columns, EFFORT, Engine(jobs=1), folder, lambda what: nullcontext())


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=24, unseen=6, rows=480, features=16, attributes=12, noise=0.5))


@pytest.fixture(scope="module")
def shop(dataset, tmp_path_factory):
    return workshop(tmp_path_factory.mktemp("out"), Column("tiny", "", "own", loaded=dataset))


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "variance-formula"])
def test_a_figure_has_plots_a_table_and_data(shop, name):
    artifact = FIGURES[name].make(shop)
    assert artifact.name == name
    assert artifact.plots and all(plot.series for plot in artifact.plots)
    assert len({plot.name for plot in artifact.plots}) == len(artifact.plots)
    assert artifact.tables[0].body
    json.dumps([artifact.data, [vars(s) for plot in artifact.plots for s in plot.series]], allow_nan=False)


def test_the_variance_is_drawn_for_three_models_and_four_variants(shop):
    artifact = FIGURES["variance"].make(shop)
    linear, deep = artifact.plots
    assert [series.label for series in linear.series] == [f"Linear {v}" for v in ("+NS +AN", "−AN", "−NS", "−NS −AN")]
    assert len(deep.series) == 8
    assert linear.series[0].x == list(range(1, 13))
    assert all(low <= y <= high for s in deep.series for low, y, high in zip(s.low, s.y, s.high, strict=True))
    assert len(artifact.tables[0].body) == 12
    assert len(artifact.verdicts) == 4


def test_smoothness_shows_the_mean_over_seeds_of_the_gradient_norms(shop, dataset):
    artifact = FIGURES["smoothness"].make(shop)
    config = reference(dataset).replace(hidden=8)
    (plot,) = artifact.plots
    assert [series.label for series in plot.series] == list(SMOOTHNESS_MODELS)
    for series in plot.series:
        runs = [gradient_norms(dataset, config, series.label, seed, 6, 3) for seed in (0, 1)]
        np.testing.assert_allclose(series.y, np.mean(runs, axis=0), rtol=1e-4)
        assert series.x == [0.0, 3.0]


def test_a_diagnosis_is_made_once(shop):
    FIGURES["smoothness"].make(shop)
    before = {path: path.stat().st_mtime_ns for path in shop.folder.glob("runs/smoothness-*/*")}
    first = FIGURES["smoothness"].make(shop)
    assert len(before) == 2 * len(SMOOTHNESS_MODELS)
    assert {path: path.stat().st_mtime_ns for path in shop.folder.glob("runs/smoothness-*/*")} == before
    assert first == FIGURES["smoothness"].make(shop)


def test_the_best_scale_of_a_seen_scales_table_is_where_the_mean_curve_peaks(shop):
    artifact = FIGURES["seen-scales"].make(shop)
    curves = {series.label: series.y for series in artifact.plots[0].series}
    assert len(curves) == 6
    row = [cell.text for cell in artifact.tables[0].body[0]]
    for text, part in ((row[1], "validation"), (row[2], "test")):
        assert float(text) == SCALES[int(np.argmax(curves[f"H, {part}"]))]
    assert float(row[3]) >= 0


def test_attribute_figures_tell_what_the_statistics_tell(shop, dataset):
    statistics = attribute_statistics(dataset.descriptors)
    normality = FIGURES["normality"].make(shop)
    assert normality.tables[0].body[0][3].text == f"{100 * statistics.share_not_normal:.0f}"
    assert normality.notes[0].startswith("Class descriptors")
    correlations = FIGURES["correlations"].make(shop)
    assert correlations.tables[0].body[0][1].text == f"{statistics.correlation.mean():.3f}"
    (histogram,) = FIGURES["histograms"].make(shop).plots
    width = histogram.series[0].x[1] - histogram.series[0].x[0]
    assert width * sum(histogram.series[0].y) == pytest.approx(1.0, abs=1e-3)


def test_file_names_do_not_depend_on_the_name_of_the_data(dataset, tmp_path):
    odd = Column("../my data", "", "own", loaded=dataset)
    for name in ("normality", "histograms"):
        for plot in FIGURES[name].make(workshop(tmp_path, odd)).plots:
            assert not set("/ .") & set(plot.name)


def test_the_formula_is_tested_on_gaussians_and_on_the_data(shop):
    artifact = FIGURES["variance-formula"].make(shop)
    assert artifact.verdicts[0].verdict == "holds"
    assert [verdict.dataset for verdict in artifact.verdicts[1:]] == ["tiny (own)"]
    assert [plot.kind for plot in artifact.plots] == ["lines", "boxes"]


def test_attributes_alone_are_enough_for_attribute_figures_and_for_simulated_ones(dataset, tmp_path):
    save_gbu(dataset, tmp_path / "data" / "CUB", "hog")
    (tmp_path / "data" / "CUB" / "hog.mat").unlink()
    columns = find_columns(["CUB", "SUN"], tmp_path / "data", None)
    assert all(column.missing for column in columns)
    shop = workshop(tmp_path / "out", *columns)
    normality = FIGURES["normality"].make(shop)
    assert [row[0].text for row in normality.tables[0].body] == ["CUB"]
    assert normality.notes[0].startswith("Raw attributes")
    assert any(note.startswith("SUN: put att_splits.mat") for note in normality.notes)
    assert not any(note.startswith("CUB") for note in normality.notes)


def test_nothing_at_hand_is_an_empty_figure(tmp_path):
    shop = workshop(tmp_path, *find_columns(["CUB"], None, None))
    for name in ("variance", "seen-scales", "normality"):
        artifact = FIGURES[name].make(shop)
        assert artifact.tables[0].body == []
        assert any("CUB: give --data-root" in note for note in artifact.notes)
