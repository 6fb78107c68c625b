"""`Encoder`: a network with its preprocessing."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from PIL import Image

from classnorm.encoders.preprocessing import Preprocessing
from classnorm.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network from images to features, with its preprocessing."""

    name: str
    module: nn.Module  # [n, channels, size, size] → [n, d_z]; a method `maps`, if any, → [n, channels, height, width]
    preprocessing: Preprocessing
    d_z: int
    weights: str  # their source
    grid: tuple[int, int] | None = None  # height and width of feature maps; None for pooled features
    flip: bool = False  # features are the mean of those of the image and of its mirror image
    native: int | None = None  # side of the images that the network was trained on

    @property
    def size(self) -> int:
        """Side of the input image in pixels."""
        return self.preprocessing.crop

    @property
    def checksum(self) -> str:
        """SHA-256 of the current weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def with_maps(self) -> Encoder:
        """The same network, whose features are its last map before pooling: [n, height · width · channels]."""
        import torch

        if self.flip:
            raise ConfigError("feature maps have positions, which `flip` would mix; leave it out")
        if not hasattr(self.module, "maps"):
            raise ConfigError(f"encoder {self.name} has no feature maps; use efficientnet-lite0 or another one")
        side = self.size
        with torch.inference_mode():
            maps = _maps(self.module.eval(), torch.zeros(1, len(self.preprocessing.mean), side, side))
        height, width, channels = maps.shape[1:]
        return replace(self, d_z=height * width * channels, grid=(height, width))

    def encode(self, images: Tensor) -> Tensor:
        """[n, channels, size, size] → [n, d_z]."""
        if self.grid is not None:
            return _maps(self.module, images).flatten(1)
        features: Tensor = self.module(images)
        return (features + self.module(images.flip(-1))) / 2 if self.flip else features

    def with_flip(self) -> Encoder:
        """The same network, whose features are averaged over the image and its mirror image."""
        return replace(self, flip=True)

    @property
    def small(self) -> str | None:
        """A warning if images are smaller than those that the network was trained on."""
        if self.native is None or self.size >= self.native:
            return None
        return f"{self.name} was trained on images of {self.native} px; at {self.size} px its features are worse"

    @property
    def maps(self) -> str | None:
        """Shape of the feature maps as recorded with them, such as 7x7x1280; None for pooled features."""
        if self.grid is None:
            return None
        height, width = self.grid
        return f"{height}x{width}x{self.d_z // (height * width)}"

    def preprocess(self, images: npt.NDArray[Any] | Sequence[Image.Image]) -> Tensor:
        """Return [n, channels, size, size] from images, or from bytes [n, height, width, 3] or [n, height, width]."""
        return self.preprocessing(images)

    def record(self) -> dict[str, Any]:
        """Return everything that determines the features, as JSON."""
        return {
            "name": self.name,
            "weights": self.weights,
            "sha256": self.checksum,
            "d_z": self.d_z,
            "preprocessing": asdict(self.preprocessing),
            **({} if self.maps is None else {"maps": self.maps}),
            **({"flip": True} if self.flip else {}),
        }


def _maps(module: Any, images: Tensor) -> Tensor:
    """[n, channels, size, size] → [n, height, width, channels of the map]."""
    maps: Tensor = module.maps(images).permute(0, 2, 3, 1)
    return maps


def required(module: str, extra: str, encoder: str) -> Any:
    """Import an optional package; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"encoder {encoder} needs {module}; pip install 'classnorm[{extra}]'") from error


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a `.safetensors` or `.pth` file into `module`; only tensors are unpickled, and all names must match."""
    use_weights(module, read_weights(path), path)


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Read a `.safetensors` or `.pth` file; only tensors are unpickled."""
    import safetensors.torch
    import torch

    if not path.is_file():
        raise ModelError(f"{path}: no such file of weights")
    try:
        if path.suffix == ".safetensors":
            state: Mapping[str, Tensor] = safetensors.torch.load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        return {str(name): value for name, value in state.items()}
    except MemoryError:
        raise
    except Exception as error:  # safetensors, pickle and torch raise many types on a damaged file
        raise _not_these(path, error) from error


def use_weights(module: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load tensors, which are from `path`, into `module`; all names must match."""
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise _not_these(path, error) from error


def _not_these(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path}: not the weights of this network ({type(error).__name__})")
