"""CLIP: the cosine of image and text in the space of a model that was trained on pairs of them (Radford et al., 2021).

Nothing is trained here. Features are the pooled output of the image tower; its projection to the common space comes
from the model. Descriptors are the text vectors of the classes, averaged over templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classnorm.data import ZeroShotDataset
from classnorm.encoders import recorded_encoder
from classnorm.errors import ConfigError
from classnorm.methods.method import Fitted
from classnorm.methods.model import ExampleSpace, ProductModel
from classnorm.methods.settings.clip import CLIPConfig, pair_name, unsupported
from classnorm.training import FitContext

_SCALE = 100.0  # of the cosines, in most published models


class CLIPModel(ProductModel):
    """The projection of features to the common space, and the scale of the cosines."""

    scale: Tensor

    def __init__(self, d_a: int, d_z: int) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.zeros(d_a, d_z), requires_grad=False)
        self.register_buffer("scale", torch.tensor(_SCALE))

    def prototypes(self, descriptors: Tensor) -> Tensor:
        """[n_classes, d_a] → [n_classes, d_a], of unit length."""
        return F.normalize(descriptors, dim=1)

    def row_vectors(self, features: Tensor) -> Tensor:
        return self.scale * self._projected(features)

    def class_vectors(self, prototypes: Tensor) -> Tensor:
        return F.normalize(prototypes, dim=1)

    def example_space(self) -> ExampleSpace:
        return ExampleSpace(self._projected)

    def _projected(self, features: Tensor) -> Tensor:
        return F.normalize(features @ self.projection.T, dim=1)


def build(config: CLIPConfig, d_a: int, d_z: int, weights: Mapping[str, Tensor]) -> CLIPModel:
    """A model to load weights into."""
    return CLIPModel(d_a, d_z)


def fit(dataset: ZeroShotDataset, config: CLIPConfig, seed: int, context: FitContext) -> Fitted:
    """Take projection and scale from the image–text model; the training rows and the seed have no effect."""
    if reason := unsupported(dataset):
        raise ConfigError(reason)
    if not dataset.seen.sum() >= 2:
        raise ConfigError(f"{dataset.name}: training needs at least 2 seen classes, there is {int(dataset.seen.sum())}")
    model = CLIPModel(dataset.d_a, dataset.d_z)
    name, record = pair_name(dataset), dataset.provenance.encoder
    with torch.no_grad():
        if name is None or record is None:
            model.projection.copy_(torch.eye(dataset.d_z))
        else:
            from classnorm.encoders.huggingface import load_pair

            source = re.sub(r"@[0-9a-f]{40}$", "", str(record["weights"]))
            projection, scale = load_pair(name, source, recorded_encoder(record))
            if projection.shape != model.projection.shape:
                raise ConfigError(
                    f"{dataset.name}: {name} maps images to {len(projection)} dimensions, but features have "
                    f"{dataset.d_z} and descriptors {dataset.d_a}"
                )
            model.projection.copy_(projection)
            model.scale.fill_(scale)
    return Fitted(model.to(context.device).eval(), [])
