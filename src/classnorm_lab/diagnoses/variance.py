"""Variance of the logits: at the start, during training with and without NS, AN and CN, and by statement 1.

Numbers, their table and plots, and advice in plain words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data import ZeroShotDataset
from classnorm.errors import TrainingError
from classnorm.methods.classnorm import prepare
from classnorm.methods.settings.classnorm import ClassNormConfig, baseline, reference
from classnorm.nn import AttributeEmbedder, cosine_logits, gamma_for_variance
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean, std
from classnorm.training import seeded, train
from classnorm_lab.diagnoses.diagnosis import MODEL_COLORS, VARIANCES, Diagnosis, mean_series, rounded

VarianceKey = tuple[str, str, str, int]
"""Label of the dataset, model, variant, seed."""
POINTS = ("0", "10", "100", "median")
"""Steps of the training (number of updates so far) for the table, and the median of all steps."""
_STEPS = (0, 1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 299)  # that are kept of a curve
_WITHOUT_AN = {"attribute_normalization": "standardize"}
_WITHOUT_NS = {"logits": "dot"}
_ROOT = {"attribute_normalization": "unit"}
_VARIANTS: dict[str, dict[str, str]] = {
    "+NS +AN": {},
    "+NS +AN·√d_a": _ROOT,
    "−AN": _WITHOUT_AN,
    "−NS": _WITHOUT_NS,
    "−NS, AN·√d_a": {**_WITHOUT_NS, **_ROOT},
    "−NS −AN": {**_WITHOUT_NS, **_WITHOUT_AN},
}


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


def variance_tasks(
    label: str, dataset: ZeroShotDataset, *, seeds: int, iterations: int, width: int = 512
) -> dict[VarianceKey, Diagnosis]:
    """A task for each of the paper's three models, six variants and each seed."""
    configs = {
        (model, variant): config.replace(hidden=width, **changes)
        for model, config in variance_models(dataset).items()
        for variant, changes in _VARIANTS.items()
    }
    settings = {"iterations": iterations}
    return {
        (label, *key, seed): Diagnosis("variance", training_variance, dataset, config, {"seed": seed, **settings})
        for key, config in configs.items()
        for seed in range(seeds)
    }


def variance_summary(curves: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Both variances at some steps of a training, and their medians over all its steps."""
    n = len(curves["between"])
    steps = [step for step in _STEPS if step < n]
    return {
        "steps": steps,
        **{kind: rounded(curves[kind][step] for step in steps) for kind in VARIANCES},
        "median": dict(zip(VARIANCES, rounded(np.median(curves[kind]) for kind in VARIANCES), strict=True)),
    }


def variance_at(summary: Mapping[str, Any], kind: str, point: str) -> float:
    """A variance at one of `POINTS`; after the end of a training, its last."""
    if point == "median":
        return float(summary["median"][kind])
    return float([value for step, value in zip(summary["steps"], summary[kind], strict=True) if step <= int(point)][-1])


def variance_artifact(summaries: Mapping[VarianceKey, Mapping[str, Any]]) -> Artifact:
    """Table and plots of the summaries of `variance_tasks`, for one or several datasets."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for (label, model, variant, _), summary in summaries.items():
        groups.setdefault((label, model, variant), []).append(summary)
    columns = [(kind, point) for kind in VARIANCES for point in POINTS]
    rows = [
        [
            label,
            f"{model} {variant}",
            str(len(runs)),
            *(f"{mean([variance_at(run, kind, point) for run in runs]):.3g}" for kind, point in columns),
        ]
        for (label, model, variant), runs in groups.items()
    ]
    header = ["data", "model", "seeds"]
    header += [f"{VARIANCES[kind]}, {point if point == 'median' else f'step {point}'}" for kind, point in columns]
    return Artifact(
        "variance",
        "Variance of the logits in training",
        "",
        tables=[Table.of("Variance of the logits, mean over seeds", header, rows)],
        plots=[
            plot for i, label in enumerate(dict.fromkeys(k[0] for k in groups)) for plot in _plots(label, groups, i)
        ],
        notes=[
            "“Between classes” is the variance between the classes of a row, averaged over a batch: what a softmax "
            "sees. “Of all logits” also has the shifts that are common to the classes of a row. AN is unit norm, as in "
            "the paper's theory, AN·√d_a that of the authors' release; −AN standardizes the attributes. γ = 5, Adam "
            "5e-4, batches of 256. The linear model is V·a with Xavier's fan-out initialisation, as the theory "
            "assumes; the MLPs have PyTorch's default, with CN the proper variance in the last layer. Where a curve "
            "ends early, training diverged. The plots show the variance between classes with unit norm. These are the "
            "models of the paper's figures; a recipe is wider and has AN·√d_a, so its variance at step 0 is another."
        ],
        data={"variance": {" | ".join(map(str, key)): summary for key, summary in summaries.items()}},
    )


def _plots(label: str, groups: Mapping[tuple[str, str, str], Sequence[Mapping[str, Any]]], n: int) -> Iterator[Plot]:
    series = [
        mean_series(
            f"{model} {variant}",
            model,
            variant.removeprefix("+NS +AN"),
            [run["between"] for run in runs],
            x=runs[0]["steps"],
            shift=1,
        )
        for (data, model, variant), runs in groups.items()
        if data == label and "√" not in variant
    ]
    for name, is_linear in (("linear", True), ("deep", False)):
        yield Plot(
            f"variance-{name}-{n}",
            "lines",
            f"{label}: variance of the logits in training",
            "iteration",
            "variance between classes",
            [line for line in series if (line.model == "Linear") == is_linear],
            log_x=True,
            log_y=True,
            lines_at={"unit variance": 1.0},
            colors=MODEL_COLORS,
        )


def variance_advice(dataset: ZeroShotDataset, seeds: int = 3) -> tuple[list[str], dict[str, float]]:
    """Advice on the logit variance at the start of training, and the variance of each model."""
    configs = {"without class normalization": baseline(dataset), "with class normalization": reference(dataset)}
    variances = {
        name: mean([initial_variance(dataset, config, seed) for seed in range(seeds)])
        for name, config in configs.items()
    }
    gamma = float(reference(dataset).gamma)
    lines = []
    for name, variance in variances.items():
        model = f"The MLP that `classnorm train` builds {name}:"
        if variance <= 0:
            lines.append(f"{model} all classes have the same logits; it cannot learn.")
            continue
        best = f"{gamma * variance**-0.25:.1f}"
        verdict = (
            "close to 1, as it should be."
            if 0.5 <= variance <= 2
            else f"γ = {best} would bring it to 1 (`gamma={best}`)."
        )
        lines.append(f"{model} its initial logits have a variance of {variance:.2g} (γ {gamma:g}): {verdict}")
    lines.append(
        f"For zero-mean features of {dataset.d_z} dimensions the paper's formula gives γ = "
        f"{gamma_for_variance(1.0, dataset.d_z):.1f}; prefer the measured one."
    )
    ratio = variances["with class normalization"] / max(variances["without class normalization"], 1e-12)
    lines.append(
        f"Class normalization raises the variance {ratio:.1f} times: classes differ from the first step."
        if ratio >= 1.5
        else "Class normalization hardly changes the variance here: expect little from it on this data."
    )
    return lines, variances
