"""Statement 1, the variance of normalize+scale, against Gaussian vectors and real features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from classnorm import analysis
from classnorm.data import load, simulate
from classnorm.nn import logit_variance
from classnorm.reproduce.figures.figure import (
    FigureSpec,
    Sample,
    beyond,
    missing,
)
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Series, Table
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["variance_formula"]

DIMENSIONS = tuple(2**k for k in range(5, 14))  # 32 … 8192


def variance_formula(spec: FigureSpec, workshop: Workshop) -> Artifact:
    """Statement 1 against Gaussian vectors and real features."""
    dimensions = DIMENSIONS if workshop.effort.smoothness_iterations > 1000 else DIMENSIONS[:6]
    drawn = analysis.formula_on_gaussians(dimensions)
    predicted = [logit_variance(1.0, d) for d in dimensions]
    spread = [(m - s, m + s) for m, s in zip(drawn["mean"], drawn["std"], strict=True)]
    x = [float(d) for d in dimensions]
    synthetic = Plot(
        "formula-synthetic",
        "lines",
        "Cosine of two Gaussian vectors: variance",
        "dimension d",
        "variance (γ = 1)",
        [
            Series("formula d/(d − 2)²", "formula", x, predicted),
            Series(
                "measured, ± one standard deviation",
                "measured",
                x,
                drawn["mean"],
                [low for low, _ in spread],
                [high for _, high in spread],
            ),
        ],
        log_x=True,
        log_y=True,
    )
    ratios = [m / p for m, p in zip(drawn["mean"], predicted, strict=True)]
    verdicts = [
        Verdict(
            "The formula predicts the variance for Gaussian vectors (within 15 %, each d)",
            f"synthetic vectors, d = {dimensions[0]}…{dimensions[-1]}",
            f"measured / predicted {min(ratios):.2f}…{max(ratios):.2f}",
            judge_bounds(ratios, 0.85, 1.15),
        )
    ]
    boxes, rows = [], []
    for sample in raw_samples(workshop):
        values = analysis.formula_on_features(sample.dataset)
        expected = logit_variance(1.0, sample.dataset.d_z)
        boxes.append(Series(sample.label, "measured", [expected], values["total"]))
        ratio = [value / expected for value in values["total"]]
        rows.append(
            [
                sample.label,
                str(sample.dataset.d_z),
                f"{expected:.2e}",
                f"{np.mean(values['total']):.2e}",
                f"{np.mean(values['between']):.2e}",
            ]
        )
        verdicts.append(
            Verdict(
                "The formula predicts the variance for features and attributes (within a factor 2)",
                sample.label,
                f"measured / predicted {np.mean(ratio):.2f}",
                judge_bounds([float(np.mean(ratio))], 0.5, 2.0),
            )
        )
    real = Plot(
        "formula-real",
        "boxes",
        "Random 2-layer MLP, batches of 4096: variance",
        "",
        "variance of the logits (γ = 1)",
        boxes,
        log_y=True,
    )
    header = ["data", "d_z", "formula", "measured, all logits", "measured, between classes"]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("Variance of cosine logits of a random 2-layer MLP (512 units)", header, rows)],
        plots=[synthetic, real],
        verdicts=verdicts,
        notes=[
            "Unnormalised attributes, 5 random MLPs, 10 batches each. Real features are not centred, which the formula "
            "assumes: a share of the variance is a shift that all classes have in common.",
            *missing(workshop),
        ],
        data={"synthetic": {"d": list(dimensions), "formula": predicted, **drawn}},
    )


def raw_samples(workshop: Workshop) -> Iterator[Sample]:
    """As `_samples`, with raw attributes where there are."""
    for column in [*workshop.columns, *beyond(workshop)]:
        if column.missing:
            if column.attributes:
                dataset = simulate(column.attributes, attributes="original_att")
                yield Sample(dataset.name, dataset, 1, False)
        elif column.folder:
            raw = load(column.folder, features=column.features, attributes="original_att")
            yield Sample(column.label, raw, 1, True)
        else:
            yield Sample(column.label, column.dataset, 1, True)
