"""The method contract: a typed config, a model that can be rebuilt from it, and a `fit` function; settings that several
methods share; and methods by name, those of classnorm, whose settings load without PyTorch, and those of plug-ins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict

from classnorm.data import SplitKind, ZeroShotDataset, validation_dataset
from classnorm.errors import ConfigError, unknown_name
from classnorm.io.documents import read_json
from classnorm.methods.space import Range, Space
from classnorm.metrics import Calibration
from classnorm.nn import AttributeNormalizationKind
from classnorm.registry import Registry, not_installed
from classnorm.results.run_folder import key_of
from classnorm.settings import Config, Positive, Share, added_setting, at_least, at_most
from classnorm.training import FitContext, History, Precision, TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from classnorm.methods.model import ZeroShotModel
    from classnorm.nn import FeatureGeometry


VALIDATED: dict[str, Literal["any", "scale", "bias", "grid"]] = {
    "validation": "any",
    "validation:scale": "scale",
    "validation:bias": "bias",
    "validation:grid": "grid",
}
"""Calibrations selected by validation → the candidates."""


@dataclass(frozen=True, kw_only=True)
class MethodConfig(Config):
    """Settings of every method: the calibration of seen scores and its validation splits."""

    calibration: str = "validation"
    """validation[:scale|:bias|:grid], none, scale:S (seen scores times S) or bias:B (seen scores minus B)."""
    validation: SplitKind = "matched"
    """Validation splits: `matched` holds out the dataset's share of unseen classes, `paper` 10 % of the seen ones."""
    validation_splits: Annotated[int, at_most(1000)] = 2
    """Validation splits to average over; each costs one more training run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calibration not in VALIDATED:
            Calibration.parse(self.calibration)
        elif self.validation_splits < 1:
            raise ConfigError("validation_splits must be at least 1 for a calibration by validation")


@dataclass(frozen=True, kw_only=True)
class TrainedMethodConfig(MethodConfig, TrainingConfig):
    """Settings of a method that the training loop trains."""


@dataclass(frozen=True, kw_only=True)
class DescriptorConfig(Config):
    """Normalization of the descriptors."""

    attribute_normalization: AttributeNormalizationKind = "unit"
    """Descriptors: `unit` norm times √d_a, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class NormalizedConfig(DescriptorConfig):
    """Normalization of features and descriptors."""

    feature_normalization: AttributeNormalizationKind = "standardize"
    """Features: `unit` norm times √d_z, `unit-plain` without the factor, `standardize`, or `none`."""


@dataclass(frozen=True, kw_only=True)
class GeometryConfig(Config):
    """Settings of the feature geometry; the defaults serve all datasets."""

    power: Positive = 0.5
    """Geometry: power of the features, sign kept."""
    dimensions: Annotated[int, at_least(2), at_most(1 << 15)] = 512
    """Geometry: number of leading directions to keep."""
    shrinkage: Share = 0.3
    """Geometry: shrinkage of the covariance toward a multiple of the identity."""
    whitening: Share = 0.35
    """Geometry: divide each direction by its eigenvalue to this power; 0.5 whitens fully, which hurts."""
    within: Share = 0.75
    """Geometry: share of the between-class variance excluded from the covariance."""
    hubness: Share = 0.1
    """Geometry: weight of the correction for hubs, classes close to many others that attract their images."""

    def feature_parts(self, d_z: int) -> Sequence[int]:
        """Sizes of the feature parts with separate geometries."""
        return [d_z]

    def part_weights(self, n_parts: int) -> Sequence[float] | None:
        """Weights of the feature parts, adding up to 1; None if they are equal."""
        return None

    def build_geometry(self, d_z: int) -> FeatureGeometry:
        """An unfitted geometry with these settings."""
        from classnorm.nn import FeatureGeometry

        shape = self.dimensions, self.power, self.shrinkage, self.whitening, self.within
        parts = self.feature_parts(d_z)
        return FeatureGeometry(d_z, *shape, parts, self.part_weights(len(parts)))


@dataclass(frozen=True, kw_only=True)
class ScaleConfig(Config):
    """Settings for many classes and for devices that compute in 16 bits."""

    sampled_classes: Annotated[int | Literal["auto"], at_least(0)] = added_setting("auto")
    """Seen classes drawn for each step, besides those of the batch; 0 uses all, `auto` all up to 2000 and else 1024."""
    precision: Precision = added_setting("float32")
    """Products of scores, and of training with `classnorm`; `auto`: bfloat16 or float16 where they are faster."""


@dataclass(frozen=True)
class Fitted:
    """A trained model and its training history."""

    model: ZeroShotModel
    history: History


Recipes = Mapping[str, Callable[[ZeroShotDataset], MethodConfig]]


class Fit(Protocol):
    def __call__(self, dataset: ZeroShotDataset, config: Any, seed: int, context: FitContext) -> Fitted: ...


