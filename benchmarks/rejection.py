"""None of these: how well novelty scores find images of undescribed classes, and what prediction sets cover.

``python benchmarks/rejection.py XLSA17/data/CUB --features efficientnet_lite0`` trains on a GBU folder or any dataset,
leaves a third of the unseen classes undescribed in each of ten draws, and compares `Scorer.novelty` with other scores
on all test rows: AUROC, and the share of novel rows accepted if 95 % of the known ones are (FPR 95), in percent.
Everything that chooses is fitted on validation splits of the training rows. Then, with all classes described, the
coverage and the size of prediction sets over three seeds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from classnorm.data import ZeroShotDataset, load
from classnorm.methods import FitContext, FitJob, ProductModel, resolve
from classnorm.metrics import auroc, fpr_at_tpr, novelty_statistics
from classnorm.scoring import Scorer, fit, fit_calibrated

NAMES = {
    "probability": "maximum softmax probability",
    "energy": "energy",
    "standardised": "standardised maximum",
    "entropy": "entropy",
    "distance": "distance to the nearest class, in units of the spread within classes",
    "relative": "the same minus the distance to the mean of all rows",
    "neighbours": "cosine with the 10 nearest training rows",
    "novelty": "`Scorer.novelty`: chosen by validation",
}
SHRINKAGE = 0.3


class Distances:
    """Mahalanobis distances of row vectors: to the means of seen classes and to the prototypes of unseen ones."""

    def __init__(self, scorer: Scorer, data: ZeroShotDataset, features: Any) -> None:
        assert isinstance(scorer.model, ProductModel)
        self.model = scorer.model
        train, labels = self.rows(data.features[data.split.train]), data.labels[data.split.train]
        means = np.stack([train[labels == c].mean(axis=0) for c in np.flatnonzero(data.seen)])
        within = train - means[np.searchsorted(np.flatnonzero(data.seen), labels)]
        with torch.inference_mode():
            prototypes = self.model.class_vectors(torch.from_numpy(scorer.prototypes())).numpy()
        length = np.linalg.norm(means, axis=1).mean()
        centers = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True) * length
        centers[data.seen] = means
        within_inverse, total_inverse = _inverse(within.T @ within / len(train)), _inverse(np.cov(train.T))
        rows = self.rows(features)
        self.near = _squared(rows, centers, within_inverse)
        self.far = _squared(rows, train.mean(axis=0)[None], total_inverse)[:, 0]
        units = [(table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32) for table in (rows, train)]
        self.cosine = np.partition(units[0] @ units[1].T, -10, axis=1)[:, -10:].mean(axis=1)

    def rows(self, features: Any) -> np.ndarray:
        with torch.inference_mode():
            vectors = self.model.row_vectors(torch.from_numpy(np.array(features, dtype=np.float32)))
        return vectors.numpy().astype(np.float64)

    def scores(self, kept: np.ndarray) -> dict[str, np.ndarray]:
        near = self.near[:, kept].min(axis=1)
        return {"distance": near, "relative": near - self.far, "neighbours": -self.cosine}


def _inverse(covariance: np.ndarray) -> np.ndarray:
    k = len(covariance)
    return np.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / k * np.eye(k))


def _squared(rows: np.ndarray, centers: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    own, other = ((table @ inverse * table).sum(axis=1) for table in (rows, centers))
    return own[:, None] - 2 * rows @ inverse @ centers.T + other


def rejection(data: ZeroShotDataset, method: str, draws: int) -> None:
    fitted = fit_calibrated(FitJob(data, *resolve(data, method)), FitContext(torch.device("cpu")))
    scorer, rows = fitted.scorer, data.test_rows
    features, labels = data.features[rows], data.labels[rows]
    distances = Distances(scorer, data, features) if isinstance(scorer.model, ProductModel) else None
    results: dict[str, list[tuple[float, float]]] = {}
    rejected = []
    unseen = np.flatnonzero(~data.seen)
    for draw in range(draws):
        left_out = np.random.default_rng(draw).permutation(unseen)[: len(unseen) // 3]
        kept = np.setdiff1d(np.arange(data.n_classes), left_out)
        part, novel = scorer.only([data.class_names[c] for c in kept]), np.isin(labels, left_out)
        found = novelty_statistics(part.scores(features), part.seen, part.temperature)
        found |= distances.scores(kept) if distances else {}
        found["novelty"] = part.novelty(features)
        for name in [name for name in NAMES if name in found]:
            known, other = found[name][~novel], found[name][novel]
            results.setdefault(name, []).append((auroc(known, other), fpr_at_tpr(known, other)))
        is_rejected = ~part.known(features, 0.05)
        groups = (~novel & data.seen[labels], ~novel & ~data.seen[labels], novel)
        rejected.append([100 * is_rejected[group].mean() for group in groups])
    base = np.array(results["probability"])[:, 0]
    validation = {k: v["auroc"] for k, v in fitted.validation["novelty"]["two_sides"].items()}  # type: ignore[index]
    validation["novelty"] = max(validation.values())
    print("| score | AUROC on validation | AUROC | above maximum probability | draws above | FPR 95 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, values in results.items():
        table = np.array(values)
        gain, own = table[:, 0] - base, f"{validation[name]:.1f}" if name in validation else ""
        numbers = f"{table[:, 0].mean():.1f} ± {table[:, 0].std():.1f} | {gain.mean():+.1f} ± {gain.std():.1f}"
        print(f"| {NAMES[name]} | {own} | {numbers} | {(gain > 0).sum()} of {draws} | {table[:, 1].mean():.1f} |")
    seen, described, undescribed = np.mean(rejected, axis=0)
    shares = f"{seen:.1f} % of rows of seen classes, {described:.1f} % of described unseen ones"
    print(f"\nrejected with `reject=0.05`: {shares}, {undescribed:.1f} % of undescribed ones\n", flush=True)


def coverage(data: ZeroShotDataset, method: str, seeds: int) -> None:
    rows = data.test_rows
    labels = data.labels[rows]
    print("| asked | seen classes | unseen classes | classes per set: seen | unseen |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    scorers = [fit(data, method=method, seed=seed) for seed in range(seeds)]
    for asked in (0.8, 0.9, 0.95):
        table = []
        for scorer in scorers:
            sets = scorer.prediction_sets(data.features[rows], asked)
            right = np.array([data.class_names[c] in names for c, names in zip(labels, sets, strict=True)])
            sizes = np.array(list(map(len, sets)))
            sides = [[c for c in np.unique(labels) if data.seen[c] == side] for side in (True, False)]
            covered = [100 * np.mean([right[labels == c].mean() for c in classes]) for classes in sides]
            table.append([*covered, *(sizes[np.isin(labels, classes)].mean() for classes in sides)])
        mean, std = np.mean(table, axis=0), np.std(table, axis=0)
        cells = [f"{mean[0]:.1f} ± {std[0]:.1f}", f"{mean[1]:.1f} ± {std[1]:.1f}", f"{mean[2]:.1f}", f"{mean[3]:.1f}"]
        print(f"| {100 * asked:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--features", default="res101")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    dataset = load(options.data, features=options.features)
    rejection(dataset, options.method, options.draws)
    coverage(dataset, options.method, options.seeds)
