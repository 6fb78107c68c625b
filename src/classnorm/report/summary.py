"""Results grouped over seeds: mean ± standard deviation of each score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.experiments.run_folder import Result

__all__ = ["SCORES", "Group", "group_results", "unseen_examples"]

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
    results: tuple[Result, ...]

    def values(self, name: str) -> list[float]:
        """One value per seed; `train_seconds` and `fit_seconds` as well as scores."""
        if name in SCORES:
            return [result.scores[name] for result in self.results]
        return [float(result.document[name]) for result in self.results]

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))

    def std(self, name: str) -> float:
        """Sample standard deviation over seeds, 0 for a single one."""
        values = self.values(name)
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    def cell(self, name: str) -> str:
        """`mean ± std` for a table."""
        if np.isnan(self.mean(name)):
            return "–"
        spread = f" ± {self.std(name):.1f}" if len(self.results) > 1 else ""
        return f"{self.mean(name):.1f}{spread}"


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
    return [
        Group(_label(group[0], [g[0] for g in members]), group[0].document["dataset"]["name"], tuple(group))
        for group in members
    ]


def _label(result: Result, others: Sequence[Result]) -> str:
    """Method and recipe, and the settings in which runs with the same method and recipe differ."""
    document = result.document
    label = f"{document['method']} · {document['recipe']}"
    same = [o.document["config"] for o in others if f"{o.document['method']} · {o.document['recipe']}" == label]
    own = document["config"]
    differing = [name for name in own if any(config.get(name) != own[name] for config in same)]
    return label + "".join(f", {name} {own[name]}" for name in differing)


def unseen_examples(group: Group) -> tuple[npt.NDArray[np.uint8], list[str], list[str]] | None:
    """Test images of unseen classes, their true and their predicted names by the group's first run, if it has any."""
    examples, predictions = (group.results[0].arrays(name) for name in ("examples", "predictions"))
    if examples is None or predictions is None or not len(examples["position"]):
        return None
    names, at = predictions["class_names"], examples["position"]
    return examples["image"], names[predictions["label"][at]].tolist(), names[predictions["top1"][at]].tolist()
