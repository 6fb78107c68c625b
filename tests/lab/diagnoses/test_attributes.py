"""Statistics of attributes: on tables whose answer is known."""

import numpy as np
import pytest
from scipy import stats

from classnorm.errors import DataError
from classnorm_lab.diagnoses.attributes import HISTOGRAM_EDGES, attribute_statistics


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).normal(3.0, 2.0, (500, 400))


def test_normal_attributes_are_rejected_as_often_as_the_level_says(normal):
    assert attribute_statistics(normal).share_not_normal == pytest.approx(0.05, abs=0.03)


def test_exponential_attributes_are_rejected():
    statistics = attribute_statistics(np.random.default_rng(1).exponential(size=(100, 50)))
    assert statistics.share_not_normal > 0.98
    assert np.median(statistics.chi2) > 20
    assert statistics.skewness.mean() == pytest.approx(2.0, abs=0.5)


def test_the_test_is_that_of_scipy_on_the_raw_columns(normal):
    statistics, direct = attribute_statistics(normal), stats.normaltest(normal)
    np.testing.assert_allclose(statistics.chi2, direct.statistic, rtol=1e-8)
    np.testing.assert_allclose(statistics.p_value, direct.pvalue, rtol=1e-8)


def test_correlations_are_those_of_numpy():
    generator = np.random.default_rng(2)
    table = generator.normal(size=(30, 3)) @ generator.normal(size=(3, 7)) + generator.normal(size=(30, 7))
    correlations = np.abs(np.corrcoef(table.T))
    direct = [np.delete(row, i).mean() for i, row in enumerate(correlations)]
    np.testing.assert_allclose(attribute_statistics(table).correlation, direct, rtol=1e-10)


def test_independent_attributes_correlate_by_chance_alone(normal):
    statistics = attribute_statistics(normal)
    assert statistics.correlation.mean() == pytest.approx(statistics.chance_correlation, rel=0.03)


def test_constant_attributes_are_counted_and_left_out(normal):
    table = normal[:, :6].copy()
    table[:, [1, 4]] = [7.5, 0.0]
    statistics, without = attribute_statistics(table), attribute_statistics(table[:, [0, 2, 3, 5]])
    assert (statistics.constant, without.constant) == (2, 0)
    assert len(statistics.chi2) == 4
    np.testing.assert_array_equal(statistics.correlation, without.correlation)


def test_a_single_attribute_has_no_others_to_correlate_with(normal):
    assert attribute_statistics(normal[:, :1]).correlation == pytest.approx([0.0], abs=1e-12)


def test_the_histogram_is_that_of_standardized_values(normal):
    density = attribute_statistics(3 * normal + 1).density
    middle, width = (HISTOGRAM_EDGES[1:] + HISTOGRAM_EDGES[:-1]) / 2, np.diff(HISTOGRAM_EDGES)
    assert (density * width).sum() == pytest.approx(1.0)
    assert (density * width * middle).sum() == pytest.approx(0.0, abs=0.05)
    assert (density * width * middle**2).sum() == pytest.approx(1.0, abs=0.1)


def test_units_do_not_matter(normal):
    scaled = attribute_statistics(normal * np.linspace(1e-6, 1e6, normal.shape[1]) + 5)
    np.testing.assert_allclose(scaled.chi2, attribute_statistics(normal).chi2, rtol=1e-5)


def test_seven_classes_are_too_few_and_eight_are_enough(normal):
    with pytest.raises(DataError, match="at least 8 classes, there are 7"):
        attribute_statistics(normal[:7])
    assert len(attribute_statistics(normal[:8]).chi2) == normal.shape[1]


def test_attributes_that_are_all_constant_are_refused():
    with pytest.raises(DataError, match="the same for all classes"):
        attribute_statistics(np.ones((20, 3)))
