"""`Served`: a model with what it takes to describe classes and to read pictures."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from classnorm.data import glyph_images, glyphs
from classnorm.data.decoding import open_image, read_images
from classnorm.data.names import TEXT
from classnorm.encoders import Encoder, TextEncoder, recorded_encoder
from classnorm.errors import ClassNormError, DataError
from classnorm.preparation import encode_images
from classnorm.preparation.describing import recorded_text_encoder
from classnorm.results.run_folder import Result, encoder_file, model_files, read_encoder
from classnorm.scoring import Scorer
from classnorm.serve.messages import Picture, RequestError, Sent
from classnorm.serve.settings import Limits

_WORDS = threading.Lock()  # tokenizers are for one thread at a time

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """The rows of a request for one model."""

    features: npt.NDArray[Any]  # [n, d_z], of what can be read
    errors: list[str]  # of every row: why it cannot be read, or ""

    def spread(self, answers: Sequence[Any]) -> list[Any]:
        """An answer for every row; None for those that cannot be read."""
        rest = iter(answers)
        return [None if error else next(rest) for error in self.errors]


@dataclass(frozen=True, eq=False)
class Served:
    """A model that is served."""

    name: str
    folder: Path
    scorer: Scorer
    fingerprint: str
    encoder: Encoder | None = None
    text_encoder: TextEncoder | None = None
    templates: tuple[str, ...] = ("{}",)
    preset: str | None = None
    """Preset of glyphs, if the model is one of letters."""
    notices: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, folder: Path, name: str) -> Served:
        scorer = Scorer.load(folder)
        fingerprint = hashlib.sha256(model_files(folder)[0].read_bytes()).hexdigest()[:16]
        folder = folder if folder.is_dir() else folder.parent
        notices: list[str] = []
        encoder = text_encoder = None
        templates: tuple[str, ...] = ("{}",)
        try:
            encoder = recorded_encoder(read_encoder(folder)) if encoder_file(folder).is_file() else None
        except ClassNormError as error:
            notices.append(f"{name} takes no images: {error}")
        try:
            if "text_encoder" in scorer.origin.described_by:
                text_encoder, templates = recorded_text_encoder(scorer.origin.described_by)
        except ClassNormError as error:
            notices.append(f"{name} takes no descriptions in words: {error}")
        preset = None if encoder else _glyph_preset(scorer)
        return cls(name, folder, scorer, fingerprint, encoder, text_encoder, templates, preset, tuple(notices))

    @property
    def takes_images(self) -> bool:
        return self.encoder is not None or self.preset is not None

    @cached_property
    def encoder_key(self) -> str:
        """The same for models that turn pictures into the same features."""
        return self.preset or ("" if self.encoder is None else json.dumps(self.encoder.record(), sort_keys=True))

    @property
    def takes_examples(self) -> bool:
        return self.scorer.model.example_space() is not None

    @cached_property
    def attribute_names(self) -> tuple[str, ...] | None:
        if self.scorer.attribute_names is None and self.preset is not None:
            return glyphs.attribute_names(glyphs.load(self.preset).class_names)
        names = self.scorer.attribute_names
        return None if names is None or set(names) == {TEXT} else names

    @cached_property
    def thumbnails(self) -> dict[int, npt.NDArray[np.uint8]]:
        return {} if self.preset else _example_images(self.folder)

    @cached_property
    def _length(self) -> float | None:
        """The length of all descriptors, if it is the same."""
        lengths = np.linalg.norm(self.scorer.descriptors.astype(np.float64), axis=1)
        return float(lengths.mean()) if np.ptp(lengths) < 1e-3 * lengths.mean() else None

    def rows(self, sent: Sent, limits: Limits) -> Rows:
        """Features of what was sent. Pictures are decoded here, and forgotten."""
        if sent.features is not None:
            if sent.features.shape[1] != self.scorer.d_z:
                raise RequestError(
                    400, f"features have {sent.features.shape[1]} dimensions; {self.name} takes {self.scorer.d_z}"
                )
            return Rows(sent.features, [""] * len(sent.features))
        if not self.takes_images:
            raise RequestError(400, f"{self.name} takes features, not images: no encoder is recorded with it")
        refused = [_oversized(picture, limits.megapixels) for picture in sent.pictures]
        pictures = [picture for picture, reason in zip(sent.pictures, refused, strict=True) if not reason]
        features, reasons = self._encode(pictures)
        rest = iter(reasons)
        errors = [reason or next(rest) for reason in refused]
        if all(errors):
            name = sent.pictures[0].name
            raise RequestError(400, f"{name!r}: {errors[0]}" if name else errors[0])
        return Rows(features, errors)

    def _encode(self, pictures: Sequence[Picture]) -> tuple[npt.NDArray[np.float32], list[str]]:
        """Features of the readable pictures, and for each picture why it cannot be read, or ""."""
        streams = [io.BytesIO(picture.content) for picture in pictures]
        if self.preset is None:
            assert self.encoder is not None
            return encode_images(streams, self.encoder)
        # Letters, dark on light or light on dark, or drawn on a transparent canvas.
        decoded = list(read_images(streams, range(len(streams)), glyph_images.drawn))
        letters = [image for image in decoded if not isinstance(image, str)]
        reasons = [image if isinstance(image, str) else "" for image in decoded]
        stack = np.stack(letters) if letters else np.zeros((0, 1, 1), dtype=np.uint8)
        return glyph_images.hog(stack, glyphs.PRESETS[self.preset].cell), reasons

    def descriptor(self, document: dict[str, Any]) -> Vector:
        """The descriptor that a document gives: numbers, text, attributes, or a known class with changes."""
        given = [key for key in ("descriptor", "text", "attributes", "like") if document.get(key) is not None]
        if len(given) != 1:
            raise RequestError(400, "describe the class by one of: descriptor, text, attributes, like (with changes)")
        return {
            "descriptor": self._by_numbers,
            "text": self._by_text,
            "attributes": self._by_attributes,
            "like": self._by_likeness,
        }[given[0]](document)

    def _by_numbers(self, document: dict[str, Any]) -> Vector:
        try:
            vector = np.array(document["descriptor"])
        except (ValueError, OverflowError):
            vector = np.array("")
        if vector.dtype.kind not in "fiu" or vector.shape != (self.scorer.d_a,):
            raise RequestError(400, f"descriptor must be a list of {self.scorer.d_a} numbers")
        with np.errstate(over="ignore"):
            return vector.astype(np.float32)

    def _by_text(self, document: dict[str, Any]) -> Vector:
        if self.text_encoder is None:
            raise RequestError(400, f"{self.name} takes no text: its descriptors are not made from words")
        text = document["text"]
        if not isinstance(text, str) or not text.strip():
            raise RequestError(400, "text must say what the class looks like")
        with _WORDS:
            vectors = self.text_encoder.encode([template.replace("{}", text) for template in self.templates])
        mean = vectors.mean(axis=0, dtype=np.float64)
        return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)

    def _by_attributes(self, document: dict[str, Any]) -> Vector:
        return self._changed(np.zeros(self.scorer.d_a, dtype=np.float32), document["attributes"])

    def _by_likeness(self, document: dict[str, Any]) -> Vector:
        like = document["like"]
        if like not in self.scorer.class_names:
            raise RequestError(400, f"like must be the name of a class of {self.name}")
        known = self.scorer.descriptors[self.scorer.class_names.index(like)]
        return self._changed(known, document.get("changes") or {})

    def _changed(self, vector: Vector, changes: Any) -> Vector:
        """The vector with some attributes set, as long as those of the model if they are all equally long."""
        if isinstance(changes, list) and all(isinstance(name, str) for name in changes):
            changes = dict.fromkeys(changes, 1)
        if not isinstance(changes, dict):
            raise RequestError(400, "attributes and changes must be an object {attribute: value}")
        names = self.attribute_names
        if names is None and changes:
            raise RequestError(400, f"{self.name} has no names of attributes; give a descriptor")
        vector = np.array(vector, dtype=np.float64)
        for name, value in changes.items():
            if names is None or names.count(name) != 1:  # the dimensions of a text share a name
                raise RequestError(400, f"no attribute {str(name)[:100]!r}; GET /model lists them")
            if isinstance(value, bool):
                value = int(value)
            if not isinstance(value, int | float) or not abs(value) < 1e30:
                raise RequestError(400, f"the value of attribute {name!r} must be a number")
            vector[names.index(name)] = value
        norm = np.linalg.norm(vector)
        if self._length is not None and norm > 0:
            vector *= self._length / norm
        return vector.astype(np.float32)

    def letter(self, name: str, descriptor: npt.NDArray[np.float32]) -> dict[str, str | None]:
        """The character of a class, if the model is one of letters."""
        if self.preset is None or self.attribute_names is None:
            return {}
        chosen = np.flatnonzero(descriptor > descriptor.max() / 2)
        composed = glyphs.written([self.attribute_names[i] for i in chosen])
        return {"character": self._characters.get(name, composed)}

    @cached_property
    def _characters(self) -> dict[str, str]:
        """Class of the dataset → character. Of several marks, a descriptor does not say which comes first."""
        names = glyphs.load(self.preset).class_names if self.preset else ()
        return {name: glyphs.character(name) for name in names}

    def thumbnail(self, name: str) -> npt.NDArray[np.uint8] | None:
        """A picture of a class, if there is one."""
        if name not in self.scorer.class_names:
            return None
        if self.preset is not None:
            return glyph_images.rendered(glyphs.character(name))
        return self.thumbnails.get(self.scorer.class_names.index(name))

    def about(self) -> dict[str, Any]:
        """What `GET /model` says of the model."""
        scorer, names = self.scorer, self.attribute_names
        table = scorer.descriptors
        return {
            "name": self.name,
            "method": scorer.method,
            "classes": len(scorer.class_names),
            "seen": int(scorer.seen.sum()),
            "unseen": int((~scorer.seen).sum()),
            "d_z": scorer.d_z,
            "d_a": scorer.d_a,
            "attribute_names": None if names is None else list(names),
            "attribute_ranges": None
            if names is None
            else [[float(low), float(high)] for low, high in zip(table.min(axis=0), table.max(axis=0), strict=True)],
            "takes_images": self.takes_images,
            "speaks_text": self.text_encoder is not None,
            "explains": len(scorer.class_names) > 1,
            "takes_examples": self.takes_examples,
            "thumbnails": bool(self.preset or self.thumbnails),
            "glyphs": None if self.preset is None else _glyph_parts(self.preset),
        }


def load_models(folders: Sequence[Path]) -> dict[str, Served]:
    """Name → model. The names are those of the folders, made distinct."""
    served: dict[str, Served] = {}
    for folder in folders:
        path = folder.resolve()
        path = path.parent if path.is_file() else path
        base = f"{path.parent.name}/{path.name}" if re.fullmatch(r"seed-\d+", path.name) else path.name
        name = next(n for n in (base, *(f"{base} ({i})" for i in range(2, 1000))) if n not in served)
        served[name] = Served.load(folder, name)
    return served


def _glyph_preset(scorer: Scorer) -> str | None:
    """The preset of glyphs whose features and attributes the model has, if any."""
    names = [name for name, seen in zip(scorer.class_names, scorer.seen, strict=True) if seen]
    try:
        for name in names:
            glyphs.attributes(name)
    except (KeyError, DataError):
        return None
    for preset, about in glyphs.PRESETS.items():
        if (glyph_images.SIDE // about.cell - 1) ** 2 * glyph_images.ORIENTATIONS == scorer.d_z:
            data = glyphs.load(preset)
            known = dict(zip(data.class_names, data.descriptors, strict=True))
            table = dict(zip(scorer.class_names, scorer.descriptors, strict=True))
            if all(name in known and np.array_equal(known[name], table[name]) for name in names):
                return preset
    return None


def _glyph_parts(preset: str) -> dict[str, Any]:
    """The parts that letters are composed of, and the lines of the canvas."""
    return {"preset": preset, **glyphs.parts(glyphs.load(preset).class_names), "lines": glyph_images.LINES}


def _oversized(picture: Picture, megapixels: int) -> str:
    """Why a picture must not be decoded, or ""."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit below is stricter than the one that Pillow warns of
            with open_image(io.BytesIO(picture.content)) as image:
                width, height = image.size
    except Exception:  # Pillow raises many types on a damaged file
        return "not an image; send JPEG, PNG, WebP, GIF, BMP or TIFF"
    if width * height > megapixels * 1_000_000:
        return f"{width} × {height} px is more than {megapixels} megapixels"
    return ""


def _example_images(folder: Path) -> dict[int, npt.NDArray[np.uint8]]:
    """Index of a class → a picture of it, for runs that keep some."""
    run = Result(folder, {})
    try:
        if run.examples is None:
            return {}
        labels = run.predictions["label"][run.examples["position"]]
    except DataError:
        return {}
    return {int(label): image for label, image in zip(labels, run.examples["image"], strict=True)}
