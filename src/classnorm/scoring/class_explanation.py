"""What a model believes about a class, and what its description lacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.errors import ConfigError, unknown_name
from classnorm.scoring.explanation import columns_by_name, neighbours, tensor

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

_SIMILAR = 5  # classes named
_ROWS = 256  # wrong rows that are looked at, and rows read at a time


def explain_class(scorer: Scorer, name: str, rows: Features | RowView | None, top: int = 10) -> dict[str, Any]:
    """The explanation of a class, in the form that `Scorer.explain_class` documents."""
    if top < 1:
        raise ConfigError(f"`top` is {top}; it must be at least 1")
    if name not in scorer.class_names:
        raise unknown_name("class", name, scorer.class_names)
    c = scorer.class_names.index(name)
    document = {
        "class": name,
        "kind": "seen" if scorer.seen[c] else "unseen",
        "attributes": _weights(scorer, c)[:top],
        "similar": _similar(scorer, c),
        **neighbours(scorer, [c])[c],
    }
    return document if rows is None else document | _mistakes(scorer, c, rows, top)


@torch.inference_mode()
def _weights(scorer: Scorer, c: int) -> list[dict[str, Any]]:
    """How far the prototype moves if an attribute is set to its mean over all classes, relative to its length."""
    groups = columns_by_name(scorer)
    means = scorer.descriptors.mean(axis=0)
    without = np.repeat(scorer.descriptors[[c]], len(groups) + 1, axis=0)  # the last row stays as it is
    for row, columns in enumerate(groups.values()):
        without[row, columns] = means[columns]
    prototypes = scorer.model.prototypes(tensor(scorer, without)).double().cpu().numpy()
    moved = np.linalg.norm(prototypes[:-1] - prototypes[-1], axis=1) / max(np.linalg.norm(prototypes[-1]), 1e-12)
    entries: list[dict[str, Any]] = []
    for (name, columns), weight in zip(groups.items(), moved.tolist(), strict=True):
        values = {"value": scorer.descriptors[c, columns[0]], "mean": means[columns[0]]} if len(columns) == 1 else {}
        entries.append({"name": name, "weight": weight, **{key: float(value) for key, value in values.items()}})
    return sorted(entries, key=lambda entry: -entry["weight"])


def _similar(scorer: Scorer, c: int) -> list[dict[str, Any]]:
    """The classes with the most similar prototypes: the likeliest confusions."""
    prototypes = scorer.prototypes().astype(np.float64)
    lengths = np.maximum(np.linalg.norm(prototypes, axis=1), 1e-12)
    cosines = prototypes @ prototypes[c] / (lengths * lengths[c])
    order = [i for i in np.argsort(-cosines, kind="stable")[: _SIMILAR + 1] if i != c][:_SIMILAR]
    return [{"class": scorer.class_names[i], "cosine": float(cosines[i])} for i in order]


def _mistakes(scorer: Scorer, c: int, rows: Features | RowView, top: int) -> dict[str, Any]:
    """What the rows of a class are taken for, and the attributes whose change would set them right."""
    best = scorer.top(rows, 1)
    wrong = np.flatnonzero(best.indices[:, 0] != c)
    counts = Counter(scorer.class_names[i] for i in best.indices[wrong, 0])
    document = {
        "rows": len(best.indices),
        "right": len(best.indices) - len(wrong),
        "mistaken_for": [{"class": other, "rows": count} for other, count in counts.most_common(_SIMILAR)],
    }
    if not len(wrong):
        return document | {"short_by": 0.0, "needs": []}
    looked = set(wrong[:_ROWS].tolist())
    numbered = ((i, row) for part, block in row_blocks(rows, _ROWS) for i, row in enumerate(block, part.start))
    features = [row for i, row in numbered if i in looked]
    rows_of_class = np.stack(features)
    scores = scorer.scores(rows_of_class)
    return document | {
        "short_by": float((scores.max(axis=1) - scores[:, c]).mean()),
        "needs": _needs(scorer, c, rows_of_class)[:top],
    }


@torch.inference_mode()
def _needs(scorer: Scorer, c: int, features: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
    """The attributes by how much the score of a class rises on average, if the value changes by its standard deviation
    between classes, up or down."""
    single = {name: columns[0] for name, columns in columns_by_name(scorer).items() if len(columns) == 1}
    deviations = scorer.descriptors.std(axis=0)
    changes = np.array([sign * deviations[column] for column in single.values() for sign in (1, -1)])
    table = np.repeat(scorer.descriptors[[c]], len(changes) + 1, axis=0)  # the last row stays as it is
    table[np.arange(len(changes)), np.repeat(list(single.values()), 2)] += changes
    logits = scorer.model.logits(tensor(scorer, features), scorer.model.prototypes(tensor(scorer, table)))
    factor = scorer.calibration.factors_and_shifts(scorer.seen[[c]])[0][0]
    mean = factor * logits.double().mean(dim=0).cpu().numpy()
    gains = (mean[:-1] - mean[-1]).reshape(-1, 2)
    needs: list[dict[str, Any]] = []
    for i, (name, column) in enumerate(single.items()):
        best = int(gains[i].argmax())
        if gains[i, best] > 0:
            value, change = float(scorer.descriptors[c, column]), float(changes[2 * i + best])
            needs.append({"name": name, "value": value, "change": change, "gain": float(gains[i, best])})
    return sorted(needs, key=lambda entry: -entry["gain"])
