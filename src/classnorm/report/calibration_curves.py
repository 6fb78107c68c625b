"""U, S and H of a group against the calibration of seen scores, on validation and test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from classnorm.metrics import Calibration
from classnorm.metrics.calibration import CalibrationCurves, calibration_curves, calibration_values
from classnorm.report.summary import Group
from classnorm.results.run_folder import Result

Kind = Literal["scale", "bias"]
Floats = npt.NDArray[np.float64]

_N_VALUES = 61


@dataclass(frozen=True)
class GroupCurves:
    """Curves averaged over the seeds of a group."""

    test: CalibrationCurves
    validation: CalibrationCurves | None
    """None without validation."""
    chosen: list[float]
    """The value of each run with this kind of calibration; 1 (scale) or 0 (bias) for runs without calibration."""


def shared_values(groups: Sequence[Group], kind: Kind) -> Floats:
    """Values that span the curves of all groups, for a shared axis."""
    ranges = []
    for result in (result for group in groups for result in group.results):
        recorded = _recorded(result, kind)
        ranges.append(recorded["value"] if recorded else calibration_values([result.sides], kind, _calibration(result)))
    return np.linspace(min(values[0] for values in ranges), max(values[-1] for values in ranges), _N_VALUES)


def group_curves(group: Group, kind: Kind, values: Floats) -> GroupCurves:
    neutral = 1.0 if kind == "scale" else 0.0
    calibrations = [_calibration(result) for result in group.results]
    return GroupCurves(
        calibration_curves([result.sides for result in group.results], kind, values),
        _validation(group, kind, values),
        [neutral if c.kind == "none" else c.value for c in calibrations if c.kind in ("none", kind)],
    )


def _calibration(result: Result) -> Calibration:
    return Calibration.parse(result.document["calibration"])


def _recorded(result: Result, kind: Kind) -> dict[str, Any] | None:
    """The validation curves of a run; None without validation and in runs of older versions."""
    record: dict[str, Any] | None = ((result.document.get("validation") or {}).get("curves") or {}).get(kind)
    return record


def _numbers(values: Sequence[float | None]) -> Floats:
    """With NaN for null, as where a side of the validation has no rows."""
    return np.array(values, dtype=np.float64)


def _validation(group: Group, kind: Kind, values: Floats) -> CalibrationCurves | None:
    """Mean over seeds; NaN outside the range that the curves of all seeds share."""
    records = [record for result in group.results if (record := _recorded(result, kind))]
    if not records:
        return None
    curves = (
        [np.interp(values, record["value"], _numbers(record[name]), left=np.nan, right=np.nan) for record in records]
        for name in ("unseen", "seen", "harmonic")
    )
    return CalibrationCurves(values, *(np.mean(curve, axis=0) for curve in curves))
