"""The rows of the paper's tables: each a recipe and what differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = [
    "CN",
    "CVC",
    "CVC_CN",
    "CVC_TRICKS",
    "DYNAMIC",
    "INITIALIZED",
    "LINEAR",
    "PROPER_VARIANCE",
    "RELATIONNET",
    "RELATIONNET_CN",
    "STANDARDIZED",
    "THREE_LAYERS",
    "TWO_LAYERS",
    "VANILLA",
    "Row",
    "with_gamma",
    "without_an",
    "without_tricks",
]


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the recipe."""
    method: str = "classnorm"
    recipe: str = "reference"
    published: str = ""
    """What the paper calls it, if something else."""

    @property
    def printed(self) -> str:
        """Its name in the paper's table."""
        return self.published or self.label

    def named(self, label: str) -> Row:
        """The same model under the name that another table gives it."""
        return replace(self, label=label)

    def but(self, label: str, published: str = "", **changes: Any) -> Row:
        return replace(self, label=label, published=published, changes={**self.changes, **changes})


CN = Row("3-layer MLP + CN")
THREE_LAYERS = CN.but("3-layer MLP", normalization="none", init="torch")
TWO_LAYERS = THREE_LAYERS.but("2-layer MLP", layers=2)
LINEAR = THREE_LAYERS.but("Linear", layers=1, final_relu=False)  # P(a) = V·a: a ReLU would make it non-linear
STANDARDIZED = CN.but("3-layer MLP + standardization (eq. 9)", init="torch")
PROPER_VARIANCE = THREE_LAYERS.but("3-layer MLP + proper variance (eq. 10)", init="proper")
DYNAMIC = THREE_LAYERS.but("Dynamic Normalization", normalization="dynamic", init="xavier_fan_out")
INITIALIZED = tuple(
    CN.but(f"{name} + standardization (eq. 9)", init=init)
    for name, init in (
        ("Xavier", "xavier"),
        ("Kaiming fan-in", "kaiming_fan_in"),
        ("Kaiming fan-out", "kaiming_fan_out"),
    )
)
_NO_NS = {"logits": "dot"}
_NO_AN = {"attribute_normalization": "standardize"}  # the paper's replacement: zero mean and unit variance
VANILLA = (
    THREE_LAYERS.but("Vanilla MLP -NS -AN", **_NO_NS, **_NO_AN),
    THREE_LAYERS.but("Vanilla MLP -NS +AN", **_NO_NS),
    THREE_LAYERS.but("Vanilla MLP +NS -AN", **_NO_AN),
    THREE_LAYERS.named("Vanilla MLP +NS+AN"),
)


# The other embedders as published, without calibration.
RELATIONNET = Row("RelationNet", {"calibration": "none"}, "relationnet", published="RelationNet (official code)")
RELATIONNET_CN = replace(
    RELATIONNET, label="RelationNet + CN", recipe="class-norm", published="RelationNet (official code) + CN"
)
CVC = Row("CVC-ZSL", {"calibration": "none"}, "cvc", published="CVC-ZSL (official code)")
CVC_CN = replace(CVC, label="CVC-ZSL + CN", recipe="class-norm", published="CVC-ZSL (official code) + CN")
CVC_TRICKS = (
    CVC,
    CVC.but("CVC-ZSL -NS", "CVC-ZSL (official code) -NS", **_NO_NS),
    CVC.but("CVC-ZSL -AN", "CVC-ZSL (official code) -AN", **_NO_AN),
    CVC.but("CVC-ZSL -NS -AN", "CVC-ZSL (official code) -NS -AN", **_NO_NS, **_NO_AN),
)


def with_gamma(row: Row) -> tuple[Row, ...]:
    """γ = 1, 3, 5, 10 and 20."""
    return tuple(row.but(f"{row.label} +NS+AN γ = {gamma}", gamma=float(gamma)) for gamma in (1, 3, 5, 10, 20))


def without_an(row: Row) -> tuple[Row, ...]:
    """The model, with standardized attributes, and with the first layer started with variance 1/(d_out·d_a) too."""
    return (
        row,
        row.but(f"{row.label} -AN", **_NO_AN),
        row.but(f"{row.label} -AN + 1/d_a", **_NO_AN, attribute_correction=True),
    )


def without_tricks(row: Row) -> tuple[Row, ...]:
    """The model, and without AN, NS or both."""
    return (
        row,
        row.but(f"{row.label} -AN", **_NO_AN),
        row.but(f"{row.label} -NS", **_NO_NS),
        row.but(f"{row.label} -AN -NS", **_NO_AN, **_NO_NS),
    )
