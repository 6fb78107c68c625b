"""`Encoder`: a network with its preprocessing."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from PIL import Image

from classnorm.encoders.preprocessing import Preprocessing
from classnorm.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Encoder", "load_weights", "required"]


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network from images to features, with its preprocessing."""

    name: str
    module: nn.Module  # [n, channels, size, size] → [n, d_z]
    preprocessing: Preprocessing
    d_z: int
    weights: str  # their source

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
        }


def required(module: str, extra: str, encoder: str) -> Any:
    """Import an optional package; the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"encoder {encoder} needs {module}; pip install 'classnorm[{extra}]'") from error


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a `.safetensors` or `.pth` file into `module`; only tensors are unpickled, and all names must match."""
    import safetensors.torch
    import torch

    if not path.is_file():
        raise ModelError(f"{path}: no such file of weights")
    try:
        if path.suffix == ".safetensors":
            state: Mapping[str, Tensor] = safetensors.torch.load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state)
    except MemoryError:
        raise
    except Exception as error:  # safetensors, pickle and torch raise many types on a damaged file
        raise ModelError(f"{path}: not the weights of this network ({type(error).__name__})") from error
