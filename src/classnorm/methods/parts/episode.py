"""Methods whose loss is over the classes of a batch instead of all seen classes."""

from __future__ import annotations

from torch import Tensor

from classnorm.methods.settings.parts import EpisodeConfig
from classnorm.nn import AttributeEmbedder

__all__ = ["EpisodeConfig", "classes_of", "prototypes_of"]


def classes_of(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct classes of a batch [k], and the position of each row's class among them [b]."""
    classes, targets = labels.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    return classes, targets


def prototypes_of(embedder: AttributeEmbedder, descriptors: Tensor, classes: Tensor) -> Tensor:
    """Prototypes of some of the seen classes: [n_seen, d_a], [k] → [k, d_z].

    Class standardization runs over all seen classes, as defined; statistics of the few classes of a batch would be
    noisy. Only the last layer, the most expensive one, is restricted to `classes`.
    """
    hidden = embedder.body(embedder.normalize(descriptors))
    prototypes: Tensor = embedder.output(hidden.index_select(0, classes))
    return prototypes.relu_() if embedder.final_relu else prototypes
