"""The variance of logits: against the formula, against a direct computation, and in a training that diverges."""

import json

import numpy as np
import pytest
import torch

from classnorm.errors import TrainingError
from classnorm.methods.classnorm import prepare
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.nn import logit_variance
from classnorm.training.loop import ShuffledRows
from classnorm_lab.diagnoses.variance import (
    formula_on_features,
    formula_on_gaussians,
    initial_variance,
    training_variance,
    variance_models,
)

CPU = torch.device("cpu")


def test_the_cosine_of_gaussian_vectors_has_variance_one_over_d():
    dimensions = [32, 128, 512]
    drawn = formula_on_gaussians(dimensions, samples=1024, repeats=8)
    assert drawn["mean"] == pytest.approx([1 / d for d in dimensions], rel=0.06)
    assert drawn["mean"] == pytest.approx([logit_variance(1.0, d) for d in dimensions], rel=0.15)
    assert all(0 < std < 0.2 * mean for mean, std in zip(drawn["mean"], drawn["std"], strict=True))


def test_another_seed_draws_other_vectors():
    first, again, other = (formula_on_gaussians([16], seed, samples=64, repeats=2) for seed in (0, 0, 1))
    assert first == again != other


def test_logits_of_random_networks_spread_more_over_a_batch_than_between_classes(easy_data):
    values = formula_on_features(easy_data, models=2, batches=3, hidden=16)
    assert len(values["between"]) == len(values["total"]) == 6
    assert all(0 < between < total < 1 for between, total in zip(values["between"], values["total"], strict=True))
    assert len(set(values["total"])) == 6  # every batch of every model is another


@pytest.mark.parametrize("changes", [{}, {"logits": "dot"}, {"normalization": "none"}, {"gamma": 2.0}])
def test_the_first_variance_is_that_of_the_first_batch(easy_data, changes):
    config = ClassNormConfig(hidden=16, batch_size=64, **changes)
    problem = prepare(easy_data, config, 3, CPU)
    rows = next(ShuffledRows(len(problem.labels), 64, 3, CPU).epoch(0))
    with torch.no_grad():
        logits = problem.logits(problem.features[rows])
    measured = training_variance(easy_data, config, 3, iterations=2)
    assert measured["between"][0] == pytest.approx(float(logits.var(dim=1).mean()), rel=1e-5)
    assert measured["total"][0] == pytest.approx(float(logits.var()), rel=1e-5)


def test_a_variance_is_measured_at_every_iteration_and_moves(easy_data):
    config = ClassNormConfig(hidden=16, batch_size=64)
    longer = training_variance(easy_data, config, 0, iterations=11)
    shorter = training_variance(easy_data, config, 0, iterations=4)
    assert len(longer["between"]) == len(longer["total"]) == 11
    assert longer["between"][:4] == shorter["between"]
    assert len(set(longer["between"])) == 11


def test_the_initial_variance_is_that_of_all_training_rows(easy_data):
    config = ClassNormConfig(hidden=16)
    problem = prepare(easy_data, config, 1, CPU)
    with torch.no_grad():
        direct = float(problem.logits(problem.features).var(dim=1).mean())
    assert initial_variance(easy_data, config, 1) == pytest.approx(direct, rel=1e-4)


@pytest.mark.parametrize("lr", [1e19, 1e30])
def test_a_dot_product_training_that_diverges_ends_early_with_finite_numbers(easy_data, lr):
    config = variance_models(easy_data)["3-layer MLP"].replace(hidden=16, logits="dot", lr=lr)
    measured = training_variance(easy_data, config, 0, iterations=40)
    assert 1 <= len(measured["between"]) == len(measured["total"]) < 40
    assert np.isfinite(measured["between"]).all() and np.isfinite(measured["total"]).all()
    json.dumps(measured, allow_nan=False)


def test_features_too_large_for_the_first_batch_are_an_error_that_names_them(easy_data):
    from dataclasses import replace

    vast = replace(easy_data, features=easy_data.features * np.float32(1e30))
    with pytest.raises(TrainingError, match=r"synthetic: .*scale the features down"):
        training_variance(vast, ClassNormConfig(hidden=16, logits="dot"), 0, iterations=3)


def test_the_papers_three_models_differ_as_its_theory_says(easy_data):
    models = variance_models(easy_data)
    assert list(models) == ["Linear", "3-layer MLP", "3-layer MLP + CN"]
    assert (models["Linear"].layers, models["Linear"].final_relu, models["Linear"].init) == (1, False, "xavier_fan_out")
    assert (models["3-layer MLP"].normalization, models["3-layer MLP"].init) == ("none", "torch")
    assert (models["3-layer MLP + CN"].normalization, models["3-layer MLP + CN"].init) == ("class", "proper")
    assert {config.attribute_normalization for config in models.values()} == {"unit-plain"}


def test_class_normalization_starts_with_more_variance_than_a_plain_network(easy_data):
    plain, cn = (
        initial_variance(easy_data, variance_models(easy_data)[m].replace(hidden=64))
        for m in ("3-layer MLP", "3-layer MLP + CN")
    )
    assert cn > 3 * plain
