"""Advice: the numbers in its sentences are right, and following it helps."""

import re

import numpy as np
import pytest

from classnorm.methods.settings.classnorm import baseline, reference
from classnorm.nn import gamma_for_variance
from classnorm_lab.diagnoses.attributes import attribute_advice, attribute_statistics
from classnorm_lab.diagnoses.smoothness import smoothness_advice
from classnorm_lab.diagnoses.variance import initial_variance, variance_advice


@pytest.fixture(scope="module")
def advice(easy_data):
    return variance_advice(easy_data, seeds=2)


def test_the_variances_are_means_over_seeds(easy_data, advice):
    _, variances = advice
    for name, recipe in (("without class normalization", baseline), ("with class normalization", reference)):
        assert variances[name] == pytest.approx(
            np.mean([initial_variance(easy_data, recipe(easy_data), seed) for seed in (0, 1)])
        )


def test_the_gamma_that_is_advised_brings_the_variance_to_one(easy_data, advice):
    lines, variances = advice
    variance = variances["without class normalization"]
    assert variance > 2
    gamma = float(re.search(r"γ = ([\d.]+) would bring it to 1 \(`gamma=\1`\)", lines[0]).group(1))
    assert gamma == pytest.approx(5.0 * variance**-0.25, abs=0.051)
    after = np.mean([initial_variance(easy_data, baseline(easy_data).replace(gamma=gamma), seed) for seed in (0, 1)])
    assert after == pytest.approx(1.0, rel=0.1)  # the advice is rounded


def test_a_variance_of_0_02_asks_for_a_gamma_of_13_3(easy_data, monkeypatch):
    monkeypatch.setattr("classnorm_lab.diagnoses.variance.initial_variance", lambda *_: 0.02)
    lines, _ = variance_advice(easy_data)
    assert "γ = 13.3 would bring it to 1 (`gamma=13.3`)" in lines[0]
    assert "hardly changes the variance" in lines[-1]


@pytest.mark.parametrize(
    ("variance", "words"), [(1.3, "close to 1, as it should be"), (0.0, "cannot learn"), (16.0, "γ = 2.5 would bring")]
)
def test_a_good_a_vanished_and_a_large_variance_are_told_apart(easy_data, monkeypatch, variance, words):
    monkeypatch.setattr("classnorm_lab.diagnoses.variance.initial_variance", lambda *_: variance)
    assert words in variance_advice(easy_data)[0][0]


def test_the_formulas_own_gamma_is_named(easy_data, advice):
    assert f"γ = {gamma_for_variance(1.0, 16):.1f};" in advice[0][2]


def test_a_gain_by_class_normalization_is_told_as_a_ratio(advice):
    lines, variances = advice
    ratio = variances["with class normalization"] / variances["without class normalization"]
    assert ratio > 1.5 and f"raises the variance {ratio:.1f} times" in lines[-1]


@pytest.mark.parametrize(
    ("cn", "words"), [(0.5, "lowers the norm to 0.25 of that"), (6.0, "raises the norm to 3 times that")]
)
def test_smoothness_says_which_way_the_norm_goes(cn, words):
    first, second = smoothness_advice({"MLP classifier": [1.0], "3-layer MLP": [1.5, 2.5], "3-layer MLP + CN": [cn]})
    assert "2 times the gradient norm" in first and "rougher" in first
    assert words in second


def test_attributes_far_from_normal_should_have_unit_norm():
    lines = attribute_advice(attribute_statistics(np.random.default_rng(0).exponential(size=(80, 20))))
    assert "far from normal (rejected for 100 % of 20); prefer unit norm" in lines[0]
    assert "nearly independent" in lines[1]
    assert len(lines) == 2


def test_normal_attributes_may_be_standardized():
    table = np.random.default_rng(0).normal(size=(80, 100))
    assert "standardizing them is safe" in attribute_advice(attribute_statistics(table))[0]


def test_attributes_that_share_a_factor_are_not_independent():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(80, 1)) + generator.normal(size=(80, 20))
    lines = attribute_advice(attribute_statistics(table))
    assert re.search(r"not independent: mean absolute correlation 0\.[456]\d, 0\.09 is expected by chance", lines[1])


def test_useless_attributes_are_named():
    table = np.random.default_rng(0).normal(size=(80, 20))
    table[:, :3] = 1.0
    assert attribute_advice(attribute_statistics(table))[-1].startswith("3 attributes are the same for all classes")


def test_the_advice_says_which_model_it_is_about(advice):
    for line, name in zip(advice[0], ("without class normalization", "with class normalization"), strict=False):
        assert line.startswith(f"The MLP that `classnorm train` builds {name}: its initial logits have a variance of")
