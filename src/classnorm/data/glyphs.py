"""`glyphs`: letters with diacritics, rendered from matplotlib's fonts and described by their Unicode names.

It needs no download and is compositional: the letter, the case and each mark of an unseen class occur in seen
classes. Training images use sans-serif fonts, test images serif fonts.

`glyphs-greek`, polytonic Greek, has no class in common with the other two. It is the held-out dataset: its classes,
fonts, split and features were fixed before any method was run on it, and no setting is ever chosen by its scores.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
from PIL import features as pillow_features

from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.data.glyph_images import VARIANTS, font_file, hog, variants
from classnorm.data.row_store import IntArray
from classnorm.errors import DataError, unknown_name
from classnorm.io.arrays import read_npy, write_npy
from classnorm.io.documents import read_json
from classnorm.io.files import cache_folder, replacing, write_json

VERSION = "2"  # increment whenever the rows of a preset change


UNSEEN_SHARE = 0.2
SEED = 1

LATIN = ((0x0041, 0x0250),)
GREEK_AND_CYRILLIC = ((0x0370, 0x0530),)
LATIN_ADDITIONAL = ((0x1E00, 0x1F00),)
GREEK_EXTENDED = ((0x1F00, 0x2000),)


@dataclass(frozen=True)
class Preset:
    """Characters, fonts and feature resolution."""

    name: str
    code_points: tuple[tuple[int, int], ...]  # half-open ranges
    train_fonts: tuple[str, ...]
    test_fonts: tuple[str, ...]
    cell: int  # pixels; the feature dimension is (SIDE / cell − 1)² · ORIENTATIONS


# DejaVu only: matplotlib's other fonts lack most of these characters.
_LIGHT = Preset(
    "glyphs-light",
    LATIN + GREEK_AND_CYRILLIC,
    train_fonts=("DejaVuSans", "DejaVuSans-BoldOblique", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
    test_fonts=("DejaVuSerif", "DejaVuSerif-BoldItalic"),
    cell=6,
)
PRESETS = {
    "full": Preset(
        "glyphs",
        LATIN + GREEK_AND_CYRILLIC + LATIN_ADDITIONAL,
        train_fonts=(
            "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
            "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
        ),
        test_fonts=("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
        cell=4,
    ),
    "light": _LIGHT,
    "greek": replace(_LIGHT, name="glyphs-greek", code_points=GREEK_EXTENDED),
}  # fmt: skip
NAMES = {preset.name: key for key, preset in PRESETS.items()}
"""Name of the dataset → preset."""


def load(preset: str = "full") -> ZeroShotDataset:
    """Load the dataset. It is rendered on first use and then read from the cache (`CLASSNORM_CACHE`).

    Args:
        preset: "full"; "light" with fewer classes, fonts and dimensions, which trains in seconds; or "greek", the
            held-out one.
    """
    if preset not in PRESETS:
        raise unknown_name("preset of glyphs", preset, PRESETS)
    folder = cache_folder() / f"glyphs-v{VERSION}-{preset}"
    if not _intact(folder):
        _write(folder, PRESETS[preset])
    return _read(folder, PRESETS[preset].name)


# ---- Classes and attributes, from character names ----------------------------------------------------------

_LETTER = re.compile(r"(LATIN|GREEK|CYRILLIC) (CAPITAL|SMALL) LETTER (.+?)(?: WITH (.+))?")
_SCRIPTS, _CASES = ("latin", "greek", "cyrillic"), ("small", "capital")
_POSITIONS = {230: "above", 220: "below"}  # by canonical combining class; other marks touch the letter
_POSITION_NAMES = (*_POSITIONS.values(), "attached", "through")


@dataclass(frozen=True)
class _Letter:
    """é has the script "latin", the case "small", the base "latin e" and the marks {"acute": "above"}."""

    script: str
    case: str
    base: str
    marks: dict[str, str]  # mark → position

    @property
    def shared_parts(self) -> tuple[str, ...]:
        """The parts that at least three classes must share."""
        return (self.base, *self.marks)

    @property
    def visible_parts(self) -> tuple[str, ...]:
        """The parts that an unseen class must share with seen classes; E and e have different shapes."""
        return (f"{self.case} {self.base}", *self.marks)


def character(class_name: str) -> str:
    """Return the character of a class.

    >>> character("latin small letter e with acute")
    'é'
    """
    return unicodedata.lookup(class_name.upper())


def attributes(class_name: str) -> tuple[str, ...]:
    """Return the attributes of a class.

    >>> attributes("latin small letter e with circumflex and dot below")
    ('latin', 'small', 'latin e', 'dot below', 'below', 'circumflex', 'above')
    """
    letter = _parse(character(class_name))
    if letter is None:
        raise DataError(f"glyphs: {class_name!r} is not a Latin, Greek or Cyrillic letter")
    marks = (part for mark in letter.marks.items() for part in mark)
    return tuple(dict.fromkeys((letter.script, letter.case, letter.base, *marks)))


def attribute_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the attributes of all these classes: the columns of the descriptors."""
    return tuple(sorted({name for class_name in class_names for name in attributes(class_name)}))


