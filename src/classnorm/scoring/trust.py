"""How far descriptions are trusted against pictures, chosen on validation splits.

Classes held out of a validation fit get a few of their pictures back; the other pictures are scored. The weight of a
description is the one with the highest accuracy among held-out classes (T1), the penalty of classes with pictures is
the one with the highest H. The splits also tell what unlabelled pictures would gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data import ZeroShotDataset
from classnorm.methods.model import ExampleSpace
from classnorm.metrics import Calibration, accuracy, calibrated_scores, side_scores
from classnorm.scoring.examples import Examples, Floats, Trust, mixture, picture_shares, space_of, variances
from classnorm.scoring.novelty import ScoredSplit
from classnorm.scoring.scorer import Scorer
from classnorm.scoring.thresholds import ScoredPictures
from classnorm.scoring.unlabelled import adapted, place

_ROWS = 2000  # of a split; more would cost time and decide little
_EXAMPLES = (1, 2, 5)  # pictures per class
_WORTH = 2.0 ** np.arange(-3, 6)  # candidates: the pictures that a description is worth
_PENALTIES = 9  # candidates, twice

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Trial:
    """A validation fit and some of its held-out rows, of which a few per held-out class are examples."""

    scorer: Scorer
    vectors: torch.Tensor  # [n, …]: `Scorer.row_vectors`
    placed: torch.Tensor  # [n, k], rows among the prototypes
    logits: Floats  # [n, n_classes], without examples
    labels: Ints  # [n]
    number: Ints  # [n], counts the examples of each class; −1 for rows that are scored
    held_out: Ints  # classes with examples
    centers: torch.Tensor  # [len(held_out), k], as described
    variances: Floats  # [len(held_out)], of the descriptions

    @cached_property
    def space(self) -> ExampleSpace:
        return space_of(self.scorer)

    @cached_property
    def scored(self) -> Ints:
        """The labels of rows that are no examples."""
        return self.labels[self.number < 0]

    @cached_property
    def scored_vectors(self) -> torch.Tensor:
        return self.vectors[torch.from_numpy(self.number < 0).to(self.vectors.device)]

    @cached_property
    def examples(self) -> dict[int, Examples]:
        """The first pictures of each class, by their number."""
        names, result = tuple(self.scorer.class_names[c] for c in self.held_out), {}
        for count in _EXAMPLES:
            given = np.flatnonzero((self.number >= 0) & (self.number < count))
            index = np.searchsorted(self.held_out, self.labels[given])
            sums = torch.zeros(len(names), self.placed.shape[1], dtype=torch.float64)
            sums.index_add_(0, torch.from_numpy(index), self.placed[torch.from_numpy(given)].double().cpu())
            result[count] = Examples(names, np.bincount(index).astype(np.float64), sums.numpy())
        return result

    @classmethod
    @torch.inference_mode()
    def of(cls, scorer: Scorer, dataset: ZeroShotDataset) -> _Trial:
        rows = dataset.test_rows[:: max(1, -(-len(dataset.test_rows) // _ROWS))]
        vectors, placed = (torch.cat(parts) for parts in zip(*place(scorer, dataset.view(rows))(), strict=True))
        labels, number = dataset.labels[rows], np.full(len(rows), -1)
        draws = np.random.default_rng(0)
        for c in np.flatnonzero(~dataset.seen):
            own = draws.permutation(np.flatnonzero(labels == c))
            chosen = own[: min(max(_EXAMPLES), len(own) // 2)]
            number[chosen] = np.arange(len(chosen))
        held_out = np.unique(labels[number >= 0])
        centers = space_of(scorer).center(scorer.model.prototypes(scorer.as_tensor(scorer.descriptors[held_out])))
        logits = scorer.logits_of(vectors).double().cpu().numpy()
        spread = variances(scorer, held_out)
        return cls(scorer, vectors, placed, logits, labels, number, held_out, centers, spread)

    @property
    def is_possible(self) -> bool:
        """Whether there are examples, and rows of seen classes."""
        return bool(len(self.held_out) and self.scorer.seen[self.labels].any())

    @torch.inference_mode()
    def with_examples(self, trust: Trust, count: int) -> tuple[Floats, Floats]:
        """Logits of the scored rows if classes have up to `count` examples, without penalty, and the weight of the
        examples in each class."""
        examples = self.examples[count]
        worth = trust.pictures(self.variances, self.scorer.seen[self.held_out])
        weights = worth / (worth + examples.counts)
        prototypes = self.space.prototype(mixture(self.centers, examples, weights, self.space.directions))
        logits, shares = self.logits[self.number < 0], np.zeros(len(self.scorer.seen))
        logits[:, self.held_out] = self.scorer.products(self.scored_vectors, prototypes).cpu().numpy()
        shares[self.held_out] = 1.0 - weights
        return logits, shares

    def zsl(self, trust: Trust, count: int) -> float:
        """T1 with examples."""
        logits, _ = self.with_examples(trust, count)
        labels, unseen = self.scored, np.flatnonzero(~self.scorer.seen)
        rows = ~self.scorer.seen[labels]
        return accuracy(unseen[logits[rows][:, unseen].argmax(axis=1)], labels[rows])

    def margins(self, logits: Floats) -> Floats:
        """How far the best unseen class is ahead of the best seen one, [n]."""
        scores = self.scorer.calibration.apply(logits, self.scorer.seen)
        return np.asarray(scores[:, ~self.scorer.seen].max(axis=1) - scores[:, self.scorer.seen].max(axis=1))

    def split(self, logits: Floats, labels: Ints) -> ScoredSplit:
        return ScoredSplit(self.scorer.calibration.apply(logits, self.scorer.seen), labels, self.scorer.seen)

    def harmonic(self, logits: Floats, labels: Ints) -> float:
        return calibrated_scores(side_scores(logits, labels, self.scorer.seen), self.scorer.calibration)[2]


def choose_trust(
    splits: Sequence[tuple[Scorer, ZeroShotDataset]], calibration: Calibration, temperature: float
) -> tuple[Trust | None, dict[str, Any], list[ScoredPictures]]:
    """The trust, its record, and what rows score after pictures; None if the method cannot use pictures, or too few
    rows are held out."""
    if any(scorer.model.example_space() is None for scorer, _ in splits):
        return None, {}, []
    trials = [_Trial.of(scorer.calibrated(calibration, temperature), dataset) for scorer, dataset in splits]
    if not trials or not all(trial.is_possible for trial in trials):
        return None, {}, []
    rows_per_class = np.mean([len(dataset.split.train) / dataset.seen.sum() for _, dataset in splits])
    trust, worth = _with_description(trials, Trust(1.0, 0.0, float(rows_per_class)))
    trust, few = _with_penalty(trials, trust)
    unlabelled = [_unlabelled(replace(trial.scorer, trust=trust), trial) for trial in trials]
    before = float(np.mean([trial.harmonic(trial.logits, trial.labels) for trial in trials]))
    pairs = zip(trials, unlabelled, strict=True)
    after = float(np.mean([trial.harmonic(logits, trial.labels) for trial, (logits, _) in pairs]))
    record = {"worth": worth, "examples": few, "unlabelled": {"before": before, "after": after}}
    scored = [_scored_examples(trials, trust, count) for count in _EXAMPLES]
    scored.append(_scored_unlabelled(trials, unlabelled))
    return replace(trust, unlabelled_gain=after - before), record, scored


def _with_description(trials: Sequence[_Trial], trust: Trust) -> tuple[Trust, dict[str, float]]:
    """The weight of descriptions with the highest T1, and T1 by the pictures that they are worth."""
    typical = float(np.mean(np.concatenate([trial.variances for trial in trials])))
    candidates = [replace(trust, description=float(worth) * typical) for worth in _WORTH]
    scores = [np.mean([trial.zsl(each, n) for trial in trials for n in _EXAMPLES]) for each in candidates]
    return candidates[int(np.argmax(scores))], {f"{w:g}": float(s) for w, s in zip(_WORTH, scores, strict=True)}


def _with_penalty(trials: Sequence[_Trial], trust: Trust) -> tuple[Trust, dict[str, float]]:
    """The penalty with the highest H, and H without and with it."""
    given = [(trial, *trial.with_examples(trust, count)) for trial in trials for count in _EXAMPLES]

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
    return replace(trust, penalty=record["penalty"]), record


@torch.inference_mode()
def _unlabelled(scorer: Scorer, trial: _Trial) -> tuple[Floats, float]:
    """Logits after all rows of a split without their labels, and the mean weight of these in unseen classes."""
    transductive = adapted(scorer, lambda: iter([(trial.vectors, trial.placed)]))
    logits = transductive.logits_of(trial.vectors).double().cpu().numpy()
    return logits, float(picture_shares(transductive)[1][~scorer.seen].mean())


def _scored_examples(trials: Sequence[_Trial], trust: Trust, count: int) -> ScoredPictures:
    """The scores of rows if classes have up to `count` examples."""
    splits, weights = [], []
    for trial in trials:
        logits, shares = trial.with_examples(trust, count)
        splits.append(trial.split(logits - trust.penalty * shares, trial.scored))
        weights.append(shares[~trial.scorer.seen].mean())
    return ScoredPictures("examples", float(np.mean(weights)), splits)


def _scored_unlabelled(trials: Sequence[_Trial], unlabelled: Sequence[tuple[Floats, float]]) -> ScoredPictures:
    splits = [trial.split(logits, trial.labels) for trial, (logits, _) in zip(trials, unlabelled, strict=True)]
    return ScoredPictures("unlabelled", float(np.mean([share for _, share in unlabelled])), splits)
