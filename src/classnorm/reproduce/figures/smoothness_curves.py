"""Smoothness of the loss surface."""

from __future__ import annotations

from dataclasses import replace

from classnorm.experiments.diagnoses.loss_smoothness import mean_gradient_norms, smoothness_artifact, smoothness_tasks
from classnorm.reproduce.figures.figure import run_diagnoses, samples
from classnorm.reproduce.reproduction import Reproduction
from classnorm.results.artifact import Artifact
from classnorm.results.numbers import mean
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["smoothness"]


def smoothness(reproduction: Reproduction) -> Artifact:
    effort, tasks = reproduction.effort, {}
    for sample in samples(reproduction):
        iterations = effort.smoothness_iterations if sample.is_real else effort.smoothness_iterations // 5
        size = {"iterations": iterations, "every": effort.smoothness_every, "width": effort.diagnosis_width}
        tasks.update(smoothness_tasks(sample.label, sample.dataset, seeds=sample.seeds, **size))
    numbers = run_diagnoses(reproduction, "smoothness", tasks)
    artifact = smoothness_artifact(numbers, effort.smoothness_every)
    verdicts = [v for label, norms in mean_gradient_norms(numbers).items() for v in _verdicts(label, norms)]
    return replace(artifact, verdicts=verdicts, notes=artifact.notes + reproduction.missing)


def _verdicts(label: str, norms: dict[str, list[float]]) -> list[Verdict]:
    classifier, verdicts = norms["MLP classifier"], []
    for suffix, logits in (("", "with scaled cosines"), (" −NS", "with dot products")):
        plain, cn = norms[f"3-layer MLP{suffix}"], norms[f"3-layer MLP + CN{suffix}"]
        roughness = mean([p / c for p, c in zip(plain, classifier, strict=True)])
        reduction = mean([c / p for c, p in zip(cn, plain, strict=True)])
        verdicts += [
            Verdict(
                f"A zero-shot MLP {logits} has a rougher loss surface than an MLP classifier (larger gradient norm)",
                label,
                f"{roughness:.2g} times the classifier's",
                judge_difference(plain, classifier, 0.0),
            ),
            Verdict(
                f"CN makes it smoother, {logits} (smaller gradient norm than the plain zero-shot MLP)",
                label,
                f"{reduction:.2g} times the plain MLP's",
                judge_difference(plain, cn, 0.0),
            ),
        ]
    return verdicts
