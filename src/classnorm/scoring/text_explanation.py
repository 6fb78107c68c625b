"""Which sentences or words of text descriptions speak for an answer.

The descriptor of a class is the mean of the vectors of its sentences, at unit length. On the line from the mean of the
second class to that of the first, the score changes with the share of each sentence: integrated gradients over these
shares give every sentence of either class its contribution, and they add up (`scoring.explanation`). If both classes
have a single sentence, each of its words is left out in turn; what words do only together is an entry of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from classnorm.errors import DataError
from classnorm.methods import ZeroShotModel
from classnorm.scoring.explanation import Explainer, Pair, integrated_gradients, scores_of

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
    explainer: Explainer,
    pairs: Iterable[tuple[Tensor, Pair]],
    texts: Mapping[str, Sequence[str]],
    encode: Encode,
    top: int,
) -> list[dict[str, Any]]:
    """Like `Scorer.explain`, with sentences or words of the descriptions in place of attributes.

    Args:
        pairs: rows with their two best classes (`Explainer.pairs`).
        texts: the sentences that describe each class.
        encode: the text encoder that the model's descriptors were made with.
    """
    explanations = []
    for row, pair in pairs:
        own, other = (_texts_of(explainer, c, texts, encode) for c in (pair.first, pair.second))
        explain = _words if len(own) == len(other) == 1 else _sentences
        explanations.append(explain(explainer, row, pair, own, other, encode, top))
    return explainer.with_neighbours(explanations)


def _texts_of(explainer: Explainer, c: int, texts: Mapping[str, Sequence[str]], encode: Encode) -> Sequence[str]:
    name = explainer.classes.names[c]
    if name not in texts:
        raise DataError(f"no description of the class {name!r}; give those that the model was trained with")
    vector = encode(texts[name]).astype(np.float64).mean(axis=0)
    described = explainer.classes.descriptors[c].astype(np.float64)
    cosine = vector @ described / max(np.linalg.norm(vector) * np.linalg.norm(described), 1e-12)
    if cosine < 0.999:
        raise DataError(f"the class {name!r} is described otherwise than in the model; give the same descriptions")
    return texts[name]


def _sentences(
    explainer: Explainer, row: Tensor, pair: Pair, own: Sequence[str], other: Sequence[str], encode: Encode, top: int
) -> dict[str, Any]:
    model = _OfShares(explainer.model, explainer.tensor(encode([*own, *other])))
    end = [1 / len(own)] * len(own) + [0.0] * len(other)
    start = [0.0] * len(own) + [1 / len(other)] * len(other)
    contributions, _ = integrated_gradients(model, row, explainer.tensor(start), explainer.tensor(end))
    contributions, calibration = explainer.calibrated(row, pair, contributions)
    entries = _named(explainer, pair, (own, other), contributions, top, "sentences")
    return explainer.document(pair, "integrated gradients of sentences", [*entries, *calibration])


@torch.inference_mode()
def _words(
    explainer: Explainer, row: Tensor, pair: Pair, own: Sequence[str], other: Sequence[str], encode: Encode, top: int
) -> dict[str, Any]:
    words: list[list[str]] = []
    changes: list[npt.NDArray[np.float64]] = []
    for sentence in (own[0], other[0]):
        words.append(sentence.split())
        without = [" ".join(words[-1][:i] + words[-1][i + 1 :]) for i in range(len(words[-1]))]
        vectors = F.normalize(explainer.tensor(encode([sentence, *(text or sentence for text in without)])))
        scores = scores_of(explainer.model, row, vectors)
        changes.append(scores[0] - scores[1:])
    first, second = scores_of(
        explainer.model, row, explainer.tensor(explainer.classes.descriptors[[pair.first, pair.second]])
    )
    single = np.concatenate([changes[0], -changes[1]])
    contributions, calibration = explainer.calibrated(row, pair, np.append(single, first - second - single.sum()))
    entries = _named(explainer, pair, words, contributions[:-1], top, "words")
    together = {"name": TOGETHER, "contribution": float(contributions[-1])}
    return explainer.document(pair, "leaving out words", [*entries, together, *calibration])


def _named(
    explainer: Explainer,
    pair: Pair,
    texts: Sequence[Sequence[str]],
    contributions: npt.NDArray[np.float64],
    top: int,
    kind: str,
) -> list[dict[str, Any]]:
    """The largest contributions of the texts of both classes, and the sum of the others."""
    owners = [explainer.classes.names[c] for c, own in zip((pair.first, pair.second), texts, strict=True) for _ in own]
    names = [text for own in texts for text in own]
    order = np.argsort(-np.abs(contributions), kind="stable")
    shown = [{"name": names[i], "contribution": float(contributions[i]), "of": owners[i]} for i in order[:top]]
    if len(order) > top:
        shown.append({"name": f"other {kind}", "contribution": float(contributions[order[top:]].sum())})
    return shown
