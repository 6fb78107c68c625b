"""Diagnoses: complete, kept, and consistent with the functions that measure."""

import json

import numpy as np
import pytest

from classnorm.errors import TrainingError
from classnorm.methods.settings.classnorm import reference
from classnorm.runs.engine import Engine
from classnorm_lab.diagnoses.attributes import attribute_statistics, correlations, histograms, normality
from classnorm_lab.diagnoses.diagnosis import Diagnosis, diagnose
from classnorm_lab.diagnoses.smoothness import (
    SMOOTHNESS_MODELS,
    gradient_norms,
    mean_gradient_norms,
    smoothness_artifact,
    smoothness_summary,
    smoothness_tasks,
)
from classnorm_lab.diagnoses.variance import (
    training_variance,
    variance_artifact,
    variance_at,
    variance_models,
    variance_summary,
    variance_tasks,
)

ENGINE = Engine(jobs=1)
SIZE = {"seeds": 2, "iterations": 6, "every": 3, "width": 8}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def variance(easy_data, root):
    numbers = diagnose(variance_tasks("tiny", easy_data, seeds=2, iterations=12, width=8), root, ENGINE)
    return {key: variance_summary(curves) for key, curves in numbers.items()}


@pytest.fixture(scope="module")
def smoothness(easy_data, root):
    numbers = diagnose(smoothness_tasks("tiny", easy_data, **SIZE), root, ENGINE)
    return {key: smoothness_summary(norms, SIZE["every"]) for key, norms in numbers.items()}


def test_the_variance_is_drawn_for_three_models_and_listed_for_both_norms(variance):
    artifact = variance_artifact(variance)
    linear, deep = artifact.plots
    assert [series.label for series in linear.series] == [f"Linear {v}" for v in ("+NS +AN", "−AN", "−NS", "−NS −AN")]
    assert len(deep.series) == 8
    assert linear.series[0].x == [1, 2, 3, 4, 6, 8, 11]
    assert all(low <= y <= high for s in deep.series for low, y, high in zip(s.low, s.y, s.high, strict=True))
    assert len(artifact.tables[0].body) == 3 * 6
    json.dumps(artifact.data, allow_nan=False)


@pytest.mark.parametrize(("variant", "norm"), [("−NS", "unit-plain"), ("−NS, AN·√d_a", "unit")])
@pytest.mark.parametrize("kind", ["between", "total"])
def test_variances_are_those_of_the_analysis(variance, easy_data, variant, norm, kind):
    config = variance_models(easy_data)["3-layer MLP"].replace(hidden=8, logits="dot", attribute_normalization=norm)
    for seed in (0, 1):
        summary, curve = (
            variance["tiny", "3-layer MLP", variant, seed],
            training_variance(easy_data, config, seed, 12)[kind],
        )
        expected = {"0": curve[0], "10": curve[10], "100": curve[10], "median": np.median(curve)}
        assert {point: variance_at(summary, kind, point) for point in expected} == pytest.approx(expected, rel=1e-4)


def test_smoothness_shows_the_mean_over_seeds_of_the_gradient_norms(smoothness, easy_data):
    config = reference(easy_data).replace(hidden=8)
    (plot,) = smoothness_artifact(smoothness).plots
    assert [series.label for series in plot.series] == list(SMOOTHNESS_MODELS)
    for series in plot.series:
        runs = [gradient_norms(easy_data, config, series.label, seed, 6, 3) for seed in (0, 1)]
        np.testing.assert_allclose(series.y, np.mean(runs, axis=0), rtol=1e-4)
        assert series.x == [0.0, 3.0]
        norms = mean_gradient_norms(smoothness)["tiny", "PyTorch"][series.label]
        assert norms == pytest.approx(np.mean(runs, axis=1), rel=1e-4)


def test_several_datasets_share_a_table_and_have_plots_of_their_own(smoothness):
    other = {("other", *key[1:]): summary for key, summary in smoothness.items()}
    artifact = smoothness_artifact({**smoothness, **other})
    assert [row[0].text for row in artifact.tables[0].body] == ["tiny", "other"]
    assert [plot.name for plot in artifact.plots] == ["smoothness-0", "smoothness-1"]


def test_a_diagnosis_is_run_once(smoothness, easy_data, root):
    before = {path: path.stat().st_mtime_ns for path in root.glob("smoothness-*/*")}
    assert len(before) == 2 * len(SMOOTHNESS_MODELS)
    again = diagnose(smoothness_tasks("tiny", easy_data, **SIZE), root, ENGINE)
    assert {key: smoothness_summary(norms, 3) for key, norms in again.items()} == smoothness
    assert {path: path.stat().st_mtime_ns for path in root.glob("smoothness-*/*")} == before


def test_a_diagnosis_that_fails_is_an_error_with_its_message(easy_data, tmp_path):
    settings = {"model": "3-layer MLP", "iterations": 0}
    task = Diagnosis("smoothness", gradient_norms, easy_data, reference(easy_data), settings)
    with pytest.raises(TrainingError, match="smoothness: iterations, every and probes must be at least 1"):
        diagnose({"one": task}, tmp_path, ENGINE)


def test_attribute_tables_and_plots_show_the_statistics(easy_data):
    statistics = attribute_statistics(easy_data.descriptors)
    artifact = normality({"tiny": statistics})
    assert artifact.tables[0].body[0][3].text == f"{100 * statistics.share_not_normal:.0f}"
    assert artifact.notes[0].startswith("Class descriptors")
    assert correlations({"tiny": statistics}).tables[0].body[0][1].text == f"{statistics.correlation.mean():.3f}"
    (histogram,) = histograms({"tiny": statistics}).plots
    width = histogram.series[0].x[1] - histogram.series[0].x[0]
    assert width * sum(histogram.series[0].y) == pytest.approx(1.0, abs=1e-3)


def test_constant_attributes_are_noted(easy_data):
    descriptors = np.array(easy_data.descriptors)
    descriptors[:, 0] = 1.0
    assert "left out: tiny 1" in normality({"tiny": attribute_statistics(descriptors)}).notes[1]
