"""Gradient norms around data points."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from classnorm.errors import ConfigError
from classnorm.methods.classnorm import prepare
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.nn import initialize_
from classnorm_lab.diagnoses import smoothness
from classnorm_lab.diagnoses.smoothness import SMOOTHNESS_MODELS, gradient_norms

CONFIG = ClassNormConfig(hidden=8)


def norms(dataset, model, **settings):
    return gradient_norms(dataset, CONFIG, model, **({"iterations": 1, "every": 1, "probes": 1} | settings))


def noisy_batch(dataset, generator):
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    chosen = torch.randint(len(rows.labels), (256,), generator=generator)
    noise = torch.randn(256, dataset.d_z, generator=generator)
    return rows.features[chosen] + noise, rows.labels[chosen]


def norm_per_parameter(network, loss):
    loss.backward()
    parameters = list(network.parameters())
    total = sum(float((p.grad**2).sum()) for p in parameters)
    return math.sqrt(total) / sum(p.numel() for p in parameters)


def test_the_first_norm_of_a_classifier_is_a_direct_computation(easy_data):
    network = nn.Sequential(
        nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, int(easy_data.seen.sum()))
    )
    generator = torch.Generator().manual_seed(4)
    for layer in network[::2]:
        initialize_(layer, "torch", generator=generator)
    features, labels = noisy_batch(easy_data, torch.Generator().manual_seed(4))
    expected = norm_per_parameter(network, F.cross_entropy(network(features), labels))
    assert norms(easy_data, "MLP classifier", seed=4) == pytest.approx([expected], rel=1e-4)


def test_the_first_norm_of_a_zero_shot_model_is_a_direct_computation(easy_data):
    problem = prepare(easy_data, CONFIG.replace(normalization="none", init="torch"), 2, torch.device("cpu"))
    features, labels = noisy_batch(easy_data, torch.Generator().manual_seed(2))
    logits = 25.0 * F.normalize(features, dim=1) @ F.normalize(problem.model.prototypes(problem.descriptors), dim=1).T
    expected = norm_per_parameter(problem.model, F.cross_entropy(logits, labels))
    assert norms(easy_data, "3-layer MLP", seed=2) == pytest.approx([expected], rel=1e-4)


@pytest.mark.parametrize("model", SMOOTHNESS_MODELS)
def test_every_model_starts_with_the_initialisation_asked_for(easy_data, model, monkeypatch):
    started = []

    def record(network, *arguments, **settings):
        started.append([module for module in network.modules() if isinstance(module, nn.Linear)])

    monkeypatch.setattr(smoothness, "train", record)
    norms(easy_data, model, init="xavier")
    (layers,) = started
    assert len(layers) == 3
    for layer in layers[:-1] if "CN" in model else layers:
        d_out, d_in = layer.weight.shape
        assert not layer.bias.any()
        assert 0.8 < float(layer.weight.detach().abs().max()) / math.sqrt(6.0 / (d_in + d_out)) <= 1.0


def test_more_probes_find_a_larger_norm_at_the_start(easy_data):
    assert norms(easy_data, "MLP classifier", probes=8)[0] > norms(easy_data, "MLP classifier")[0]


@pytest.mark.parametrize("model", SMOOTHNESS_MODELS)
def test_norms_are_the_same_for_the_same_seed(easy_data, model):
    first, again, other = (norms(easy_data, model, seed=seed, iterations=3) for seed in (0, 0, 1))
    assert first == again != other


def test_norms_are_measured_every_few_iterations(easy_data):
    assert [len(norms(easy_data, "3-layer MLP + CN", iterations=n, every=3)) for n in (1, 3, 4, 7)] == [1, 1, 2, 3]


def test_the_three_models_are_three(easy_data):
    assert len({norms(easy_data, model)[0] for model in SMOOTHNESS_MODELS}) == len(SMOOTHNESS_MODELS)


def test_an_unknown_model_is_answered_with_the_nearest_name(easy_data):
    with pytest.raises(ConfigError, match=r"did you mean '3-layer MLP \+ CN'"):
        norms(easy_data, "3-layer MLP +CN")


@pytest.mark.parametrize("setting", ["iterations", "every", "probes"])
def test_nothing_is_measured_zero_times(easy_data, setting):
    with pytest.raises(ConfigError, match="must be at least 1"):
        norms(easy_data, "MLP classifier", **{setting: 0})
