"""The attribute embedder P(a) = V·S(H(a)): class descriptors → prototypes in feature space (appendix D)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from classnorm.errors import ConfigError
from classnorm.nn.initialization import initialize_
from classnorm.nn.kinds import AttributeNormalizationKind, Distribution, HiddenNormalization, Initialization
from classnorm.nn.normalization import AttributeNormalization, ClassStandardization, DynamicNormalization


class AttributeEmbedder(nn.Module):
    r"""An MLP from descriptors to prototypes, with optional class normalization.

    The defaults are the paper's model:
    linear → ReLU → linear → S → ReLU → S → linear (proper variance) → ReLU.

    Args:
        d_a: descriptor dimension.
        d_z: feature dimension.
        layers: number of linear layers; 1 is the linear model V·a.
        hidden: width of the hidden layers.
        attribute_normalization: normalization of the descriptors, see `AttributeNormalization`.
        normalization: layer before the last linear layer: ``class`` (equation 9), ``class-variance`` (divides by the
            variance, as in the authors' code), ``dynamic``, ``dynamic-root`` (see `DynamicNormalization`), or ``none``.
            Ignored for 1 layer.
        standardize_before_relu: with class standardization and 3 or more layers, also before the last hidden ReLU.
        final_relu: ReLU on the prototypes, as in the authors' code; the paper's text has none.
        output_bias: bias of the last layer V; the paper's formulas have none.
        init: initialisation of the last layer, see `weight_variance`.
        hidden_init: initialisation of the other layers.
        attribute_correction: start the first layer with variance 1/(d_out·d_a) (appendix H).
        init_distribution: uniform or normal.
        seed: seed of the initial weights, which do not depend on the device.
        descriptors: [n_classes, d_a] of the training classes, required by ``attribute_normalization="standardize"``
            and ``init="data_dependent"``.

    Shapes: [n_classes, d_a] → [n_classes, d_z].

    >>> embed = AttributeEmbedder(312, 2048, hidden=64)
    >>> embed(torch.rand(150, 312)).shape
    torch.Size([150, 2048])
    """

    def __init__(
        self,
        d_a: int,
        d_z: int,
        *,
        layers: int = 3,
        hidden: int = 1024,
        attribute_normalization: AttributeNormalizationKind = "unit",
        normalization: HiddenNormalization = "class",
        standardize_before_relu: bool = True,
        final_relu: bool = True,
        output_bias: bool = True,
        init: Initialization = "proper",
        hidden_init: Initialization = "torch",
        attribute_correction: bool = False,
        init_distribution: Distribution = "uniform",
        seed: int = 0,
        descriptors: Tensor | None = None,
    ) -> None:
        super().__init__()
        if layers < 1 or hidden < 1:
            raise ConfigError(f"an embedder needs at least 1 layer and 1 hidden unit, not {layers} and {hidden}")
        if descriptors is None and (
            attribute_normalization == "standardize" or "data_dependent" in (init, hidden_init)
        ):
            raise ConfigError(
                "attribute_normalization standardize and init data_dependent need the training descriptors"
            )
        self.normalize = AttributeNormalization(d_a, attribute_normalization)
        widths = [d_a, *[hidden] * (layers - 1)]
        blocks: list[nn.Module] = []
        for i, (d_in, d_out) in enumerate(itertools.pairwise(widths)):
            blocks.append(nn.Linear(d_in, d_out))
            if i > 0 and i == layers - 2 and standardize_before_relu and normalization.startswith("class"):
                blocks.append(_hidden_normalization(normalization, d_out))
            blocks.append(nn.ReLU(inplace=True))
        if layers > 1 and normalization != "none":
            blocks.append(_hidden_normalization(normalization, hidden))
        self.body = nn.Sequential(*blocks)  # H, then S
        self.output = nn.Linear(widths[-1], d_z, bias=output_bias)  # V
        self.final_relu = final_relu
        if descriptors is not None:
            self.normalize.fit(descriptors)
        first = "proper" if attribute_correction else init if layers == 1 else hidden_init
        schemes = [first, *[hidden_init] * (layers - 2), init][:layers]
        self._initialize(schemes, init_distribution, seed, descriptors)

    @torch.no_grad()
    def _initialize(
        self, schemes: list[Initialization], distribution: Distribution, seed: int, descriptors: Tensor | None
    ) -> None:
        """Draw the layers in order; ``data_dependent`` needs the training descriptors passed through those before."""
        generator = torch.Generator().manual_seed(seed)
        hidden = self.normalize(descriptors) if "data_dependent" in schemes else None
        remaining = iter(schemes)
        for block in [*self.body, self.output]:
            if isinstance(block, nn.Linear):
                initialize_(block, next(remaining), distribution, generator, hidden)
            if hidden is not None and block is not self.output:
                hidden = block(hidden)
        for module in self.modules():
            if isinstance(module, ClassStandardization | DynamicNormalization):
                module.reset_running_statistics()

    def forward(self, descriptors: Tensor) -> Tensor:
        return self._projected(self.body(self.normalize(descriptors)))

    def prototypes_of(self, descriptors: Tensor, classes: Tensor) -> Tensor:
        """Prototypes of some of the seen classes: [n_seen, d_a], [k] → [k, d_z].

        Class standardization runs over all seen classes, as defined; statistics of the few classes of a batch would be
        noisy. Only the last layer, the most expensive one, is restricted to `classes`.
        """
        return self._projected(self.body(self.normalize(descriptors)).index_select(0, classes))

    def _projected(self, hidden: Tensor) -> Tensor:
        prototypes: Tensor = self.output(hidden)
        return prototypes.relu_() if self.final_relu else prototypes


def _hidden_normalization(kind: HiddenNormalization, d_h: int) -> nn.Module:
    if kind.startswith("dynamic"):
        return DynamicNormalization(root=kind == "dynamic-root")
    return ClassStandardization(d_h, divide_by="variance" if kind == "class-variance" else "std")
