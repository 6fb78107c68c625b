"""Accuracy of each test class, and the confusions of the worst ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.metrics import class_accuracies
from classnorm.results.run_folder import Result

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassResults:
    """Calibrated predictions of the runs of a group on the same test rows."""

    names: list[str]
    seen: npt.NDArray[np.bool_]  # [n_classes]
    labels: Integers  # [n]
    predictions: Integers  # [n_runs, n]

    @property
    def accuracies(self) -> npt.NDArray[np.float64]:
        """[n_runs, n_classes], percent; NaN for a class without test rows."""
        right = self.predictions == self.labels
        return np.stack([class_accuracies(row, self.labels, len(self.names)) for row in right])

    @property
    def rows(self) -> Integers:
        """[n_classes], number of test rows."""
        return np.bincount(self.labels, minlength=len(self.names))


@dataclass(frozen=True)
class Confusion:
    """A class and the wrong predictions of its test rows."""

    name: str
    seen: bool
    rows: int
    accuracy: float
    taken_for: tuple[tuple[str, float], ...]
    """The most frequent wrong classes, each with its percentage of the rows over all runs."""


def class_results(results: Sequence[Result]) -> ClassResults:
    predictions = [result.predictions for result in results]
    first = predictions[0]
    if any(not np.array_equal(arrays["label"], first["label"]) for arrays in predictions):
        raise DataError(f"{results[0].folder}: runs of one model and dataset differ in their test rows; repeat them")
    return ClassResults(
        [str(name) for name in first["class_names"]],
        first["seen"].astype(bool),
        first["label"].astype(np.int64),
        np.stack([arrays["top1"] for arrays in predictions]).astype(np.int64),
    )


def worst_classes(classes: ClassResults, number: int = 15) -> list[Confusion]:
    """The classes with the lowest accuracy, worst first, each with its three most frequent confusions."""
    accuracy, rows, n_runs = classes.accuracies.mean(axis=0), classes.rows, len(classes.predictions)
    order = [int(c) for c in np.argsort(accuracy, kind="stable") if rows[c]]  # NaN comes last
    confusions = []
    for true in order[:number]:
        guesses = np.bincount(classes.predictions[:, classes.labels == true].ravel(), minlength=len(classes.names))
        guesses[true] = 0
        wrong = [int(c) for c in np.argsort(-guesses, kind="stable")[:3] if guesses[c]]
        shares = tuple((classes.names[c], 100.0 * guesses[c] / (n_runs * rows[true])) for c in wrong)
        confusions.append(
            Confusion(classes.names[true], bool(classes.seen[true]), int(rows[true]), float(accuracy[true]), shares)
        )
    return confusions
