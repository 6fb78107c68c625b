"""Differences between models and a reference, with bootstrap intervals over the test classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from classnorm.errors import ConfigError, unknown_name
from classnorm.metrics.bootstrap import Difference, class_bootstrap
from classnorm.report.summary import Group, best_group, by_dataset

_RESAMPLES = 4000

MEANING = (
    "Percentage points, model minus reference; in brackets, the middle 95 % of the differences over "
    f"{_RESAMPLES} paired resamples of the test classes (seen and unseen classes separately, accuracies averaged over "
    "seeds). The interval shows how much the difference depends on the choice of test classes. It is not a "
    "significance test over seeds, of which there are too few."
)


@dataclass(frozen=True)
class Comparison:
    """The models of one dataset compared with one of them."""

    reference: Group
    differences: dict[str, dict[str, Difference]]
    """Label of every other group → differences in `unseen`, `seen` and `harmonic`."""


def compare(groups: Sequence[Group], reference: str | None = None) -> Comparison:
    """Compare the groups of a dataset with the one labelled `reference`, or with the best by H if there is none."""
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
    """Resolve `against`: a label, a substring of exactly one label, or the folder of the runs."""
    labels = list(dict.fromkeys(group.label for group in groups))
    if against in labels:
        return against
    folder = Path(against).resolve()
    inside = {g.label for g in groups for result in g.results if result.folder.resolve().is_relative_to(folder)}
    matches = inside or {label for label in labels if against in label}
    if not matches:
        raise unknown_name("model", against, labels)
    if len(matches) > 1:
        raise ConfigError(f"`against={against!r}` could be any of: {'; '.join(sorted(matches))}")
    return matches.pop()


def comparisons(groups: Sequence[Group], against: str | None = None) -> dict[str, Comparison]:
    """Compare the models of each dataset with the one that `against` names, or with the best by H.

    Streams are left out: they store no predictions to resample.
    """
    runs = [group for group in groups if not group.is_stream]
    label = None if against is None else reference_label(runs, against)
    return {name: compare(part, label) for name, part in by_dataset(runs).items() if len(part) > 1}
