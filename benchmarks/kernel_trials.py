"""What did not improve `kernel`: trials on validation splits of the training rows.

    python benchmarks/kernel_trials.py xlsa17/data/CUB --features efficientnet_lite0 [--descriptors cub_sentences.npz]

H at the best threshold between seen and unseen classes and T1, mean over the splits; test rows are not used. Each trial
changes the scores of the fitted `kernel` model, and for some the recipe `best` of `classnorm` is fitted, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import logsumexp

from classnorm.data import load
from classnorm.data.descriptions import read_descriptions
from classnorm.data.names import match_names
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.methods.descriptor_kernel import ridge
from classnorm.metrics import best_seen_and_unseen, calibrated_gzsl_scores, choose_calibration
from classnorm.scoring.fitting import validate

FREQUENCIES = 2048


class Split(NamedTuple):
    """A validation split with both models, in float64."""

    kernel: np.ndarray  # [n, n_classes], scores
    best: np.ndarray
    rows: torch.Tensor  # [n, k], transformed and mapped
    train: torch.Tensor
    train_labels: np.ndarray
    prototypes: torch.Tensor  # [n_classes, k]
    features: torch.Tensor  # [n_classes, rank], of the descriptor kernel
    labels: np.ndarray
    seen: np.ndarray

    @property
    def means(self) -> torch.Tensor:
        """[n_seen, k]"""
        return torch.stack([self.train[self.train_labels == c].mean(dim=0) for c in np.flatnonzero(self.seen)])


def split_of(data, split: int) -> Split:
    jobs = [FitJob(data, *resolve(data, *method)) for method in (("kernel",), ("classnorm", "best"))]
    kernel, best = (validate(job, split, FitContext(torch.device("cpu"))) for job in jobs)
    part, model = kernel.dataset, kernel.scorer.model
    rows = part.features[part.test_rows]
    with torch.inference_mode():
        descriptors = torch.from_numpy(part.descriptors)
        place = [
            model.mapped(model.geometry(torch.from_numpy(part.loaded(r)))).double()
            for r in (part.test_rows, part.split.train)
        ]
        return Split(
            *(fitted.scorer.logits(rows).astype(np.float64) for fitted in (kernel, best)),
            *place,
            part.labels[part.split.train],
            model.prototypes(descriptors)[:, :-1].double(),
            model.kernel(descriptors).double(),
            part.labels[part.test_rows],
            part.seen,
        )


def trials(s: Split) -> Iterator[tuple[str, np.ndarray]]:
    """Name and scores [n, n_classes] of each trial."""
    yield "`kernel`", s.kernel
    yield "`classnorm`, recipe `best`", s.best
    best = s.best * s.kernel.std() / s.best.std()
    for share in (0.15, 0.3, 0.5):
        yield f"{share:.0%} of the scores of `best`", (1 - share) * s.kernel + share * best
    yield "30% of `best`, standardised by row", 0.7 * standardised(s.kernel) + 0.3 * standardised(s.best)
    yield "side by the sum of its probabilities", by_probability(s.kernel, s.seen)
    yield "seen classes half by their means", with_means(s)
    for share in (0.05, 0.2):
        yield f"a covariance for each class, {share:g}", s.kernel + share * covariances(s)
    fourier = random_features(s)
    fourier *= s.kernel.std() / fourier.std()
    yield "random features of the rows alone", fourier
    yield "20% random features of the rows", 0.8 * s.kernel + 0.2 * fourier


def standardised(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


def by_probability(scores: np.ndarray, seen: np.ndarray, temperature: float = 0.5) -> np.ndarray:
    """Each side is shifted from its highest score to that of the sum of its probabilities."""
    shifted = scores.copy()
    for side in (seen, ~seen):
        part = scores[:, side]
        total = temperature * logsumexp(part / temperature, axis=1)
        shifted[:, side] += (total - part.max(axis=1))[:, None]
    return shifted


def with_means(s: Split) -> np.ndarray:
    """The side is chosen by the prototypes, the class among seen ones also by the means of their training rows."""
    visual = 20.0 * (s.rows @ F.normalize(s.means, dim=1).T).numpy()
    mixed, seen = (s.kernel[:, s.seen] + visual) / 2, s.kernel.copy()
    seen[:, s.seen] = mixed - mixed.max(axis=1, keepdims=True) + s.kernel[:, s.seen].max(axis=1, keepdims=True)
    return seen


def covariances(s: Split) -> np.ndarray:
    """What log densities gain by variances of each class, which the kernel predicts for classes without rows."""
    index = np.searchsorted(np.flatnonzero(s.seen), s.train_labels)
    squares = (s.train - s.means[index]).square()
    counts = torch.from_numpy(np.bincount(index))[:, None]
    common = squares.mean(dim=0).clamp(min=1e-6)
    sums = torch.zeros(len(counts), squares.shape[1], dtype=squares.dtype).index_add_(
        0, torch.from_numpy(index), squares
    )
    own = ((sums + 50 * common) / (counts + 50) / common).log()
    ratio = s.features @ ridge(s.features[torch.from_numpy(s.seen)], own, 1.0)
    centers = s.means.norm(dim=1).mean() * F.normalize(s.prototypes, dim=1)
    return (log_density(s.rows, centers, ratio, common) - log_density(s.rows, centers, 0 * ratio, common)).numpy()


def log_density(rows: torch.Tensor, centers: torch.Tensor, ratio: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
    weight = (-ratio).exp() / common
    squared = rows.square() @ weight.T - 2 * rows @ (centers * weight).T + (centers.square() * weight).sum(dim=1)
    return -0.5 * (squared + ratio.sum(dim=1))


def random_features(s: Split, bandwidth: float = 3.0) -> np.ndarray:
    """Kernel prototypes in random Fourier features of the rows."""
    draws = torch.Generator().manual_seed(0)
    projection = torch.randn(s.rows.shape[1], FREQUENCIES, generator=draws, dtype=torch.float64)
    phase = 2 * torch.pi * torch.rand(FREQUENCIES, generator=draws, dtype=torch.float64)
    train, rows = (torch.cos(x @ projection * (2 / bandwidth) ** 0.5 + phase) for x in (s.train, s.rows))
    mean = train.mean(dim=0)
    means = torch.stack([train[s.train_labels == c].mean(dim=0) for c in np.flatnonzero(s.seen)])
    prototypes = s.features @ ridge(s.features[torch.from_numpy(s.seen)], F.normalize(means - mean, dim=1), 0.1)
    prototypes /= prototypes.norm(dim=1, keepdim=True) ** 1.3
    return (F.normalize(rows - mean, dim=1) @ prototypes.T).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="anything that `classnorm train` takes")
    parser.add_argument("--features", default=None, help="feature file of a GBU folder")
    parser.add_argument("--descriptors", type=Path, default=None, help="other descriptors of the classes")
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    data = load(options.data, **({"features": options.features} if options.features else {}))
    if options.descriptors is not None:
        other = read_descriptions(options.descriptors, numbers=True)
        assert other.table is not None
        order = match_names(data.class_names, options.data, other.names, str(options.descriptors))
        data = replace(data, descriptors=other.table[order])
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.splits):
        split = split_of(data, number)
        for name, scores in trials(split):
            best_scores = best_seen_and_unseen(scores, split.labels, split.seen)
            calibration, harmonic = choose_calibration([best_scores], "bias")
            found.setdefault(name, []).append((harmonic, calibrated_gzsl_scores(best_scores, calibration).zsl))
    for name, values in found.items():
        print(f"| {name} | {' / '.join(f'{value:.1f}' for value in np.mean(values, axis=0))} |")


if __name__ == "__main__":
    main()
