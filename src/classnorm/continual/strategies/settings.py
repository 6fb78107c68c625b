"""The strategies by their names, and the settings of each. They load without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from classnorm.continual.config import ContinualConfig, SolvedConfig, StreamConfig
from classnorm.continual.stream import TaskStream
from classnorm.errors import unknown_name
from classnorm.methods.method import GeometryConfig
from classnorm.methods.settings.kernel import KernelConfig, recorded_blocks
from classnorm.registry import Registry
from classnorm.settings import Count, NotNegative, Positive, Share, added_setting, at_least, at_most, between

if TYPE_CHECKING:
    from classnorm.continual.strategies.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class MemoryConfig(ContinualConfig):
    """Size of the memory and of the batches drawn from it."""

    memory_per_class: Annotated[Count, at_most(10**6)] = 10
    """Training rows to remember per class."""
    memory_batch: Count = 32
    """Remembered rows per step."""


@dataclass(frozen=True, kw_only=True)
class AGEMConfig(MemoryConfig):
    """Defaults of the authors' release."""

    memory_batch: Count = 128
    """Remembered rows that give the reference gradient of a step."""


@dataclass(frozen=True, kw_only=True)
class ImportanceConfig(ContinualConfig):
    """Strength of the penalty. Subclasses have the defaults of the authors' releases."""

    penalty: NotNegative
    """Weight of the penalty Σ importance · (weight − weight after the last task)²."""
    decay: NotNegative
    """Factor applied to the importances so far before those of a new task are added."""
    importance_batch: Count = 8
    """Rows per gradient when importances are averaged over batches, which makes them smaller and faster."""
    importance: Literal["averaged", "exact"] = added_setting("averaged")
    """Importances from the gradients of batches, or exactly, from the gradient of each row."""


@dataclass(frozen=True, kw_only=True)
class EWCConfig(ImportanceConfig):
    """Defaults of the authors' release."""

    penalty: NotNegative = 10.0
    decay: NotNegative = 0.99


@dataclass(frozen=True, kw_only=True)
class MASConfig(ImportanceConfig):
    """Defaults of the authors' release."""

    penalty: NotNegative = 1e-4
    decay: NotNegative = 0.95


@dataclass(frozen=True, kw_only=True)
class LwFConfig(ContinualConfig):
    """Settings of the distillation."""

    temperature: Annotated[float, at_least(1e-3)] = 2.0
    """Divides the logits of both learners before they are compared."""
    distillation: NotNegative = 1.0
    """Weight of the distillation loss; the loss of the task has weight 1."""


@dataclass(frozen=True, kw_only=True)
class AnalyticConfig(SolvedConfig, GeometryConfig):
    """Settings of the method `kernel` in closed form; all but `length` have the same defaults."""

    ridge: Positive = KernelConfig.ridge
    """Penalty of the regression from descriptors to class means."""
    descriptor_power: Positive = added_setting(1.0)
    """Power of the descriptors, sign kept; below 1, large values of single attributes count less."""
    error_share: Share = added_setting(0.0)
    """Geometry: weight of the regression's errors, by leaving out one class at a time, in the covariance."""
    spread: Share = KernelConfig.spread
    """Descriptors are divided by their standard deviation over the seen classes to this power."""
    bandwidth: Positive = KernelConfig.bandwidth
    """Bandwidth of the Gaussian kernel, relative to the median squared distance of two seen classes."""
    length: Annotated[float, between(0, 2)] = 1.0
    """Prototypes are divided by their length to this power; above 1 it favours classes unlike the seen ones, too much
    while few classes are seen."""
    blocks: str = ""
    """Sizes of the parts of a descriptor that get separate kernels; empty is one kernel for all."""
    feature_blocks: str = added_setting("")
    """Sizes of the parts of the features, as of several encoders, that get separate geometries; empty is one."""
    feature_weights: str = added_setting("")
    """Weights of the parts of `feature_blocks` in the cosines, like 4,1 if the second is weaker; empty is equal."""
    landmarks: Annotated[int, at_least(2), at_most(10**6)] = KernelConfig.landmarks
    """Maximum number of seen classes that span the kernel's feature space; more are subsampled by the seed."""

    def kernel(self) -> KernelConfig:
        """The same settings for the method."""
        names = [field.name for field in fields(AnalyticConfig) if field.name != "bias"]
        return KernelConfig(**{name: getattr(self, name) for name in names}, closed_form=True)


