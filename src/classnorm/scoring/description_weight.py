"""The weight of descriptions against pictures, chosen on validation splits.

Classes held out of a validation fit get a few of their pictures back; the other pictures are scored. The weight of a
description is the one with the highest accuracy among held-out classes (T1), the penalty of classes with pictures is
the one with the highest H. The splits also tell what unlabelled pictures would gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data import ZeroShotDataset
from classnorm.methods.model import ExampleSpace
from classnorm.metrics import Calibration, accuracy, best_seen_and_unseen, calibrated_scores
from classnorm.metrics.novelty import NoveltyScore, requantiled
from classnorm.metrics.probability import PredictionSets, ScoredSplit
from classnorm.scoring.class_vectors import ClassVectors, adapted, as_tensor, mixture, transformed, variances
from classnorm.scoring.classes import Examples, Floats, Ints
from classnorm.scoring.validation import DescriptionWeight, Kind, PictureThresholds

_ROWS = 2000  # of a split; more would cost time and decide little
_EXAMPLES = (1, 2, 5)  # pictures per class
_PRIORS = 2.0 ** np.arange(-3, 6)  # candidates: the pictures that a description is worth
_PENALTIES = 9  # candidates, twice

_BLOCK_BYTES = 1 << 26


class ScoredPictures(NamedTuple):
    """Validation splits whose held-out classes have got pictures."""

    kind: Kind
    share: float
    """The mean weight of the pictures in the prototypes of the held-out classes."""
    splits: Sequence[ScoredSplit]


@dataclass(frozen=True, eq=False)
class Trial:
    """A validation fit and some of its held-out rows, of which a few per held-out class are examples."""

    start: ClassVectors  # without examples
    calibration: Calibration
    rows: torch.Tensor  # [n, …]: `ClassVectors.rows`
    transformed: torch.Tensor  # [n, k], rows among the prototypes
    logits: Floats  # [n, n_classes], without examples
    labels: Ints  # [n]
    number: Ints  # [n], counts the examples of each class; −1 for rows that are scored
    held_out: Ints  # classes with examples
    centers: torch.Tensor  # [len(held_out), k], as described
    variances: Floats  # [len(held_out)], of the descriptions

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        return self.start.classes.seen

    @cached_property
    def space(self) -> ExampleSpace:
        space = self.start.model.example_space()
        assert space is not None
        return space

    @cached_property
    def scored(self) -> Ints:
        """The labels of rows that are no examples."""
        return self.labels[self.number < 0]

    @cached_property
    def scored_rows(self) -> torch.Tensor:
        return self.rows[torch.from_numpy(self.number < 0).to(self.rows.device)]

    @cached_property
    def examples(self) -> dict[int, Examples]:
        """The first pictures of each class, by their number."""
        names, result = tuple(self.start.classes.names[c] for c in self.held_out), {}
        for count in _EXAMPLES:
            given = np.flatnonzero((self.number >= 0) & (self.number < count))
            index = np.searchsorted(self.held_out, self.labels[given])
            sums = torch.zeros(len(names), self.transformed.shape[1], dtype=torch.float64)
            sums.index_add_(0, torch.from_numpy(index), self.transformed[torch.from_numpy(given)].double().cpu())
            result[count] = Examples(names, np.bincount(index).astype(np.float64), sums.numpy())
        return result

    @classmethod
    @torch.inference_mode()
    def of(cls, start: ClassVectors, dataset: ZeroShotDataset, calibration: Calibration) -> Trial:
        test_rows = dataset.test_rows[:: max(1, -(-len(dataset.test_rows) // _ROWS))]
        blocks = transformed(start, dataset.view(test_rows), _BLOCK_BYTES)
        rows, among = (torch.cat(parts) for parts in zip(*blocks(), strict=True))
        labels, number = dataset.labels[test_rows], np.full(len(test_rows), -1)
        draws = np.random.default_rng(0)
        for c in np.flatnonzero(~dataset.seen):
            own = draws.permutation(np.flatnonzero(labels == c))
            chosen = own[: min(max(_EXAMPLES), len(own) // 2)]
            number[chosen] = np.arange(len(chosen))
        held_out = np.unique(labels[number >= 0])
        descriptors, space = start.classes.descriptors[held_out], start.model.example_space()
        assert space is not None
        centers = space.center(start.model.prototypes(as_tensor(start.model, descriptors)))
        logits = start.logits(rows).double().cpu().numpy()
        spread = variances(start.model, space, descriptors)
        return cls(start, calibration, rows, among, logits, labels, number, held_out, centers, spread)

    @property
    def is_possible(self) -> bool:
        """Whether there are examples, and rows of seen classes."""
        return bool(len(self.held_out) and self.seen[self.labels].any())

    @torch.inference_mode()
    def with_examples(self, weight: DescriptionWeight, count: int) -> tuple[Floats, Floats]:
        """Logits of the scored rows if classes have up to `count` examples, without penalty, and the weight of the
        examples in each class."""
        examples = self.examples[count]
        prior = weight.in_pictures(self.variances, self.seen[self.held_out])
        weights = prior / (prior + examples.counts)
        prototypes = self.space.prototype(mixture(self.centers, examples, weights, self.space.directions))
        logits, shares = self.logits[self.number < 0], np.zeros(len(self.seen))
        logits[:, self.held_out] = self.start.logits_for(self.scored_rows, prototypes).cpu().numpy()
        shares[self.held_out] = 1.0 - weights
        return logits, shares

    def zsl(self, weight: DescriptionWeight, count: int) -> float:
        """T1 with examples."""
        logits, _ = self.with_examples(weight, count)
        labels, unseen = self.scored, np.flatnonzero(~self.seen)
        rows = ~self.seen[labels]
        return accuracy(unseen[logits[rows][:, unseen].argmax(axis=1)], labels[rows])

    def margins(self, logits: Floats) -> Floats:
        """How far the best unseen class is ahead of the best seen one, [n]."""
        scores = self.calibration.apply(logits, self.seen)
        return np.asarray(scores[:, ~self.seen].max(axis=1) - scores[:, self.seen].max(axis=1))

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return iter([(self.rows, self.transformed)])

    def split(self, logits: Floats, labels: Ints) -> ScoredSplit:
        return ScoredSplit(self.calibration.apply(logits, self.seen), labels, self.seen)

    def harmonic(self, logits: Floats, labels: Ints) -> float:
        return calibrated_scores(best_seen_and_unseen(logits, labels, self.seen), self.calibration)[2]


def choose_description_weight(
    splits: Sequence[tuple[ClassVectors, ZeroShotDataset]], calibration: Calibration, temperature: float
) -> tuple[DescriptionWeight | None, dict[str, Any], list[ScoredPictures]]:
    """The weight, its record, and what rows score after pictures; None if the method cannot use pictures, or too few
    rows are held out."""
    if not splits or any(vectors.model.example_space() is None for vectors, _ in splits):
        return None, {}, []
    trials = [Trial.of(vectors, dataset, calibration) for vectors, dataset in splits]
    if not all(trial.is_possible for trial in trials):
        return None, {}, []
    rows_per_class = np.mean([len(dataset.split.train) / dataset.seen.sum() for _, dataset in splits])
    weight, prior = _with_description(trials, DescriptionWeight(1.0, 0.0, float(rows_per_class)))
    weight, few = _with_penalty(trials, weight)
    unlabelled, shares = [], []
    for trial in trials:
        after = adapted(trial.start.penalised(weight), calibration, temperature, trial.blocks)
        assert after.corrections is not None
        unlabelled.append(after.logits(trial.rows).double().cpu().numpy())
        shares.append(after.corrections.shares[1][~trial.seen].mean())
    harmonic_before = float(np.mean([trial.harmonic(trial.logits, trial.labels) for trial in trials]))
    pairs = list(zip(trials, unlabelled, strict=True))
    harmonic_after = float(np.mean([trial.harmonic(logits, trial.labels) for trial, logits in pairs]))
    record = {
        "worth": prior,
        "examples": few,
        "unlabelled": {"before": harmonic_before, "after": harmonic_after},
    }
    scored = [_scored_examples(trials, weight, count) for count in _EXAMPLES]
    of_unlabelled = [trial.split(logits, trial.labels) for trial, logits in pairs]
    scored.append(ScoredPictures("unlabelled", float(np.mean(shares)), of_unlabelled))
    return replace(weight, unlabelled_gain=harmonic_after - harmonic_before), record, scored


def measure_thresholds(
    scored: Sequence[ScoredPictures], novelty: NoveltyScore | None, temperature: float
) -> tuple[PictureThresholds, ...]:
    """The quantiles of a novelty score and of prediction sets with each kind of pictures."""
    return tuple(
        PictureThresholds(
            kind,
            share,
            None if novelty is None else requantiled(novelty, splits, temperature),
            PredictionSets.measure(splits, temperature),
        )
        for kind, share, splits in scored
    )


def _with_description(trials: Sequence[Trial], weight: DescriptionWeight) -> tuple[DescriptionWeight, dict[str, float]]:
    """The weight of descriptions with the highest T1, and T1 by the pictures that they are worth."""
    typical = float(np.mean(np.concatenate([trial.variances for trial in trials])))
    candidates = [replace(weight, description=float(prior) * typical) for prior in _PRIORS]
    scores = [np.mean([trial.zsl(each, n) for trial in trials for n in _EXAMPLES]) for each in candidates]
    return candidates[int(np.argmax(scores))], {f"{w:g}": float(s) for w, s in zip(_PRIORS, scores, strict=True)}


def _with_penalty(trials: Sequence[Trial], weight: DescriptionWeight) -> tuple[DescriptionWeight, dict[str, float]]:
    """The penalty with the highest H, and H without and with it."""
    given = [(trial, *trial.with_examples(weight, count)) for trial in trials for count in _EXAMPLES]

    def harmonic(penalty: float) -> float:
        return float(np.mean([t.harmonic(logits - penalty * shares, t.scored) for t, logits, shares in given]))

    # Where most rows switch between their best seen and their best unseen class, first coarsely.
    margins = [trial.margins(logits) / shares[trial.held_out].mean() for trial, logits, shares in given]
    low, high = np.quantile(np.append(np.concatenate(margins), 0.0), [0.05, 0.95])
    values = np.linspace(low, high, _PENALTIES)
    best = values[np.argmax([harmonic(value) for value in values])]
    values = best + (values[1] - values[0]) * np.linspace(-1.0, 1.0, _PENALTIES)
    scores = [harmonic(value) for value in values]
    record = {"penalty": float(values[np.argmax(scores)]), "before": harmonic(0.0), "after": max(scores)}
    return replace(weight, penalty=record["penalty"]), record


def _scored_examples(trials: Sequence[Trial], weight: DescriptionWeight, count: int) -> ScoredPictures:
    """The scores of rows if classes have up to `count` examples."""
    splits, weights = [], []
    for trial in trials:
        logits, shares = trial.with_examples(weight, count)
        splits.append(trial.split(logits - weight.penalty * shares, trial.scored))
        weights.append(shares[~trial.seen].mean())
    return ScoredPictures("examples", float(np.mean(weights)), splits)
