"""Scores with 2 to 10 seen classes, beside the uncalibrated and the nearest-mean model.

Each draw takes K = 2 … 10 classes of a dataset as seen, 1 to 25 others as unseen, and 4 to 25 training rows of each
seen class. Classes and rows are drawn from the test rows of the dataset's unseen classes; ``--tune`` draws from its
training rows instead and tries shares of seen rows to keep, of which `scoring.fitting` has the one in use. Run

    python benchmarks/few_classes.py glyphs-light xlsa17/data/CUB --features efficientnet_lite0
    python benchmarks/few_classes.py glyphs-light --tune

The nearest-mean model has the means of the unseen classes from a linear ridge regression on their descriptors. Its S
with only the seen classes competing is what calibrated scores are compared with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data import ZeroShotDataset, load
from classnorm.data.validation import hold_out_rows
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import BestScores, Calibration, calibrated_scores, gzsl_scores
from classnorm.metrics.calibration import keeping_calibration
from classnorm.scoring import Scorer, fit_calibrated

CONTEXT = FitContext(torch.device("cpu"))
SHARES = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def draw(full: ZeroShotDataset, seed: int, of_training_rows: bool = False) -> ZeroShotDataset:
    """A small dataset of 2 + seed mod 9 seen classes."""
    generator = np.random.default_rng([seed, 20])
    n_seen, n_unseen = 2 + seed % 9, int(generator.choice([1, 2, 5, 10, 25]))
    n_train = int(generator.choice([4, 7, 15, 25]))
    pool = full.split.train if of_training_rows else full.split.test_unseen
    classes = generator.permutation(np.unique(full.labels[pool]))[: n_seen + n_unseen]
    parts: dict[str, list[int]] = {"train": [], "test_seen": [], "test_unseen": []}
    rows: list[int] = []
    for number, label in enumerate(classes):
        own = generator.permutation(pool[full.labels[pool] == label])
        split = min(n_train, len(own) // 2) if number < n_seen else 0
        parts["train"] += range(len(rows), len(rows) + split)
        parts["test_seen" if number < n_seen else "test_unseen"] += range(len(rows) + split, len(rows) + len(own))
        rows += own.tolist()
    position = {label: i for i, label in enumerate(classes)}
    return ZeroShotDataset.from_arrays(
        np.asarray(full.features[np.array(rows)], dtype=np.float32),
        [position[label] for label in full.labels[rows]],
        full.descriptors[classes],
        [full.class_names[label] for label in classes],
        **parts,
        name=f"{full.name}, draw {seed}",
    )


def nearest_mean(data: ZeroShotDataset) -> tuple[npt.NDArray[np.float64], float]:
    """U, S and H of the nearest-mean model, and its S if only the seen classes compete; in percent."""
    rows = np.asarray(data.features, dtype=np.float64)
    rows = _unit(rows)
    train, seen = data.split.train, np.flatnonzero(data.seen)
    means = np.stack([rows[train[data.labels[train] == c]].mean(axis=0) for c in seen])
    table = data.descriptors.astype(np.float64)
    table = _unit(table - table[seen].mean(axis=0))
    kernel = table @ table[seen].T
    center = means.mean(axis=0)
    all_means = center + kernel @ np.linalg.solve(kernel[seen] + 0.1 * np.eye(len(seen)), means - center)
    all_means[seen] = means
    test = data.test_rows
    logits, labels = rows[test] @ _unit(all_means).T, data.labels[test]
    only_seen = np.where(data.seen, logits, -np.inf)
    s = gzsl_scores(only_seen[data.seen[labels]], labels[data.seen[labels]], data.seen).seen
    scores = gzsl_scores(logits, labels, data.seen)
    return np.array([scores.unseen, scores.seen, scores.harmonic]), s


def _unit(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-12)


def measure(data: ZeroShotDataset, method: str, **changes: Any) -> dict[str, Any]:
    """Scores of a draw: U, S and H of each model, and the accuracy on its own training rows."""
    job = FitJob(data, *resolve(data, method, **changes))
    fitted = fit_calibrated(job, CONTEXT)
    test = data.test_rows
    best_scores = fitted.scorer.best_scores(data.features[test], data.labels[test])
    simple, seen_alone = nearest_mean(data)
    return {
        "calibrated": np.array(calibrated_scores(best_scores, fitted.scorer.calibration)),
        "uncalibrated": np.array(calibrated_scores(best_scores, Calibration())),
        "nearest mean": simple,
        "nearest mean, seen only": seen_alone,
        "training accuracy": fitted.training_accuracy,
        "warned": any("training rows right" in text for text in fitted.notices),
    }


def tuned(data: ZeroShotDataset, method: str, **changes: Any) -> dict[str, npt.NDArray[np.float64]]:
    """U, S and H for each share of seen rows that a calibration may keep."""
    config = resolve(data, method, calibration="none", **changes)
    folds = [hold_out_rows(data, fold, 3) for fold in range(3)]
    best_scores: list[BestScores] = []
    for part in (*folds, data):
        scorer: Scorer = fit_calibrated(FitJob(part, *config), CONTEXT).scorer
        best_scores.append(scorer.best_scores(part.features[part.test_rows], part.labels[part.test_rows]))
    return {
        f"keep {share:.0%}": np.array(calibrated_scores(best_scores[-1], keeping_calibration(best_scores[:-1], share)))
        for share in SHARES
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--features", default="res101")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args(arguments)
    for source in options.data:
        full = load(source, features=options.features)
        found: dict[str, list[Any]] = {}
        for seed in range(options.draws):
            data = draw(full, seed, of_training_rows=options.tune)
            row = tuned(data, options.method) if options.tune else measure(data, options.method)
            for name, value in row.items():
                found.setdefault(name, []).append(value)
        print(f"{full.name}, {options.method}, {options.draws} draws{', of training rows' * options.tune}: U, S, H")
        for name, values in found.items():
            if np.ndim(values) == 2:
                print(f"  {name:24s}" + "".join(f"{score:7.1f}" for score in np.mean(values, axis=0)))
        if not options.tune:
            print(
                f"  S of the nearest mean, only seen classes competing: {np.mean(found['nearest mean, seen only']):.1f}"
            )
            low = [a < 50 for a in found["training accuracy"]]
            print(
                f"  draws with under half of the training rows right: {sum(low)}, all warned: {low == found['warned']}"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