@dataclass(frozen=True, kw_only=True)
class RandomFeatureConfig(SolvedConfig):
    """Settings of RanPAC and ACIL."""

    expansion: Count = 2000
    """Number of random features; the Gram matrix takes 8 bytes times its square. RanPAC was published with 10,000."""
    ridge: Positive = 3.0
    """Penalty of the regression, relative to the mean eigenvalue of the Gram matrix."""
    descriptor_power: Positive = 0.6
    """Power of the descriptors, sign kept; below 1, large values of single attributes count less."""
    spread: Share = KernelConfig.spread
    """Descriptors are divided by their standard deviation over the seen classes to this power."""

    def kernel(self) -> KernelConfig:
        """Settings of the kernel of descriptors."""
        return KernelConfig(descriptor_power=self.descriptor_power, spread=self.spread)


_HERE = "classnorm.continual.strategies"
_OWN: dict[str, tuple[str, type[StreamConfig]]] = {
    "sequential": (f"{_HERE}.sequential:Sequential", ContinualConfig),
    "multitask": (f"{_HERE}.multitask:Multitask", ContinualConfig),
    "ewc": (f"{_HERE}.ewc:EWC", EWCConfig),
    "mas": (f"{_HERE}.mas:MAS", MASConfig),
    "agem": (f"{_HERE}.agem:AGEM", AGEMConfig),
    "replay": (f"{_HERE}.replay:Replay", MemoryConfig),
    "lwf": (f"{_HERE}.lwf:LwF", LwFConfig),
    "analytic": (f"{_HERE}.analytic:Analytic", AnalyticConfig),
    "ranpac": (f"{_HERE}.ranpac:RanPAC", RandomFeatureConfig),
    "acil": (f"{_HERE}.acil:ACIL", RandomFeatureConfig),
}
"""Name → where the strategy is, and its settings."""

STRATEGIES: Registry[type[Strategy]] = Registry(
    "classnorm.strategies", type, {name: reference for name, (reference, _) in _OWN.items()}
)


def strategy_named(name: str) -> type[Strategy]:
    _check_name(name)
    return STRATEGIES[name]


def strategy_config(name: str) -> type[StreamConfig]:
    """The class of a strategy's settings, without PyTorch unless a plug-in needs it."""
    _check_name(name)
    return dict(_OWN.values()).get(STRATEGIES.reference(name)) or STRATEGIES[name].Config


def configure(stream: TaskStream, strategy: str, **changes: Any) -> StreamConfig:
    """The settings of a strategy for a stream, with some fields changed.

    There is no final ReLU if the features of the first task have either sign, and on SUN the memory is halved. Features
    of several encoders have a geometry each.
    """
    kind, dataset = strategy_config(strategy), stream.dataset
    names = [f.name for f in fields(kind)]
    for name in changes:
        if name not in names:
            raise unknown_name("setting", name, names)
    config = kind()
    if isinstance(config, ContinualConfig):
        config = replace(config, final_relu=bool((dataset.loaded(stream.train(0)) >= 0).all()))
    if isinstance(config, AnalyticConfig):
        config = replace(config, **recorded_blocks(dataset))
    if isinstance(config, MemoryConfig) and dataset.benchmark == "SUN":
        config = replace(config, memory_per_class=5)
    return replace(config, **changes)


def _check_name(name: str) -> None:
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES)
