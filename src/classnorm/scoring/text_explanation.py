"""Which sentences or words of text descriptions speak for an answer.

The descriptor of a class is the mean of the vectors of its sentences, at unit length. On the line from the mean of the
second class to that of the first, the score changes with the share of each sentence: integrated gradients over these
shares give every sentence of either class its contribution, and they add up (`scoring.explanation`). If both classes
have a single sentence, each of its words is left out in turn; what words do only together is an entry of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.data.row_store import Features, RowView
from classnorm.errors import DataError
from classnorm.methods import ZeroShotModel
from classnorm.scoring.explanation import (
    Pair,
    calibrated,
    compared,
    integrated_gradients,
    scores_of,
    tensor,
    with_neighbours,
)

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer

TOGETHER = "the words together"
"""Entry of what words contribute only together."""

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""Sentences → vectors [n, d_a], with all templates averaged."""


class _OfShares(ZeroShotModel):
    """A model that describes a class by the shares of sentences in its descriptor."""

    def __init__(self, model: ZeroShotModel, vectors: Tensor) -> None:
        super().__init__()
        self.model, self.vectors = model, vectors

    def prototypes(self, descriptors: Tensor) -> Tensor:
        mixed = F.normalize(descriptors @ self.vectors, dim=1)
        if mixed.requires_grad:  # a dimension that no sentence has may have an infinite slope
            mixed.register_hook(_finite)  # type: ignore[no-untyped-call]
        return self.model.prototypes(mixed)

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return self.model.logits(features, prototypes)


def _finite(slope: Tensor) -> Tensor:
    return torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)


def explain_texts(
    scorer: Scorer, rows: Features | RowView, texts: Mapping[str, Sequence[str]], encode: Encode, top: int = 10
) -> list[dict[str, Any]]:
    """Like `Scorer.explain`, with sentences or words of the descriptions in place of attributes.

    Args:
        texts: the sentences that describe each class.
        encode: the text encoder that the model's descriptors were made with.
    """
    explanations = []
    for row, pair in compared(scorer, rows, top):
        own, other = (_texts_of(scorer, c, texts, encode) for c in (pair.first, pair.second))
        explain = _words if len(own) == len(other) == 1 else _sentences
        explanations.append(explain(scorer, row, pair, own, other, encode, top))
    return with_neighbours(scorer, explanations)


def _texts_of(scorer: Scorer, c: int, texts: Mapping[str, Sequence[str]], encode: Encode) -> Sequence[str]:
    name = scorer.class_names[c]
    if name not in texts:
        raise DataError(f"no description of the class {name!r}; give those that the model was trained with")
    vector = encode(texts[name]).astype(np.float64).mean(axis=0)
    described = scorer.descriptors[c].astype(np.float64)
    cosine = vector @ described / max(np.linalg.norm(vector) * np.linalg.norm(described), 1e-12)
    if cosine < 0.999:
        raise DataError(f"the class {name!r} is described otherwise than in the model; give the same descriptions")
    return texts[name]


def _sentences(
    scorer: Scorer, row: Tensor, pair: Pair, own: Sequence[str], other: Sequence[str], encode: Encode, top: int
) -> dict[str, Any]:
    model = _OfShares(scorer.model, tensor(scorer, encode([*own, *other])))
    end = [1 / len(own)] * len(own) + [0.0] * len(other)
    start = [0.0] * len(own) + [1 / len(other)] * len(other)
    contributions, _ = integrated_gradients(model, row, tensor(scorer, start), tensor(scorer, end))
    contributions, calibration = calibrated(scorer, row, pair, contributions)
    entries = _named(scorer, pair, (own, other), contributions, top, "sentences")
    return pair.document(scorer, "integrated gradients of sentences", [*entries, *calibration])


@torch.inference_mode()
def _words(
    scorer: Scorer, row: Tensor, pair: Pair, own: Sequence[str], other: Sequence[str], encode: Encode, top: int
) -> dict[str, Any]:
    words: list[list[str]] = []
    changes: list[npt.NDArray[np.float64]] = []
    for sentence in (own[0], other[0]):
        words.append(sentence.split())
        without = [" ".join(words[-1][:i] + words[-1][i + 1 :]) for i in range(len(words[-1]))]
        vectors = F.normalize(tensor(scorer, encode([sentence, *(text or sentence for text in without)])))
        scores = scores_of(scorer.model, row, vectors)
        changes.append(scores[0] - scores[1:])
    first, second = scores_of(scorer.model, row, tensor(scorer, scorer.descriptors[[pair.first, pair.second]]))
    single = np.concatenate([changes[0], -changes[1]])
    contributions, calibration = calibrated(scorer, row, pair, np.append(single, first - second - single.sum()))
    entries = _named(scorer, pair, words, contributions[:-1], top, "words")
    together = {"name": TOGETHER, "contribution": float(contributions[-1])}
    return pair.document(scorer, "leaving out words", [*entries, together, *calibration])


def _named(
    scorer: Scorer,
    pair: Pair,
    texts: Sequence[Sequence[str]],
    contributions: npt.NDArray[np.float64],
    top: int,
    kind: str,
) -> list[dict[str, Any]]:
    """The largest contributions of the texts of both classes, and the sum of the others."""
    owners = [scorer.class_names[c] for c, own in zip((pair.first, pair.second), texts, strict=True) for _ in own]
    names = [text for own in texts for text in own]
    order = np.argsort(-np.abs(contributions), kind="stable")
    shown = [{"name": names[i], "contribution": float(contributions[i]), "of": owners[i]} for i in order[:top]]
    if len(order) > top:
        shown.append({"name": f"other {kind}", "contribution": float(contributions[order[top:]].sum())})
    return shown
