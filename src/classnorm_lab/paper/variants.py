"""Variants, the rows of the paper's tables: recipes with changed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LIGHT: dict[str, Any] = {"hidden": 512, "epochs": 25}
"""Light MLPs: the settings of `make run`, for embedded and other datasets."""


@dataclass(frozen=True)
class Variant:
    """A model: a method, a recipe and changes to it."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe."""
    method: str = "classnorm"
    recipe: str = "reference"
    published: str = ""
    """Label in the paper, if it differs."""
    seeds: int | None = None
    """Most seeds to run, for a slow method."""
    share: float | None = None
    """Share of the recipe's epochs to train for, with its learning rate dropping at the same steps."""

    @property
    def paper_label(self) -> str:
        """Label in the paper's table."""
        return self.published or self.label

    def named(self, label: str) -> Variant:
        """The same model under another label."""
        return replace(self, label=label)

    def derive(self, label: str, published: str = "", **changes: Any) -> Variant:
        """The same model with further changes."""
        return replace(self, label=label, published=published, changes={**self.changes, **changes})


CN = Variant("3-layer MLP + CN")
THREE_LAYERS = CN.derive("3-layer MLP", normalization="none", init="torch")
TWO_LAYERS = THREE_LAYERS.derive("2-layer MLP", layers=2)
LINEAR = THREE_LAYERS.derive("Linear", layers=1, final_relu=False, output_bias=False)  # V·a, nothing else
STANDARDIZED = CN.derive("3-layer MLP + standardization (eq. 9)", init="torch")
PROPER_VARIANCE = THREE_LAYERS.derive("3-layer MLP + proper variance (eq. 10)", init="proper")
_NO_RELU: dict[str, Any] = {"final_relu": False}
THREE_LAYERS_NO_RELU = THREE_LAYERS.derive("3-layer MLP, no final ReLU", **_NO_RELU)
CN_NO_RELU = CN.derive("3-layer MLP + CN, no final ReLU", **_NO_RELU)
DYNAMIC = THREE_LAYERS.derive("Dynamic Normalization", normalization="dynamic", init="xavier_fan_out")
DYNAMIC_ROOT = DYNAMIC.derive("Dynamic Normalization by the root", normalization="dynamic-root")
INITIALIZED = tuple(
    CN.derive(f"{name} + standardization (eq. 9)", init=init)
    for name, init in (
        ("Xavier", "xavier"),
        ("Kaiming fan-in", "kaiming_fan_in"),
        ("Kaiming fan-out", "kaiming_fan_out"),
    )
)
_NO_NS = {"logits": "dot"}
_NO_AN = {"attribute_normalization": "standardize"}  # the paper's replacement: zero mean and unit variance
VANILLA = (
    THREE_LAYERS.derive("Vanilla MLP -NS -AN", **_NO_NS, **_NO_AN),
    THREE_LAYERS.derive("Vanilla MLP -NS +AN", **_NO_NS),
    THREE_LAYERS.derive("Vanilla MLP +NS -AN", **_NO_AN),
    THREE_LAYERS.named("Vanilla MLP +NS+AN"),
)
VANILLA_NO_RELU = (
    THREE_LAYERS.derive("Vanilla MLP +NS+AN, no final ReLU", **_NO_RELU),
    CN.derive("Vanilla MLP +NS +AN +CN, no final ReLU", **_NO_RELU),
)


def in_recipe(recipe: str) -> tuple[Variant, Variant]:
    """The plain MLP and the MLP with CN, with the other settings of a recipe."""
    cn = Variant(f"{recipe}: 3-layer MLP + CN", recipe=recipe)
    return cn.derive(f"{recipe}: 3-layer MLP", normalization="none", init="torch"), cn


LIGHT_MLPS = tuple(v.derive(f"light: {v.label}", **LIGHT) for v in (THREE_LAYERS, CN))
"""As on the embedded and some other datasets, to compare with full MLPs."""

RELATIONNET = Variant("RelationNet", method="relationnet", published="RelationNet (official code)")
RELATIONNET_CN = replace(
    RELATIONNET, label="RelationNet + CN", recipe="class-norm", published="RelationNet (official code) + CN"
)
CVC = Variant("CVC-ZSL", method="cvc", published="CVC-ZSL (official code)")
CVC_CN = replace(CVC, label="CVC-ZSL + CN", recipe="class-norm", published="CVC-ZSL (official code) + CN")
RIVALS = {
    "DCN": "dcn",
    "RelationNet": "relationnet",
    "f-CLSWGAN": "fclswgan",
    "CIZSL": "cizsl",
    "CVC-ZSL": "cvc",
    "SGMA": "sgma",
    "SGAL": "sgal",
    "DASCN": "dascn",
    "F-VAEGAN-D2": "fvaegan",
    "TF-VAEGAN": "tfvaegan",
    "EPGN": "epgn",
    "DVBE": "dvbe",
    "LsrGAN": "lsrgan",
    "ZSML": "zsml",
}
"""The systems of the paper's main table: label → method."""
PUBLISHED_NAMES = {"RelationNet": "RN"}
"""Those that the paper abbreviates."""
RIVAL_ROWS = (
    *(
        Variant(name, method=method, published=PUBLISHED_NAMES.get(name, ""), seeds=1)
        for name, method in RIVALS.items()
    ),
    Variant("Kernel prototypes (ours)", method="kernel", seeds=1),
)
"""These systems and our own method, in one run each."""
_LONG = {"relationnet": 0.05, "cvc": 0.01}  # at most about half an hour of one core each on CUB
LONGER = tuple(
    Variant(f"{label}, {share:.0%} of the published schedule", changes, method, "paper", seeds=1, share=share)
    for (label, method), share in zip((("RelationNet", "relationnet"), ("CVC-ZSL", "cvc")), _LONG.values(), strict=True)
    for label, changes in ((label, {}), (f"{label} + CN", {"class_norm": True}))
)
CVC_TRICKS = (
    CVC,
    CVC.derive("CVC-ZSL -NS", "CVC-ZSL (official code) -NS", **_NO_NS),
    CVC.derive("CVC-ZSL -AN", "CVC-ZSL (official code) -AN", **_NO_AN),
    CVC.derive("CVC-ZSL -NS -AN", "CVC-ZSL (official code) -NS -AN", **_NO_NS, **_NO_AN),
)


def with_gamma(variant: Variant) -> tuple[Variant, ...]:
    """γ = 1, 3, 5, 10 and 20."""
    return tuple(
        variant.derive(f"{variant.label} +NS+AN γ = {gamma}", gamma=float(gamma)) for gamma in (1, 3, 5, 10, 20)
    )


def without_an(variant: Variant) -> tuple[Variant, ...]:
    """The model; the model with standardized attributes; the latter with first-layer variance 1/(d_out·d_a)."""
    return (
        variant,
        variant.derive(f"{variant.label} -AN", **_NO_AN),
        variant.derive(f"{variant.label} -AN + 1/d_a", **_NO_AN, attribute_correction=True),
    )


def without_tricks(variant: Variant) -> tuple[Variant, ...]:
    """The model, and without AN, without NS, and without both."""
    return (
        variant,
        variant.derive(f"{variant.label} -AN", **_NO_AN),
        variant.derive(f"{variant.label} -NS", **_NO_NS),
        variant.derive(f"{variant.label} -AN -NS", **_NO_AN, **_NO_NS),
    )
