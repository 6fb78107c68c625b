"""None of these: which number tells rows of no known class apart, and where to draw the line.

Validation splits decide: some of their held-out classes are treated as not described either. Each class is left out
once, the rows of the other classes are the known ones. Single numbers (`metrics.novelty_statistics`) compete with a
logistic regression on a few of them, which is fitted on the other splits; the highest AUROC wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from classnorm.errors import ConfigError
from classnorm.metrics import auroc, fpr_at_tpr, novelty_statistics

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Rows, Scorer

Floats = npt.NDArray[np.float64]
Statistics = Mapping[str, Floats]

_SINGLE = ("entropy", "probability", "energy", "standardised")
_COMBINED = ("entropy", "seen", "unseen", "balance")
_GROUPS = 3  # of held-out classes; each is left out once
_PENALTY = 1.0  # of the regression, in rows
_N_LEVELS = 201


@dataclass(frozen=True)
class NoveltyScore:
    """A weighted sum of statistics of a row, and its quantiles over known rows of validation splits."""

    weights: dict[str, float]
    intercept: float
    quantiles: tuple[float, ...]
    """At evenly spaced levels from 0 to 1."""

    def of(self, statistics: Statistics) -> Floats:
        """[n]"""
        table = np.stack([statistics[name] for name in self.weights], axis=1)
        novelty: Floats = table @ np.array(list(self.weights.values())) + self.intercept
        return novelty

    def threshold(self, share: float) -> float:
        """The novelty that the given share of known rows exceeds."""
        return float(np.interp(1.0 - share, np.linspace(0.0, 1.0, len(self.quantiles)), self.quantiles))

    @classmethod
    def read(cls, document: Any) -> NoveltyScore:
        weights = {str(name): float(weight) for name, weight in document["weights"].items()}
        values, intercept = np.array(document["quantiles"], dtype=np.float64), float(document["intercept"])
        if not weights or not {*_SINGLE, *_COMBINED}.issuperset(weights) or values.ndim != 1 or len(values) < 2:
            raise ValueError("novelty of an unknown kind")
        if not np.isfinite([intercept, *weights.values(), *values]).all():
            raise ValueError("novelty with NaN or infinity")
        return cls(weights, intercept, tuple(values.tolist()))


ENTROPY = NoveltyScore({"entropy": 1.0}, 0.0, ())
"""The novelty of models without validation, which has no thresholds."""


@dataclass(frozen=True)
class Rejection:
    """What a model knows about rows of no known class."""

    one_side: NoveltyScore
    """If all classes are seen, or all unseen."""
    two_sides: NoveltyScore | None
    """If there are seen and unseen classes; None if too few classes were held out to learn it."""

    def score(self, seen: npt.NDArray[np.bool_]) -> NoveltyScore:
        has_sides = bool(seen.any() and not seen.all())
        return self.two_sides if has_sides and self.two_sides is not None else self.one_side

    @classmethod
    def read(cls, document: Any) -> Rejection:
        """From the document of a saved model."""
        two_sides = document["two_sides"]
        return cls(NoveltyScore.read(document["one_side"]), None if two_sides is None else NoveltyScore.read(two_sides))


def novelty(scorer: Scorer, features: Rows) -> Floats:
    """How little each row looks like any of the classes of a scorer, [n]."""
    score = ENTROPY if scorer.rejection is None else scorer.rejection.score(scorer.seen)
    blocks = [np.empty(0)]
    for _, logits in scorer.logit_blocks(features):
        scores = scorer.calibration.apply(logits, scorer.seen)
        blocks.append(score.of(novelty_statistics(scores, scorer.seen, scorer.temperature)))
    return np.concatenate(blocks)


def not_validated(setting: str) -> ConfigError:
    return ConfigError(
        f"the model has no thresholds for `{setting}`: it is from an earlier version, or its calibration was not "
        'chosen by validation; train it again with `calibration="validation"`'
    )


class ScoredSplit(NamedTuple):
    """Calibrated scores of the held-out rows of a validation split."""

    scores: Floats  # [n, n_classes]
    labels: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


class _Trial(NamedTuple):
    """The statistics of rows, some of which are of classes left out."""

    statistics: Statistics
    novel: npt.NDArray[np.bool_]
    weights: Floats
    """Novel rows count as much as known ones; of the known, those of seen classes as much as the others."""


def choose_rejection(splits: Sequence[ScoredSplit], temperature: float) -> tuple[Rejection | None, dict[str, Any]]:
    """The novelty scores with the highest AUROC on validation splits, and the record of all that were tried."""
    one_side = [[_trial(split, ~split.seen, temperature)] for split in splits]
    two_sides = [[_trial(split, left_out, temperature) for left_out in _left_out(split.seen)] for split in splits]
    if not all(trial.novel.any() and not trial.novel.all() for trials in one_side for trial in trials):
        return None, {}
    single, record = _choose(one_side, {name: (name,) for name in _SINGLE})
    if not all(len(trials) == _GROUPS for trials in two_sides):
        return Rejection(single, None), {"one_side": record}
    best, both = _choose(two_sides, {**{name: (name,) for name in _SINGLE}, "combined": _COMBINED})
    return Rejection(single, best), {"one_side": record, "two_sides": both}


def requantiled(score: NoveltyScore, splits: Sequence[ScoredSplit], temperature: float) -> NoveltyScore | None:
    """The score with the quantiles of other splits; None if they hold out too few classes."""
    trials = [_trial(split, left_out, temperature) for split in splits for left_out in _left_out(split.seen)]
    return _with_quantiles(score, trials) if trials and all((~trial.novel).any() for trial in trials) else None


def _left_out(seen: npt.NDArray[np.bool_]) -> Iterator[npt.NDArray[np.bool_]]:
    """Masks of the held-out classes to leave out, a group at a time."""
    held_out = np.random.default_rng(len(seen)).permutation(np.flatnonzero(~seen))
    if len(held_out) >= _GROUPS:
        for group in np.array_split(held_out, _GROUPS):
            yield np.isin(np.arange(len(seen)), group)


def _trial(split: ScoredSplit, left_out: npt.NDArray[np.bool_], temperature: float) -> _Trial:
    statistics = novelty_statistics(split.scores[:, ~left_out], split.seen[~left_out], temperature)
    novel, of_seen = left_out[split.labels], split.seen[split.labels]
    weights = np.zeros(len(novel))
    sides = [side for side in (~novel & of_seen, ~novel & ~of_seen) if side.any()]
    for rows, share in [(novel, 0.5), *((side, 0.5 / len(sides)) for side in sides)]:
        weights[rows] = share / max(1, rows.sum())
    return _Trial(statistics, novel, weights)


def _choose(
    splits: list[list[_Trial]], candidates: Mapping[str, tuple[str, ...]]
) -> tuple[NoveltyScore, dict[str, Any]]:
    """The best candidate, fitted on all splits. It is compared on splits that it is not fitted on."""
    folds = splits if len(splits) > 1 else [[trial] for trial in splits[0]]
    record: dict[str, Any] = {}
    for name, columns in candidates.items():
        values = []
        for i, fold in enumerate(folds):
            others = [trial for j, other in enumerate(folds) if j != i for trial in other] or fold
            score = _fit(others, columns)
            for trial in fold:
                novelty = score.of(trial.statistics)
                known, novel = novelty[~trial.novel], novelty[trial.novel]
                values.append((auroc(known, novel), fpr_at_tpr(known, novel)))
        record[name] = dict(zip(("auroc", "fpr95"), np.mean(values, axis=0).tolist(), strict=True))
    best = max(candidates, key=lambda name: record[name]["auroc"])
    trials = [trial for split in splits for trial in split]
    return _with_quantiles(_fit(trials, candidates[best]), trials), record


def _fit(trials: Sequence[_Trial], columns: tuple[str, ...]) -> NoveltyScore:
    """One statistic as it is; several by logistic regression."""
    if len(columns) == 1:
        return NoveltyScore({columns[0]: 1.0}, 0.0, ())
    table = np.concatenate([np.stack([trial.statistics[name] for name in columns], axis=1) for trial in trials])
    center, spread = table.mean(axis=0), np.maximum(table.std(axis=0), 1e-12)
    rows = np.hstack([(table - center) / spread, np.ones((len(table), 1))])
    novel = np.concatenate([trial.novel for trial in trials]).astype(np.float64)
    weights = np.concatenate([trial.weights for trial in trials]) * len(rows) / len(trials)
    solution = _logistic(rows, novel, weights)
    slopes = solution[:-1] / spread
    return NoveltyScore(dict(zip(columns, slopes.tolist(), strict=True)), float(solution[-1] - slopes @ center), ())


def _logistic(rows: Floats, targets: Floats, weights: Floats, steps: int = 25) -> Floats:
    """Ridge logistic regression by Newton's method; the last column is constant and not penalised."""
    solution = np.zeros(rows.shape[1])
    penalty = _PENALTY * np.diag([*np.ones(rows.shape[1] - 1), 0.0])
    for _ in range(steps):
        odds = 1.0 / (1.0 + np.exp(-np.clip(rows @ solution, -30.0, 30.0)))
        gradient = rows.T @ (weights * (odds - targets)) + penalty @ solution
        curvature = (rows * (weights * odds * (1.0 - odds))[:, None]).T @ rows + penalty
        step = np.linalg.solve(curvature, gradient)
        solution -= step
        if np.abs(step).max() < 1e-9:
            break
    return solution


def _with_quantiles(score: NoveltyScore, trials: Sequence[_Trial]) -> NoveltyScore:
    """With the quantiles of the known rows, in which both sides have equal weight."""
    values = np.concatenate([score.of(trial.statistics)[~trial.novel] for trial in trials])
    weights = np.concatenate([trial.weights[~trial.novel] for trial in trials])
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    levels = np.linspace(0.0, reached[-1], _N_LEVELS)
    quantiles = values[order][np.minimum(np.searchsorted(reached, levels - 1e-12), len(values) - 1)]
    return NoveltyScore(score.weights, score.intercept, tuple(quantiles.tolist()))
