"""`classnorm predict`: classes unknown at training time, and the shapes of its answers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from classnorm import Scorer, fit

Table = dict[str, np.ndarray]


@pytest.fixture
def features(tmp_path, world) -> Path:
    np.save(tmp_path / "features.npy", world.features)
    return tmp_path / "features.npy"


def as_csv(folder: Path, table: Table) -> Path:
    with (folder / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([name, *row.tolist()] for name, row in table.items())
    return folder / "new.csv"


def as_parquet(folder: Path, table: Table) -> Path:
    columns = np.stack(list(table.values())).T
    pq.write_table(
        pa.table({"name": list(table)} | {f"a{i}": c for i, c in enumerate(columns)}), folder / "new.parquet"
    )
    return folder / "new.parquet"


def as_json(folder: Path, table: Table) -> Path:
    (folder / "new.json").write_text(json.dumps({name: row.tolist() for name, row in table.items()}))
    return folder / "new.json"


def as_npy(folder: Path, table: Table) -> Path:
    np.save(folder / "new.npy", np.stack(list(table.values())))
    (folder / "new.txt").write_text("\n".join(table))
    return folder / "new.npy"


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("write", [as_csv, as_parquet, as_json, as_npy])
def test_new_classes_are_told_apart_far_above_chance(classnorm, trained, world, features, tmp_path, write):
    new = write(tmp_path, world.descriptors)
    outcome = classnorm("predict", trained, features, "--descriptors", new, "--only", *world.descriptors)
    predicted = [row["class"] for row in read(outcome.out)]
    assert np.mean([a == b for a, b in zip(predicted, world.truth, strict=True)]) > 0.6  # chance: 0.2


def test_new_classes_compete_with_all_known_ones(classnorm, trained, world, features, tmp_path):
    outcome = classnorm("predict", trained, features, "--descriptors", as_json(tmp_path, world.descriptors))
    predicted = [row["class"] for row in read(outcome.out)]
    assert np.mean([a == b for a, b in zip(predicted, world.truth, strict=True)]) > 0.15  # chance: 0.025


def test_csv_has_one_line_for_each_row_and_rank(classnorm, trained, world, features):
    lines = classnorm("predict", trained, features, "--top", 3).out.splitlines()
    assert lines[0] == "row,rank,class,score,probability,kind"
    pairs = [tuple(map(int, line.split(",")[:2])) for line in lines[1:]]
    assert pairs == [(row, rank) for row in range(len(world.features)) for rank in (1, 2, 3)]


def test_ranks_go_from_the_highest_score_down(classnorm, trained, features):
    rows = read(classnorm("predict", trained, features, "--top", 35).out)
    scores = np.array([float(row["score"]) for row in rows]).reshape(-1, 35)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_classes_and_scores_are_those_of_the_scorer(classnorm, trained, world, features):
    rows = read(classnorm("predict", trained, features).out)
    scorer = Scorer.load(trained)
    scores = scorer.scores(world.features)
    assert [row["class"] for row in rows] == scorer.predict(world.features)
    np.testing.assert_allclose([float(row["score"]) for row in rows], scores.max(axis=1), atol=1e-4)


def test_small_blocks_give_the_same_answers_and_none_are_refused(classnorm, trained, features):
    answers = [classnorm("predict", trained, features, "--top", "3", "--block-mb", mb).out for mb in ("1", "256")]
    assert answers[0] == answers[1]
    outcome = classnorm("predict", trained, features, "--block-mb", "0")
    assert outcome.code == 2 and "--block-mb is 0; it must be at least 1" in outcome.err


def test_probabilities_are_those_of_the_scorer_and_add_up_to_one(classnorm, trained, world, features):
    rows = read(classnorm("predict", trained, features, "--top", 35).out)
    table = np.array([float(row["probability"]) for row in rows]).reshape(-1, 35)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-4)
    expected = Scorer.load(trained).probabilities(world.features).max(axis=1)
    np.testing.assert_allclose(table[:, 0], expected, atol=1e-5)


def test_top_beyond_the_number_of_classes_gives_all_of_them(classnorm, trained, world, features):
    rows = read(classnorm("predict", trained, features, "--top", 999).out)
    assert len(rows) == 35 * len(world.features)


def test_json_is_one_document_with_the_same_answers(classnorm, trained, features):
    document = json.loads(classnorm("predict", trained, features, "--top", 2, "--json").out)
    rows = read(classnorm("predict", trained, features, "--top", 2).out)
    assert [{key: str(value) for key, value in entry.items()} for entry in document] == rows


def test_only_restricts_the_answers(classnorm, trained, world, features):
    pair = world.data.class_names[3], world.data.class_names[8]
    rows = read(classnorm("predict", trained, features, "--only", *pair).out)
    assert {row["class"] for row in rows} <= set(pair)


def test_the_kind_says_whether_a_class_had_training_rows(classnorm, trained, world, features):
    rows = read(classnorm("predict", trained, features, "--top", 35).out)
    kinds = {row["class"]: row["kind"] for row in rows}
    expected = {n: "seen" if s else "unseen" for n, s in zip(world.data.class_names, world.data.seen, strict=True)}
    assert kinds == expected


def test_a_known_class_may_come_again_with_the_same_descriptor(classnorm, trained, world, features, tmp_path):
    again = dict(zip(world.data.class_names, world.data.descriptors, strict=True))
    with_table = classnorm("predict", trained, features, "--descriptors", as_csv(tmp_path, again))
    assert with_table.out == classnorm("predict", trained, features).out


def test_a_known_class_with_another_descriptor_is_refused(classnorm, trained, world, features, tmp_path):
    other = {world.data.class_names[4]: world.data.descriptors[5]}
    outcome = classnorm("predict", trained, features, "--descriptors", as_csv(tmp_path, other))
    assert outcome.code == 2
    assert f"class {world.data.class_names[4]!r} is known to the model with another descriptor" in outcome.err


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_out_writes_what_stdout_would_say(classnorm, trained, features, tmp_path, suffix):
    target = tmp_path / f"answers{suffix}"
    outcome = classnorm("predict", trained, features, "--out", target)
    expected = classnorm("predict", trained, features, *(["--json"] if suffix == ".json" else [])).out
    assert outcome.out == ""
    assert target.read_text() == expected


def test_the_model_may_be_named_by_its_file(classnorm, trained, features):
    by_file = classnorm("predict", trained / "model.safetensors", features)
    assert by_file.out == classnorm("predict", trained, features).out


@pytest.fixture
def asked(classnorm, shapes, tmp_path, bag_of_words) -> Path:
    """A model that was trained on images and remembers how they were encoded."""
    flags = ["--encoder", "convnet", "--size", 32, "--device", "cpu", "--quiet"]
    classnorm("extract", shapes, "--descriptions", shapes, "--out", tmp_path / "x.npz", *flags)
    flags = ["--method", "kernel", "--calibration", "none", "--quiet"]
    assert classnorm("train", tmp_path / "x.npz", *flags, "--out", tmp_path / "run").code == 0
    return tmp_path / "run" / "seed-0"


def images_csv(shapes: Path) -> Path:
    (shapes / "list.csv").write_text("id,path\n1,red_bar/0.png\n2,blue_bar/3.png\n")
    return shapes / "list.csv"


def test_images_are_classified_as_their_features_are(classnorm, asked, shapes, tmp_path):
    with np.load(tmp_path / "x.npz") as bundle:
        files, features = bundle["image_files"].tolist(), bundle["features"]
    np.save(tmp_path / "x.npy", features)
    by_features = read(classnorm("predict", asked, tmp_path / "x.npy", "--top", 2).out)
    by_images = read(classnorm("predict", asked, shapes, "--top", 2).out)
    assert next(iter(by_images[0])) == "image" and {"probability", "kind"} < by_images[0].keys()
    assert [row["image"] for row in by_images[::2]] == files
    assert [row["class"] for row in by_images] == [row["class"] for row in by_features]
    np.testing.assert_allclose(*([float(row["score"]) for row in rows] for rows in (by_images, by_features)), atol=1e-3)


def test_an_image_a_flat_folder_and_a_list_of_paths_are_understood(classnorm, asked, shapes):
    whole = {row["image"]: row["class"] for row in read(classnorm("predict", asked, shapes).out)}
    one = read(classnorm("predict", asked, shapes / "red_bar" / "0.png").out)
    assert [(row["image"], row["class"]) for row in one] == [
        (str(shapes / "red_bar" / "0.png"), whole["red_bar/0.png"])
    ]
    flat = read(classnorm("predict", asked, shapes / "red_bar").out)
    assert {f"red_bar/{row['image']}": row["class"] for row in flat}.items() <= whole.items() and len(flat) == 10
    listed = json.loads(classnorm("predict", asked, images_csv(shapes), "--json").out)
    assert [(row["image"], row["class"]) for row in listed] == [
        (file, whole[file]) for file in ("red_bar/0.png", "blue_bar/3.png")
    ]


def test_features_of_images_keep_their_names(classnorm, asked, shapes, tmp_path):
    file = tmp_path / "features.npz"
    flags = ["--encoder", "convnet", "--size", 32, "--unlabelled", "--quiet"]
    assert classnorm("extract", shapes, *flags, "--out", file).code == 0
    of_images, of_features = (classnorm("predict", asked, source, "--quiet").out for source in (shapes, file))
    assert [line.split(",")[:3] for line in of_features.splitlines()] == [
        line.split(",")[:3] for line in of_images.splitlines()
    ]


def test_of_several_images_all_must_exist(classnorm, asked, shapes):
    outcome = classnorm("predict", asked, shapes, "nope.jpg", "--quiet")
    assert (outcome.code, outcome.err) == (2, "classnorm: error: nope.jpg: no such file or folder\n")


def test_images_that_cannot_be_read_are_named_and_left_out(classnorm, asked, shapes):
    (shapes / "red_bar" / "4.png").write_bytes(b"broken")
    outcome = classnorm("predict", asked, shapes / "red_bar")
    assert outcome.code == 0
    assert [row["image"] for row in read(outcome.out)] == [f"{i}.png" for i in range(10) if i != 4]
    assert "skipped 4.png: not an image" in outcome.err and "1 image could not be read" in outcome.err


def test_new_classes_come_in_words_by_way_of_describe(classnorm, asked, shapes, tmp_path):
    (tmp_path / "new.txt").write_text("blue square\n")
    classnorm("describe", tmp_path / "new.txt", "--out", tmp_path / "new.npz", "--quiet")
    flags = ["--descriptors", tmp_path / "new.npz", "--only", "blue square", "red_bar"]
    rows = read(classnorm("predict", asked, shapes / "blue_bar", *flags, "--quiet").out)
    assert {row["class"] for row in rows} <= {"blue square", "red_bar"}


def test_an_encoder_can_be_named_where_the_model_knows_none(classnorm, asked, shapes, tmp_path):
    expected = classnorm("predict", asked, shapes).out
    (asked / "encoder.json").unlink()
    refused = classnorm("predict", asked, shapes)
    assert refused.code == 2 and "pictures need the encoder that made them: give --encoder." in refused.err
    assert classnorm("predict", asked, shapes, "--encoder", "convnet", "--size", 32).out == expected


@pytest.mark.parametrize(
    ("make", "flags", "message"),
    [
        (lambda folder: folder / "gone.png", [], "gone.png: no such file or folder"),
        (lambda folder: "glyphs-light", [], "score the model on this dataset with classnorm evaluate"),
        (lambda folder: folder / "nowhere", [], "nowhere: no such file"),
        (lambda folder: (folder / "hollow").mkdir() or folder / "hollow", [], "hollow: no images there"),
        (lambda folder: folder, ["--size", 32], "--size needs --encoder"),
        (lambda folder: folder, ["--encoder", "efficientnet-lite0", "--size", 32], "is not the one that the"),
        (lambda folder: folder, ["--encoder", "convnet", "--size", 48], "prepares images otherwise"),
    ],
)  # fmt: skip
def test_an_impossible_request_is_one_line(refused, asked, shapes, make, flags, message):
    assert message in refused("predict", asked, make(shapes), *flags, "--quiet")


@pytest.fixture(scope="session")
def validated(world, tmp_path_factory) -> Path:
    """A model of `world` with thresholds from validation."""
    return fit(world.data, method="kernel").save(tmp_path_factory.mktemp("validated"))


def test_images_of_no_known_class_are_unknown(classnorm, validated, world, features, tmp_path):
    outcome = classnorm("predict", validated, features, "--reject", 0.1, "--top", 2)
    novel, plain = read(outcome.out), read(classnorm("predict", validated, features, "--top", 2).out)
    assert list(novel[0])[-1] == "known" and "known" not in plain[0]
    assert len(novel) == len(plain)
    for first, second, best in zip(novel[::2], novel[1::2], plain[::2], strict=True):
        if first["known"] == "False":
            assert (first["class"], first["score"], first["kind"]) == ("unknown", "", "unknown")
            assert (second["class"], second["rank"], second["known"]) == (best["class"], "2", "False")
        else:
            assert first["class"] == best["class"]
    rows = world.data.test_rows
    np.save(tmp_path / "known.npy", world.data.features[rows])
    known = json.loads(classnorm("predict", validated, tmp_path / "known.npy", "--reject", 0.1, "--json").out)
    shares = [np.mean([row["class"] == "unknown" for row in answers]) for answers in (novel[::2], known)]
    assert shares[0] > 2 * shares[1]
    assert {row["known"] for row in known} == {True, False}


def test_a_rejection_that_cannot_be_is_one_line(classnorm, trained, features):
    for share, message in ((0.05, "no thresholds for --reject"), (1.5, "--reject is 1.5; it must be between 0 and 1")):
        outcome = classnorm("predict", trained, features, "--reject", share)
        assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1


def test_coverage_adds_the_set_of_classes_that_may_be_right(classnorm, validated, world, tmp_path):
    np.save(tmp_path / "x.npy", world.data.features[world.data.test_rows[:40]])
    found = json.loads(classnorm("predict", validated, tmp_path / "x.npy", "--coverage", 0.9, "--json").out)
    sets = Scorer.load(validated).prediction_sets(np.load(tmp_path / "x.npy"), 0.9)
    assert [row["set"] for row in found] == sets
    assert [row["set"][0] for row in found] == [row["class"] for row in found]
    lines = read(classnorm("predict", validated, tmp_path / "x.npy", "--coverage", 0.9, "--reject", 0.1).out)
    assert [row["set"].split("|") for row in lines] == sets
    assert list(lines[0])[-2:] == ["known", "set"]
