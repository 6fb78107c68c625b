"""Sentences of a class kept as a set: the average of their features in the space of a narrow kernel.

The average of sentence vectors forgets what the sentences were: "white in winter" and "brown in summer" become a pale
brown. In the feature space of a Gaussian kernel it does not: there, the product of two averages is the mean of the
kernel over all pairs of sentences. So two classes are alike if single sentences of theirs are alike, and a class may
look several ways. Random Fourier features (Rahimi and Recht, 2007) approximate that space in a fixed number of columns,
so that a class is still a row of numbers.

A vector has the sentence vector itself and the features of two kernels, in blocks: the method `kernel` compares each
block for itself and chooses their weights. Where plain averages are better, they get the weight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.encoders.text import TextEncoder

_BANDWIDTHS = (0.1, 0.3)  # of squared distances between unit vectors, which are about 1 for sentences on one subject
_FEATURES = 1024  # of each kernel


@dataclass(frozen=True, eq=False)
class SetEncoder(TextEncoder):
    """A text encoder whose vectors can be averaged over the sentences of a class without mixing them up."""

    @cached_property
    def checksum(self) -> str:
        settings = json.dumps([_BANDWIDTHS, _FEATURES])
        return hashlib.sha256(f"{super().checksum} {settings}".encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        return {**super().record(), "bandwidths": list(_BANDWIDTHS), "features": _FEATURES}

    def block_sizes(self, width: int) -> tuple[int, ...]:
        """Sizes of the parts of a vector that have a kernel each."""
        return (width - len(_BANDWIDTHS) * _FEATURES, *(_FEATURES for _ in _BANDWIDTHS))

    def encode(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors and features of sentences, [n, d + 2048]; each block has unit length."""
        vectors = super().encode(sentences)
        return np.concatenate([vectors, *(_features(vectors, b) for b in _BANDWIDTHS)], axis=1)


def _features(vectors: npt.NDArray[np.float32], bandwidth: float) -> npt.NDArray[np.float32]:
    """Features [n, _FEATURES] whose products are about exp(−|v − w|² / bandwidth)."""
    half = _FEATURES // 2
    draws = np.random.RandomState(0).standard_normal((vectors.shape[1], half))  # the same in all versions of numpy
    angles = vectors.astype(np.float64) @ draws * np.sqrt(2.0 / bandwidth)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32) / np.float32(np.sqrt(half))
