"""Encoders of images (to features) and text (to descriptors). Pretrained networks are optional extras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.encoders.encoder import Encoder
from classnorm.encoders.loading import (
    ENCODERS,
    check_encoder,
    encoder_names,
    frozen_encoder,
    load_encoder,
    recorded_encoder,
    same_encoder,
)
from classnorm.encoders.preprocessing import Preprocessing
from classnorm.encoders.text import TEXT_ENCODERS, TextEncoder, load_text_encoder
from classnorm.registry import lazy_names

if TYPE_CHECKING:
    from classnorm.encoders.networks import ConvNet

__all__ = [
    "ENCODERS",
    "TEXT_ENCODERS",
    "ConvNet",
    "Encoder",
    "Preprocessing",
    "TextEncoder",
    "check_encoder",
    "encoder_names",
    "frozen_encoder",
    "load_encoder",
    "load_text_encoder",
    "recorded_encoder",
    "same_encoder",
]

__getattr__, __dir__ = lazy_names(__name__, {"networks": "ConvNet"})  # it needs PyTorch
