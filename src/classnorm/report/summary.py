"""Results grouped over seeds, with labels that tell the groups apart, and what they show of each class."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.errors import DataError
from classnorm.metrics import class_accuracies
from classnorm.results.numbers import mean, mean_text, std
from classnorm.results.run_folder import Result

SCORES = {
    "unseen": ("U", "accuracy on unseen classes, all classes competing"),
    "seen": ("S", "accuracy on seen classes, all classes competing"),
    "harmonic": ("H", "harmonic mean of U and S, the main score"),
    "zsl": ("T1", "accuracy on unseen classes when only they compete"),
    "ausuc": ("AUSUC", "area under the seen–unseen curve, independent of calibration"),
}
"""Name in JSON → (column title, meaning). Percentages, averaged over classes."""

STREAM_SCORES = {
    "mSA": ("mSA", "accuracy on the classes learnt so far, mean over all tasks"),
    "mUA": ("mUA", "accuracy on the classes still to come, mean over all tasks but the last"),
    "mH": ("mH", "harmonic mean of the two after each task, mean over all tasks but the last"),
    "mAUC": ("mAUC", "area under the seen–unseen curve after each task, mean over all tasks but the last"),
    "mJA": ("mJA", "accuracy on all classes, mean over all tasks"),
    "forgetting": (
        "forgetting",
        "drop in the accuracy on a task since its best, a fraction; negative if it still rises",
    ),
}
"""The same for streams."""

STREAM_COSTS = ("train_seconds", "stored_bytes", "rows_passed")
"""What a stream cost: training time, bytes kept for earlier tasks, rows that passed through the learner in training."""


Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassResults:
    """Calibrated predictions of the runs of a group on the same test rows."""

    names: list[str]
    seen: npt.NDArray[np.bool_]  # [n_classes]
    labels: Integers  # [n]
    predictions: Integers  # [n_runs, n]

    @property
    def accuracies(self) -> npt.NDArray[np.float64]:
        """[n_runs, n_classes], percent; NaN for a class without test rows."""
        right = self.predictions == self.labels
        return np.stack([class_accuracies(row, self.labels, len(self.names)) for row in right])

    @property
    def rows(self) -> Integers:
        """[n_classes], number of test rows."""
        return np.bincount(self.labels, minlength=len(self.names))


@dataclass(frozen=True)
class Confusion:
    """A class and the wrong predictions of its test rows."""

    name: str
    seen: bool
    rows: int
    accuracy: float
    taken_for: tuple[tuple[str, float], ...]
    """The most frequent wrong classes, each with its percentage of the rows over all runs."""


def class_results(results: Sequence[Result]) -> ClassResults:
    predictions = [result.predictions for result in results]
    first = predictions[0]
    if any(not np.array_equal(arrays["label"], first["label"]) for arrays in predictions):
        raise DataError(f"{results[0].folder}: runs of one model and dataset differ in their test rows; repeat them")
    return ClassResults(
        [str(name) for name in first["class_names"]],
        first["seen"].astype(bool),
        first["label"].astype(np.int64),
        np.stack([arrays["top1"] for arrays in predictions]).astype(np.int64),
    )


def worst_classes(classes: ClassResults, number: int = 15) -> list[Confusion]:
    """The classes with the lowest accuracy, worst first, each with its three most frequent confusions."""
    accuracy, rows, n_runs = classes.accuracies.mean(axis=0), classes.rows, len(classes.predictions)
    order = [int(c) for c in np.argsort(accuracy, kind="stable") if rows[c]]  # NaN comes last
    confusions = []
    for true in order[:number]:
        guesses = np.bincount(classes.predictions[:, classes.labels == true].ravel(), minlength=len(classes.names))
        guesses[true] = 0
        wrong = [int(c) for c in np.argsort(-guesses, kind="stable")[:3] if guesses[c]]
        shares = tuple((classes.names[c], 100.0 * guesses[c] / (n_runs * rows[true])) for c in wrong)
        confusions.append(
            Confusion(classes.names[true], bool(classes.seen[true]), int(rows[true]), float(accuracy[true]), shares)
        )
    return confusions


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed and in settings that each chose on its validation tasks."""

    label: str
    dataset: str
    """Name of the dataset, made unique among several versions of it; for a stream, with its tasks."""
    results: tuple[Result, ...]

    @property
    def is_stream(self) -> bool:
        return self.results[0].kind == "stream"

    @property
    def scores(self) -> dict[str, tuple[str, str]]:
        """`SCORES` or `STREAM_SCORES`."""
        return STREAM_SCORES if self.is_stream else SCORES

    @cached_property
    def classes(self) -> ClassResults:
        """The predictions of each run by test class."""
        return class_results(self.results)

    def values(self, name: str) -> list[float]:
        """One value per seed of a score or of a cost like `train_seconds`; NaN where an earlier version wrote none."""
        if name in self.scores:
            return [result.scores[name] for result in self.results]
        return [float(result.document.get(name, math.nan)) for result in self.results]

    def mean(self, name: str) -> float:
        return mean(self.values(name))

    def std(self, name: str) -> float:
        """Sample standard deviation over seeds; 0 for a single seed."""
        return std(self.values(name))

    def cell(self, name: str) -> str:
        """`mean ± std` for a table."""
        return mean_text(self.values(name), score_digits(name))


def score_digits(name: str) -> int:
    """Decimal places of a score in tables."""
    return 2 if name == "forgetting" else 1


