"""Images for a scorer that knows the encoder of its features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from classnorm.encoders import recorded_encoder
from classnorm.errors import DataError, ModelError
from classnorm.preparation import encode_images

if TYPE_CHECKING:
    from classnorm.scoring.scorer import Scorer


def image_features(
    scorer: Scorer, images: Sequence[Path | str], weights: Path | str | None = None
) -> npt.NDArray[np.float32]:
    """The features [n, d_z] of image files, by the encoder that is recorded with the model."""
    if scorer.encoder is None:
        raise ModelError(
            "the model was trained on features and does not know their encoder; encode the images and use predict"
        )
    encoder = recorded_encoder(scorer.encoder, weights)
    features, reasons = encode_images([Path(image) for image in images], encoder, device=scorer.device)
    for image, reason in zip(images, reasons, strict=True):
        if reason:
            raise DataError(f"{image}: {reason}")
    return features
