"""Any image backbone of the transformers library, from a folder or from the hub."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder, required
from classnorm.encoders.preprocessing import Interpolation, Preprocessing
from classnorm.errors import ModelError

__all__ = ["load_huggingface", "load_quietly"]

_SQUASHED_FROM = 384  # ConvNeXT processors crop smaller pictures and squash those of this size


class _Backbone(nn.Module):
    """Pooled output, or the mean over tokens or positions, [n, 3, size, size] → [n, d_z]."""

    def __init__(self, model: Any, pooled: bool) -> None:
        super().__init__()
        self.model = model
        self.pooled = pooled
        parameters = inspect.signature(model.forward).parameters
        # Position embeddings are for one size; others need them resized.
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images, **self.options)
        pooled: Tensor | None = output.get("pooler_output") if self.pooled else None
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = output["last_hidden_state"]
        return last.mean(dim=(2, 3) if last.dim() == 4 else 1)


@contextmanager
def load_quietly(transformers: Any) -> Iterator[None]:
    """Without the library's reports, for what they warn of is checked here, and without its progress bars."""
    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_huggingface(name: str, size: int | None = None, weights: Path | None = None) -> Encoder:
    """The model `hf:ID` or `hf:FOLDER`; `weights` is a folder that stands in for the ID."""
    transformers = required("transformers", "transformers", name)
    source = str(weights) if weights is not None else name.removeprefix("hf:")
    try:
        with load_quietly(transformers):
            # Weights as safetensors only, which cannot run code.
            model, report = transformers.AutoModel.from_pretrained(
                source, output_loading_info=True, use_safetensors=True, dtype=torch.float32
            )
            processor = transformers.AutoImageProcessor.from_pretrained(source)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ModelError(
            f"{source}: cannot be loaded ({reason}…); give a folder with config.json, preprocessor_config.json and "
            "model.safetensors, or the ID of such a model on the hub"
        ) from error
    # A classifier's checkpoint has no pooler: what the library makes up for it is noise.
    missing = {key for key in report["missing_keys"] if "pooler" not in key}
    if missing:
        raise ModelError(f"{source}: the weights lack {len(missing)} tensors, first {min(missing)!r}; fetch them again")
    vision = getattr(model, "vision_model", model)  # of models of images and text
    module = _Backbone(vision, pooled=not report["missing_keys"]).eval()
    preprocessing = _preprocessing(processor.to_dict(), source).at(size)
    try:
        with torch.inference_mode():
            d_z = module(torch.zeros(1, 3, preprocessing.crop, preprocessing.crop)).shape[1]
    except Exception as error:  # whatever a model may raise on a picture it was not made for
        raise ModelError(f"{source}: gives no image features at {preprocessing.crop} px ({error})") from error
    revision = getattr(model.config, "_commit_hash", None)
    return Encoder(name, module, preprocessing, d_z, f"{source}@{revision}" if revision else source)


def _preprocessing(processor: dict[str, Any], source: str) -> Preprocessing:
    """What an image processor does, in our terms."""
    size, crop = processor["size"], processor.get("crop_size") if processor.get("do_center_crop") else None
    keep_aspect = "shortest_edge" in size
    resize = size["shortest_edge"] if keep_aspect else size.get("height")
    side = crop["height"] if crop else resize
    if not resize or (size.get("width", resize), (crop or {}).get("width", side)) != (resize, side):
        raise ModelError(f"{source}: its pictures are not square (size {size}, crop {crop}); use another model")
    if keep_aspect and processor.get("crop_pct"):
        keep_aspect = resize < _SQUASHED_FROM
        resize = int(resize / processor["crop_pct"]) if keep_aspect else resize
    scale = processor["rescale_factor"] if processor.get("do_rescale", True) else 1.0
    normalized = processor.get("do_normalize", True)
    mean = processor["image_mean"] if normalized else (0.0,) * 3
    std = processor["image_std"] if normalized else (1.0,) * 3
    interpolation: Interpolation = Image.Resampling(processor.get("resample", 3)).name.lower()  # type: ignore[assignment]
    return Preprocessing(
        resize, side, tuple(m / scale for m in mean), tuple(s / scale for s in std), interpolation, keep_aspect
    )
