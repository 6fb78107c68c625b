"""Results grouped over seeds: mean ± standard deviation of each score."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from classnorm.report.class_results import ClassResults, class_results
from classnorm.results.numbers import mean, mean_text, std
from classnorm.results.run_folder import Result

__all__ = ["SCORES", "Group", "best_group", "by_dataset", "group_results", "unseen_examples"]

SCORES = {
    "unseen": ("U", "accuracy on unseen classes, all classes competing"),
    "seen": ("S", "accuracy on seen classes, all classes competing"),
    "harmonic": ("H", "harmonic mean of U and S, the main score"),
    "zsl": ("T1", "accuracy on unseen classes when only they compete"),
    "ausuc": ("AUSUC", "area under the seen–unseen curve, independent of calibration"),
}
"""Name in JSON → (column title, meaning). Percentages, averaged over classes."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed only."""

    label: str
    dataset: str
    """The dataset's name, with what tells it apart where several versions of one dataset are reported."""
    results: tuple[Result, ...]

    @cached_property
    def classes(self) -> ClassResults:
        """How each test class fared in each run."""
        return class_results(self.results)

    def values(self, name: str) -> list[float]:
        """One value per seed; `train_seconds` and `fit_seconds` as well as scores."""
        if name in SCORES:
            return [result.scores[name] for result in self.results]
        return [float(result.document[name]) for result in self.results]

    def mean(self, name: str) -> float:
        return mean(self.values(name))

    def std(self, name: str) -> float:
        """Sample standard deviation over seeds, 0 for a single one."""
        return std(self.values(name))

    def cell(self, name: str) -> str:
        """`mean ± std` for a table."""
        return mean_text(self.values(name))


def group_results(results: Sequence[Result]) -> list[Group]:
    """Group by everything but the seed, in order of appearance; labels are as short as tells the groups apart."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        document = result.document
        key = json.dumps(
            [document["dataset"]["checksum"], document["method"], document["recipe"], document["config"]],
            sort_keys=True,
        )
        groups.setdefault(key, []).append(result)
    members = [sorted(group, key=lambda r: r.document["seed"]) for group in groups.values()]
    firsts = [group[0] for group in members]
    return [Group(_label(group[0], firsts), _dataset_title(group[0], firsts), tuple(group)) for group in members]


def _label(result: Result, others: Sequence[Result]) -> str:
    """Method and recipe, and the settings in which runs of both on the same data differ."""
    own = result.document
    same = [
        other.document["config"]
        for other in others
        if all(other.document[name] == own[name] for name in ("method", "recipe"))
        and other.document["dataset"]["checksum"] == own["dataset"]["checksum"]
    ]
    config = own["config"]
    differing = [name for name in config if any(other.get(name) != config[name] for other in same)]
    return f"{own['method']} · {own['recipe']}" + "".join(f", {name} {config[name]}" for name in differing)


def _dataset_title(result: Result, others: Sequence[Result]) -> str:
    """The dataset's name; with its features, then its checksum, where other data under that name is reported too."""
    own = result.document["dataset"]
    rivals = [o.document["dataset"] for o in others if o.document["dataset"]["name"] == own["name"]]
    rivals = [rival for rival in rivals if rival["checksum"] != own["checksum"]]
    if not rivals:
        return str(own["name"])
    features = own["provenance"].get("features")
    if features and all(rival["provenance"].get("features") != features for rival in rivals):
        return f"{own['name']}, {features} features"
    return f"{own['name']}, checksum {own['checksum'][:8]}"


def by_dataset(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each dataset, in order of appearance."""
    parts: dict[str, list[Group]] = {}
    for group in groups:
        parts.setdefault(group.dataset, []).append(group)
    return parts


def best_group(groups: Sequence[Group]) -> Group:
    """The group with the highest mean H."""
    harmonic = [group.mean("harmonic") for group in groups]
    return groups[max(range(len(groups)), key=lambda i: -math.inf if math.isnan(harmonic[i]) else harmonic[i])]


def unseen_examples(group: Group) -> tuple[npt.NDArray[np.uint8], list[str], list[str]] | None:
    """Test images of unseen classes, their true and their predicted names by the group's first run, if it has any."""
    examples, predictions = (group.results[0].arrays(name) for name in ("examples", "predictions"))
    if examples is None or predictions is None or not len(examples["position"]):
        return None
    names, at = predictions["class_names"], examples["position"]
    return examples["image"], names[predictions["label"][at]].tolist(), names[predictions["top1"][at]].tolist()
