"""U, S and H against a calibration: on validation as recorded, on test as computed."""

import numpy as np
import pytest

from classnorm.metrics import Calibration, best_seen_and_unseen, gzsl_scores
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.report import group_results
from classnorm.report.plots import calibration_plot, group_curves, group_styles, shared_values
from classnorm.results.run_folder import find_results


@pytest.mark.parametrize("kind", ["scale", "bias"])
def test_curves_are_the_scores_of_calibrated_logits_averaged_over_splits(kind):
    generator = np.random.default_rng(0)
    seen = np.arange(9) < 6
    splits = [(generator.normal(3, 1, (60, 9)), generator.integers(0, 9, 60)) for _ in range(2)]
    values = [-0.5, 0.6, 0.9, 1.0, 1.3]
    curves = calibration_curves([best_seen_and_unseen(*split, seen) for split in splits], kind, values)
    for i, value in enumerate(values):
        scored = [gzsl_scores(Calibration(kind, value).apply(x, seen), y, seen) for x, y in splits]
        for name in ("unseen", "seen", "harmonic"):
            assert getattr(curves, name)[i] == pytest.approx(np.mean([s[name] for s in scored]))


def test_the_values_of_a_curve_hold_the_chosen_and_the_neutral_one():
    best_scores = best_seen_and_unseen([[5.0, 1.0], [9.0, 2.0], [4.0, 1.0]], [0, 1, 0], [True, False])
    scales = calibration_values([best_scores], "scale", Calibration("scale", 1.3))
    assert scales[0] == 0.7 and scales[-1] > 1.3
    assert calibration_values([best_scores], "scale", Calibration())[[0, -1]].tolist() == [0.7, 1.1]
    biases = calibration_values([best_scores], "bias", Calibration("bias", 40.0))
    assert biases[0] <= 0 and biases[-1] == 40.0
    assert (np.diff(biases) > 0).all() and len(biases) == len(scales) == 41


@pytest.fixture
def groups(write_run, tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"v{seed}", "validated", seed, calibration=f"scale:{(0.9, 0.95)[seed]}", validated=True)
        write_run(tmp_path / f"p{seed}", "plain", seed, skill=1.0)
    return {group.label.split()[-1]: group for group in group_results(find_results([tmp_path]))}


def test_recorded_validation_curves_meet_the_test_curves_where_both_have_the_same_rows(groups):
    """The fixture validates on its test rows: both curves are one, up to rounding and interpolation."""
    group = groups["validated"]
    values = shared_values([group], "scale")
    curves = group_curves(group, "scale", values)
    assert curves.chosen == [0.9, 0.95]
    for name in ("unseen", "seen", "harmonic"):
        test, validation = getattr(curves.test, name), getattr(curves.validation, name)
        assert np.abs(test - validation).max() < 4
        assert np.abs(test - validation).mean() < 1


def test_where_a_seed_has_no_validation_curve_there_is_no_mean(groups):
    group = groups["validated"]
    values = np.array([-50.0, 0.0])
    assert np.isnan(group_curves(group, "bias", values).validation.harmonic).tolist() == [True, False]


def test_runs_without_validation_have_a_test_curve_only(groups):
    values = shared_values(list(groups.values()), "bias")
    curves = group_curves(groups["plain"], "bias", values)
    assert curves.validation is None
    assert curves.chosen == [0.0, 0.0]
    assert group_curves(groups["validated"], "bias", values).chosen == []


def test_the_plot_draws_validation_dashed_test_solid_and_the_chosen_values_in_the_models_colour(groups):
    styles = group_styles(list(groups.values()))
    figure = calibration_plot(list(groups.values()), styles, "scale")
    color = styles[groups["validated"].label].color
    for axes in figure.axes:
        mine = [line for line in axes.lines if line.get_color() == color]
        assert sorted(line.get_linestyle() for line in mine) == ["-", "--", ":", ":"]
        assert sorted(line.get_xdata()[0] for line in mine if line.get_linestyle() == ":") == [0.9, 0.95]
    assert [axes.get_ylabel() for axes in figure.axes] == ["H (%)", "U (%)", "S (%)"]
