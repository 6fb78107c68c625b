"""Smoothness of the loss surface: the largest gradient norm around data points, during training (appendix F)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.methods.classnorm import prepare
from classnorm.methods.model import TrainingRows
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.nn import Initialization, initialize_
from classnorm.training import TrainingConfig, seeded, train

SMOOTHNESS_MODELS = (
    "MLP classifier",
    "3-layer MLP",
    "3-layer MLP + CN",
    "3-layer MLP −NS",
    "3-layer MLP + CN −NS",
)
"""A classifier, and the zero-shot MLP with scaled cosines and with dot products, each without and with CN."""


def gradient_norms(
    dataset: ZeroShotDataset,
    config: ClassNormConfig,
    model: str,
    seed: int = 0,
    iterations: int = 2500,
    every: int = 25,
    probes: int = 10,
    init: Initialization = "torch",
) -> list[float]:
    """The largest gradient norm over noisy batches, divided by the number of parameters, every few iterations.

    Each probe is a batch of 256 training rows plus standard normal noise. Training itself has no noise: Adam, learning
    rate 1e-4, batches of 256.

    Args:
        config: settings of the zero-shot models (width, attribute normalization); the classifier has the same width.
        model: one of `SMOOTHNESS_MODELS`.
        init: initialisation of all layers, the same for every model, but for the last layer of models with CN, whose
            proper variance is a part of CN.
    """
    if model not in SMOOTHNESS_MODELS:
        raise unknown_name("model", model, SMOOTHNESS_MODELS)
    if min(iterations, every, probes) < 1:
        raise ConfigError("iterations, every and probes must be at least 1")
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    network, logits = _model(dataset, config, model, seed, rows, init)
    n_parameters = sum(p.numel() for p in network.parameters())
    batches = _Batches(len(rows.labels), iterations, seeded(seed))
    norms = []

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits(features), labels)

    def gradient_norm() -> float:
        batch = batches.draw()
        noise = torch.randn(rows.features[batch].shape, generator=batches.generator)
        value = loss(rows.features[batch] + noise, rows.labels[batch])
        gradients = torch.autograd.grad(value, list(network.parameters()))
        return math.sqrt(sum(float(g.square().sum()) for g in gradients))

    def measure(step: int) -> None:
        if step % every == 0:
            norms.append(max(gradient_norm() for _ in range(probes)) / n_parameters)

    training = TrainingConfig(epochs=1, lr=1e-4, weight_decay=0.0, schedule="constant")
    train(network, loss, rows.features, rows.labels, training, batches=batches, on_step=measure)
    return norms


@dataclass(frozen=True)
class _Batches:
    """Batches of 256 rows, drawn with replacement by the generator that also draws the probes."""

    n: int
    iterations: int
    generator: torch.Generator

    def __len__(self) -> int:
        return self.iterations

    def draw(self) -> Tensor:
        return torch.randint(self.n, (256,), generator=self.generator)

    def epoch(self, number: int) -> Iterator[Tensor]:
        return (self.draw() for _ in range(self.iterations))


def _model(
    dataset: ZeroShotDataset, config: ClassNormConfig, model: str, seed: int, rows: TrainingRows, init: Initialization
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The network, and the function from features to logits."""
    if model == "MLP classifier":
        widths = [dataset.d_z, config.hidden, config.hidden, len(rows.descriptors)]
        generator = seeded(seed)
        blocks: list[nn.Module] = []
        for d_in, d_out in itertools.pairwise(widths):
            blocks += [initialize_(nn.Linear(d_in, d_out), init, config.init_distribution, generator), nn.ReLU()]
        classifier = nn.Sequential(*blocks[:-1])
        return classifier, classifier
    config = config.replace(layers=3, logits="dot" if model.endswith("−NS") else "cosine", hidden_init=init)
    if "CN" not in model:
        config = config.replace(normalization="none", init=init)
    problem = prepare(dataset, config, seed, torch.device("cpu"))
    if config.logits == "dot":
        return problem.model, problem.logits
    return problem.model, lambda features: problem.logits(F.normalize(features, dim=1))
