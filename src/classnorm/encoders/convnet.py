"""A small convolutional network to train from scratch, for small images such as glyphs."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder, load_weights
from classnorm.encoders.preprocessing import Preprocessing

_SIZE = 48
_WIDTHS = (32, 64, 128, 128)


class ConvNet(nn.Module):
    """Four blocks of convolution, group normalization, ReLU and pooling, [n, channels, size, size] → [n, 128].

    Group normalization has no running statistics, which would go wrong in a stream of classes.
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in _WIDTHS:
            convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
            layers += [convolution, nn.GroupNorm(8, width), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.layers = nn.Sequential(*layers)

    def blocks(self) -> list[nn.Module]:
        """The four blocks, whose composition is `maps`."""
        layers = list(self.layers)
        return [nn.Sequential(*layers[i : i + 4]) for i in range(0, len(layers), 4)]

    def maps(self, images: Tensor) -> Tensor:
        """[n, channels, size, size] → [n, 128, height, width]."""
        maps: Tensor = self.layers(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        return self.maps(images).mean(dim=(2, 3))


def load_convnet(name: str, size: int | None = None, weights: Path | None = None) -> Encoder:
    """Build `convnet` (three channels) or `convnet-gray` (one channel), randomly initialized without `weights`."""
    channels = 1 if name == "convnet-gray" else 3
    module = ConvNet(channels)
    if weights is not None:
        load_weights(module, weights)
    preprocessing = Preprocessing(_SIZE, _SIZE, (127.5,) * channels, (127.5,) * channels, "bilinear").at(size)
    return Encoder(name, module, preprocessing, _WIDTHS[-1], "random" if weights is None else weights.name)
