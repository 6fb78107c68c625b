"""The figures of the variance of the logits: during training, and by the formula of statement 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classnorm import nn
from classnorm.data import ZeroShotDataset, load, simulate
from classnorm.results.artifact import Plot, Series, Table
from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.diagnosis import RED, VARIANCES, rounded
from classnorm_lab.diagnoses.variance import (
    POINTS,
    VarianceKey,
    formula_on_features,
    formula_on_gaussians,
    variance_artifact,
    variance_at,
    variance_summary,
    variance_tasks,
)
from classnorm_lab.paper.figures import (
    datasets_and_apy,
    keyed,
    records,
    run_diagnoses,
    samples,
    without_repeats,
)
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, Judgement, Verdict, judge_bounds, weakest

_SMALLEST_DIMENSION = 32
_NEAR = 3.0  # a variance near 1 is within this factor of it
_WELL_BELOW = 3.0  # a variance well below another is smaller by at least this factor
_FAR_ABOVE = 10.0
_NORMS = {"unit norm": ("+NS +AN", "−NS −AN"), "unit norm · √d_a": ("+NS +AN·√d_a", "−NS −AN")}
"""Attribute normalization → variants with NS and AN, and with neither."""


def measure_variance(reproduction: Reproduction) -> dict[str, Any]:
    iterations, width, tasks = reproduction.effort.variance_iterations, reproduction.effort.diagnosis_width, {}
    chosen, notes = samples(reproduction)
    for sample in chosen:
        tasks.update(
            variance_tasks(sample.label, sample.dataset, seeds=sample.seeds, iterations=iterations, width=width)
        )
    numbers = run_diagnoses(reproduction, "variance", tasks)
    return {
        "iterations": iterations,
        "width": width,
        "runs": records({key: variance_summary(curves) for key, curves in numbers.items()}),
        "notes": notes,
    }


def variance(numbers: Mapping[str, Any]) -> Finding:
    summaries: dict[VarianceKey, dict[str, Any]] = keyed(numbers["runs"])
    verdicts = [
        verdict
        for label in dict.fromkeys(key[0] for key in summaries)
        for norm in _NORMS
        for kind in VARIANCES
        for verdict in _verdicts(label, norm, kind, summaries)
    ]
    effort = (
        f"{numbers['width']} hidden units, {numbers['iterations']} iterations; simulated features: 1 seed. A claim is "
        "judged at steps 0, 10, 100 and by the median: it holds if it does at all four, and weakly if at some, which "
        "are named."
    )
    return Finding.about(variance_artifact(summaries), verdicts, [effort, *numbers["notes"]])


def _verdicts(label: str, norm: str, kind: str, summaries: Mapping[VarianceKey, Mapping[str, Any]]) -> list[Verdict]:
    both, neither = _NORMS[norm]

    def values(model: str, variant: str, point: str) -> list[float]:
        return [
            variance_at(summary, kind, point)
            for (data, of, kept, _), summary in summaries.items()
            if (data, of, kept) == (label, model, variant)
        ]

    def judged(point: str) -> list[tuple[float, Judgement]]:
        linear, deep, cn = (values(model, both, point) for model in ("Linear", "3-layer MLP", "3-layer MLP + CN"))
        plain = values("Linear", neither, point)
        below = [a / b for a, b in zip(deep, linear, strict=True)]
        restored = [a / b for a, b in zip(cn, deep, strict=True)]
        return [
            (mean(plain), judge_bounds(plain, low=_FAR_ABOVE)),
            (mean(linear), judge_bounds(linear, 1 / _NEAR, _NEAR)),
            (mean(deep), judge_bounds(below, high=1 / _WELL_BELOW)),
            (mean(cn), weakest(judge_bounds(cn, 1 / _NEAR, _NEAR), judge_bounds(restored, low=_WELL_BELOW))),
        ]

    claims = (
        f"Linear without NS and AN: the variance is far above 1 (over {_FAR_ABOVE:g})",
        f"Linear with NS and AN: it is near 1 (within a factor {_NEAR:g})",
        f"3-layer MLP with NS and AN: it is well below the linear model's (by a factor {_WELL_BELOW:g})",
        f"CN restores it: near 1, and {_WELL_BELOW:g} times the plain MLP's",
    )
    findings = {point: judged(point) for point in POINTS}
    return [
        _verdict(claim, label, f"{VARIANCES[kind]}, {norm}", [findings[point][i] for point in POINTS])
        for i, claim in enumerate(claims)
    ]


def _verdict(claim: str, label: str, scoring: str, found: Sequence[tuple[float, Judgement]]) -> Verdict:
    """One judgement from those at all `POINTS`."""
    held = [point for point, (_, judgement) in zip(POINTS, found, strict=True) if judgement != "does not hold"]
    everywhere = weakest(*(judgement for _, judgement in found))
    judgement: Judgement = everywhere if len(held) == len(POINTS) else "holds weakly" if held else "does not hold"
    numbers = ", ".join(f"{value:.3g}" for value, _ in found)
    where = "" if len(held) in (0, len(POINTS)) else f"; holds only at {', '.join(held)}"
    return Verdict(
        claim, label, f"{numbers} at steps {', '.join(POINTS[:-1])} and the {POINTS[-1]}{where}", judgement, scoring
    )


def measure_formula(reproduction: Reproduction) -> dict[str, Any]:
    dimensions = [_SMALLEST_DIMENSION]
    while dimensions[-1] < reproduction.effort.formula_dimension:
        dimensions.append(2 * dimensions[-1])
    gaussians = {name: rounded(values) for name, values in formula_on_gaussians(dimensions).items()}
    data, notes = _raw_data(reproduction)
    features = {
        label: {"d_z": dataset.d_z} | {name: rounded(values) for name, values in formula_on_features(dataset).items()}
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
    for paper_dataset in datasets_and_apy(reproduction):
        if not paper_dataset.missing and paper_dataset.folder and not paper_dataset.descriptors:
            raw = load(paper_dataset.folder, features=paper_dataset.features, attributes="original_att")
            real.append((paper_dataset.label, raw))
        elif not paper_dataset.missing:
            real.append((paper_dataset.label, paper_dataset.dataset))
        elif paper_dataset.folder:
            dataset = simulate(paper_dataset.folder, attributes="original_att")
            simulated.append((paper_dataset.name, dataset.descriptors, (dataset.name, dataset)))
        else:
            missing.append(paper_dataset.setting.missing)
    kept, repeats = without_repeats(simulated)
    return [*real, *kept], repeats + missing
