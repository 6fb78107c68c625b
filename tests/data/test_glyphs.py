"""The embedded dataset: compositional classes, disjoint fonts, and a cache that can be trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import ZeroShotDataset, glyph_images, glyphs
from classnorm.errors import ConfigError, OutputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSNORM_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def data(cache) -> ZeroShotDataset:
    return glyphs.load("light")


def never(*_: object) -> None:
    raise AssertionError("rendered, not read from the cache")


def parts(class_name: str) -> set[str]:
    """The letter (with script and case) and the marks, read off the decomposition without the module's help."""
    base, *combining = unicodedata.normalize("NFD", unicodedata.lookup(class_name))
    letter, _, outline_marks = unicodedata.name(base).partition(" WITH ")
    return {letter, *combining, *filter(None, outline_marks.split(" AND "))}


def fonts(data: ZeroShotDataset, rows: np.ndarray) -> set[str]:
    assert data.image_files is not None
    return {data.image_files[row].split("/")[0] for row in rows}


def test_there_are_300_classes_and_a_fifth_is_unseen(data):
    assert data.n_classes >= 300
    assert 0.18 < (~data.seen).mean() < 0.22
    assert not data.notices


def test_every_part_of_an_unseen_class_occurs_in_seen_classes(data):
    seen_parts = set().union(*(parts(data.class_names[c]) for c in np.flatnonzero(data.seen)))
    for c in np.flatnonzero(~data.seen):
        assert parts(data.class_names[c]) <= seen_parts


def test_descriptors_tell_all_classes_apart(data):
    assert len(np.unique(data.descriptors, axis=0)) == data.n_classes


def test_no_attribute_belongs_to_unseen_classes_only(data):
    assert data.descriptors[data.seen].any(axis=0).all()


def test_training_and_test_fonts_are_disjoint(data):
    train, test = fonts(data, data.split.train), fonts(data, data.test_rows)
    assert len(train) >= 4 and len(test) >= 2 and not train & test


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latin small letter e with acute", {"latin", "small", "latin e", "acute", "above"}),
        ("cyrillic small letter short i", {"cyrillic", "small", "cyrillic i", "breve", "above"}),
        ("latin capital letter o with stroke and acute",
         {"latin", "capital", "latin o", "stroke", "through", "acute", "above"}),
    ],
)  # fmt: skip
def test_attributes_of_a_known_character(data, name, expected):
    columns = glyphs.attribute_names(data.class_names)
    row = data.descriptors[data.class_names.index(name)]
    assert {column for column, value in zip(columns, row, strict=True) if value} == expected


def test_a_class_name_gives_its_character_back():
    assert glyphs.character("latin small letter e with acute") == "é"


def test_pictures_that_no_one_could_tell_apart_are_one_class(data):
    characters = {glyphs.character(name) for name in data.class_names}
    assert "A" in characters
    assert not {"\N{GREEK CAPITAL LETTER ALPHA}", "\N{CYRILLIC CAPITAL LETTER A}"} & characters


def test_images_are_mapped_and_belong_to_their_rows(data):
    assert isinstance(data.images, np.memmap) and data.images.dtype == np.uint8
    assert data.images.shape == (data.n_rows, glyph_images.SIDE, glyph_images.SIDE)
    rows = np.arange(0, data.n_rows, 97)
    np.testing.assert_array_equal(
        glyph_images.hog(data.images[rows], glyphs.PRESETS["light"].cell), data.features[rows]
    )
    assert data.image_files is not None
    for row in rows:
        code_point = data.image_files[row].split("/")[1].removeprefix("U+")
        assert chr(int(code_point, 16)) == glyphs.character(data.class_names[data.labels[row]])


def test_labels_belong_to_the_pictures(data):
    """Class means of the training fonts recognise far more test rows than the 0.3 % of chance."""
    train, test = data.split.train, data.split.test_seen
    one_hot = np.eye(data.n_classes, dtype=np.float32)[data.labels[train]]
    means = one_hot.T @ data.features[train]
    means /= np.linalg.norm(means, axis=1, keepdims=True) + 1e-9
    assert (np.argmax(data.features[test] @ means.T, axis=1) == data.labels[test]).mean() > 0.4


def test_the_ink_stays_inside_the_frame(data):
    images = np.asarray(data.images)
    assert (images.max(axis=(1, 2)) > 128).all()
    inked = images > 128
    assert (inked[:, [0, -1]].any(axis=(1, 2)) | inked[:, :, [0, -1]].any(axis=(1, 2))).mean() < 0.001


def test_features_are_non_negative_and_finite(data):
    assert data.features.dtype == np.float32
    assert np.isfinite(data.features).all() and (data.features >= 0).all() and data.features.any(axis=1).all()


