"""Settings of the linear methods: ESZSL and SAE, in closed form, and ConSE and SynC, which train linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method, MethodConfig, NormalizedConfig, TrainedMethodConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.nn import AttributeNormalizationKind
from classnorm.registry import Lazy
from classnorm.settings import Count, NotNegative, Positive
from classnorm.training import Schedule


@dataclass(frozen=True, kw_only=True)
class ESZSLConfig(MethodConfig, NormalizedConfig):
    """Settings of ESZSL."""

    feature_penalty: Positive = 1e3
    """γ, added to the diagonal of X Xᵀ. It scales with the number of training rows, for features of unit variance."""
    descriptor_penalty: Positive = 30.0
    """λ, added to the diagonal of S Sᵀ. It scales with the number of seen classes."""


def _eszsl_paper(dataset: ZeroShotDataset) -> ESZSLConfig:
    """Raw features, descriptors of unit norm. The publication selects both penalties from 10⁻³, …, 10³ by validation;
    these are the values for CUB. They depend on the feature norms and the dataset size: search them for other data."""
    return ESZSLConfig(
        feature_penalty=100.0,
        descriptor_penalty=0.1,
        feature_normalization="none",
        attribute_normalization="unit-plain",
    )


def _eszsl_reference(dataset: ZeroShotDataset) -> ESZSLConfig:
    """Standardized features, descriptors of unit norm, and penalties of 1 per training row and 0.5 per seen class,
    selected on validation splits of CUB."""
    return ESZSLConfig(feature_penalty=1.0 * len(dataset.split.train), descriptor_penalty=0.5 * int(dataset.seen.sum()))


_ESZSL_SPACE: Space = {
    "feature_penalty": Range(1e2, 1e5, log=True),
    "descriptor_penalty": Range(1.0, 1e3, log=True),
}
_ESZSL_GRID: Space = {  # part of the publication's grid of powers of ten
    "feature_penalty": Choice((1e2, 1e3, 1e4)),
    "descriptor_penalty": Choice((1.0, 10.0, 100.0)),
}
ESZSL = Method(
    ESZSLConfig,
    {"paper": _eszsl_paper, "reference": _eszsl_reference},
    build=Lazy("classnorm.methods.closed_form", "build_eszsl"),
    fit=Lazy("classnorm.methods.closed_form", "fit_eszsl"),
    space=_ESZSL_SPACE,
    grid=_ESZSL_GRID,
)


@dataclass(frozen=True, kw_only=True)
class SAEConfig(MethodConfig, NormalizedConfig):
    """Settings of SAE."""

    encoder_weight: Positive = 0.1
    """λ, the weight of the encoding error ‖W X − S‖² relative to the decoding error ‖X − Wᵀ S‖²."""
    score_in: Literal["feature", "descriptor"] = "feature"
    """Compare by cosine in `feature` space (decoded descriptors) or in `descriptor` space (encoded features)."""


def _sae_paper(dataset: ZeroShotDataset) -> SAEConfig:
    """Raw features, descriptors of unit norm. The publication selects λ for each dataset by validation; this is the
    value for CUB. It depends on the feature norms: search it for other data."""
    return SAEConfig(encoder_weight=1e-3, feature_normalization="none", attribute_normalization="unit-plain")


def _sae_reference(dataset: ZeroShotDataset) -> SAEConfig:
    """Standardized features, descriptors of unit norm; λ = 0.1 was selected on validation splits of CUB."""
    return SAEConfig()


_SAE_SPACE: Space = {
    "encoder_weight": Range(3e-3, 3.0, log=True),
    "attribute_normalization": Choice(("unit", "standardize")),
}
_SAE_GRID: Space = {
    "encoder_weight": Choice((0.03, 0.1, 0.3, 1.0)),
    "attribute_normalization": Choice(("unit", "standardize")),
}
SAE = Method(
    SAEConfig,
    {"paper": _sae_paper, "reference": _sae_reference},
    build=Lazy("classnorm.methods.closed_form", "build_sae"),
    fit=Lazy("classnorm.methods.closed_form", "fit_sae"),
    space=_SAE_SPACE,
    grid=_SAE_GRID,
)


@dataclass(frozen=True, kw_only=True)
class ConSEConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of ConSE."""

    top: Count = 10
    """T, the number of likeliest seen classes to combine."""
    attribute_normalization: AttributeNormalizationKind = "standardize"
    epochs: int = 20
    lr: float = 1e-3
    schedule: Schedule = "cosine"


