"""`classnorm explain`: sentences, bars, pictures and JSON about answers and classes, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classnorm.metrics import Calibration
from classnorm.scoring import ClassTable, Scorer


@pytest.fixture
def rows(world, tmp_path) -> Path:
    np.save(tmp_path / "rows.npy", world.data.features[world.data.test_rows[:3]])
    return tmp_path / "rows.npy"


@pytest.fixture
def names(world, tmp_path) -> Path:
    path = tmp_path / "attributes.txt"
    path.write_text("".join(f"{i + 1} has_part::kind_{i}\n" for i in range(world.data.d_a)))
    return path


def test_a_sentence_and_bars_name_the_attributes_and_add_up(classnorm, trained, rows, names):
    outcome = classnorm("explain", trained, rows, "--attribute-names", names, "--top", 4)
    assert outcome.code == 0, outcome.err
    blocks = outcome.out.strip().split("\n\n")
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        title, *bars, last = block.splitlines()
        assert title.startswith(f"row {number}: says class ") and ": part: kind " in title.replace("less ", "")
        shown = sum(float(line[46:54]) for line in bars)
        assert shown == pytest.approx(float(title.split(", by ")[1].split(":")[0]), abs=0.01 * len(bars))
        assert "leans on" in last


def test_the_sentence_starts_with_a_calibration_that_adds_more_than_any_attribute(classnorm, trained, rows, tmp_path):
    scorer = Scorer.load(trained, "cpu")
    seen, unseen = (scorer.class_names[np.flatnonzero(side)[0]] for side in (scorer.seen, ~scorer.seen))
    two = scorer.only([seen, unseen])
    two.calibrated(Calibration("bias", 1e4)).save(tmp_path / "strong")  # in favour of the unseen class
    two.calibrated(Calibration("bias", 1e-4)).save(tmp_path / "weak")
    strong, weak = (classnorm("explain", tmp_path / name, rows, "--top", 3).out for name in ("strong", "weak"))
    title = strong.splitlines()[0]
    assert f"says {unseen} rather than {seen}" in title.replace("_", " ") and ": calibration (+10000.00), " in title
    assert "calibration (" not in weak


def test_json_has_the_explanations_of_the_scorer(classnorm, trained, rows):
    document = json.loads(classnorm("explain", trained, rows, "--json").out)
    expected = Scorer.load(trained, "cpu").explain(np.load(rows))
    assert document == {"explanations": [{"row": row, **explanation} for row, explanation in enumerate(expected)]}


def test_contributions_are_drawn_whatever_the_attributes_are_called(classnorm, trained, rows, world, tmp_path):
    odd = tmp_path / "odd.txt"
    odd.write_text("".join(f"${'x' * i}_{{\\ $\n" for i in range(1, world.data.d_a + 1)))
    outcome = classnorm("explain", trained, rows, "--attribute-names", odd, "--out", tmp_path / "why.png")
    assert outcome.code == 0, outcome.err
    with Image.open(tmp_path / "why.png") as picture:
        assert picture.width > 900 and len(picture.convert("L").getcolors() or []) > 10


def test_a_class_is_explained_with_and_without_rows_of_it(classnorm, trained, world, tmp_path):
    data, scorer = world.data, Scorer.load(trained, "cpu")
    unseen = np.flatnonzero(~data.seen)[0]
    name = data.class_names[unseen]
    bare = json.loads(classnorm("explain", trained, "--class", name.upper(), "--json").out)["class"]
    assert bare["class"] == name and bare["kind"] == "unseen" and len(bare["attributes"]) == 10 and "rows" not in bare
    np.save(tmp_path / "own.npy", data.features[data.labels == unseen])
    full = json.loads(classnorm("explain", trained, tmp_path / "own.npy", "--class", name, "--json").out)["class"]
    right = sum(answer == name for answer in scorer.predict(np.load(tmp_path / "own.npy")))
    assert (full["rows"], full["right"]) == (int((data.labels == unseen).sum()), right)
    text = classnorm("explain", trained, tmp_path / "own.npy", "--class", name).out
    assert f"{right} of {full['rows']} rows right" in text and "is known by:" in text
    first = full["attributes"][0]
    assert text.splitlines()[1].split() == ["attribute", "weight", "value", "mean", "of", "all"]
    values = [f"{first['weight']:.3f}", f"{first['value']:.3g}", f"{first['mean']:.3g}"]
    assert text.splitlines()[2].split()[-3:] == values


def test_the_gain_of_a_needed_attribute_is_the_change_of_the_score(trained, world):
    data, scorer = world.data, Scorer.load(trained, "cpu")
    for c in np.flatnonzero(~data.seen):
        rows = data.features[data.labels == c]
        document = scorer.explain_class(data.class_names[c], rows)
        if document["needs"]:
            break
    wrong = rows[np.array(scorer.predict(rows)) != data.class_names[c]]
    need = document["needs"][0]
    column = int(need["name"].split()[1])
    assert abs(need["change"]) == pytest.approx(scorer.descriptors[:, column].std())
    table = scorer.descriptors.copy()
    table[c, column] += need["change"]
    change = (replace(scorer, classes=replace(scorer.classes, descriptors=table)).scores(wrong) - scorer.scores(wrong))[
        :, c
    ].mean()
    assert change == pytest.approx(need["gain"], rel=1e-3) and change > 0


def test_attributes_of_a_class_weigh_as_much_as_they_move_its_prototype(trained, world):
    scorer = Scorer.load(trained, "cpu")
    document = scorer.explain_class(scorer.class_names[0], top=3)
    for entry in document["attributes"]:
        column = int(entry["name"].split()[1])
        table = scorer.descriptors.copy()
        table[0, column] = table[:, column].mean()
        before, after = (
            scorer.prototypes()[0],
            replace(scorer, classes=replace(scorer.classes, descriptors=table)).prototypes()[0],
        )
        moved = np.linalg.norm(after - before) / np.linalg.norm(before)
        assert entry["weight"] == pytest.approx(moved, rel=1e-3)


BAD: dict[str, tuple[list[str], str]] = {
    "nothing": (["{model}"], "nothing to read"),
    "no model": (["nowhere", "{rows}"], "no such file"),
    "unknown class": (["{model}", "--class", "clas_1"], "did you mean"),
    "not a picture": (["{model}", "{rows}", "--out", "why.svg"], "must end in .png"),
    "picture of a class": (["{model}", "--class", "class_1", "--out", "why.png"], "leave them out with --class"),
    "no attributes": (["{model}", "{rows}", "--top", "0"], "--top is 0"),
    "no rows": (["{model}", "{empty}"], "empty.npy: has no rows"),
    "few names": (["{model}", "{rows}", "--attribute-names", "{few}"], "2 names of attributes for descriptors of 30"),
    "no text": (["{model}", "{rows}", "--descriptions", "{few}"], "not made from text alone"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_reported_in_one_line(refused, trained, rows, tmp_path, case):
    (tmp_path / "few.txt").write_text("stripes\nhooves\n")
    np.save(tmp_path / "empty.npy", np.load(rows)[:0])
    arguments, message = BAD[case]
    files = {"{few}": str(tmp_path / "few.txt"), "{empty}": str(tmp_path / "empty.npy")}
    paths = {"{model}": str(trained), "{rows}": str(rows), **files}
    assert message in refused("explain", *(paths.get(argument, argument) for argument in arguments))


def test_sentences_of_both_classes_get_their_share(classnorm, train_on_shapes, shapes, said):
    model = train_on_shapes(said)
    flags = ["--descriptions", said, "--json", "--quiet"]
    document = json.loads(classnorm("explain", model, shapes / "red_bar", *flags).out)
    assert len(document["explanations"]) == 10
    for explanation in document["explanations"]:
        entries = explanation["attributes"]
        assert sum(entry["contribution"] for entry in entries) == pytest.approx(explanation["difference"])
        assert explanation["by"] == "integrated gradients of sentences"
        assert {entry["of"] for entry in entries} == {explanation["class"], explanation["against"]}
        assert len(entries) == 4  # two sentences of either class
    plain = classnorm("explain", model, shapes / "red_bar" / "0.png")
    assert (
        "the text" in plain.out and "the dimensions of a text mean nothing one by one; see --descriptions" in plain.err
    )


def test_words_of_single_sentences_are_left_out_in_turn(classnorm, train_on_shapes, shapes, tmp_path, bag_of_words):
    colours, kinds = ("Red", "Green", "Blue", "Yellow"), ("circle", "square", "bar")
    said = tmp_path / "one.csv"
    said.write_text("\n".join(["name,text", *(f"{c} {k},a {c.lower()} {k} here" for c in colours for k in kinds)]))
    model = train_on_shapes(said)
    flags = ["--descriptions", said, "--json", "--quiet"]
    (explanation,) = json.loads(classnorm("explain", model, shapes / "red_bar" / "0.png", *flags).out)["explanations"]
    entries = explanation["attributes"]
    assert sum(entry["contribution"] for entry in entries) == pytest.approx(explanation["difference"])
    assert explanation["by"] == "leaving out words" and entries[-1]["name"] == "the words together"
    own = {entry["name"]: entry["contribution"] for entry in entries[:-1] if entry["of"] == explanation["class"]}
    scorer = Scorer.load(model, "cpu")
    from classnorm.encoders import recorded_encoder
    from classnorm.preparation import encode_images
    from classnorm.results.run_folder import read_encoder

    features, _ = encode_images([shapes / "red_bar" / "0.png"], recorded_encoder(read_encoder(model)))
    sentence = f"a {explanation['class'].lower()} here"
    for word, contribution in own.items():
        left = " ".join(other for other in sentence.split() if other != word)
        classes = ClassTable(("full", "left"), bag_of_words.encode([sentence, left]), np.zeros(2, dtype=bool))
        full, without = replace(scorer, classes=classes).scores(features)[0]
        assert contribution == pytest.approx(full - without, abs=1e-4)


def test_other_descriptions_than_those_of_the_training_are_refused(classnorm, train_on_shapes, shapes, said, tmp_path):
    model = train_on_shapes(said)
    other = tmp_path / "other.csv"
    other.write_text(said.read_text().replace("painted", "seldom drawn"))
    outcome = classnorm("explain", model, shapes / "red_bar", "--descriptions", other)
    assert outcome.code == 2 and "described otherwise than in the model" in outcome.err
