"""Models of the transformers library, from a folder or from the hub; any image backbone as an encoder."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from classnorm.encoders.encoder import Encoder, required
from classnorm.encoders.preprocessing import Interpolation, Preprocessing
from classnorm.errors import ModelError

_SQUASHED_FROM = 384  # ConvNeXT processors crop smaller images and squash larger ones
_PROCESSOR_FILES = {"AutoImageProcessor": "preprocessor_config.json", "AutoTokenizer": "a tokenizer"}


class _Backbone(nn.Module):
    """Pooled output, or the mean over tokens or positions, [n, 3, size, size] → [n, d_z]."""

    def __init__(self, model: Any, pooled: bool) -> None:
        super().__init__()
        self.model = model
        self.pooled = pooled
        parameters = inspect.signature(model.forward).parameters
        # Position embeddings are trained for one size and interpolated for others.
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def maps(self, images: Tensor) -> Tensor:
        """[n, 3, size, size] → [n, channels, height, width], for convolutional networks."""
        maps: Tensor = self.model(pixel_values=images, **self.options)["last_hidden_state"]
        if maps.dim() != 4:
            raise ModelError("this network has tokens instead of feature maps; use a convolutional one")
        return maps

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images, **self.options)
        pooled: Tensor | None = output.get("pooler_output") if self.pooled else None
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = output["last_hidden_state"]
        return last.mean(dim=(2, 3) if last.dim() == 4 else 1)


def not_loaded(source: str, processor: str, error: Exception) -> ModelError:
    """Return the error for a model that cannot be loaded."""
    reason = " ".join(str(error).split())[:160]
    return ModelError(
        f"{source}: cannot be loaded ({reason}…); use a folder with config.json, {_PROCESSOR_FILES[processor]} and "
        "model.safetensors, or the ID of such a model on the hub"
    )


def load_pretrained(encoder: str, extra: str, source: str, processor: str, **options: Any) -> tuple[Any, Any, bool]:
    """Load a model and its processor without warnings and progress bars.

    Also returns whether the pooler is trained: checkpoints of classifiers lack it, and the library initializes it
    randomly.
    """
    transformers = required("transformers", extra, encoder)
    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Only safetensors and classes of the library: no code of others runs, and nobody is asked whether it may.
        options = {**options, "trust_remote_code": False}
        model, report = transformers.AutoModel.from_pretrained(
            source, output_loading_info=True, use_safetensors=True, dtype=torch.float32, **options
        )
        loaded = getattr(transformers, processor).from_pretrained(source, **options)
    except MemoryError:
        raise
    except Exception as error:  # the library raises many types on a damaged folder
        raise not_loaded(source, processor, error) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    missing = {key for key in report["missing_keys"] if "pooler" not in key}
    if missing:
        raise ModelError(
            f"{source}: the weights lack {len(missing)} tensors, first {min(missing)!r}; download them again"
        )
    return model, loaded, not report["missing_keys"]


def load_huggingface(name: str, size: int | None = None, weights: Path | None = None) -> Encoder:
    """Load the model `hf:ID` or `hf:FOLDER`; `weights` is a folder to use instead of the ID."""
    source = str(weights) if weights is not None else name.removeprefix("hf:")
    model, processor, pooled = load_pretrained(name, "transformers", source, "AutoImageProcessor")
    vision = getattr(model, "vision_model", model)  # the image part of models of images and text
    module = _Backbone(vision, pooled).eval()
    native = _preprocessing(processor.to_dict(), source)
    preprocessing = native.at(size)
    try:
        with torch.inference_mode():
            d_z = module(torch.zeros(1, 3, preprocessing.crop, preprocessing.crop)).shape[1]
    except Exception as error:  # models raise many types on inputs they do not support
        raise ModelError(f"{source}: gives no image features at {preprocessing.crop} px ({error})") from error
    revision = getattr(model.config, "_commit_hash", None)
    weights_of = f"{source}@{revision}" if revision else source
    return Encoder(name, module, preprocessing, d_z, weights_of, native=native.crop)


def load_pair(name: str, source: str, encoder: Encoder) -> tuple[Tensor, float]:
    """The projection [d, d_z] of an image–text model from its pooled image features to the space of its text features,
    and the scale of the cosines there.

    Args:
        name, source: the model, and where its weights are.
        encoder: its image tower, as `load_huggingface` loads it.
    """
    model, _, _ = load_pretrained(name, "transformers", source, "AutoImageProcessor")
    if not (hasattr(model, "get_image_features") and hasattr(model, "logit_scale")):
        raise ModelError(f"{name}: not a model of images and text, such as CLIP or SigLIP")
    model.eval()
    linear = getattr(model, "visual_projection", None)
    projection = torch.eye(encoder.d_z) if linear is None else linear.weight.detach()
    image = torch.linspace(-1, 1, 3 * encoder.size**2).reshape(1, 3, encoder.size, encoder.size)
    with torch.inference_mode():
        features = model.get_image_features(pixel_values=image)
        expected: Tensor = getattr(features, "pooler_output", features)
        pooled = encoder.encode(image)
    fits = (expected.shape[1], pooled.shape[1]) == tuple(projection.shape)
    rounding = 1e-3 * float(expected.abs().max())
    if not fits or not torch.allclose(pooled @ projection.T, expected, rtol=0.0, atol=rounding):
        raise ModelError(f"{name}: its image features are not a projection of its pooled output; clip cannot use it")
    return projection, float(model.logit_scale.detach().exp())


def _preprocessing(processor: dict[str, Any], source: str) -> Preprocessing:
    """Convert the settings of an image processor."""
    size, crop = processor["size"], processor.get("crop_size") if processor.get("do_center_crop") else None
    keep_aspect = "shortest_edge" in size
    resize = size["shortest_edge"] if keep_aspect else size.get("height")
    side = crop["height"] if crop else resize
    if not resize or (size.get("width", resize), (crop or {}).get("width", side)) != (resize, side):
        raise ModelError(f"{source}: its images are not square (size {size}, crop {crop}); use another model")
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