def parts(class_names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of these classes by kind: scripts, cases, bases, and marks with their positions.

    Bases and marks come with their characters; some marks, like strokes, have none of their own.
    """
    letters = [letter for name in class_names if (letter := _parse(character(name)))]
    marks = {mark: position for letter in letters for mark, position in letter.marks.items()}
    return {
        "scripts": sorted({letter.script for letter in letters}),
        "cases": sorted({letter.case for letter in letters}),
        "bases": [
            {"name": base, "script": script, **{case: written([script, case, base]) for case in _CASES}}
            for base, script in sorted({(x.base, x.script) for x in letters})
        ],
        "marks": [{"name": m, "position": marks[m], "character": _combining(m)} for m in sorted(marks)],
    }


def written(attributes: Sequence[str]) -> str | None:
    """Return the letter with these attributes, also one that Unicode does not have; None if they make no letter.

    >>> written(attributes("latin small letter e with acute")), written(["latin", "small", "latin k", "tilde", "above"])
    ('é', 'k̃')
    """
    scripts, cases = ([name for name in attributes if name in kind] for kind in (_SCRIPTS, _CASES))
    if not len(scripts) == len(cases) == 1:
        return None
    letters = {name: _lookup(name.replace(scripts[0], f"{scripts[0]} {cases[0]} letter", 1)) for name in attributes}
    bases = [name for name in attributes if name.startswith(f"{scripts[0]} ") and letters[name]]
    marks = [name for name in attributes if name not in (*scripts, *cases, *bases, *_POSITION_NAMES)]
    pieces = [*(letters[name] for name in bases), *map(_combining, marks)]
    if len(bases) != 1 or None in pieces:
        return None
    return unicodedata.normalize("NFC", "".join(piece for piece in pieces if piece))


def _combining(mark: str) -> str | None:
    return _lookup(f"combining {mark}") or _lookup(f"combining {mark} accent")


def _lookup(name: str) -> str | None:
    try:
        return unicodedata.lookup(name.upper())
    except KeyError:
        return None


def _parse(char: str) -> _Letter | None:
    """Return the parts of a letter, or None if its name has another form."""
    base, *combining = list(unicodedata.normalize("NFD", char))
    match = _LETTER.fullmatch(unicodedata.name(base, ""))
    if match is None:
        return None
    script, case, letter, attached = (group.lower() for group in match.groups(default=""))
    # Strokes and hooks are not combining characters: only the name mentions them.
    marks = {mark: "through" if mark == "stroke" else "attached" for mark in attached.split(" and ") if mark}
    for mark in combining:
        name = unicodedata.name(mark).removeprefix("COMBINING ").removesuffix(" ACCENT").lower()
        marks[name] = _POSITIONS.get(unicodedata.combining(mark), "attached")
    return _Letter(script, case, f"{script} {letter}", marks)


def _choose_letters(preset: Preset) -> dict[str, _Letter]:
    """Return character → parts for all characters that every font draws distinctly and whose parts are common."""
    codes = [code for start, stop in preset.code_points for code in range(start, stop)]
    # Greek Extended repeats letters of the Greek block; Unicode's normal form has the latter.
    chars = [char for char in map(chr, codes) if unicodedata.is_normalized("NFC", char)]
    letters = {char: letter for char in chars if (letter := _parse(char))}
    letters = {char: letters[char] for char in _distinct(list(letters), preset.train_fonts + preset.test_fonts)}
    while True:
        count = Counter(part for letter in letters.values() for part in letter.shared_parts)
        rare = [char for char, letter in letters.items() if min(count[part] for part in letter.shared_parts) < 3]
        if not rare:
            return letters
        for char in rare:
            del letters[char]


def _distinct(chars: list[str], fonts: Sequence[str]) -> list[str]:
    """Drop characters that a font lacks or draws like an earlier one: no method can distinguish А from A."""
    from matplotlib.ft2font import FT2Font

    for name in fonts:
        font = FT2Font(str(font_file(name)))
        font.set_size(1000, 72)
        available = font.get_charmap()
        outlines: dict[bytes, str] = {}
        for char in chars:
            if ord(char) in available:
                font.load_char(ord(char))
                vertices, _ = font.get_path()
                vertices[:, 0] -= vertices[:, 0].min()  # images are centred, side bearings do not matter
                outlines.setdefault(np.round(vertices).tobytes(), char)
        chars = list(outlines.values())
    return chars


def _choose_unseen(letters: Sequence[_Letter]) -> IntArray:
    """Choose classes whose parts all occur in the remaining, seen classes."""
    count = Counter(part for letter in letters for part in letter.visible_parts)
    unseen: list[int] = []
    for number in np.random.default_rng(SEED).permutation(len(letters)):
        parts = letters[number].visible_parts
        if len(unseen) < UNSEEN_SHARE * len(letters) and all(count[part] > 1 for part in parts):
            count.subtract(parts)
            unseen.append(int(number))
    return np.sort(np.array(unseen))


# ---- Cache -------------------------------------------------------------------------------------------------

_ARRAYS = ("features", "labels", "descriptors", "images")


def _render(preset: Preset) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Render the arrays of the dataset, and a table of its names and split."""
    letters = _choose_letters(preset)
    chars = list(letters)
    all_classes = np.arange(len(chars))
    unseen = _choose_unseen(list(letters.values()))
    image_parts, label_parts, files = [], [], []
    parts = ((np.setdiff1d(all_classes, unseen), preset.train_fonts), (all_classes, preset.test_fonts))
    for seed, (classes, fonts) in enumerate(parts):
        part = [chars[c] for c in classes]
        image_parts.append(variants(part, fonts, seed))
        label_parts.append(np.tile(np.repeat(classes, VARIANTS), len(fonts)))
        files += [f"{f}/U+{ord(c):04X}/{v}" for f in fonts for c in part for v in range(VARIANTS)]
    images, labels = np.concatenate(image_parts), np.concatenate(label_parts)
    chunks = range(0, len(images), 256)  # small enough for the intermediate arrays to fit in the CPU cache
    class_names = [unicodedata.name(char).lower() for char in chars]
    columns = attribute_names(class_names)
    arrays = {
        "features": np.concatenate([hog(images[start : start + 256], preset.cell) for start in chunks]),
        "labels": labels,
        "descriptors": np.array([np.isin(columns, attributes(name)) for name in class_names], dtype=np.float32),
        "images": images,
    }
    split = Split.from_masks(np.isin(labels, unseen), np.arange(len(labels)) >= len(label_parts[0]))
    provenance = {
        "features": f"hog, {preset.cell} px cells",
        "attributes": "unicode names",
        "split": f"glyphs v{VERSION}",
        # Pixels, and therefore the checksum, differ slightly between versions.
        "rendering": f"pillow {PIL.__version__}, freetype {pillow_features.version('freetype2')}",
        "fonts": f"matplotlib {version('matplotlib')}",
    }
    table = {"class_names": class_names, "image_files": files, "provenance": provenance}
    return arrays, table | {part: rows.tolist() for part, rows in split.parts.items()}


def _write(folder: Path, preset: Preset) -> None:
    """Render into `folder`. Concurrent processes are safe: they write the same bytes, each file atomically."""
    arrays, table = _render(preset)
    for name in _ARRAYS:
        with replacing(folder / f"{name}.npy") as file:
            write_npy(file, arrays[name])
    write_json(folder / "table.json", table)
    write_json(folder / "sha256.json", _checksums(folder))  # last: marks the cache as complete


def _checksums(folder: Path) -> dict[str, str]:
    files = [folder / f"{name}.npy" for name in _ARRAYS] + [folder / "table.json"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _intact(folder: Path) -> bool:
    try:
        recorded: dict[str, str] = read_json(folder / "sha256.json", dict[str, str], "")
        return recorded == _checksums(folder)
    except (OSError, DataError):
        return False


def _read(folder: Path, name: str) -> ZeroShotDataset:
    table = read_json(folder / "table.json", dict[str, Any], "delete that folder")
    features, labels, descriptors = (np.array(read_npy(folder / f"{a}.npy")) for a in _ARRAYS[:3])
    images = read_npy(folder / "images.npy")
    columns = attribute_names(table["class_names"])
    return ZeroShotDataset.from_arrays(
        features, labels, descriptors, name=name, images=images, attribute_names=columns, **table
    )
