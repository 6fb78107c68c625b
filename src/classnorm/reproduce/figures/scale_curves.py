"""Scores against the scale of the seen logits."""

from __future__ import annotations

import numpy as np

from classnorm.analysis.seen_scales import SCALES
from classnorm.experiments.diagnosis import Diagnosis
from classnorm.methods.classnorm import reference
from classnorm.reproduce.figures.figure import (
    FigureSpec,
    diagnose,
    missing,
    rounded,
)
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Series, Table
from classnorm.results.verdicts import Verdict, judge_bounds

__all__ = ["seen_scales"]


def seen_scales(spec: FigureSpec, workshop: Workshop) -> Artifact:
    """U, S and H against the scale s, validation and test."""
    columns = [c for c in workshop.at_hand if len(c.dataset.split.test_unseen) and len(c.dataset.split.test_seen)]
    tasks = {}
    for column in columns:
        changes = {**column.changes, **workshop.effort.changes}
        for seed in range(workshop.effort.seeds):
            config = reference(column.dataset).replace(**changes)
            tasks[column.label, seed] = Diagnosis(column.dataset, "seen-scales", config, {"seed": seed})
    numbers = diagnose(workshop, spec.name, list(tasks.values()))
    plots, verdicts, rows = [], [], []
    for number, column in enumerate(columns):
        runs = [numbers[tasks[column.label, seed].name] for seed in range(workshop.effort.seeds)]
        series, best = [], {}
        for part in ("validation", "test"):
            for score, model in (("harmonic", "H"), ("unseen", "U"), ("seen", "S")):
                mean = np.mean([run[part][score] for run in runs], axis=0)
                series.append(Series(f"{model}, {part}", model, list(SCALES), rounded(mean), variant=part))
                if score == "harmonic":
                    best[part] = SCALES[int(mean.argmax())]
        plots.append(
            Plot(
                f"seen-scales-{number}",
                "lines",
                f"{column.label}: scores against the seen scale",
                "scale s: seen scores × s",
                "accuracy (%)",
                series,
            )
        )
        gains = [max(run["test"]["harmonic"]) - run["test"]["harmonic"][SCALES.index(1.0)] for run in runs]
        rows.append([column.label, f"{best['validation']:g}", f"{best['test']:g}", f"{np.mean(gains):.1f}"])
        if column.name in _PAPER_SCALES:
            wanted = _PAPER_SCALES[column.name]
            verdicts.append(
                Verdict(
                    f"The best scale on validation is about {wanted:g}, as in the paper (± 0.05)",
                    column.label,
                    f"{best['validation']:g} on validation, {best['test']:g} on test",
                    judge_bounds([best["validation"]], wanted - 0.05, wanted + 0.05),
                )
            )
    header = ["data", "best s on validation", "best s on test", "what the best s would gain on test (H)"]
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[
            Table.of("Best scales, mean curves over seeds (no score of this project uses the test curve)", header, rows)
        ],
        plots=plots,
        verdicts=verdicts,
        notes=[
            "One training without the validation rows serves both curves: 50, 30, 5 and 5 pseudo-unseen classes for "
            "SUN, CUB, AwA1 and AwA2 (a fifth of the seen classes elsewhere) and as many rows of the other classes are "
            "held out; on the test set the held-out classes do not take part.",
            *missing(workshop),
        ],
        data={"seen_scales": {" | ".join(map(str, key)): numbers[task.name] for key, task in tasks.items()}},
    )


_PAPER_SCALES = {"SUN": 0.95, "CUB": 1.0, "AWA1": 0.95, "AWA2": 0.95}
