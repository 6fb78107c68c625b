"""Smoothness of the loss surface."""

from __future__ import annotations

from classnorm.experiments.diagnoses.loss_smoothness import mean_gradient_norms, smoothness_artifact, smoothness_tasks
from classnorm.reproduce.figures.figure import FigureSpec, run_diagnoses, samples
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.numbers import mean
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["smoothness"]


def smoothness(spec: FigureSpec, reproduction: Reproduction) -> Artifact:
    effort = reproduction.effort
    tasks = {
        key: task
        for sample in samples(reproduction)
        for key, task in smoothness_tasks(
            sample.label,
            sample.dataset,
            seeds=sample.seeds,
            iterations=effort.smoothness_iterations if sample.is_real else effort.smoothness_iterations // 5,
            every=effort.smoothness_every,
            width=effort.diagnosis_width,
        ).items()
    }
    numbers = run_diagnoses(reproduction, spec.name, tasks)
    verdicts = [v for label, norms in mean_gradient_norms(numbers).items() for v in _verdicts(label, norms)]
    return spec.artifact(smoothness_artifact(numbers, effort.smoothness_every), verdicts, reproduction.missing)


def _verdicts(label: str, norms: dict[str, list[float]]) -> list[Verdict]:
    classifier, verdicts = norms["MLP classifier"], []
    for suffix, words in (("", "with scaled cosines"), (" −NS", "with dot products")):
        plain, cn = norms[f"3-layer MLP{suffix}"], norms[f"3-layer MLP + CN{suffix}"]
        lower = [c / p for c, p in zip(cn, plain, strict=True)]
        rougher = [p / c for p, c in zip(plain, classifier, strict=True)]
        verdicts += [
            Verdict(
                f"A zero-shot MLP {words} has a rougher loss surface than an MLP classifier (larger gradient norm)",
                label,
                f"{mean(rougher):.2g} times the classifier's",
                judge_difference(plain, classifier, 0.0),
            ),
            Verdict(
                f"CN makes it smoother, {words} (smaller gradient norm than the plain zero-shot MLP)",
                label,
                f"{mean(lower):.2g} times the plain MLP's",
                judge_difference(plain, cn, 0.0),
            ),
        ]
    return verdicts