@pytest.mark.parametrize("function", ["arctan2", "hypot", "sqrt"])
def test_features_keep_their_bits_if_a_processor_rounds_otherwise(data, monkeypatch, function):
    rounded = getattr(np, function)
    monkeypatch.setattr(np, function, lambda *arrays: np.nextafter(rounded(*arrays), np.inf))
    rows = np.arange(0, data.n_rows, 9)
    assert data.images is not None
    np.testing.assert_array_equal(
        glyph_images.hog(data.images[rows], glyphs.PRESETS["light"].cell), data.features[rows]
    )


def test_edges_vote_for_their_own_direction():
    vertical = np.zeros((1, glyph_images.SIDE, glyph_images.SIDE), dtype=np.uint8)
    vertical[0, :, : glyph_images.SIDE // 2] = 255
    inner = (slice(None), slice(1, -1), slice(1, -1))  # away from the frame, which is an edge itself
    n = glyph_images.SIDE // 6 - 1
    strength = [
        glyph_images.hog(image, 6).reshape(1, n, n, glyph_images.ORIENTATIONS)[inner].sum(axis=(0, 1, 2))
        for image in (vertical, vertical.transpose(0, 2, 1))
    ]
    half = glyph_images.ORIENTATIONS // 2
    assert np.flatnonzero(strength[0]).tolist() == [0]
    assert np.flatnonzero(strength[1]).tolist() == [half]
    assert strength[0][0] == pytest.approx(strength[1][half])


def test_a_second_load_comes_from_the_cache(data, monkeypatch):
    monkeypatch.setattr(glyphs, "_render", never)
    again = glyphs.load("light")
    assert again.checksum == data.checksum
    assert again.image_files == data.image_files and again.provenance == data.provenance


def truncate(file: Path) -> bytes:
    """Cut the file in half; give what it was."""
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    return whole


@pytest.mark.parametrize(
    "file", ["features.npy", "labels.npy", "descriptors.npy", "images.npy", "table.json", "sha256.json"]
)
def test_a_truncated_file_is_noticed(file, data, cache, tmp_path, monkeypatch):
    folder = shutil.copytree(cache / f"glyphs-v{glyphs.VERSION}-light", tmp_path / f"glyphs-v{glyphs.VERSION}-light")
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path))
    monkeypatch.setattr(glyphs, "_render", never)
    assert glyphs.load("light").checksum == data.checksum
    truncate(folder / file)
    with pytest.raises(AssertionError, match="rendered"):
        glyphs.load("light")


@pytest.mark.slow
def test_a_truncated_cache_is_rendered_again(data, cache, tmp_path, monkeypatch):
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    (features,) = tmp_path.rglob("features.npy")
    whole = truncate(features)
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path))
    assert glyphs.load("light").checksum == data.checksum
    assert features.read_bytes() == whole


def test_a_letter_is_written_from_its_attributes_unless_a_mark_is_no_character(data):
    for name in data.class_names:
        attached = {"curl", "descender", "hook", "stroke", "topbar"} & set(glyphs.attributes(name))
        expected = None if attached else glyphs.character(name)
        assert glyphs.written(glyphs.attributes(name)) == expected
    assert glyphs.written(["small", "latin e"]) is None
    assert glyphs.written(["latin", "small", "latin e", "latin o"]) is None


@pytest.mark.slow
def test_processes_that_render_at_once_give_the_same_dataset(data, tmp_path):
    code = "from classnorm.data import glyphs; print(glyphs.load('light').checksum)"
    environment = os.environ | {"CLASSNORM_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in started] == [data.checksum] * 2
    assert not list(tmp_path.rglob("*.tmp*"))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(glyphs, "_render", lambda _: ({"features": np.zeros(1)}, {}))
    with pytest.raises(OutputError, match="cannot write") as caught:
        glyphs.load("light")
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ConfigError, match="full, greek, light"):
        glyphs.load("ligth")


def test_the_held_out_greek_letters_have_no_class_in_common_with_the_others(cache, data):
    greek = glyphs.load("greek")
    others = {glyphs.character(name) for name in data.class_names} | set(glyphs._choose_letters(glyphs.PRESETS["full"]))
    characters = [unicodedata.normalize("NFC", glyphs.character(name)) for name in greek.class_names]
    assert greek.name == "glyphs-greek" and greek.n_classes == 201
    assert not others & set(characters) and len(set(characters)) == greek.n_classes
    assert greek.split.checksum.startswith("b34ee228")  # frozen: no score is known that could have chosen it


def test_every_part_of_an_unseen_greek_class_occurs_in_seen_classes(cache):
    greek = glyphs.load("greek")
    seen_parts = set().union(*(parts(greek.class_names[c]) for c in np.flatnonzero(greek.seen)))
    assert all(parts(greek.class_names[c]) <= seen_parts for c in np.flatnonzero(~greek.seen))
    assert not greek.notices
