"""The model that a method fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from classnorm.methods.method import NormalizedConfig
from classnorm.methods.rows import TrainingRows
from classnorm.nn import AttributeNormalization


@dataclass(frozen=True)
class ExampleSpace:
    """The space in which prototypes are points among the rows, so that pictures of a class can correct its own."""

    place: Callable[[Tensor], Tensor]
    """Rows [n, d_z] → [n, k]."""
    center: Callable[[Tensor], Tensor] = lambda prototypes: prototypes
    """Prototypes [n_classes, d] → [n_classes, k], their places among the rows."""
    prototype: Callable[[Tensor], Tensor] = lambda centers: centers
    """The inverse of `center`: [n_classes, k] → [n_classes, d]."""
    directions: bool = True
    """Whether only the direction of a center is compared with rows; if not, its distance."""
    variance: Callable[[Tensor], Tensor] | None = None
    """Descriptors [n_classes, d_a] → [n_classes], how uncertain the described prototypes are, in any unit; None if all
    are alike."""


class ZeroShotModel(nn.Module, ABC):
    """Scores classes by their descriptors in two steps, so that prototypes are computed once."""

    @abstractmethod
    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d], the method's representation of each class."""

    @abstractmethod
    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """[n, d_z], [n_classes, d] → [n, n_classes]."""

    def choices(self) -> dict[str, Any]:
        """What the fit has chosen by itself, for the record: setting → value."""
        return {}

    def class_weights(self, descriptors: Tensor, seen: Tensor) -> Tensor | None:
        """How much the prototype of a class takes from each training class, [n, d_a], [n_seen, d_a] → [n, n_seen];
        None if the method has no such weights."""
        return None

    def example_space(self) -> ExampleSpace | None:
        """Where rows average into prototypes; None if prototypes are something else, like classifiers."""
        return None


class ProductModel(ZeroShotModel):
    """A model whose logits are products of a vector per row and a vector per class, which scorers compute only once."""

    @abstractmethod
    def row_vectors(self, features: Tensor) -> Tensor:
        """[n, d_z] → [n, k]."""

    @abstractmethod
    def class_vectors(self, prototypes: Tensor) -> Tensor:
        """[n_classes, d] → [n_classes, k]."""

    def logits(self, features: Tensor, prototypes: Tensor) -> Tensor:
        return self.row_vectors(features) @ self.class_vectors(prototypes).T


class NormalizedModel(ZeroShotModel):
    """A model that normalizes both features and descriptors."""

    def __init__(self, config: NormalizedConfig, d_a: int, d_z: int) -> None:
        super().__init__()
        self.feature_normalization = AttributeNormalization(d_z, config.feature_normalization)
        self.attribute_normalization = AttributeNormalization(d_a, config.attribute_normalization)

    def fit_normalization(self, rows: TrainingRows[Tensor]) -> tuple[Tensor, Tensor]:
        """Fit both normalizations; returns normalized features [n, d_z] and seen descriptors [n_seen, d_a]."""
        self.feature_normalization.fit(rows.features)
        self.attribute_normalization.fit(rows.descriptors)
        return self.feature_normalization(rows.features), self.attribute_normalization(rows.descriptors)
