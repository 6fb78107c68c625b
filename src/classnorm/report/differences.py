"""Each model against a reference, with the uncertainty that the choice of test classes leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from classnorm.errors import ConfigError, unknown_name
from classnorm.metrics.bootstrap import Difference, class_bootstrap
from classnorm.report.summary import Group, best_group

__all__ = ["MEANING", "Comparison", "compare", "reference_label"]

_RESAMPLES = 4000

MEANING = (
    "Percentage points, model minus reference; in brackets the middle 95 % of the differences that "
    f"{_RESAMPLES} paired resamples of the test classes give (seen and unseen classes apart, accuracies averaged over "
    "seeds). The interval says how far the difference hangs on which classes happen to be tested. It is no "
    "significance test over seeds: of those there are too few."
)


@dataclass(frozen=True)
class Comparison:
    """The models of one dataset against one of them."""

    reference: Group
    differences: dict[str, dict[str, Difference]]
    """Label of each other group → `unseen`, `seen` and `harmonic`."""


def compare(groups: Sequence[Group], reference: str | None = None) -> Comparison:
    """Every group of a dataset against the group of that label or, where there is none, the one with the best H."""
    base = next((group for group in groups if group.label == reference), None) or best_group(groups)
    tables = {group.label: group.classes.accuracies for group in groups}
    return Comparison(
        base,
        {
            label: class_bootstrap(table, tables[base.label], base.classes.seen, resamples=_RESAMPLES)
            for label, table in tables.items()
            if label != base.label
        },
    )


def reference_label(groups: Sequence[Group], against: str) -> str:
    """The label that `against` means: a label, the folder of its runs, or a part of just one label."""
    labels = list(dict.fromkeys(group.label for group in groups))
    if against in labels:
        return against
    folder = Path(against).resolve()
    inside = {g.label for g in groups for result in g.results if result.folder.resolve().is_relative_to(folder)}
    found = inside or {label for label in labels if against in label}
    if not found:
        raise unknown_name("model", against, labels)
    if len(found) > 1:
        raise ConfigError(f"--against {against!r} could be any of: {'; '.join(sorted(found))}")
    return found.pop()
