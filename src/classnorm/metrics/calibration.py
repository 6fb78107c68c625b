"""Calibration of seen against unseen scores, and its choice from validation logits.

A model trained on seen classes favours them. Two corrections are common: multiply the seen scores by s < 1 (the paper)
or subtract a bias from them (calibrated stacking). Multiplication raises negative scores, so it needs scores that are
mostly positive; validation decides between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from classnorm.errors import ConfigError
from classnorm.metrics.accuracy import BestScores, GZSLScores, curve_of, harmonic_mean

PAPER_SCALES = (1.0, 0.95, 0.9, 0.85, 0.8)
_N_CANDIDATES = 400

CalibrationKind = Literal["none", "scale", "bias"]
Floats = npt.NDArray[np.float64]

_N_VALUES = 41  # points of a curve
_SCALES = (0.7, 1.1)  # range of a curve against the scale; the paper shows the part below 1


@dataclass(frozen=True)
class Calibration:
    """``scale``: seen scores × value; ``bias``: seen scores − value; ``none``: no change.

    >>> Calibration("scale", 0.5).apply([[2.0, 2.0]], seen_mask=[True, False])
    array([[1., 2.]])
    >>> Calibration("bias", 0.5).apply([[2.0, 2.0]], seen_mask=[True, False])
    array([[1.5, 2. ]])
    >>> Calibration.parse("scale:0.95"), str(Calibration("bias", 1.25))
    (Calibration(kind='scale', value=0.95), 'bias:1.25')
    """

    kind: CalibrationKind = "none"
    value: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Calibration:
        """Parse ``none``, ``scale:S`` or ``bias:B``."""
        kind, _, value = text.partition(":")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if kind == "none" and not value:
            return cls()
        if kind == "scale" and 0 < number < math.inf:
            return cls("scale", number)
        if kind == "bias" and math.isfinite(number):
            return cls("bias", number)
        raise ConfigError(
            f"calibration {text!r} is not understood; use validation, validation:scale, validation:bias, "
            "validation:grid, none, scale:S with S > 0, or bias:B"
        )

    def __str__(self) -> str:
        return "none" if self.kind == "none" else f"{self.kind}:{self.value:.6g}"

    def apply(self, logits: npt.ArrayLike, seen_mask: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Calibrated logits [n, n_classes]."""
        factors, shifts = self.factors_and_shifts(seen_mask)
        return np.asarray(logits, dtype=np.float64) * factors - shifts

    def factors_and_shifts(self, seen_mask: npt.ArrayLike) -> tuple[Floats, Floats]:
        """[n_classes] each: a calibrated score is ``factor · score − shift``."""
        seen = np.asarray(seen_mask, dtype=bool)
        factor = self.value if self.kind == "scale" else 1.0
        shift = self.value if self.kind == "bias" else 0.0
        return np.where(seen, factor, 1.0), np.where(seen, shift, 0.0)


def calibrated_scores(best_scores: BestScores, calibration: Calibration) -> tuple[float, float, float]:
    """U, S and H in percent under a calibration."""
    seen_wins = _seen_wins(best_scores, _seen_scores(best_scores, calibration))
    u = _percent(best_scores, ~best_scores.is_seen, best_scores.unseen_right & ~seen_wins)
    s = _percent(best_scores, best_scores.is_seen, best_scores.seen_right & seen_wins)
    return u, s, harmonic_mean(u, s)


def calibrated_gzsl_scores(best_scores: BestScores, calibration: Calibration | None = None) -> GZSLScores:
    """`gzsl_scores` under a calibration from the best seen and unseen scores, which need less memory than logits."""
    calibration = calibration or Calibration()
    u, s, h = calibrated_scores(best_scores, calibration)
    curve = curve_of(replace(best_scores, best_seen=_seen_scores(best_scores, calibration)))
    return GZSLScores(unseen=u, seen=s, harmonic=h, zsl=curve.zsl, ausuc=curve.area)


def calibrated_predictions(best_scores: BestScores, calibration: Calibration) -> npt.NDArray[np.int64]:
    """The best class of each row under a calibration."""
    return np.where(
        _seen_wins(best_scores, _seen_scores(best_scores, calibration)),
        best_scores.seen_class,
        best_scores.unseen_class,
    )


def _seen_scores(best_scores: BestScores, calibration: Calibration) -> Floats:
    """Calibrated scores of the best seen classes."""
    factor, shift = calibration.factors_and_shifts(True)
    return factor * best_scores.best_seen - shift


def _seen_wins(best_scores: BestScores, seen: Floats) -> npt.NDArray[np.bool_]:
    """Whether the best seen class, with these scores, beats the best unseen one; a tie goes to the lower index."""
    tie_to_seen = (seen == best_scores.best_unseen) & (best_scores.seen_class < best_scores.unseen_class)
    wins: npt.NDArray[np.bool_] = (seen > best_scores.best_unseen) | tie_to_seen
    return wins


@dataclass(frozen=True)
class CalibrationCurves:
    """U, S and H in percent against the scale or the bias of the seen scores. All [n_values]."""

    value: Floats
    unseen: Floats
    seen: Floats
    harmonic: Floats

    def rounded(self) -> dict[str, list[float]]:
        """Lists with four decimals, which is enough for plots."""
        return {name: np.round(curve, 4).tolist() for name, curve in vars(self).items()}


