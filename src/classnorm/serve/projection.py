"""A map of classes: prototypes in the plane of their first two principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from classnorm.scoring import Top

_MOST = 2000  # classes that the axes are computed from

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """Fixed by the classes of the model: those that visitors add do not move the others."""

    center: Floats  # [d]
    axes: Floats  # [d, 2]

    @classmethod
    def of(cls, prototypes: npt.NDArray[np.float32]) -> Projection:
        unit = _unit(prototypes)
        some = unit[:: -(-len(unit) // _MOST)]
        center = unit.mean(axis=0)
        _, _, vectors = np.linalg.svd(some - center, full_matrices=False)
        axes = np.zeros((unit.shape[1], 2))
        axes[:, : min(2, len(vectors))] = vectors[:2].T
        axes *= np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)  # the same on every machine
        extent = np.abs((unit - center) @ axes).max()
        return cls(center, axes / (extent or 1.0))

    def __call__(self, prototypes: npt.NDArray[np.float32]) -> Floats:
        """[n, d] → [n, 2]; the classes of the model are between −1 and 1."""
        return np.asarray((_unit(prototypes) - self.center) @ self.axes)

    @staticmethod
    def points(places: Floats, top: Top) -> Floats:
        """Where rows lie: the mean of the places [n_classes, 2] of their best classes, weighted by probability."""
        weights = top.probabilities / top.probabilities.sum(axis=1, keepdims=True)
        return np.asarray((places[top.indices] * weights[:, :, None]).sum(axis=1))


def _unit(prototypes: npt.NDArray[np.float32]) -> Floats:
    flat = prototypes.reshape(len(prototypes), -1).astype(np.float64)
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12))
