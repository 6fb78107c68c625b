"""Statement 1, the variance of normalize+scale, tested on Gaussian vectors and on features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classnorm import nn
from classnorm.data import ZeroShotDataset, load, simulate
from classnorm.results.artifact import Plot, Series, Table
from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.curves import RED, rounded
from classnorm_lab.diagnoses.logit_variance import VARIANCES
from classnorm_lab.paper.figures.figure import benchmarks_and_apy, without_repeats
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, Verdict, judge_bounds

_SMALLEST_DIMENSION = 32


def measure_formula(reproduction: Reproduction) -> dict[str, Any]:
    from classnorm_lab.diagnoses import variance  # PyTorch

    dimensions = [_SMALLEST_DIMENSION]
    while dimensions[-1] < reproduction.effort.formula_dimension:
        dimensions.append(2 * dimensions[-1])
    gaussians = {name: rounded(values) for name, values in variance.formula_on_gaussians(dimensions).items()}
    data, notes = _raw_data(reproduction)
    features = {
        label: {"d_z": dataset.d_z}
        | {name: rounded(values) for name, values in variance.formula_on_features(dataset).items()}
        for label, dataset in data
    }
    return {"gaussians": {"d": dimensions, **gaussians}, "features": features, "notes": notes}


def variance_formula(numbers: Mapping[str, Any]) -> Finding:
    gaussians = numbers["gaussians"]
    dimensions = gaussians["d"]
    predicted = [nn.logit_variance(1.0, d) for d in dimensions]
    ratios = [m / p for m, p in zip(gaussians["mean"], predicted, strict=True)]
    verdicts = [
        Verdict(
            "The formula predicts the variance for Gaussian vectors (within 15 %, each d)",
            f"synthetic vectors, d = {dimensions[0]}…{dimensions[-1]}",
            f"measured / predicted {min(ratios):.2f}…{max(ratios):.2f}",
            judge_bounds(ratios, 0.85, 1.15),
        )
    ]
    boxes, rows = [], []
    for label, values in numbers["features"].items():
        formula, total, between = nn.logit_variance(1.0, values["d_z"]), mean(values["total"]), mean(values["between"])
        boxes.append(Series(label, "measured", [formula], values["total"]))
        rows.append([label, str(values["d_z"]), *(f"{value:.2e}" for value in (formula, total, between))])
        verdicts += [
            Verdict(
                "The formula predicts the variance for features and attributes (within a factor 2)",
                label,
                f"measured / predicted {value / formula:.2f}",
                judge_bounds([value / formula], 0.5, 2.0),
                scoring,
            )
            for scoring, value in ((VARIANCES["total"], total), (VARIANCES["between"], between))
        ]
    header = ["data", "d_z", "formula", "measured, all logits", "measured, between classes"]
    tables = [Table.of("Variance of cosine logits of a random 2-layer MLP (512 units)", header, rows)]
    plots = [_gaussian_plot(dimensions, predicted, gaussians), _feature_plot(boxes)]
    notes = [
        "Unnormalized attributes, 5 random MLPs, 10 batches each. The formula assumes centred features; real features "
        "are not centred, so part of the variance is a shift common to all classes.",
        *numbers["notes"],
    ]
    return Finding("variance-formula", "", "", tables, plots, notes, verdicts=verdicts)


def _gaussian_plot(dimensions: Sequence[int], predicted: Sequence[float], gaussians: Mapping[str, list[float]]) -> Plot:
    x, center, std = [float(d) for d in dimensions], gaussians["mean"], gaussians["std"]
    low, high = ([m + sign * s for m, s in zip(center, std, strict=True)] for sign in (-1, 1))
    return Plot(
        "formula-synthetic",
        "lines",
        "Cosine of two Gaussian vectors: variance",
        "dimension d",
        "variance (γ = 1)",
        [
            Series("formula d/(d − 2)²", "formula", x, list(predicted)),
            Series("measured, ± one standard deviation", "measured", x, center, low, high),
        ],
        log_x=True,
        log_y=True,
        colors={"formula": "#404040", "measured": RED},
    )


def _feature_plot(boxes: list[Series]) -> Plot:
    title = "Random 2-layer MLP, batches of 4096: variance"
    return Plot("formula-real", "boxes", title, "", "variance of the logits (γ = 1)", boxes, log_y=True)


def _raw_data(reproduction: Reproduction) -> tuple[list[tuple[str, ZeroShotDataset]], list[str]]:
    """Labels and datasets, with raw attributes if available, and simulated features if features are missing; notes."""
    real, simulated, missing = [], [], []
    for benchmark in benchmarks_and_apy(reproduction):
        if not benchmark.missing and benchmark.folder and not benchmark.descriptors:
            raw = load(benchmark.folder, features=benchmark.features, attributes="original_att")
            real.append((benchmark.label, raw))
        elif not benchmark.missing:
            real.append((benchmark.label, benchmark.dataset))
        elif benchmark.folder:
            dataset = simulate(benchmark.folder, attributes="original_att")
            simulated.append((benchmark.name, dataset.descriptors, (dataset.name, dataset)))
        else:
            missing.append(benchmark.setting.missing)
    kept, repeats = without_repeats(simulated)
    return [*real, *kept], repeats + missing
