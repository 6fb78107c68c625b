"""What held-out rows showed about a model: its calibration, and where to draw the line.

Pictures make classes more certain of their rows, so thresholds that were measured with descriptions alone reject too
few rows and make sets too large. Validation splits tell by how much: their held-out classes get 1, 2 and 5 pictures
back, or all of their pictures without labels, and the quantiles are measured again. Between these, thresholds are
interpolated by the weight of the pictures in the prototypes of the unseen classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.errors import ConfigError
from classnorm.metrics import Calibration, novelty_statistics
from classnorm.metrics.novelty import ENTROPY, NoveltyScore, Rejection
from classnorm.metrics.probability import PredictionSets
from classnorm.settings import check_share

Kind = Literal["examples", "unlabelled"]
KINDS: tuple[Kind, ...] = ("examples", "unlabelled")
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_PICTURES = 4.0  # a description is worth that many, if validation has not told
_GAUSSIAN_PROCESS = 0.28  # the same times the variance of the description, where the method knows it
_TRAINING_ROWS = 50.0


@dataclass(frozen=True)
class DescriptionWeight:
    """The weight of descriptions against pictures."""

    description: float
    """τ of a class times the variance of its description (`ExampleSpace.variance`, or 1)."""
    penalty: float
    """Subtracted from the scores of an unseen class that is known by pictures alone; from others in proportion to the
    weight of the pictures. The calibration favours unseen classes because descriptions fit worse than pictures."""
    training_rows: float
    """Added to τ of seen classes: their prototypes have learnt from this many pictures each."""
    unlabelled_penalty: float = 0.0
    """Like `penalty`, for unlabelled pictures, which choose it themselves."""
    unlabelled_gain: float | None = None
    """Points of H that unlabelled pictures gained on validation splits; None if that is not known."""

    @classmethod
    def default(cls, calibration: Calibration, knows_variance: bool) -> DescriptionWeight:
        """For models whose validation did not choose it.

        Args:
            knows_variance: whether the method knows the variances of descriptions.
        """
        penalty = max(0.0, calibration.value) if calibration.kind == "bias" else 0.0
        return cls(_GAUSSIAN_PROCESS if knows_variance else _PICTURES, penalty, _TRAINING_ROWS)

    def in_pictures(self, variances: Floats, seen: Mask) -> Floats:
        """τ of each class, [n_classes]: how many pictures its description is worth."""
        return np.asarray(self.description / np.maximum(variances, 1e-12) + self.training_rows * seen)

    def penalties(self, shares: Floats) -> npt.NDArray[np.float32]:
        """What is subtracted from the scores, [n_classes].

        Args:
            shares: [2, n_classes], the weights of labelled and of unlabelled pictures in the prototypes.
        """
        penalties: Floats = self.penalty * shares[0] + self.unlabelled_penalty * shares[1]
        return penalties.astype(np.float32)

    def document(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def read(cls, document: dict[str, float]) -> DescriptionWeight:
        weight = cls(**document)
        if min(weight.description, weight.training_rows) < 0.0:
            raise ValueError("the weight of descriptions must not be negative")
        return weight


@dataclass(frozen=True)
class PictureThresholds:
    """Quantiles over the rows of validation splits whose held-out classes have got pictures."""

    kind: Kind
    share: float
    """The mean weight of the pictures in the prototypes of the held-out classes."""
    novelty: NoveltyScore | None
    sets: PredictionSets | None

    @classmethod
    def read(cls, document: Any) -> PictureThresholds:
        kind, share, novelty, sets = (document[key] for key in ("kind", "share", "novelty", "sets"))
        if kind not in KINDS or not 0.0 <= float(share) <= 1.0:
            raise ValueError("thresholds of unknown pictures")
        return cls(
            kind,
            float(share),
            None if novelty is None else NoveltyScore.read(novelty),
            None if sets is None else PredictionSets.read(sets),
        )


@dataclass(frozen=True)
class Validation:
    """What validation decides about a model."""

    calibration: Calibration = field(default_factory=Calibration)
    temperature: float = 1.0
    """Divides the calibrated scores before the softmax; changes probabilities, not predictions."""
    rejection: Rejection | None = None
    """What tells rows of no known class apart. None without validation."""
    sets: PredictionSets | None = None
    """How probable the right class of a row is. None without validation."""
    description_weight: DescriptionWeight | None = None
    """None for a default."""
    after_pictures: tuple[PictureThresholds, ...] = ()
    """`rejection` and `sets` after pictures."""

    def novelty(self, scores: Floats, seen: Mask) -> Floats:
        """How little rows look like any of the classes, by their calibrated scores [n, n_classes] → [n]."""
        score = ENTROPY if self.rejection is None else self.rejection.score(seen)
        return score.of(novelty_statistics(scores, seen, self.temperature))

    def novelty_threshold(self, reject: float, seen: Mask, shares: Floats | None) -> float:
        """The novelty that the share `reject` of known rows exceeds.

        Args:
            shares: [2, n_classes], the weights of labelled and of unlabelled pictures in the prototypes of unseen
                classes; None if there are no pictures.
        """
        check_share(reject=reject)
        if self.rejection is None:
            raise _not_validated("reject")
        score = self.rejection.score(seen)
        described = score.threshold(reject)
        if score is not self.rejection.two_sides or shares is None:
            return described
        found = [(each, each.novelty.threshold(reject)) for each in self.after_pictures if each.novelty is not None]
        return float(_interpolated(described, found, _mean_of_unseen(shares, seen)))

    def set_limits(self, coverage: float, seen: Mask, shares: Floats | None) -> Floats:
        """The largest nonconformity score [n_classes] of each class in a set that holds the right class with the
        probability `coverage`. Arguments as in `novelty_threshold`."""
        check_share(coverage=coverage)
        if self.sets is None:
            raise _not_validated("coverage")
        limits = self.sets.limits(seen, coverage)
        if shares is None:
            return limits
        after = [(each, each.sets) for each in self.after_pictures if each.sets is not None]
        of_seen = [(each, sets.seen.threshold(coverage)) for each, sets in after]
        of_unseen = [(each, sets.unseen.threshold(coverage)) for each, sets in after]
        limits[seen] = _interpolated(self.sets.seen.threshold(coverage), of_seen, _mean_of_unseen(shares, seen))
        own = shares[:, ~seen]  # each class has its own
        limits[~seen] = _interpolated(self.sets.unseen.threshold(coverage), of_unseen, own)
        return limits

    def document(self) -> dict[str, Any]:
        """What `model.json` says of it."""
        weight = self.description_weight
        return {
            "calibration": {"kind": self.calibration.kind, "value": self.calibration.value},
            "temperature": self.temperature,
            **({} if weight is None else {"trust": weight.document()}),
            **({"rejection": asdict(self.rejection)} if self.rejection is not None else {}),
            **({"sets": asdict(self.sets)} if self.sets is not None else {}),
            **({"after_pictures": [asdict(each) for each in self.after_pictures]} if self.after_pictures else {}),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Validation:
        """From the document of a saved model."""
        return cls(
            Calibration(**document["calibration"]),
            float(document["temperature"]),
            Rejection.read(document["rejection"]) if "rejection" in document else None,
            PredictionSets.read(document["sets"]) if "sets" in document else None,
            DescriptionWeight.read(document["trust"]) if "trust" in document else None,
            tuple(map(PictureThresholds.read, document.get("after_pictures", []))),
        )


def _not_validated(setting: str) -> ConfigError:
    return ConfigError(
        f"the model has no thresholds for `{setting}`: its calibration was not chosen by validation; train it again "
        'with `calibration="validation"`'
    )


def _mean_of_unseen(shares: Floats, seen: Mask) -> Floats:
    """The mean weights of labelled and of unlabelled pictures in the prototypes of the unseen classes, [2]."""
    of_unseen = shares[:, ~seen]
    return of_unseen.mean(axis=1) if of_unseen.size else np.zeros(2)


def _interpolated(described: float, found: Sequence[tuple[PictureThresholds, float]], shares: Floats) -> Floats:
    """A threshold with pictures, [2, …] → […].

    Args:
        described: the threshold without pictures.
        found: those that validation measured.
        shares: the weights of labelled and of unlabelled pictures.
    """
    total = np.full(shares.shape[1:], described)
    for kind, share in zip(KINDS, shares, strict=True):
        points = sorted((each.share, value) for each, value in found if each.kind == kind and np.isfinite(value))
        if points and np.isfinite(described):
            total += np.interp(share, [0.0, *(x for x, _ in points)], [described, *(y for _, y in points)]) - described
    return total
