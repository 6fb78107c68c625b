"""`classnorm add-class`, and new classes of `predict`: from numbers and from text, in whatever spelling."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from classnorm.errors import DataError
from classnorm.scoring import Scorer


@pytest.fixture
def table(world, tmp_path) -> Path:
    """Descriptors of the classes that the training did not know."""
    path = tmp_path / "new.csv"
    path.write_text("\n".join(f"{name},{','.join(map(str, row))}" for name, row in world.descriptors.items()))
    return path


@pytest.fixture
def spoken(train_on_shapes, shapes, said, tmp_path) -> Path:
    """A model of shapes described in words; it has not heard of yellow bars."""
    shutil.rmtree(shapes / "yellow_bar")
    known = tmp_path / "known.csv"
    known.write_text("\n".join(line for line in said.read_text().splitlines() if not line.startswith("Yellow bar")))
    return train_on_shapes(known, "--template", "a {}")


def test_a_new_model_knows_the_new_classes_and_answers_as_predict_with_descriptors_does(
    classnorm, trained, world, table, tmp_path
):
    outcome = classnorm("add-class", trained, "--descriptors", table, "--out", tmp_path / "more", "--json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document == {"model": str(tmp_path / "more"), "new": list(world.descriptors), "classes": 40}
    np.save(tmp_path / "rows.npy", world.features)
    there = classnorm("predict", tmp_path / "more", tmp_path / "rows.npy", "--quiet").out
    assert there == classnorm("predict", trained, tmp_path / "rows.npy", "--descriptors", table, "--quiet").out
    again = classnorm("add-class", trained, "--descriptors", table, "--out", tmp_path / "more")
    assert again.code == 2 and "exists; choose another folder" in again.err


def test_the_new_model_keeps_the_encoder_and_reads_text(classnorm, spoken, shapes, tmp_path):
    text = tmp_path / "new.csv"
    text.write_text("name,description\nYellow bar,yellow bar\n")
    outcome = classnorm("add-class", spoken, "--descriptors", text, "--out", tmp_path / "more")
    assert outcome.code == 0 and "1 new class from" in outcome.err, outcome.err
    assert (tmp_path / "more" / "encoder.json").read_text() == (spoken / "encoder.json").read_text()
    old, new = Scorer.load(spoken), Scorer.load(tmp_path / "more")
    assert new.class_names == (*old.class_names, "Yellow bar") and new.origin == old.origin
    answers = classnorm("predict", tmp_path / "more", shapes / "red_bar", "--top", 12, "--quiet").out
    assert {row["class"] for row in csv.DictReader(io.StringIO(answers))} == set(new.class_names)
    assert answers == classnorm(
        "predict", spoken, shapes / "red_bar", "--top", 12, "--descriptors", text, "--quiet"
    ).out  # fmt: skip


def test_text_is_encoded_with_the_templates_of_the_training(classnorm, spoken, bag_of_words, tmp_path):
    (tmp_path / "new.txt").write_text("Yellow_bar\n")
    classnorm("add-class", spoken, "--descriptors", tmp_path / "new.txt", "--out", tmp_path / "more")
    assert bag_of_words.calls[-1] == ["a Yellow bar"]


@pytest.mark.parametrize(("flags", "message"), [
    (["--template", "one {}"], "made with the templates 'one {}', those of the model with 'a {}'"),
    ([], "made with the templates '{}', those of the model with 'a {}'"),
])  # fmt: skip
def test_descriptors_made_otherwise_than_those_of_the_model_are_refused(classnorm, spoken, tmp_path, flags, message):
    (tmp_path / "new.txt").write_text("Yellow bar\n")
    classnorm("describe", tmp_path / "new.txt", *flags, "--out", tmp_path / "new.npz")
    outcome = classnorm("add-class", spoken, "--descriptors", tmp_path / "new.npz", "--out", tmp_path / "more")
    assert outcome.code == 2 and message in outcome.err and not (tmp_path / "more").exists()
    classnorm("describe", tmp_path / "new.txt", "--template", "a {}", "--out", tmp_path / "new.npz")
    assert classnorm("add-class", spoken, "--descriptors", tmp_path / "new.npz", "--out", tmp_path / "more").code == 0


def test_another_text_encoder_is_refused(classnorm, spoken, bag_of_words, monkeypatch, tmp_path):
    (tmp_path / "new.txt").write_text("Yellow bar\n")
    other = {"name": "letters", "weights": "none", "sha256": "other"}
    with monkeypatch.context() as patch:
        patch.setattr(bag_of_words, "record", lambda: other)
        classnorm("describe", tmp_path / "new.txt", "--template", "a {}", "--out", tmp_path / "new.npz")
        refused = classnorm("add-class", spoken, "--descriptors", tmp_path / "new.txt", "--out", tmp_path / "more")
        assert refused.code == 2 and "is not the one that the model's descriptors were made with" in refused.err
    outcome = classnorm("add-class", spoken, "--descriptors", tmp_path / "new.npz", "--out", tmp_path / "more")
    assert outcome.code == 2 and "the text encoder 'letters', those of the model with 'words'" in outcome.err


def test_a_known_class_in_another_spelling_stays_one_class(trained, world):
    scorer = Scorer.load(trained, "cpu")
    name, row = scorer.class_names[3], scorer.descriptors[3]
    same = scorer.add_classes({name.upper().replace("_", " "): row, "Okapi": row + 1})
    assert same.class_names == (*scorer.class_names, "Okapi")
    with pytest.raises(Exception, match=rf"is known to the model \(as '{name}'\) with another descriptor"):
        scorer.add_classes({name.upper(): row + 1})
    letters = scorer.add_classes({"a": row + 1, "A": row + 2}).add_classes({"B": row + 3}).add_classes({"b": row + 4})
    assert letters.class_names[-4:] == ("a", "A", "B", "b")


def test_saving_a_loaded_model_keeps_the_encoder(spoken, tmp_path):
    scorer = Scorer.load(spoken)
    row = scorer.descriptors[0] + scorer.descriptors[1]
    scorer.add_classes({"Yellow bar": row}).save(tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "encoder.json").read_text())["name"] == "convnet"


@pytest.fixture
def named(trained, tmp_path) -> Path:
    """The model, with names of its attributes."""
    scorer = Scorer.load(trained, "cpu")
    words = tuple(f"{colour} {part}" for colour in ("red", "blue", "grey") for part in "abcdefghij")
    return replace(scorer, origin=replace(scorer.origin, attribute_names=words)).save(tmp_path / "named")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_columns_in_another_order_go_to_the_attributes_of_their_names(classnorm, named, world, tmp_path, suffix):
    path, names = tmp_path / f"new{suffix}", Scorer.load(named).attribute_names
    frame = pd.DataFrame.from_dict(world.descriptors, orient="index", columns=names)[sorted(names or ())]
    if suffix == ".npz":
        np.savez(path, class_names=list(frame.index), descriptors=frame.to_numpy(), columns=list(frame.columns))
    else:
        table = frame.rename_axis("name").reset_index()
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    outcome = classnorm("add-class", named, "--descriptors", path, "--out", tmp_path / "more")
    assert outcome.code == 0, outcome.err
    expected = np.stack(list(world.descriptors.values()))
    np.testing.assert_allclose(Scorer.load(tmp_path / "more").descriptors[-5:], expected, rtol=1e-6)
    np.testing.assert_allclose(Scorer.load(named).add_classes(frame).descriptors[-5:], expected, rtol=1e-6)


def test_a_misspelt_column_is_an_error_that_names_the_attribute(classnorm, named, world, tmp_path):
    frame = pd.DataFrame.from_dict(world.descriptors, orient="index", columns=Scorer.load(named).attribute_names)
    frame = frame.rename(columns={"blue c": "bleu c"})
    frame.rename_axis("name").reset_index().to_csv(tmp_path / "new.csv", index=False)
    np.save(tmp_path / "rows.npy", world.features)
    flags = ["--descriptors", tmp_path / "new.csv"]
    for command in (["add-class", named, "--out", tmp_path / "more"], ["predict", named, tmp_path / "rows.npy"]):
        outcome = classnorm(*command, *flags)
        assert outcome.code == 2 and "new.csv: the column 'bleu c' is no attribute of the model" in outcome.err
        assert "did you mean 'blue c'?" in outcome.err and outcome.err.count("\n") == 1
    assert not (tmp_path / "more").exists()
    with pytest.raises(DataError, match="'bleu c' is no attribute"):
        Scorer.load(named).add_classes(frame)


def test_tables_without_names_of_attributes_are_read_in_order(classnorm, named, trained, world, table, tmp_path):
    numbered, other = tmp_path / "numbered.csv", tmp_path / "other.csv"
    frame = pd.DataFrame.from_dict(world.descriptors, orient="index")
    frame.to_csv(numbered)
    frame.set_axis(list("zyxwvutsrqponmlkjihgfedcbaBCDE"), axis=1).to_csv(other)
    for number, (model, path) in enumerate([(named, table), (named, numbered), (trained, other)]):
        outcome = classnorm("add-class", model, "--descriptors", path, "--out", tmp_path / f"more-{number}")
        assert outcome.code == 0, outcome.err
        expected = np.stack(list(world.descriptors.values()))
        np.testing.assert_allclose(Scorer.load(tmp_path / f"more-{number}").descriptors[-5:], expected, rtol=1e-6)
