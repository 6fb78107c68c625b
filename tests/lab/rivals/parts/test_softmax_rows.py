"""The final classifier of generative methods: what its learning rate depends on, and what follows for its scores."""

import pytest
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import resolve
from classnorm.training import seeded
from classnorm_lab.rivals.parts.generator import GenerativeConfig, GenerativeModel

CONFIG = GenerativeConfig(hidden=16, batch_size=32, synthesized=40, classifier_lr=1e-2, classifier_epochs=4)
GENERATIVE = ("fclswgan", "cizsl", "lsrgan", "fvaegan", "tfvaegan", "dascn")


def spread_of_scores(dataset, copies, **changes):
    """Standard deviation of the logits if every row, real or generated, trains the classifier `copies` times."""
    config = CONFIG.replace(synthesized=copies * CONFIG.synthesized, **changes)
    torch.manual_seed(0)
    model = GenerativeModel(config, dataset.d_a, dataset.d_z, dataset.n_classes)
    train = dataset.split.train
    features = torch.from_numpy(dataset.features[train])
    model.descriptors.copy_(torch.from_numpy(dataset.descriptors))
    model.fit_scale(features)
    model.attributes.fit(model.descriptors)
    seen = torch.from_numpy(dataset.seen)
    labels = (seen.cumsum(0) - 1)[torch.from_numpy(dataset.labels[train])]
    model.fit_classifier(model.scale(features).repeat(copies, 1), labels.repeat(copies), seen, seed=0, draws=seeded(0))
    with torch.no_grad():
        return float(model.logits(features, model.prototypes(model.descriptors)).std())


def test_with_a_reach_the_scale_of_scores_does_not_grow_with_the_number_of_rows(tiny_data):
    """Calibration is chosen on validation splits, which have fewer rows than the final fit."""
    few, many = (spread_of_scores(tiny_data, copies, classifier_reach=0.5) for copies in (1, 4))
    assert many == pytest.approx(few, rel=0.1)
    few, many = (spread_of_scores(tiny_data, copies) for copies in (1, 4))
    assert many > 1.5 * few  # with a learning rate instead


def test_a_reach_is_the_learning_rate_times_the_steps(tiny_data):
    rows = len(tiny_data.split.train) + CONFIG.synthesized * int((~tiny_data.seen).sum())
    steps = CONFIG.classifier_epochs * -(-rows // CONFIG.batch_size)
    by_reach = spread_of_scores(tiny_data, 1, classifier_lr=1.0, classifier_reach=1e-2 * steps)
    assert by_reach == pytest.approx(spread_of_scores(tiny_data, 1), rel=1e-3)


@pytest.mark.parametrize("method", GENERATIVE)
def test_the_reference_recipes_have_a_reach_and_the_published_ones_a_learning_rate(tiny_data, method):
    assert resolve(tiny_data, method)[1].classifier_reach > 0
    assert resolve(tiny_data, method, "paper")[1].classifier_reach == 0


@pytest.mark.parametrize("method", ["fvaegan", "tfvaegan", "dascn", "zsml"])
def test_large_learning_rates_are_lower_for_wide_descriptors(tiny_data, method):
    wide = synthetic(SyntheticConfig(classes=12, unseen=4, rows=360, features=10, attributes=936))
    assert resolve(wide, method)[1].lr == pytest.approx(resolve(tiny_data, method)[1].lr / 3)
