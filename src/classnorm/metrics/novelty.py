r"""How much a row looks like none of the classes, from its scores, and how well such a number tells novel rows apart.

Higher is more novel. With calibrated scores s of a row over all classes, T their temperature and
:math:`z_c = (s_c - \mathrm{mean}(s)) / \mathrm{std}(s)`:

- ``probability``: :math:`-\log \max_c p_c`, the maximum softmax probability;
- ``entropy`` of the softmax; ``energy``: :math:`-\log \sum_c e^{s_c / T}`;
- ``standardised``: :math:`-\max_c z_c`; ``seen`` and ``unseen``: the same over one side only;
- ``balance``: :math:`-|\max_{seen} z - \max_{unseen} z|`. An image of an undescribed class is often about as close to a
  seen as to an unseen class, while others prefer their side.

Validation splits decide which number tells rows of no known class apart, and where to draw the line: some of their
held-out classes are treated as not described either. Each class is left out once, the rows of the other classes are the
known ones. Single numbers compete with a logistic regression on a few of them, which is fitted on the other splits; the
highest AUROC wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from classnorm.metrics.probability import ScoredSplit, softmax

Floats = npt.NDArray[np.float64]
Statistics = Mapping[str, Floats]

_SINGLE = ("entropy", "probability", "energy", "standardised")
_COMBINED = ("entropy", "seen", "unseen", "balance")
_GROUPS = 3  # of held-out classes; each is left out once
_PENALTY = 1.0  # of the regression, in rows
_N_LEVELS = 201


def auroc(known: npt.ArrayLike, novel: npt.ArrayLike) -> float:
    """Area under the ROC curve in percent: how often a novel row has a higher value than a known one; ties count half.

    >>> auroc(known=[1.0, 2.0], novel=[2.0, 3.0])
    87.5
    """
    low, high = np.asarray(known, dtype=np.float64), np.asarray(novel, dtype=np.float64)
    if not (low.size and high.size):
        return float("nan")
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, side="left") + np.searchsorted(ordered, high, side="right")
    return 100.0 * float(below.mean()) / (2 * low.size)


def fpr_at_tpr(known: npt.ArrayLike, novel: npt.ArrayLike, tpr: float = 0.95) -> float:
    """The percentage of novel rows taken for known ones at the threshold that accepts the share `tpr` of known rows.

    >>> fpr_at_tpr(known=[1.0, 2.0, 3.0, 4.0], novel=[2.0, 3.5, 5.0], tpr=0.75)
    33.33333333333333
    """
    low, high = np.sort(np.asarray(known, dtype=np.float64)), np.asarray(novel, dtype=np.float64)
    if not (low.size and high.size):
        return float("nan")
    threshold = low[max(0, int(np.ceil(tpr * low.size - 1e-9)) - 1)]
    return 100.0 * float((high <= threshold).mean())


def novelty_statistics(scores: npt.ArrayLike, seen: npt.ArrayLike, temperature: float = 1.0) -> dict[str, Floats]:
    """The numbers above, [n] each; those of the sides only if there are seen and unseen classes.

    Args:
        scores: [n, n_classes], calibrated.
        seen: [n_classes]

    >>> statistics = novelty_statistics([[2.0, 0.0, -2.0]], seen=[True, False, False])
    >>> {name: round(float(values[0]), 3) for name, values in statistics.items()}
    {'probability': 0.143, 'entropy': 0.441, 'energy': -2.143, 'standardised': -1.225, 'seen': -1.225,
     'unseen': 0.0, 'balance': -1.225}
    """
    table, mask = np.asarray(scores, dtype=np.float64), np.asarray(seen, dtype=bool)
    probabilities = softmax(table, temperature)
    best = table.max(axis=1)
    log_best = np.log(probabilities.max(axis=1))
    deviation = table.std(axis=1)
    spread = np.where(deviation > 0, deviation, 1.0)
    mean = table.mean(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(probabilities), -700.0)  # 0 · log 0 is 0
    statistics = {
        "probability": -log_best,
        "entropy": -(probabilities * logs).sum(axis=1),
        "energy": log_best - best / temperature,
        "standardised": (mean - best) / spread,
    }
    if mask.any() and not mask.all():
        statistics["seen"] = (mean - table[:, mask].max(axis=1)) / spread
        statistics["unseen"] = (mean - table[:, ~mask].max(axis=1)) / spread
        statistics["balance"] = -np.abs(statistics["seen"] - statistics["unseen"])
    return statistics


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
