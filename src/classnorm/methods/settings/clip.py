"""Settings of CLIP's own zero-shot classification."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.data import ZeroShotDataset
from classnorm.methods.method import Method, MethodConfig, Recipes
from classnorm.registry import Lazy

_ADVICE = (
    'clip compares images and text of one model: encode both with it, by `encoder="hf:ID"` and `text_encoder="hf:ID"`, '
    "or give its image and text vectors as features and descriptors"
)


@dataclass(frozen=True, kw_only=True)
class CLIPConfig(MethodConfig):
    """Settings of CLIP's own zero-shot classification. There is nothing to train."""

    calibration: str = "none"
    """none, as published, or validation[:scale|:bias|:grid], scale:S (seen scores times S), bias:B (minus B)."""


def pair_name(dataset: ZeroShotDataset) -> str | None:
    """The image–text model that made features and descriptors, as `hf:ID`; None if none or not both are recorded."""
    record, text = dataset.provenance.encoder or {}, dataset.provenance.text_encoder or {}
    try:
        names = (record["name"], text["name"])
        record["weights"], record["sha256"], record["preprocessing"]["crop"]
    except (KeyError, TypeError):
        return None
    return str(names[0]) if names[0] == names[1] and str(names[0]).startswith("hf:") else None


def unsupported(dataset: ZeroShotDataset) -> str | None:
    """Why features and descriptors cannot be compared; None if they can."""
    if dataset.provenance.encoder is not None or dataset.provenance.of_text:
        if pair_name(dataset) is not None and dataset.provenance.is_text:
            return None
        return f"{dataset.name}: features and descriptors are not from one image–text model; {_ADVICE}"
    if dataset.d_z == dataset.d_a:
        return None
    return f"{dataset.name}: features have {dataset.d_z} dimensions, descriptors {dataset.d_a}; {_ADVICE}"


def reference(dataset: ZeroShotDataset) -> CLIPConfig:
    """As published: no training, no calibration."""
    return CLIPConfig()


RECIPES: Recipes = {"reference": reference}
METHOD = Method(
    CLIPConfig,
    RECIPES,
    build=Lazy("classnorm.methods.clip", "build"),
    fit=Lazy("classnorm.methods.clip", "fit"),
    unsupported=unsupported,
)
