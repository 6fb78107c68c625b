"""The figure of the smoothness of the loss surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from classnorm_lab.diagnoses.smoothness import (
    INITIALIZATIONS,
    mean_gradient_norms,
    smoothness_artifact,
    smoothness_summary,
    smoothness_tasks,
)
from classnorm_lab.paper.figures import keyed, records, run_diagnoses, samples
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, PairedDifference, Verdict, judge_difference

_SIMULATED = 5  # divisor of the iterations on simulated data


def measure_smoothness(reproduction: Reproduction) -> dict[str, Any]:
    effort, tasks = reproduction.effort, {}
    chosen, notes = samples(reproduction)
    for sample in chosen:
        iterations = effort.smoothness_iterations // (1 if sample.is_real else _SIMULATED)
        size = {"iterations": iterations, "every": effort.smoothness_every, "width": effort.diagnosis_width}
        inits = tuple(INITIALIZATIONS)
        tasks.update(smoothness_tasks(sample.label, sample.dataset, seeds=sample.seeds, inits=inits, **size))
    numbers = run_diagnoses(reproduction, "smoothness", tasks)
    return {
        "iterations": effort.smoothness_iterations,
        "every": effort.smoothness_every,
        "width": effort.diagnosis_width,
        "runs": records({key: smoothness_summary(norms, effort.smoothness_every) for key, norms in numbers.items()}),
        "notes": notes,
    }


def smoothness(numbers: Mapping[str, Any]) -> Finding:
    summaries = keyed(numbers["runs"])
    verdicts = [
        v for (label, init), norms in mean_gradient_norms(summaries).items() for v in _verdicts(label, init, norms)
    ]
    effort = (
        f"{numbers['width']} hidden units, {numbers['iterations']} iterations, measured every {numbers['every']}; "
        f"simulated features: {numbers['iterations'] // _SIMULATED} iterations, 1 seed. Norms are compared by their "
        "logarithms."
    )
    return Finding.about(smoothness_artifact(summaries), verdicts, [effort, *numbers["notes"]])


def _verdicts(label: str, init: str, norms: Mapping[str, Sequence[float]]) -> list[Verdict]:
    verdicts = []
    for suffix, logits in (("", "with scaled cosines"), (" −NS", "with dot products")):
        plain, cn = norms[f"3-layer MLP{suffix}"], norms[f"3-layer MLP + CN{suffix}"]
        rougher = f"A zero-shot MLP {logits} has a rougher loss surface than an MLP classifier (larger gradient norm)"
        smoother = f"CN makes it smoother, {logits} (smaller gradient norm than the plain zero-shot MLP)"
        verdicts += [
            _verdict(rougher, label, init, plain, norms["MLP classifier"], "{:.2g} times the classifier's"),
            _verdict(smoother, label, init, plain, cn, "the plain MLP's is {:.2g} times as large"),
        ]
    return verdicts


def _verdict(
    claim: str, label: str, init: str, larger: Sequence[float], smaller: Sequence[float], text: str
) -> Verdict:
    """The claim that norms are larger than others, by the paired ratio."""
    logs = np.log(larger).tolist(), np.log(smaller).tolist()
    difference = PairedDifference.of(*logs)
    measured = text.format(np.exp(difference.mean))
    if difference.low is not None and difference.high is not None:
        measured += f" [{np.exp(difference.low):.2g}, {np.exp(difference.high):.2g}]"
    scoring = f"{init}'s initialisation"
    return Verdict(claim, label, f"{measured}, n = {difference.n}", judge_difference(*logs, 0.0), scoring)
