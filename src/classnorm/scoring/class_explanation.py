"""What a model believes about a class, and what its description lacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from classnorm.data.row_store import Features, RowView, row_blocks
from classnorm.errors import ConfigError, unknown_name
from classnorm.scoring.explanation import columns_by_name, neighbours, slopes, tensor

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

__all__ = ["explain_class"]

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
    own = tensor(scorer, scorer.descriptors[[c]])
    with torch.inference_mode(False), torch.enable_grad():
        each = [slopes(scorer.model, tensor(scorer, row[None]), own.clone())[0] for row in features]
        slope = torch.stack(each).mean(dim=0)
    factor = scorer.calibration.factors_and_shifts(scorer.seen[[c]])[0][0]
    gains = factor * slope.double().cpu().numpy() * scorer.descriptors.std(axis=0)
    scores = scorer.scores(np.stack(features))
    needs: list[dict[str, Any]] = [
        {"name": name, "value": float(scorer.descriptors[c, columns[0]]), "gain": float(gains[columns[0]])}
        for name, columns in columns_by_name(scorer).items()
        if len(columns) == 1 and gains[columns[0]]
    ]
    return document | {
        "short_by": float((scores.max(axis=1) - scores[:, c]).mean()),
        "needs": sorted(needs, key=lambda entry: -abs(entry["gain"]))[:top],
    }