def calibration_curves(
    splits: Sequence[BestScores], kind: Literal["scale", "bias"], values: npt.ArrayLike
) -> CalibrationCurves:
    """U, S and H at each value of a calibration, averaged over splits.

    >>> from classnorm.metrics import best_seen_and_unseen
    >>> best_scores = best_seen_and_unseen([[3.0, 1.0], [2.0, 1.0]], labels=[0, 1], seen_mask=[True, False])
    >>> curves = calibration_curves([best_scores], "bias", [0.0, 1.5, 3.0])
    >>> curves.unseen.tolist(), curves.seen.tolist(), curves.harmonic.tolist()
    ([0.0, 100.0, 100.0], [100.0, 100.0, 0.0], [0.0, 100.0, 0.0])
    """
    grid = np.asarray(values, dtype=np.float64)
    scores = np.array(
        [[calibrated_scores(best_scores, Calibration(kind, value)) for value in grid] for best_scores in splits]
    )
    unseen, seen, harmonic = scores.mean(axis=0).T
    return CalibrationCurves(grid, unseen, seen, harmonic)


def calibration_values(splits: Sequence[BestScores], kind: Literal["scale", "bias"], chosen: Calibration) -> Floats:
    """Values for a curve: they cover no calibration, the chosen one, and those at which most rows switch sides."""
    if kind == "scale":
        low, high, margin = *_SCALES, 0.1
    else:
        low, high = np.quantile(np.append(_switches(splits, kind), 0.0), [0.05, 0.95])
        low, high, margin = min(low, 0.0), max(high, 0.0), 0.0
    if chosen.kind == kind:
        low, high = min(low, chosen.value - margin), max(high, chosen.value + margin)
    return np.round(np.linspace(low, high, _N_VALUES), 4)


def _percent(best_scores: BestScores, side: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> float:
    return 100.0 * float(best_scores.weights[side] @ right[side]) if side.any() else float("nan")


def choose_calibration(
    validation: Sequence[BestScores], kind: Literal["any", "scale", "bias", "grid"] = "any"
) -> tuple[Calibration, float]:
    """The calibration with the highest mean H over the validation splits, and that H.

    Args:
        validation: `best_seen_and_unseen` of each validation split, of uncalibrated logits.
        kind: ``scale``, ``bias``, ``any`` (whichever of the two is better), or ``grid`` (the paper's five scales).

    Among equally good values the middle one wins. If H is NaN, because a split has no rows on one side, the result is
    no calibration.
    """
    best = (Calibration(), _mean_harmonic(validation, Calibration()))
    if math.isnan(best[1]):
        return best
    for candidates in _candidates(validation, kind):
        scores = np.array([_mean_harmonic(validation, candidate) for candidate in candidates])
        winners = np.flatnonzero(scores >= scores.max() - 1e-9)
        winner = int(winners[len(winners) // 2])
        if scores[winner] > best[1]:
            best = (candidates[winner], float(scores[winner]))
    return best


def keeping_calibration(
    validation: Sequence[BestScores], share: float, kind: Literal["any", "scale", "bias", "grid"] = "any"
) -> Calibration:
    """The calibration that keeps `share` of the rows of seen classes.

    Of those rows whose best seen class is the true one, this share (interpolated) is still assigned to it. It needs no
    rows of unseen classes, and says nothing about their accuracy. Without a row to go by, no calibration.

    >>> from classnorm.metrics import best_seen_and_unseen
    >>> scores = [[5.0, 1.0], [4.0, 1.0], [3.0, 1.0]]
    >>> best_scores = best_seen_and_unseen(scores, labels=[0, 0, 0], seen_mask=[True, False])
    >>> keeping_calibration([best_scores], share=0.75)
    Calibration(kind='bias', value=2.5)
    """
    right = [_rows_of(best_scores, best_scores.is_seen & best_scores.seen_right) for best_scores in validation]
    if kind in ("any", "bias"):
        switches = _switches(right, "bias")  # a row stays while the bias is below
        return Calibration("bias", float(np.quantile(switches, 1.0 - share))) if len(switches) else Calibration()
    switches = _switches(right, "scale")  # a row stays while the scale is above
    if not len(switches):
        return Calibration()
    scale = float(np.quantile(switches, share))
    return Calibration("scale", scale if kind == "scale" else min(PAPER_SCALES, key=lambda s: (s < scale, s)))


def _rows_of(best_scores: BestScores, rows: npt.NDArray[np.bool_]) -> BestScores:
    columns = [field.name for field in fields(BestScores) if field.name != "average"]
    return BestScores(**{name: getattr(best_scores, name)[rows] for name in columns}, average=best_scores.average)


def _mean_harmonic(validation: Sequence[BestScores], calibration: Calibration) -> float:
    return float(np.mean([calibrated_scores(best_scores, calibration)[2] for best_scores in validation]))


def _candidates(validation: Sequence[BestScores], kind: str) -> list[list[Calibration]]:
    """Quantiles of the values at which rows switch sides, for each kind."""
    if kind == "grid":
        return [[Calibration("scale", scale) for scale in PAPER_SCALES]]
    levels = (np.arange(_N_CANDIDATES) + 0.5) / _N_CANDIDATES
    kinds: tuple[Literal["scale", "bias"], ...] = ("scale", "bias")
    switches = {name: _switches(validation, name) for name in kinds if kind in ("any", name)}
    return [
        [Calibration(name, float(value)) for value in np.unique(np.quantile(values, levels))]
        for name, values in switches.items()
        if len(values)
    ]


def _switches(splits: Sequence[BestScores], kind: Literal["scale", "bias"]) -> Floats:
    """The values at which rows switch from their best seen to their best unseen class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = [
            best_scores.margin if kind == "bias" else best_scores.best_unseen / best_scores.best_seen
            for best_scores in splits
        ]
    switches: Floats = np.concatenate(values)
    return switches[np.isfinite(switches) & ((kind == "bias") | (switches > 0))]
