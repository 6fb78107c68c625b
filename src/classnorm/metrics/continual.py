r"""Scores of continual zero-shot learning, from the logits of one test set after every task.

After task t of T the classes of tasks 1 … t are seen and the others unseen; all classes compete at every step.

===========  =========================================================================================
mSA          :math:`\frac1T \sum_{t=1}^{T} S_t`, S on the seen classes' rows
mUA          :math:`\frac1{T-1} \sum_{t=1}^{T-1} U_t`, U on the unseen classes' rows; none after task T
mH           :math:`\frac1{T-1} \sum_{t=1}^{T-1} H_t`
mAUC         :math:`\frac1{T-1} \sum_{t=1}^{T-1} \mathrm{AUSUC}_t`
mJA          :math:`\frac1T \sum_{t=1}^{T} J_t`, accuracy on all rows
forgetting   :math:`\frac1{T-1} \sum_{j=1}^{T-1} (\max_{j \le l < T} a_{l,j} - a_{T,j})`, a fraction
===========  =========================================================================================

:math:`a_{l,j}` is the accuracy on the rows of task j after task l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.metrics.accuracy import Average, accuracy, gzsl_scores


@dataclass(frozen=True)
class ContinualScores:
    """Percentages, except forgetting; NaN if the stream is too short for a score."""

    mSA: float  # noqa: N815
    mUA: float  # noqa: N815
    mH: float  # noqa: N815
    mAUC: float  # noqa: N815
    mJA: float  # noqa: N815
    forgetting: float
    per_task: tuple[dict[str, float], ...]
    """After each task: `seen`, `unseen`, `harmonic`, `ausuc`, `joint`, and `forgetting` so far."""
    matrix: npt.NDArray[np.float64]
    """[T, T], percent: row l, column j is the accuracy on task j after task l."""

    def summary(self) -> dict[str, float]:
        """The six scores by name."""
        return {name: float(asdict(self)[name]) for name in ("mSA", "mUA", "mH", "mAUC", "mJA", "forgetting")}


def continual_scores(
    logits_history: Sequence[npt.ArrayLike],
    labels: npt.ArrayLike,
    tasks: Sequence[npt.ArrayLike],
    average: Average = "class",
) -> ContinualScores:
    """Scores of a stream.

    Args:
        logits_history: T arrays [n, n_classes], one after each task; or T + 1, the first of them, before any task,
            unused.
        labels: [n], index of the true class.
        tasks: T arrays of class indices, in the order of learning; every class is in exactly one.
        average: ``"class"`` (default) or ``"sample"``.

    >>> good = [[2.0, 1.0], [1.0, 2.0]]
    >>> scores = continual_scores([[[2.0, 1.0], [2.0, 1.0]], good], labels=[0, 1], tasks=[[0], [1]])
    >>> scores.mSA, scores.mUA, scores.mJA, scores.forgetting
    (100.0, 0.0, 75.0, 0.0)
    """
    history = list(logits_history)
    groups = [np.asarray(task, dtype=np.int64).reshape(-1) for task in tasks]
    if len(history) == len(groups) + 1:
        history = history[1:]
    if not groups or len(history) != len(groups):
        raise ValueError(f"{len(groups)} tasks need as many logits (or one more, from the start), not {len(history)}")
    index = np.asarray(labels, dtype=np.int64)
    n_classes = np.asarray(history[0]).shape[-1]
    members = np.concatenate(groups)
    if sorted(members.tolist()) != list(range(n_classes)):
        raise ValueError(f"tasks must name each of the {n_classes} classes once")
    of_class = np.empty(n_classes, dtype=np.int64)
    of_class[members] = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    of_row = of_class[index]

    per_task: list[dict[str, float]] = []
    matrix = np.full((len(groups), len(groups)), np.nan)
    for step, logits in enumerate(history):
        scores: Any = np.asarray(logits)
        gzsl = gzsl_scores(scores, index, of_class <= step, average)
        predictions = scores.argmax(axis=1)
        matrix[step] = [accuracy(predictions[of_row == t], index[of_row == t], average) for t in range(len(groups))]
        record = {name: gzsl[name] for name in ("seen", "unseen", "harmonic", "ausuc")}
        record["joint"] = accuracy(predictions, index, average)
        record["forgetting"] = _forgetting(matrix[: step + 1, : step + 1])
        per_task.append(record)
    return ContinualScores(
        mSA=_mean(per_task, "seen", len(groups)),
        mUA=_mean(per_task, "unseen", len(groups) - 1),
        mH=_mean(per_task, "harmonic", len(groups) - 1),
        mAUC=_mean(per_task, "ausuc", len(groups) - 1),
        mJA=_mean(per_task, "joint", len(groups)),
        forgetting=_forgetting(matrix),
        per_task=tuple(per_task),
        matrix=matrix,
    )


def _mean(per_task: Sequence[dict[str, float]], name: str, steps: int) -> float:
    return float(np.mean([record[name] for record in per_task[:steps]])) if steps else float("nan")


def _forgetting(matrix: npt.NDArray[np.float64]) -> float:
    """Forgetting of the tasks so far, as a fraction; NaN after the first."""
    last = len(matrix) - 1
    if last == 0:
        return float("nan")
    return float(np.mean([matrix[j:last, j].max() - matrix[last, j] for j in range(last)])) / 100.0
