"""Methods under one contract. `settings/` loads without PyTorch and says in which module a method fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.methods.method import (
    METHODS,
    FitJob,
    Fitted,
    Method,
    MethodConfig,
    check_parallel,
    method_named,
    read_recipe,
    recipe_named,
    resolve,
)
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.methods.space import Choice, Range, Space
from classnorm.registry import lazy_names
from classnorm.training import FitContext

if TYPE_CHECKING:
    from classnorm.methods.model import ProductModel, ZeroShotModel
    from classnorm.methods.rows import TrainingRows

__all__ = [
    "METHODS",
    "Choice",
    "ClassNormConfig",
    "FitContext",
    "FitJob",
    "Fitted",
    "Method",
    "MethodConfig",
    "ProductModel",
    "Range",
    "Space",
    "TrainingRows",
    "ZeroShotModel",
    "check_parallel",
    "method_named",
    "read_recipe",
    "recipe_named",
    "resolve",
]

__getattr__, __dir__ = lazy_names(
    __name__, {"model": "ProductModel ZeroShotModel", "rows": "TrainingRows"}
)  # they need PyTorch
