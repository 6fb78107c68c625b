"""How the test classes fare one by one: accuracies, and what the worst of them are taken for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.metrics import class_accuracies
from classnorm.results.run_folder import Result

__all__ = ["ClassResults", "Confusion", "class_results", "worst_classes"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassResults:
    """The calibrated predictions of a group's runs, which share their test rows."""

    names: list[str]
    seen: npt.NDArray[np.bool_]  # [n_classes]
    labels: Integers  # [n]
    predictions: Integers  # [n_runs, n]

    @property
    def accuracies(self) -> npt.NDArray[np.float64]:
        """[n_runs, n_classes], percent; NaN for a class without test rows."""
        return np.stack(
            [class_accuracies(row == self.labels, self.labels, len(self.names)) for row in self.predictions]
        )

    @property
    def rows(self) -> Integers:
        """[n_classes], how many test rows each class has."""
        return np.bincount(self.labels, minlength=len(self.names))


@dataclass(frozen=True)
class Confusion:
    """A class and what its test rows are taken for."""

    name: str
    seen: bool
    rows: int
    accuracy: float
    taken_for: tuple[tuple[str, float], ...]
    """The most frequent wrong classes and their share of the rows in percent, over all runs."""


def class_results(results: Sequence[Result]) -> ClassResults:
    stored = []
    for result in results:
        arrays = result.arrays("predictions")
        if arrays is None:
            raise DataError(f"{result.folder / 'predictions.npz'}: no such file; run it again")
        stored.append(arrays)
    first = stored[0]
    if any(not np.array_equal(arrays["label"], first["label"]) for arrays in stored):
        raise DataError(f"{results[0].folder}: runs of one model and dataset differ in their test rows; run them again")
    return ClassResults(
        [str(name) for name in first["class_names"]],
        first["seen"].astype(bool),
        first["label"].astype(np.int64),
        np.stack([arrays["top1"] for arrays in stored]).astype(np.int64),
    )


def worst_classes(classes: ClassResults, number: int = 15, causes: int = 3) -> list[Confusion]:
    """The classes with the lowest accuracy, worst first, each with the classes it is most often taken for."""
    accuracy, rows, n_runs = classes.accuracies.mean(axis=0), classes.rows, len(classes.predictions)
    order = [int(c) for c in np.argsort(accuracy, kind="stable") if rows[c]]  # NaN comes last
    confusions = []
    for true in order[:number]:
        guesses = np.bincount(classes.predictions[:, classes.labels == true].ravel(), minlength=len(classes.names))
        guesses[true] = 0
        wrong = [int(c) for c in np.argsort(-guesses, kind="stable")[:causes] if guesses[c]]
        shares = tuple((classes.names[c], 100.0 * guesses[c] / (n_runs * rows[true])) for c in wrong)
        confusions.append(
            Confusion(classes.names[true], bool(classes.seen[true]), int(rows[true]), float(accuracy[true]), shares)
        )
    return confusions