def group_results(results: Sequence[Result]) -> list[Group]:
    """Group by everything except the seed, in order of appearance; labels contain only what tells groups apart."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        document = result.document
        key = [_data(document), document.get("label"), _model(document), document.get("chosen"), _settings(document)]
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(result)
    # A seed counts once: a copy of a run, or the same run again, is no further evidence.
    members = [
        [next(runs) for _, runs in itertools.groupby(sorted(group, key=_seed), _seed)] for group in groups.values()
    ]
    firsts = [group[0].document for group in members]
    folders: dict[str, str] = {}
    for group in members:
        folders.setdefault(group[0].document["dataset"]["checksum"], _folder(group[0]))
    return [
        Group(_label(first, firsts), _title(first, firsts, folders), tuple(group))
        for first, group in zip(firsts, members, strict=True)
    ]


def _seed(result: Result) -> int:
    return int(result.document["seed"])


def _data(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs of one table share: the dataset and, for a stream, its tasks and inputs.

    The checksum of a stream is left out: the order of the classes depends on the seed.
    """
    data = {"checksum": document["dataset"]["checksum"]}
    if "stream" in document:
        data |= {name: value for name, value in document["stream"].items() if name != "checksum"}
        data |= {name: document.get(name) for name in ("encoder", "image_size")}
    return data


def _model(document: Mapping[str, Any]) -> str:
    if "stream" in document:
        return f"{document['strategy']}{' + CN' if document['config'].get('class_norm') else ''}"
    return f"{document['method']} · {document['recipe']}"


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that do not depend on the seed: those that a validation sequence chose are left out."""
    chosen = (document.get("chosen") or {"settings": ()})["settings"]
    return {name: value for name, value in document["config"].items() if name not in chosen}


def _label(document: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> str:
    """The label of its user, the model, and the settings in which its runs on the same data differ."""
    same = [o for o in documents if _model(o) == _model(document) and _data(o) == _data(document)]
    settings = _settings(document)
    differing = [name for name in settings if any(_settings(o).get(name) != settings[name] for o in same)]
    given = document.get("label")
    label = f"{given}: " if given else ""
    label += _model(document) + "".join(f", {name} {settings[name]}" for name in differing)
    if any(o.get("chosen") != document.get("chosen") for o in same):
        chosen = document.get("chosen")
        label += f", {' and '.join(chosen['settings'])} chosen by {chosen['by']}" if chosen else ", nothing chosen"
    return label


def _folder(result: Result) -> str:
    """The folder that a user gave to a run, by its last two parts."""
    folder = result.folder.parent if result.folder.name.startswith("seed-") else result.folder
    return "/".join(folder.parts[-2:])


def _title(document: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], folders: Mapping[str, str]) -> str:
    """The dataset and, for a stream, its tasks, what makes it hard, and whatever tells it apart from the others in the
    report.

    Args:
        folders: checksum of a dataset → folder of its first run.
    """
    dataset = document["dataset"]
    title, features = str(dataset["name"]), dataset["provenance"].get("features")
    namesakes = [o["dataset"] for o in documents if o["dataset"]["name"] == dataset["name"]]
    rivals = [rival for rival in namesakes if rival["checksum"] != dataset["checksum"]]
    if rivals:
        own, others = folders[dataset["checksum"]], {folders[rival["checksum"]] for rival in rivals}
        if features and all(rival["provenance"].get("features") != features for rival in rivals):
            title += f", {features} features"
        else:
            title += f", {own}" if own not in others else f", checksum {dataset['checksum'][:8]}"
    if "stream" not in document:
        return title
    words = _stream_words(document)
    same = [o for o in documents if "stream" in o and o["dataset"]["checksum"] == dataset["checksum"]]
    streams = [other for other in map(_stream_words, same) if other[0] == words[0]]
    hard = stream_options_text(document["stream"])
    told = (w for i, w in enumerate(words) if w == hard or any(other[i] != w for other in streams))
    return ", ".join([title, words[0], *told])


def _stream_words(document: Mapping[str, Any]) -> tuple[str, ...]:
    stream = document["stream"]
    first, sizes = stream["part"][0] + 1, stream["tasks"]
    tasks = f"tasks {first} to {first + len(sizes) - 1}" if first > 1 else f"{len(sizes)} tasks"
    encoder = f"{document['encoder']} at {document['image_size']} px" if document["encoder"] else "features"
    hard = stream_options_text(stream) or "plain stream"
    return (
        tasks,
        f"of {', '.join(map(str, sizes))} classes",
        hard,
        f"{stream['image_split']} image split",
        f"from {encoder}",
    )


def stream_options_text(stream: Mapping[str, Any]) -> str:
    """The options of a hard stream, such as “blurry 0.3”; empty for a plain one."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in stream.get("arrivals", {}).items())


def by_dataset(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each dataset or stream, in order of appearance."""
    parts: dict[str, list[Group]] = {}
    for group in groups:
        parts.setdefault(group.dataset, []).append(group)
    return parts


def best_group(groups: Sequence[Group]) -> Group:
    """The group with the highest mean H."""
    return max(groups, key=lambda group: float(np.nan_to_num(group.mean("harmonic"), nan=-np.inf)))


def unseen_examples(group: Group) -> tuple[npt.NDArray[np.uint8], list[str], list[str]] | None:
    """Test images of unseen classes with their true and predicted names, from the group's first run if it has any."""
    examples = group.results[0].examples
    if examples is None or not len(examples["position"]):
        return None
    predictions, positions = group.results[0].predictions, examples["position"]
    true, predicted = (predictions["class_names"][predictions[name][positions]] for name in ("label", "top1"))
    return examples["image"], true.tolist(), predicted.tolist()
