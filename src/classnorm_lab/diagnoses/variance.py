"""Variance of the logits: during training, and compared with the formula of statement 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.errors import TrainingError
from classnorm.methods.classnorm import prepare
from classnorm.methods.settings.classnorm import ClassNormConfig, reference
from classnorm.nn import AttributeEmbedder, cosine_logits
from classnorm.results.numbers import mean, std
from classnorm.training import seeded, train


def variance_models(dataset: ZeroShotDataset) -> dict[str, ClassNormConfig]:
    """The paper's three models with NS and AN, as in its theory.

    Attributes have unit norm, without the factor √d_a of the authors' release. The linear model has Xavier's fan-out
    initialization (statement 2) and no bias, the plain MLP PyTorch's default.
    """
    cn = reference(dataset).replace(attribute_normalization="unit-plain")
    plain = cn.replace(normalization="none", init="torch")
    return {
        "Linear": plain.replace(layers=1, final_relu=False, output_bias=False, init="xavier_fan_out"),
        "3-layer MLP": plain,
        "3-layer MLP + CN": cn,
    }


def _spread(logits: Tensor) -> tuple[float, float]:
    """Variance between the classes of a row, averaged over rows; and over all logits of the batch.

    Only the second includes shifts common to all classes of a row, which a softmax ignores.
    """
    return float(logits.var(dim=1).mean()), float(logits.var())


def _by_kind(spreads: Sequence[tuple[float, float]]) -> dict[str, list[float]]:
    return {"between": [between for between, _ in spreads], "total": [total for _, total in spreads]}


@torch.no_grad()
def initial_variance(dataset: ZeroShotDataset, config: ClassNormConfig, seed: int = 0) -> float:
    """Variance of the logits between the seen classes before training, over up to 4096 training rows."""
    problem = prepare(dataset, config, seed, torch.device("cpu"))
    rows = torch.randperm(len(problem.labels), generator=seeded(seed))[:4096]
    return _spread(problem.logits(problem.features[rows]))[0]


def training_variance(
    dataset: ZeroShotDataset, config: ClassNormConfig, seed: int, iterations: int
) -> dict[str, list[float]]:
    """Variance of each batch's logits at every iteration, `between` classes and in `total`, until it diverges."""
    problem = prepare(dataset, config, seed, torch.device("cpu"))
    record: list[tuple[float, float]] = []

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        logits = problem.logits(features)
        record.append(_spread(logits.detach()))
        return problem.loss(logits, labels)

    steps = math.ceil(len(problem.labels) / config.batch_size)
    schedule = config.replace(epochs=math.ceil(iterations / steps), schedule="constant")
    with suppress(TrainingError):
        train(problem.model, loss, problem.features, problem.labels, schedule, seed=seed)
    finite = list(itertools.takewhile(lambda pair: all(map(math.isfinite, pair)), record[:iterations]))
    if not finite:
        raise TrainingError(f"{dataset.name}: the logits of the first batch are not finite; scale the features down")
    return _by_kind(finite)


@torch.no_grad()
def formula_on_gaussians(
    dimensions: Sequence[int], seed: int = 0, samples: int = 2048, repeats: int = 10
) -> dict[str, list[float]]:
    """Variance of the cosine of two standard normal vectors: mean and standard deviation over repeats."""
    generator = seeded(seed)

    def variance(d: int) -> float:
        return float(F.cosine_similarity(*torch.randn(2, samples, d, generator=generator)).var())

    variances = [[variance(d) for _ in range(repeats)] for d in dimensions]
    return {"mean": [mean(values) for values in variances], "std": [std(values) for values in variances]}


@torch.no_grad()
def formula_on_features(
    dataset: ZeroShotDataset, seed: int = 0, models: int = 5, batches: int = 10, hidden: int = 512
) -> dict[str, list[float]]:
    """Variance of cosine logits (γ = 1) of random 2-layer MLPs on batches of 4096 rows, over all classes."""
    generator = seeded(seed)
    descriptors = torch.from_numpy(np.asarray(dataset.descriptors, dtype=np.float32))
    record = []
    for number in range(models):
        embedder = AttributeEmbedder(
            dataset.d_a,
            dataset.d_z,
            layers=2,
            hidden=hidden,
            attribute_normalization="none",
            normalization="none",
            init="torch",
            final_relu=False,
            seed=seed * models + number,
        )
        prototypes = embedder(descriptors)
        for _ in range(batches):
            rows = torch.randint(dataset.n_rows, (4096,), generator=generator).numpy()
            features = torch.from_numpy(dataset.loaded(rows))
            record.append(_spread(cosine_logits(features, prototypes, 1.0)))
    return _by_kind(record)
