"""Smoothness of the loss surface."""

from __future__ import annotations

import numpy as np

from classnorm import analysis
from classnorm.experiments.diagnosis import Diagnosis
from classnorm.methods.classnorm import reference
from classnorm.reproduce.figures.figure import (
    FigureSpec,
    diagnose,
    mean_series,
    missing,
    samples,
)
from classnorm.reproduce.reproduction import Workshop
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["smoothness"]


def smoothness(spec: FigureSpec, workshop: Workshop) -> Artifact:
    """Gradient norms around real data points."""
    effort = workshop.effort
    data = list(samples(workshop))
    tasks = {
        (sample.label, model, seed): Diagnosis(
            sample.dataset,
            "smoothness",
            reference(sample.dataset).replace(hidden=effort.smoothness_width),
            {
                "model": model,
                "seed": seed,
                "iterations": effort.smoothness_iterations if sample.is_real else effort.smoothness_iterations // 5,
                "every": effort.smoothness_every,
            },
        )
        for sample in data
        for model in analysis.SMOOTHNESS_MODELS
        for seed in range(sample.seeds)
    }
    numbers = diagnose(workshop, spec.name, list(tasks.values()))
    plots, verdicts, rows = [], [], []
    for number, sample in enumerate(data):
        curves = {
            model: [numbers[tasks[sample.label, model, seed].name] for seed in range(sample.seeds)]
            for model in analysis.SMOOTHNESS_MODELS
        }
        series = [
            mean_series(m, m.removesuffix(" −NS"), "−NS" * m.endswith("−NS"), runs, step=effort.smoothness_every)
            for m, runs in curves.items()
        ]
        title = f"{sample.label}: largest gradient norm"
        plots.append(
            Plot(f"smoothness-{number}", "lines", title, "iteration", "gradient norm / parameters", series, log_y=True)
        )
        means = {model: [float(np.mean(run)) for run in runs] for model, runs in curves.items()}
        rows.append([sample.label, *(f"{np.mean(means[model]):.2e}" for model in analysis.SMOOTHNESS_MODELS)])
        verdicts += _smoothness_verdicts(sample.label, means)
    return Artifact(
        spec.name,
        spec.title,
        spec.says,
        tables=[Table.of("Mean over the training of the largest norm", ["data", *analysis.SMOOTHNESS_MODELS], rows)],
        plots=plots,
        verdicts=verdicts,
        notes=[
            "The largest gradient norm over 10 batches of 256 rows with standard normal noise, divided by the number "
            f"of parameters, every {effort.smoothness_every} iterations; Adam 1e-4, batches of 256.",
            "The paper does not say whether its models have normalize+scale here, so both are shown. A cosine does not "
            "change with the length of a prototype, so its gradient grows as prototypes get shorter, and CN starts "
            "with short ones.",
            *missing(workshop),
        ],
        data={"smoothness": {" | ".join(map(str, key)): numbers[task.name] for key, task in tasks.items()}},
    )


def _smoothness_verdicts(label: str, means: dict[str, list[float]]) -> list[Verdict]:
    classifier, found = means["MLP classifier"], []
    for suffix, words in (("", "with scaled cosines"), (" −NS", "with dot products")):
        plain, cn = means[f"3-layer MLP{suffix}"], means[f"3-layer MLP + CN{suffix}"]
        lower = [c / p for c, p in zip(cn, plain, strict=True)]
        rougher = [p / c for p, c in zip(plain, classifier, strict=True)]
        found += [
            Verdict(
                f"A zero-shot MLP {words} has a rougher loss surface than an MLP classifier (larger gradient norm)",
                label,
                f"{np.mean(rougher):.2g} times the classifier's",
                judge_difference(plain, classifier, 0.0),
            ),
            Verdict(
                f"CN makes it smoother, {words} (smaller gradient norm than the plain zero-shot MLP)",
                label,
                f"{np.mean(lower):.2g} times the plain MLP's",
                judge_difference(plain, cn, 0.0),
            ),
        ]
    return found
