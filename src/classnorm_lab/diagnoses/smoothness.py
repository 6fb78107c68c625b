"""Smoothness of the loss surface: the largest gradient norm around data points, during training (appendix F).

Numbers, their table and plots, and advice in plain words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.methods.classnorm import prepare
from classnorm.methods.rows import TrainingRows
from classnorm.methods.settings.classnorm import ClassNormConfig, reference
from classnorm.nn import Initialization, initialize_
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean
from classnorm.training import TrainingConfig, seeded, train
from classnorm_lab.diagnoses.diagnosis import MODEL_COLORS, Diagnosis, mean_series, rounded

SmoothnessKey = tuple[str, str, str, int]
"""Label of the dataset, initialisation, model, seed."""
INITIALIZATIONS: dict[Initialization, str] = {"torch": "PyTorch", "xavier": "Xavier", "kaiming_fan_in": "Kaiming"}
"""Initialisations of all layers, with the name that tables give them; the first is that of the authors' release."""
_KEPT = 25  # points of a curve
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
    dataset: ZeroShotDataset,
    config: ClassNormConfig,
    model: str,
    seed: int,
    rows: TrainingRows[Tensor],
    init: Initialization,
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


def smoothness_tasks(
    label: str,
    dataset: ZeroShotDataset,
    *,
    seeds: int,
    iterations: int,
    every: int,
    width: int,
    inits: Sequence[Initialization] = ("torch",),
) -> dict[SmoothnessKey, Diagnosis]:
    """A task for each initialisation, each of `SMOOTHNESS_MODELS` and each seed."""
    config = reference(dataset).replace(hidden=width)
    size = {"iterations": iterations, "every": every}
    return {
        (label, INITIALIZATIONS[init], model, seed): Diagnosis(
            "smoothness", gradient_norms, dataset, config, {"model": model, "seed": seed, "init": init, **size}
        )
        for init in inits
        for model in SMOOTHNESS_MODELS
        for seed in range(seeds)
    }


def smoothness_summary(norms: Sequence[float], every: int) -> dict[str, Any]:
    """The mean gradient norm over a training, and some points of its curve."""
    stride = max(1, len(norms) // _KEPT)
    steps = list(range(0, every * len(norms), every * stride))
    return {"mean": rounded([mean(norms)])[0], "steps": steps, "norms": rounded(norms[::stride])}


Summaries = Mapping[SmoothnessKey, Mapping[str, Any]]


def mean_gradient_norms(summaries: Summaries) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(dataset, initialisation) → model → mean gradient norm over the training, for each seed."""
    norms: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (label, init, model, _), summary in summaries.items():
        norms.setdefault((label, init), {}).setdefault(model, []).append(summary["mean"])
    return norms


def smoothness_artifact(summaries: Summaries) -> Artifact:
    """Table and plots of the summaries of `smoothness_tasks`, for one or several datasets."""
    norms = mean_gradient_norms(summaries)
    rows = [
        [
            label,
            init,
            str(len(group[SMOOTHNESS_MODELS[0]])),
            *(f"{mean(group[model]):.2e}" for model in SMOOTHNESS_MODELS),
        ]
        for (label, init), group in norms.items()
    ]
    return Artifact(
        "smoothness",
        "Smoothness of the loss surface",
        "",
        tables=[
            Table.of(
                "Mean over the training of the largest norm",
                ["data", "initialisation", "seeds", *SMOOTHNESS_MODELS],
                rows,
            )
        ],
        plots=[_plot(label, init, summaries, i) for i, (label, init) in enumerate(norms)],
        notes=[
            "The largest gradient norm over 10 batches of 256 rows with standard normal noise, divided by the number "
            "of parameters, at regular steps of the training; Adam 1e-4, batches of 256. All models of a row have the "
            "same initialisation, but for the last layer of models with CN: its variance is a part of CN.",
            "The paper says neither which initialisation its models have here nor whether they have normalize+scale, "
            "so all are shown. A cosine does not change with the length of a prototype, so its gradient grows as "
            "prototypes get shorter, and CN starts with short ones.",
        ],
        data={"smoothness": {" | ".join(map(str, key)): summary for key, summary in summaries.items()}},
    )


def _plot(label: str, init: str, summaries: Summaries, number: int) -> Plot:
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for (data, of, model, _), summary in summaries.items():
        if (data, of) == (label, init):
            curves.setdefault(model, []).append(summary)
    series = [
        mean_series(
            model,
            model.removesuffix(" −NS"),
            "−NS" * model.endswith("−NS"),
            [run["norms"] for run in runs],
            x=runs[0]["steps"],
        )
        for model, runs in curves.items()
    ]
    title = f"{label}: largest gradient norm, {init}'s initialisation"
    return Plot(
        f"smoothness-{number}",
        "lines",
        title,
        "iteration",
        "gradient norm / parameters",
        series,
        log_y=True,
        colors=MODEL_COLORS,
    )


def smoothness_advice(norms: Mapping[str, Sequence[float]]) -> list[str]:
    """Advice on mean gradient norms: model → one per seed."""
    classifier, plain, cn = (mean(norms[model]) for model in ("MLP classifier", "3-layer MLP", "3-layer MLP + CN"))
    return [
        f"The plain zero-shot MLP has {plain / classifier:.2g} times the gradient norm of an MLP classifier: "
        f"its loss surface is {'rougher' if plain > classifier else 'smoother'}.",
        f"Class normalization lowers the norm to {cn / plain:.2g} of that: larger learning rates are safe."
        if cn < plain
        else f"Class normalization raises the norm to {cn / plain:.2g} times that: do not raise the learning rate.",
    ]