def _conse_paper(dataset: ZeroShotDataset) -> ConSEConfig:
    """T = 10 and descriptors of unit norm. The classifier is linear on features of a convolutional network, whereas the
    publication trains the network itself."""
    return ConSEConfig(top=10, attribute_normalization="unit-plain")


def _conse_reference(dataset: ZeroShotDataset) -> ConSEConfig:
    """Standardized features and descriptors: non-negative descriptors of unit norm are nearly parallel."""
    return ConSEConfig()


_CONSE_SPACE: Space = {
    "top": Range(2, 50, log=True, whole=True),
    "epochs": Range(5, 50, log=True, whole=True),
    "lr": Range(2e-4, 5e-3, log=True),
}
_CONSE_GRID: Space = {"top": Choice((1, 5, 10, 20)), "epochs": Choice((10, 30))}
CONSE = Method(
    ConSEConfig,
    {"paper": _conse_paper, "reference": _conse_reference},
    build=Lazy("classnorm.methods.conse", "build"),
    fit=Lazy("classnorm.methods.conse", "fit"),
    space=_CONSE_SPACE,
    grid=_CONSE_GRID,
    parallel=True,
)


@dataclass(frozen=True, kw_only=True)
class SynCConfig(TrainedMethodConfig, NormalizedConfig):
    """Settings of SynC."""

    sigma: Positive = 1.5
    """σ, the width of the similarity; 1 is the root mean square distance between seen classes."""
    loss: Literal["one-versus-other", "crammer-singer", "structured"] = "one-versus-other"
    """Squared hinge of each class against the others (`one-versus-other`), or of the worst wrong class with a margin
    of 1 (`crammer-singer`) or of its squared descriptor distance (`structured`)."""
    penalty: NotNegative = 1e-3
    """λ, the weight of Σ_c ‖w_c‖² / 2."""
    feature_normalization: AttributeNormalizationKind = "unit-plain"
    attribute_normalization: AttributeNormalizationKind = "unit-plain"
    epochs: int = 30
    lr: float = 0.1
    """Learning rate; large, like the classifiers of features of unit norm."""
    weight_decay: float = 0.0
    """L2 penalty of the optimizer, in addition to `penalty`."""
    schedule: Schedule = "cosine"


def _sync_paper(dataset: ZeroShotDataset) -> SynCConfig:
    """The one-versus-other loss, features and descriptors of unit norm. The publication selects σ and λ for each
    dataset by validation; here they are those of `reference`."""
    return SynCConfig()


def _sync_reference(dataset: ZeroShotDataset) -> SynCConfig:
    """The defaults; σ = 1.5 and λ = 10⁻³ were selected on validation splits of CUB."""
    return SynCConfig()


_SYNC_SPACE: Space = {"sigma": Range(0.5, 4.0, log=True), "penalty": Range(3e-5, 3e-3, log=True)}
_SYNC_GRID: Space = {"sigma": Choice((0.5, 1.0, 2.0)), "penalty": Choice((1e-4, 3e-4, 1e-3))}
SYNC = Method(
    SynCConfig,
    {"paper": _sync_paper, "reference": _sync_reference},
    build=Lazy("classnorm.methods.sync", "build"),
    fit=Lazy("classnorm.methods.sync", "fit"),
    space=_SYNC_SPACE,
    grid=_SYNC_GRID,
    parallel=True,
)
