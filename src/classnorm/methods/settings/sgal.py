"""Settings of SGAL."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Recipes, late_method
from classnorm.methods.settings.parts import EmbedderConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.settings import require
from classnorm.training import Schedule

__all__ = ["METHOD", "SGALConfig", "paper", "reference"]


@dataclass(frozen=True, kw_only=True)
class SGALConfig(EmbedderConfig):
    """Settings of SGAL. The defaults are the recipe `reference`."""

    epochs: int = 10
    batch_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    attribute_normalization: AttributeNormalizationKind = "standardize"
    hidden: int = 1024
    """Hidden units of the network from descriptors to prior means."""
    layers: int = 2
    """Linear layers of that network."""
    encoder_hidden: int = 512
    """Hidden units of the encoder."""
    dropout: float = 0.2
    """Share of the encoder's hidden units dropped in training."""
    latent: int = 64
    """Dimensions of the latent space."""
    reconstruction_weight: float = 1.0
    """Weight of the squared error of reconstructed features."""
    margin: float = 2.0
    """Least L1 distance between the prior means of two classes, per latent dimension."""
    margin_weight: float = 0.3
    """Weight of the mean squared shortfall of that distance."""
    warmup: float = 0.75
    """Share of training on real rows alone, before rows of unseen classes are generated; 1 generates none."""
    generated: float = 0.5
    """Generated rows per real row, after that."""
    final_relu: bool = True
    """ReLU on generated rows, for non-negative features; recipes set it to match the data."""

    def check(self) -> None:
        super().check()
        not_negative = ("reconstruction_weight", "margin", "margin_weight", "generated")
        sizes = ("layers", "encoder_hidden", "latent")
        require(
            self,
            at_least=dict.fromkeys(sizes, 1) | dict.fromkeys(not_negative, 0),
            between={"dropout": (0, 0.99), "warmup": (0, 1)},
        )


def paper(dataset: ZeroShotDataset) -> SGALConfig:
    """The authors' settings for AwA1, the only public ones, without calibration and selection of the best weights."""
    return SGALConfig(
        epochs=2000,
        lr=1e-4,
        schedule="constant",
        attribute_normalization="unit-plain",
        hidden=round((dataset.d_a * 64) ** 0.5),  # there the widths fall from d_a to the latent dimensions
        layers=6,
        dropout=0.5,
        margin_weight=6.4,  # 0.1, for a sum over the 64 rows of a batch
        warmup=0.5,
        generated=9.0,
        final_relu=False,
        calibration="none",
    )


def reference(dataset: ZeroShotDataset) -> SGALConfig:
    """A short schedule and a weaker margin, selected by validation on CUB."""
    return SGALConfig(final_relu=dataset.nonnegative)


RECIPES: Recipes = {"paper": paper, "reference": reference}
SPACE: Space = {
    "lr": Range(1e-3, 1e-2, log=True),
    "epochs": Range(6, 20, log=True, whole=True),
    "dropout": Range(0.0, 0.6),
    "reconstruction_weight": Range(0.1, 3.0, log=True),
    "margin_weight": Range(0.1, 6.4, log=True),
    "warmup": Range(0.4, 1.0),
    "generated": Range(0.1, 2.0, log=True),
}
GRID: Space = {
    "lr": Choice((1e-3, 3e-3)),
    "margin_weight": Choice((0.3, 1.0)),
    "warmup": Choice((0.5, 0.75)),
}
METHOD = late_method("sgal", SGALConfig, RECIPES, SPACE, GRID, sees_unseen=True)
