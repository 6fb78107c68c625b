"""`classnorm describe`: what is written, that it can be read again, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import ZeroShotDataset
from classnorm.data.descriptions import read_descriptions
from classnorm.data.table_files import read_descriptors
from classnorm.errors import DataError
from classnorm.methods import METHODS
from classnorm.preparation import describe


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def animals(tmp_path) -> Path:
    return write(tmp_path / "animals.csv", "name,text\nokapi,a shy animal\nokapi,striped legs\nowl,a bird\n")


@pytest.fixture
def attributes(tmp_path) -> Path:
    return write(tmp_path / "attributes.csv", "class,size,legs\nOwl,30,40\nOkapi,5,12\nox,2,4\n")


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".json"])
def test_every_format_is_read_again_to_the_same_bits(classnorm, bag_of_words, animals, tmp_path, suffix):
    outcome = classnorm("describe", animals, "--out", tmp_path / f"out{suffix}")
    assert outcome.code == 0, outcome.err
    assert "2 classes, 64 dimensions" in outcome.err and outcome.out == ""
    table = read_descriptors(tmp_path / f"out{suffix}")
    mean = bag_of_words.encode(["a shy animal", "striped legs"]).mean(axis=0)
    assert list(table) == ["okapi", "owl"]
    np.testing.assert_allclose(table["okapi"], mean / np.linalg.norm(mean), rtol=1e-6)
    classnorm("describe", animals, "--out", tmp_path / "other.npz", "--quiet")
    for name, row in read_descriptors(tmp_path / "other.npz").items():
        np.testing.assert_array_equal(row.astype(np.float32), table[name].astype(np.float32))


def test_templates_frame_the_text_and_are_averaged(classnorm, bag_of_words, tmp_path):
    names = write(tmp_path / "x.txt", "001.Black_footed_Albatross\n")
    frames = ["--template", "a photo of a {}", "--template", "the {}, drawn"]
    document = json.loads(classnorm("describe", names, "--out", tmp_path / "x.npz", *frames, "--json").out)
    assert bag_of_words.calls == [["a photo of a Black footed Albatross", "the Black footed Albatross, drawn"]]
    assert json.loads(document["provenance"]["templates"]) == frames[1::2]
    assert (document["classes"], document["dimensions"], document["blocks"]) == (1, 64, [64])


def test_attributes_are_put_beside_by_name_and_neither_outweighs_the_other(
    classnorm, bag_of_words, animals, attributes, tmp_path
):
    outcome = classnorm("describe", animals, "--attributes", attributes, "--out", tmp_path / "x.csv")
    table = read_descriptors(tmp_path / "x.csv")
    np.testing.assert_allclose(table["owl"][64:], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(table["okapi"][64:], [5 / 13, 12 / 13], rtol=1e-6)
    assert all(np.linalg.norm(row[:64]) == pytest.approx(1) for row in table.values())
    assert "--method kernel: --blocks 64,2" in outcome.err
    assert (tmp_path / "x.csv").read_text().splitlines()[0].endswith("words_63,size,legs")


def test_an_attribute_table_is_checked_and_passes_through(classnorm, attributes, tmp_path):
    assert classnorm("describe", attributes, "--out", tmp_path / "x.parquet").code == 0
    assert {name: row.tolist() for name, row in read_descriptors(tmp_path / "x.parquet").items()} == {
        "Owl": [30, 40], "Okapi": [5, 12], "ox": [2, 4]
    }  # fmt: skip


def test_a_gbu_folder_gives_names_and_attributes(classnorm, bag_of_words, tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "gbu", arrays)
    outcome = classnorm("describe", folder, "--attributes", folder, "--out", tmp_path / "x.npz", "--json")
    assert json.loads(outcome.out)["blocks"] == [64, 4]


def test_descriptors_without_names_or_numbers_are_no_table(tmp_path):
    np.savez(tmp_path / "x.npz", class_names=np.arange(2), descriptors=np.eye(2))
    with pytest.raises(DataError, match="class_names must hold texts and descriptors numbers"):
        read_descriptors(tmp_path / "x.npz")


BAD: dict[str, tuple[list[object], str]] = {
    "nothing there": (["{tmp}/gone.txt"], "gone.txt: no such file or folder"),
    "empty list": (["{tmp}/empty.txt"], "empty.txt: holds no class"),
    "unknown encoder": (["{tmp}/animals.csv", "--encoder", "minlm"], "did you mean 'minilm'?"),
    "no place": (["{tmp}/animals.csv", "--template", "a photo"], "template 'a photo': put {} where"),
    "framed numbers": (["{tmp}/attributes.csv", "--template", "a {}"], "holds numbers, which no template can frame"),
    "other spelling": (["{tmp}/animals.csv", "--attributes", "{tmp}/other.csv"], "no description of the class 'okapi'"),
    "no numbers": (["{tmp}/attributes.csv", "--attributes", "{tmp}/animals.csv"], "animals.csv: holds no numbers"),
    "output": (["{tmp}/animals.csv", "--out", "{tmp}/out/x.xlsx"], "x.xlsx: descriptors cannot be written there"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(refused, request, animals, attributes, tmp_path, name):
    if name != "unknown encoder":
        request.getfixturevalue("bag_of_words")
    write(tmp_path / "empty.txt", "")
    write(tmp_path / "other.csv", "name,a\nokapia,1\nowl,2\n")
    (tmp_path / "out").mkdir()
    arguments, message = BAD[name]
    filled = [str(argument).replace("{tmp}", str(tmp_path)) for argument in arguments]
    assert message in refused("describe", "--out", tmp_path / "out" / "x.npz", *filled, "--quiet")
    assert not list((tmp_path / "out").iterdir())


def test_the_closest_spelling_is_suggested(classnorm, bag_of_words, animals, tmp_path):
    other = write(tmp_path / "other.csv", "name,a\nokapia,1\nowl,2\n")
    outcome = classnorm("describe", animals, "--attributes", other, "--out", tmp_path / "x.npz")
    assert "did you mean 'okapia'?" in outcome.err


def test_text_and_attributes_get_a_kernel_each_without_being_asked(
    classnorm, bag_of_words, animals, attributes, tmp_path
):
    assert classnorm("describe", animals, "--attributes", attributes, "--out", tmp_path / "both.npz").code == 0
    both = describe(read_descriptions(tmp_path / "both.npz"))
    assert both.blocks == (both.table.shape[1] - 2, 2)
    n, features = len(both.names), np.random.default_rng(0).random((12, 4))
    data = ZeroShotDataset.from_arrays(
        features, np.arange(12) % n, both.table, both.names, train=np.arange(12), provenance=both.provenance
    )
    assert METHODS["kernel"].recipes["reference"](data).blocks == f"{both.blocks[0]},2"