@dataclass(frozen=True)
class Method:
    """A method as the registry holds it."""

    config: type[MethodConfig]
    recipes: Recipes
    """Presets by name; they may depend on the dataset."""
    build: Callable[[Any, int, int, Mapping[str, Tensor]], ZeroShotModel]
    """(config, d_a, d_z, weights) → a model to load the saved weights into. Their shapes provide sizes that the config
    lacks, like the number of seen classes."""
    fit: Fit
    space: Space = field(default_factory=dict)
    """Settings that a search varies, with their ranges."""
    grid: Space = field(default_factory=dict)
    """Values for a grid search; by default three of each range in `space`."""
    name: str = ""
    """Name in the registry, which sets it."""
    parallel: bool = False
    """Whether several processes can train it together: its loss is a mean over the rows that `training.train` gives it,
    and it does not depend on the other rows of the batch."""
    unsupported: Callable[[ZeroShotDataset], str | None] = lambda dataset: None
    """Why the method cannot be used on a dataset; None if it can."""
    sees_unseen: bool = False
    """Whether training uses the descriptors of the unseen classes; it never uses their rows."""

    def search_space(self, sampler: Literal["tpe", "grid"]) -> Space:
        """The default search space of a sampler."""
        if sampler == "tpe":
            return self.space
        return self.grid or {n: v.values() if isinstance(v, Range) else v for n, v in self.space.items()}


@dataclass(frozen=True)
class FitJob:
    """A dataset, a method, its settings and a seed: everything that determines the weights of a model."""

    dataset: ZeroShotDataset
    method: Method
    config: MethodConfig
    seed: int = 0

    @cached_property
    def key(self) -> str:
        """Identifies the weights, which the calibration does not affect."""
        calibration = {field.name for field in dataclasses.fields(MethodConfig)}
        settings = {name: value for name, value in self.config.as_dict().items() if name not in calibration}
        return key_of([self.dataset.checksum, self.method.name, settings, self.seed], f"method {self.method.name}")

    def fit(self, context: FitContext) -> Fitted:
        key = self.key if context.checkpoint else ""  # it reads all features
        return self.method.fit(self.dataset, self.config, self.seed, replace(context, key=key))

    def validation(self, split: int) -> FitJob:
        """The same job on a validation split of the training rows."""
        return replace(self, dataset=validation_dataset(self.dataset, self.config.validation, split))


_OWN = {
    "classnorm": "classnorm:METHOD",
    "kernel": "kernel:METHOD",
    "devise": "ranking:DEVISE",
    "ale": "ranking:ALE",
    "sje": "ranking:SJE",
    "eszsl": "linear:ESZSL",
    "sae": "linear:SAE",
    "conse": "linear:CONSE",
    "sync": "linear:SYNC",
    "clip": "clip:METHOD",
}
"""Name → where in `settings`."""


class _Methods(Registry[Method]):
    """Methods that know their name."""

    def __getitem__(self, name: str) -> Method:
        method = super().__getitem__(name)
        if method.name != name:
            method = self[name] = replace(method, name=name)
        return method


METHODS = _Methods("classnorm.methods", Method, {name: f"classnorm.methods.settings.{at}" for name, at in _OWN.items()})


def method_named(name: str) -> Method:
    """The registered method with this name."""
    if name not in METHODS:
        hint = not_installed() or "a plug-in's method needs `plugin`"
        raise unknown_name("method", name, METHODS, hint)
    return METHODS[name]


def check_parallel(name: str, processes: int) -> None:
    """Raise if several processes are to train a method that cannot be divided among them."""
    if processes > 1 and not method_named(name).parallel:
        able = ", ".join(other for other, method in METHODS.items() if method.parallel)
        raise ConfigError(f"the method {name} trains in one process: run it without torchrun, or choose one of {able}")


def resolve(
    dataset: ZeroShotDataset, method: str = "classnorm", recipe: str = "reference", **changes: Any
) -> tuple[Method, MethodConfig]:
    """The method and its config for a dataset: a recipe with some settings changed."""
    entry = method_named(method)
    return entry, recipe_named(entry, recipe)(dataset).replace(**changes)


def recipe_named(method: Method, recipe: str) -> Callable[[ZeroShotDataset], MethodConfig]:
    """A recipe of the method, or that of a file."""
    if recipe.endswith(".json"):
        config = read_recipe(Path(recipe), method)
        return lambda dataset: config
    if recipe not in method.recipes:
        raise unknown_name("recipe", recipe, method.recipes)
    return method.recipes[recipe]


class RecipeDocument(TypedDict):
    """A recipe file."""

    format: Literal["classnorm-recipe"]
    method: str
    config: dict[str, Any]


def read_recipe(path: Path, method: Method) -> MethodConfig:
    """The config in a recipe file written by `classnorm search`."""
    document = read_json(path, RecipeDocument, "use a recipe name or the recipe.json of a search", ConfigError)
    if (name := document["method"]) != method.name:
        raise ConfigError(f"{path}: a recipe for the method {name!r}; use `method={name!r}`")
    try:
        return method.config().replace(**document["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
