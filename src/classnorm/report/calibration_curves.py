"""U, S and H of groups against the calibration of seen scores, on validation as recorded and on the test rows."""

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

__all__ = ["GroupCurves", "Kind", "group_curves", "shared_values"]

Kind = Literal["scale", "bias"]
Floats = npt.NDArray[np.float64]

_N_VALUES = 61


@dataclass(frozen=True)
class GroupCurves:
    """Curves averaged over the seeds of a group."""

    test: CalibrationCurves
    validation: CalibrationCurves | None
    """None where no run of the group was validated."""
    chosen: list[float]
    """One value per run, of those calibrated by this kind; 1 and 0 for a run without calibration."""


def shared_values(groups: Sequence[Group], kind: Kind) -> Floats:
    """Values over the range of all the groups' curves, so that they can be drawn into one plot."""
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
    """The run's curves on validation; runs without validation, and of older versions, have none."""
    record: dict[str, Any] | None = ((result.document.get("validation") or {}).get("curves") or {}).get(kind)
    return record


def _validation(group: Group, kind: Kind, values: Floats) -> CalibrationCurves | None:
    """Mean over the seeds, each known over a range of its own; NaN where not all of them are."""
    records = [record for result in group.results if (record := _recorded(result, kind))]
    if not records:
        return None
    mean = {
        name: np.mean(
            [np.interp(values, record["value"], record[name], left=np.nan, right=np.nan) for record in records], axis=0
        )
        for name in ("unseen", "seen", "harmonic")
    }
    return CalibrationCurves(values, **mean)
