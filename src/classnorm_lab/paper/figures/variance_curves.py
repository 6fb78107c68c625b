"""Variance of the logits during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.logit_variance import (
    POINTS,
    VARIANCES,
    VarianceKey,
    variance_artifact,
    variance_at,
    variance_summary,
    variance_tasks,
)
from classnorm_lab.paper.figures.figure import keyed, records, run_diagnoses, samples
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, Judgement, Verdict, judge_bounds, weakest

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
