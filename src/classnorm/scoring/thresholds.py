"""Thresholds of novelty and of prediction sets after pictures have corrected prototypes.

Pictures make classes more certain of their rows, so thresholds that were measured with descriptions alone reject too
few rows and make sets too large. Validation splits tell by how much: their held-out classes get 1, 2 and 5 pictures
back, or all of their pictures without labels, and the quantiles are measured again. Between these, thresholds are
interpolated by the weight of the pictures in the prototypes of the unseen classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from classnorm.scoring.conformal import PredictionSets
from classnorm.scoring.examples import picture_shares
from classnorm.scoring.novelty import NoveltyScore, ScoredSplit, not_validated, requantiled
from classnorm.settings import check_share

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

Kind = Literal["examples", "unlabelled"]
_KINDS: tuple[Kind, ...] = ("examples", "unlabelled")
Floats = npt.NDArray[np.float64]


class ScoredPictures(NamedTuple):
    """Validation splits whose held-out classes have got pictures."""

    kind: Kind
    share: float
    """The mean weight of the pictures in the prototypes of the held-out classes."""
    splits: Sequence[ScoredSplit]


@dataclass(frozen=True)
class PictureThresholds:
    """The quantiles of `ScoredPictures`."""

    kind: Kind
    share: float
    novelty: NoveltyScore | None
    sets: PredictionSets | None

    @classmethod
    def read(cls, document: Any) -> PictureThresholds:
        """From the document of a saved model."""
        kind, share, novelty, sets = (document[key] for key in ("kind", "share", "novelty", "sets"))
        if kind not in _KINDS or not 0.0 <= float(share) <= 1.0:
            raise ValueError("thresholds of unknown pictures")
        return cls(
            kind,
            float(share),
            None if novelty is None else NoveltyScore.read(novelty),
            None if sets is None else PredictionSets.read(sets),
        )


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


def novelty_threshold(scorer: Scorer, reject: float) -> float:
    """The novelty that the share `reject` of known rows exceeds."""
    check_share(reject=reject)
    if scorer.rejection is None:
        raise not_validated("reject")
    score = scorer.rejection.score(scorer.seen)
    described = score.threshold(reject)
    if score is not scorer.rejection.two_sides or not scorer.has_examples:
        return described
    found = [(each, each.novelty.threshold(reject)) for each in scorer.after_pictures if each.novelty is not None]
    return float(_interpolated(described, found, _mean_shares(scorer)))


def set_limits(scorer: Scorer, coverage: float) -> Floats:
    """The largest surprise of each class in a set that holds the right class with probability `coverage`,
    [n_classes]."""
    check_share(coverage=coverage)
    if scorer.sets is None:
        raise not_validated("coverage")
    limits = scorer.sets.limits(scorer.seen, coverage)
    if not scorer.has_examples:
        return limits
    after = [(each, each.sets) for each in scorer.after_pictures if each.sets is not None]
    seen, unseen = ([(e, getattr(sets, side).threshold(coverage)) for e, sets in after] for side in ("seen", "unseen"))
    limits[scorer.seen] = _interpolated(scorer.sets.seen.threshold(coverage), seen, _mean_shares(scorer))
    own = np.stack(picture_shares(scorer))[:, ~scorer.seen]  # each class has its own
    limits[~scorer.seen] = _interpolated(scorer.sets.unseen.threshold(coverage), unseen, own)
    return limits


def _mean_shares(scorer: Scorer) -> Floats:
    """The mean weights of labelled and of unlabelled pictures in the prototypes of the unseen classes, [2]."""
    shares = np.stack(picture_shares(scorer))[:, ~scorer.seen]
    return shares.mean(axis=1) if shares.size else np.zeros(2)


def _interpolated(described: float, found: Sequence[tuple[PictureThresholds, float]], shares: Floats) -> Floats:
    """A threshold with pictures, [2, …] → […].

    Args:
        described: the threshold without pictures.
        found: those that validation measured.
        shares: the weights of labelled and of unlabelled pictures.
    """
    total = np.full(shares.shape[1:], described)
    for kind, share in zip(_KINDS, shares, strict=True):
        points = sorted((each.share, value) for each, value in found if each.kind == kind and np.isfinite(value))
        if points and np.isfinite(described):
            total += np.interp(share, [0.0, *(x for x, _ in points)], [described, *(y for _, y in points)]) - described
    return total
