"""`classnorm adapt` and `predict --examples`: pictures or features, labelled or not."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classnorm import Scorer
from classnorm.scoring.validation import DescriptionWeight


@pytest.fixture
def few(world, tmp_path) -> Path:
    """Two rows of an unseen class, and one row of a class that the model does not know."""
    data, path = world.data, tmp_path / "few.npz"
    rows = data.split.test_unseen[data.labels[data.split.test_unseen] == data.labels[data.split.test_unseen][0]][:2]
    features = np.concatenate([data.features[rows], world.features[:1]])
    np.savez(path, features=features, labels=np.array([data.class_names[c] for c in data.labels[rows]] + ["okapi"]))
    return path


def test_a_model_learns_from_labelled_features(classnorm, trained, world, few, tmp_path):
    out = tmp_path / "new"
    outcome = classnorm("adapt", trained, "--examples", few, "--out", out, "--json")
    assert outcome.code == 0, outcome.err
    assert "3 examples of 2 classes; new, without a description: okapi" in outcome.err
    content = np.load(few)
    expected = Scorer.load(trained).add_examples(content["features"], content["labels"].tolist())
    document, rows = json.loads(outcome.out), world.data.features[:50]
    assert (document["model"], document["transductive"]) == (str(out), False)
    assert [(entry["name"], entry["examples"]) for entry in document["classes"]] == [
        (content["labels"][0], 2),
        ("okapi", 1),
    ]
    assert document["classes"][0]["weight"] == pytest.approx(4.0 / 6.0, abs=1e-3)  # the default is 4 pictures
    assert np.array_equal(Scorer.load(out).scores(rows), expected.scores(rows))
    np.save(tmp_path / "rows.npy", rows)
    there = classnorm("predict", out, tmp_path / "rows.npy", "--quiet").out
    assert there == classnorm("predict", trained, tmp_path / "rows.npy", "--examples", few, "--quiet").out
    again = classnorm("adapt", trained, "--examples", few, "--out", out)
    assert again.code == 2 and "exists; choose another folder" in again.err


def test_a_model_learns_from_unlabelled_features_and_says_that_it_is_transductive(classnorm, trained, world, tmp_path):
    rows = world.data.features[world.data.test_rows]
    np.save(tmp_path / "rows.npy", rows)
    outcome = classnorm("adapt", trained, "--unlabelled", tmp_path / "rows.npy", "--out", tmp_path / "new")
    assert outcome.code == 0 and f"wrote {tmp_path / 'new'}, a transductive model" in outcome.err
    assert np.array_equal(
        Scorer.load(tmp_path / "new").scores(rows[:20]), Scorer.load(trained).adapt(rows).scores(rows[:20])
    )
    scored = classnorm("evaluate", tmp_path / "new", world.bundle, "--json")
    assert json.loads(scored.out)["transductive"] is True
    assert "transductive" in classnorm("evaluate", tmp_path / "new", world.bundle).out
    assert json.loads(classnorm("evaluate", trained, world.bundle, "--json").out)["transductive"] is False


def test_where_validation_saw_no_gain_a_notice_says_so(classnorm, trained, world, tmp_path):
    scorer, weight = Scorer.load(trained), DescriptionWeight(4.0, 0.0, 50.0, unlabelled_gain=-0.02)
    replace(scorer, validation=replace(scorer.validation, description_weight=weight)).save(tmp_path / "doubtful")
    np.save(tmp_path / "rows.npy", world.features)
    flags = ["adapt", tmp_path / "doubtful", "--unlabelled", tmp_path / "rows.npy"]
    outcome = classnorm(*flags, "--out", tmp_path / "same", "--json")
    assert outcome.code == 0 and "changed H by -0.02 points" in outcome.err and "--force" in outcome.err
    assert json.loads(outcome.out) == {
        "model": str(tmp_path / "same"), "classes": [], "transductive": False, "unlabelled_gain": -0.02
    }  # fmt: skip
    plain = classnorm(*flags, "--out", tmp_path / "copy")
    assert plain.out == ""
    assert plain.err.endswith(f"wrote {tmp_path / 'copy'}: an unchanged copy of {tmp_path / 'doubtful'}\n")
    forced = classnorm(*flags, "--out", tmp_path / "other", "--json", "--force")
    assert forced.err == "" and json.loads(forced.out)["transductive"]


def test_folders_of_pictures_are_encoded_like_those_of_the_training(classnorm, shapes, said, tmp_path, train_on_shapes):
    shutil.move(shapes / "yellow_bar", tmp_path / "later" / "yellow_bar")
    run, new = train_on_shapes(said), tmp_path / "new"
    outcome = classnorm("adapt", run, "--examples", tmp_path / "later", "--unlabelled", shapes, "--out", new, "--json")
    assert outcome.code == 0, outcome.err
    entry = next(entry for entry in json.loads(outcome.out)["classes"] if entry["name"].lower() == "yellow bar")
    assert entry["examples"] == 10
    assert (new / "encoder.json").read_text() == (run / "encoder.json").read_text()
    answers = classnorm("predict", new, tmp_path / "later", "--quiet").out
    assert {row["class"] for row in csv.DictReader(io.StringIO(answers))} == {entry["name"]}


def test_labels_of_a_bundle_are_indices_into_its_class_names(classnorm, trained, world, tmp_path):
    outcome = classnorm("adapt", trained, "--examples", world.bundle, "--out", tmp_path / "new", "--json", "--quiet")
    counts = {entry["name"]: entry["examples"] for entry in json.loads(outcome.out)["classes"]}
    labels = [world.data.class_names[c] for c in world.data.labels]
    assert counts == {name: labels.count(name) for name in set(labels)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.ones((2, 64))}, "the array 'labels' is missing"),
        ({"features": np.ones((2, 64)), "labels": np.array(["ant"])}, "give one class name per row"),
        ({"features": np.ones((1, 64)), "labels": np.array([3])}, "labels must be class names"),
        ({"features": np.ones((1, 3)), "labels": np.array(["ant"])}, "features have 3 dimensions"),
        ({"features": np.full((1, 64), np.nan), "labels": np.array(["ant"])}, "x.npz"),
        ({"features": np.ones((0, 64)), "labels": np.array([], dtype=str)}, "x.npz: has no rows"),
        ({"features": np.ones((1, 64)), "labels": np.array([9]), "class_names": np.array(["ant"])}, "must be indices"),
    ],
)
def test_files_that_hold_no_examples_are_reported_in_one_line(refused, trained, tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    assert message in refused("adapt", trained, "--examples", tmp_path / "x.npz", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_impossible_requests_are_reported_in_one_line(refused, trained, tmp_path):
    request = ("adapt", trained, "--out", tmp_path / "new")
    assert "give --examples, --unlabelled or both" in refused(*request)
    assert "no such folder or file" in refused(*request, "--examples", tmp_path / "nowhere")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("label", "told"), [("calss_3", True), ("class_993", False)])
def test_a_new_label_that_looks_like_a_known_class_is_pointed_out(classnorm, trained, world, tmp_path, label, told):
    np.savez(tmp_path / "few.npz", features=world.features[:1], labels=np.array([label]))
    np.save(tmp_path / "rows.npy", world.features[:3])
    for command in (["predict", trained, tmp_path / "rows.npy"], ["adapt", trained, "--out", tmp_path / "new"]):
        outcome = classnorm(*command, "--examples", tmp_path / "few.npz")
        assert outcome.code == 0 and f"new, without a description: {label}" in outcome.err
        assert (f"few.npz: {label!r} is a new class; did you mean 'class" in outcome.err) == told
    assert Scorer.load(tmp_path / "new").class_names[-1] == label


def test_an_empty_file_of_unlabelled_features_is_an_error(refused, trained, tmp_path):
    np.save(tmp_path / "empty.npy", np.empty((0, 64), dtype=np.float32))
    assert "empty.npy: has no rows" in refused(
        "adapt", trained, "--unlabelled", tmp_path / "empty.npy", "--out", tmp_path / "new"
    )
    assert not (tmp_path / "new").exists()


def test_features_without_labels_are_no_examples(refused, trained, world, tmp_path):
    np.save(tmp_path / "rows.npy", world.features)
    line = refused("adapt", trained, "--examples", tmp_path / "rows.npy", "--out", tmp_path / "new")
    assert "give an .npz file with features and labels (class names)" in line


def test_one_picture_of_one_class_is_counted_in_the_singular(classnorm, trained, world, tmp_path):
    np.savez(tmp_path / "few.npz", features=world.features[:1], labels=np.array(["okapi"]))
    outcome = classnorm("adapt", trained, "--examples", tmp_path / "few.npz", "--out", tmp_path / "new")
    assert "1 example of 1 class;" in outcome.err and outcome.err.endswith(f"wrote {tmp_path / 'new'}\n")
