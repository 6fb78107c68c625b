"""`classnorm train --images`: from images and descriptions to a scored model, what is kept, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from classnorm.data import load
from classnorm.encoders import frozen_encoder, load_encoder
from classnorm.preparation import encode_images

Train = Callable[..., Any]

SMALL = ("--encoder", "convnet", "--size", 32, "--device", "cpu")
KERNEL = ("--method", "kernel", "--calibration", "none")


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def no_report(monkeypatch) -> None:
    """Its plots take most of the time."""
    monkeypatch.setattr("classnorm.cli.train.write_report", lambda *_: [])


@pytest.fixture
def train(classnorm, shapes, out, bag_of_words, no_report) -> Train:
    def run(*flags: object) -> Any:
        return classnorm("train", "--images", shapes, *SMALL, *KERNEL, "--out", out, *flags)

    return run


def test_images_and_descriptions_become_a_model_a_report_and_a_next_step(classnorm, shapes, said, out, bag_of_words):
    flags = ["--descriptions", said, "--hold-out", 0.2, "--out", out]
    outcome = classnorm("train", "--images", shapes, *SMALL, *KERNEL, *flags)
    assert outcome.code == 0, outcome.err
    data = load(out / "features.npz")
    unseen = {name for name, seen in zip(data.class_names, data.seen, strict=True) if not seen}
    assert {"Blue square", "Yellow circle"} < unseen and len(unseen) == 4
    assert (len(data.split.train), len(data.split.test_seen), len(data.split.test_unseen)) == (64, 16, 20)
    assert "AUSUC" in outcome.out and "Unseen classes" in (out / "report" / "index.html").read_text()
    with np.load(out / "seed-0" / "examples.npz") as examples:
        assert examples["image"].shape == (2, 96, 96, 3)  # of each held-out class one
    step = f"classnorm predict {out / 'seed-0'} {shapes} --top 3"
    assert outcome.out.splitlines()[-1] == f"next: {step}"
    answers = list(csv.DictReader(io.StringIO(classnorm(*step.split()[1:]).out)))
    assert len(answers) == 300 and {answer["class"] for answer in answers} <= set(data.class_names)
    right = [a["class"].lower() == a["image"].split("/")[0].replace("_", " ") for a in answers if a["rank"] == "1"]
    assert np.mean(right) > 0.3  # chance: 0.08


def test_without_descriptions_the_names_of_the_folders_are_the_text(train, bag_of_words, out):
    document = json.loads(train("--template", "a {} on paper", "--json", "--quiet").out)
    assert bag_of_words.calls[0][0] == "a blue bar on paper"
    sizes = document["dataset"]["sizes"]
    assert (sizes["classes"], sizes["unseen_classes"], sizes["test_unseen_rows"]) == (10, 2, 20)  # a fifth is held out
    assert document["skipped"] == {} and document["report"] == str(out / "report" / "index.html")


def test_classes_without_images_are_unseen_and_by_default_no_others(train, said, out):
    outcome = train("--descriptions", said)
    data = load(out / "features.npz")
    assert (int(data.seen.sum()), len(data.split.test_unseen)) == (10, 0)
    assert "10 seen classes with 80 training and 20 test images; 2 unseen classes with 0 test images" in outcome.err
    assert "no test rows of unseen classes" in outcome.err


def test_a_second_run_encodes_nothing_and_says_so(train, said, out, encoded, bag_of_words):
    first = train("--descriptions", said)
    assert sum(encoded) == 100 and len(bag_of_words.calls) == 1
    made = {name: (out / name).read_bytes() for name in ("features.npz", "descriptors.npz")}
    again = train("--descriptions", said)
    assert sum(encoded) == 100 and len(bag_of_words.calls) == 1
    assert f"descriptors of 12 classes are in {out / 'descriptors.npz'}" in again.err
    assert f"using the features of 100 images in {out / 'features.npz'}" in again.err
    assert made == {name: (out / name).read_bytes() for name in made}
    tables = [next(line for line in outcome.out.splitlines() if "kernel" in line)[:60] for outcome in (first, again)]
    assert tables[0] == tables[1]


def test_what_has_changed_is_made_again_and_nothing_else(train, shapes, said, out, encoded, bag_of_words):
    train("--descriptions", said)
    train("--descriptions", said, "--template", "a {}", "--hold-out", 0.3, "--split-seed", 4)
    assert sum(encoded) == 100 and len(bag_of_words.calls) == 2
    assert len(load(out / "features.npz").split.test_unseen) == 30
    train("--descriptions", said, "--size", 16)
    assert sum(encoded) == 200 and len(bag_of_words.calls) == 3
    (shapes / "red_bar" / "0.png").unlink()
    assert train("--descriptions", said, "--size", 16).code == 0
    assert sum(encoded) == 299 and load(out / "features.npz").n_rows == 99


def test_a_run_in_a_folder_beside_reuses_the_features(classnorm, train, shapes, said, out, encoded, tmp_path):
    train("--descriptions", said)
    flags = ["--descriptions", said, "--hold-out", 0.3, "--out", tmp_path / "second"]
    outcome = classnorm("train", "--images", shapes, *SMALL, *KERNEL, *flags)
    assert outcome.code == 0, outcome.err
    assert sum(encoded) == 100 and "using the features of 100 images" in outcome.err
    first, second = (load(folder / "features.npz") for folder in (out, tmp_path / "second"))
    assert np.array_equal(first.features, second.features) and first.split.checksum != second.split.checksum
    flags[-1] = tmp_path / "third"
    assert classnorm("train", "--images", shapes, *SMALL[:2], "--size", 16, *KERNEL, *flags).code == 0
    assert sum(encoded) == 200


def test_a_csv_file_of_the_same_images_reuses_their_features(classnorm, train, shapes, said, encoded, tmp_path):
    train("--descriptions", said)
    files = sorted(shapes.rglob("*.png"), key=lambda file: file.as_posix())
    lines = [f"{file.relative_to(tmp_path)},{file.parent.name}" for file in files]
    (tmp_path / "images.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    flags = ["--descriptions", said, "--out", tmp_path / "second"]
    outcome = classnorm("train", "--images", tmp_path / "images.csv", *SMALL, *KERNEL, *flags)
    assert outcome.code == 0, outcome.err
    assert sum(encoded) == 100 and load(tmp_path / "second" / "features.npz").image_files[0] == lines[0].split(",")[0]


def test_the_split_seed_draws_other_classes_and_the_same_one_the_same(train, out):
    checksums = []
    for seed in (0, 1, 0):
        train("--split-seed", seed, "--quiet")
        checksums.append(load(out / "features.npz").split.checksum)
    assert checksums[0] == checksums[2] != checksums[1]


def test_images_that_cannot_be_read_are_named_by_both_runs(train, shapes, said):
    for name in ("red_bar/3.png", "blue_bar/0.png"):
        (shapes / name).write_bytes(b"broken")
    for _ in range(2):
        outcome = train("--descriptions", said)
        assert outcome.code == 0
        assert "skipped red_bar/3.png: not an image" in outcome.err
        assert "2 images could not be read" in outcome.err
    refused = train("--descriptions", said, "--strict", "--quiet")
    assert refused.code == 2 and "blue_bar/0.png: not an image" in refused.err


def test_a_class_with_one_image_that_can_be_read_is_trained_on_it(train, shapes, said, out):
    """Whatever the split of all files would have been."""
    for i in range(1, 10):
        (shapes / "red_bar" / f"{i}.png").write_bytes(b"broken")
    assert train("--descriptions", said, "--quiet").code == 0
    data = load(out / "features.npz")
    assert data.seen[data.class_names.index("Red bar")]


def test_a_descriptors_file_passes_through(classnorm, train, said, out, tmp_path, bag_of_words):
    classnorm("describe", said, "--out", tmp_path / "d.npz", "--quiet")
    assert train("--descriptions", tmp_path / "d.npz").code == 0
    assert len(bag_of_words.calls) == 1
    data = load(out / "features.npz")
    with np.load(tmp_path / "d.npz") as archive:
        np.testing.assert_array_equal(data.descriptors, archive["descriptors"])
    assert json.loads(data.provenance["text_encoder"])["name"] == "words"
    assert json.loads(data.provenance["encoder"])["name"] == "convnet"


def test_cub_describes_itself_by_its_attributes(classnorm, shapes, out, tmp_path, bag_of_words, no_report):
    root = tmp_path / "CUB"
    root.mkdir()
    shapes.rename(root / "images")
    names = sorted(folder.name for folder in (root / "images").iterdir())
    files = [(i, f"{name}/{n}.png") for i, name in enumerate(names, 1) for n in range(10)]
    (root / "images.txt").write_text("".join(f"{n} {file}\n" for n, (_, file) in enumerate(files, 1)))
    (root / "image_class_labels.txt").write_text("".join(f"{n} {i}\n" for n, (i, _) in enumerate(files, 1)))
    (root / "classes.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, 1)))
    (root / "attributes").mkdir()
    np.savetxt(root / "attributes" / "class_attribute_labels_continuous.txt", np.eye(10) * 80 + 1)
    outcome = classnorm("train", "--images", root, *SMALL, *KERNEL, "--out", out)
    assert outcome.code == 0, outcome.err
    assert bag_of_words.calls == []
    assert load(out / "features.npz").descriptors.max() == 81


def test_like_takes_descriptors_and_split_and_text_may_replace_the_former(classnorm, train, said, out, tmp_path):
    assert train("--descriptions", said, "--hold-out", 0.2, "--split-seed", 5, "--quiet").code == 0
    model = load(out / "features.npz")
    like = tmp_path / "like.npz"
    (out / "features.npz").rename(like)
    assert train("--like", like, "--quiet").code == 0
    again = load(out / "features.npz")
    assert again.checksum == model.checksum
    assert train("--like", like, "--descriptions", said, "--template", "my {}", "--quiet").code == 0
    other = load(out / "features.npz")
    assert other.split.checksum == model.split.checksum and other.checksum != model.checksum
    refused = train("--like", like, "--hold-out", 0.5)
    assert refused.code == 2 and "brings a split of its own" in refused.err


def test_seeds_settings_and_the_default_folder_work_as_ever(
    classnorm, shapes, bag_of_words, no_report, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    flags = ["--hidden", 8, "--epochs", 1, "--calibration", "none", "--seeds", 2, "--json", "--quiet"]
    document = json.loads(classnorm("train", "--images", shapes, *SMALL, *flags).out)
    assert [run["model"] for run in document["runs"]] == [f"runs/shapes/classnorm-reference/seed-{i}" for i in (0, 1)]
    assert document["config"]["hidden"] == 8
    assert (tmp_path / "runs" / "shapes" / "features.npz").is_file()  # other methods find it there


def test_a_real_encoder_and_a_dozen_images(classnorm, shapes, out, bag_of_words, no_report):
    pytest.importorskip("efficientnet_lite_pytorch")
    for folder in list(shapes.iterdir()):
        for i, file in enumerate(sorted(folder.iterdir())):
            if i >= 3 or not folder.name.startswith(("red", "green")):
                file.unlink()
        if not list(folder.iterdir()):
            folder.rmdir()
    flags = ["--size", 64, *KERNEL, "--out", out, "--device", "cpu"]
    outcome = classnorm("train", "--images", shapes, *flags)
    assert outcome.code == 0, outcome.err
    data = load(out / "features.npz")
    assert (data.n_rows, data.d_z, data.n_classes) == (18, 1280, 6)
    record = json.loads((out / "seed-0" / "encoder.json").read_text())
    assert (record["name"], record["preprocessing"]["crop"]) == ("efficientnet-lite0", 64)
    answer = classnorm("predict", out / "seed-0", shapes / "red_bar" / "0.png", "--json")
    assert json.loads(answer.out)[0]["image"] == str(shapes / "red_bar" / "0.png")


def test_custom_weights_are_needed_again_for_predictions(classnorm, train, shapes, out, tmp_path):
    torch.manual_seed(5)
    torch.save(load_encoder("convnet").module.state_dict(), tmp_path / "mine.pth")
    outcome = train("--weights", tmp_path / "mine.pth")
    refused = classnorm("predict", out / "seed-0", shapes)
    assert refused.code == 2
    assert "encoder convnet has other weights (random) than when the features were made (mine.pth)" in refused.err
    step = outcome.out.splitlines()[-1].removeprefix("next: classnorm ")
    assert classnorm(*step.split(), "--quiet").code == 0


def test_several_images_and_folders_are_classified_at_once(classnorm, train, shapes, out, tmp_path):
    assert train().code == 0
    paths = [shapes / "red_bar" / "0.png", shapes / "green_bar" / "1.png", shapes / "blue_bar", shapes / "red_circle"]
    answers = json.loads(classnorm("predict", out / "seed-0", *paths, "--json", "--quiet").out)
    assert [answer["image"] for answer in answers[:2]] == [str(paths[0]), str(paths[1])]
    assert {answer["image"] for answer in answers[2:]} == {str(f / f"{i}.png") for f in paths[2:] for i in range(10)}
    one = json.loads(classnorm("predict", out / "seed-0", paths[1], "--json", "--quiet").out)
    assert one[0]["class"] == answers[1]["class"] and abs(one[0]["score"] - answers[1]["score"]) < 1e-3
    np.save(tmp_path / "rows.npy", np.zeros((1, 4)))
    refused = classnorm("predict", out / "seed-0", paths[0], tmp_path / "rows.npy")
    assert refused.code == 2 and "rows.npy: not an image; of several paths all must be images" in refused.err
    assert "nothing to read" in classnorm("predict", out / "seed-0").err


BAD: dict[str, tuple[list[object], str]] = {
    "no folder": (["--images", "{tmp}/gone"], "gone: no such folder or file"),
    "no images": (["--images", "{tmp}/hollow"], "hollow: no images there"),
    "two sources": (["glyphs-light", "--images", "{shapes}"], "both DATA (glyphs-light) and --images"),
    "no source": (["--descriptions", "{said}"], "--descriptions needs --images DIR"),
    "no descriptions": (["--images", "{shapes}", "--descriptions", "{tmp}/gone.csv"], "gone.csv: no such file"),
    "empty list": (["--images", "{shapes}", "--descriptions", "{tmp}/empty.txt"], "empty.txt: holds no class"),
    "not described": (
        ["--images", "{shapes}", "--descriptions", "{tmp}/few.txt"],
        "no description of the class 'green_circle' of shapes; did you mean 'gren circle'?",
    ),
    "hold-out": (["--images", "{shapes}", "--hold-out", 1.5], "--hold-out is 1.5; it must be a share"),
    "unreadable CSV": (["--images", "{tmp}/bad.csv"], "bad.csv: not a readable CSV file"),
    "duplicates": (["--images", "{tmp}/twice.csv"], "twice.csv: a.png is on line 2 and again on line 3"),
    "too few": (["--images", "{tmp}/pair", "--hold-out", 0.5], "2 classes have images; 3 are needed to hold one out"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(refused, shapes, said, bag_of_words, tmp_path, name):
    (tmp_path / "hollow").mkdir()
    (tmp_path / "empty.txt").write_text("")
    names = [folder.name.replace("_", " ").replace("green circle", "gren circle") for folder in shapes.iterdir()]
    (tmp_path / "few.txt").write_text("\n".join(names))
    (tmp_path / "bad.csv").write_bytes(b"path,label\n\x81,x\n")
    (tmp_path / "twice.csv").write_text("path,label\na.png,cat\na.png,dog\n")
    for colour in ("red", "green"):
        (tmp_path / "pair").mkdir(exist_ok=True)
        (tmp_path / "pair" / colour).symlink_to(shapes / f"{colour}_bar")
    arguments, message = BAD[name]
    fill = {"{tmp}": tmp_path, "{shapes}": shapes, "{said}": said}
    filled = [str(argument) for argument in arguments]
    for key, value in fill.items():
        filled = [argument.replace(key, str(value)) for argument in filled]
    encoder = SMALL if "--images" in filled else ()
    assert message in refused("train", *filled, *encoder, *KERNEL, "--out", tmp_path / "out", "--quiet")
    assert not (tmp_path / "out" / "features.npz").exists() and not (tmp_path / "out" / "seed-0").exists()


def test_unseen_classes_are_chosen_by_name(train, out):
    assert train("--unseen", "Blue bar", "green_circle").code == 0
    data = load(out / "features.npz")
    unseen = {name for name, seen in zip(data.class_names, data.seen, strict=True) if not seen}
    assert unseen == {"blue_bar", "green_circle"}
    assert {data.class_names[c] for c in data.labels[data.split.test_unseen]} == unseen


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--unseen", "blue_baar"], "did you mean 'blue_bar'?"),
        (["--unseen", "blue_bar", "--hold-out", 0.2], "both --unseen and --hold-out"),
    ],
)
def test_a_wrong_choice_of_unseen_classes_is_one_line(train, flags, message):
    outcome = train(*flags, "--quiet")
    assert outcome.code == 2 and message in outcome.err and len(outcome.err.strip().splitlines()) == 1


def test_a_csv_file_may_state_the_split(classnorm, shapes, tmp_path, out, bag_of_words, no_report):
    files = [file.relative_to(shapes) for file in sorted(shapes.rglob("*.png"))]
    unseen = {"blue_bar", "red_bar"}
    lines = ["path;label;split"]
    for i, file in enumerate(files):
        lines.append(f"{shapes / file};{file.parent};{'test' if file.parent.name in unseen or i % 4 == 0 else 'train'}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    outcome = classnorm("train", "--images", tmp_path / "list.csv", *SMALL, *KERNEL, "--out", out)
    assert outcome.code == 0, outcome.err
    data = load(out / "features.npz")
    assert {name for name, seen in zip(data.class_names, data.seen, strict=True) if not seen} == unseen
    stated = [line.rsplit(";", 1)[1] == "train" for line in lines[1:]]
    assert np.isin(np.arange(len(files)), data.split.train).tolist() == stated
    (tmp_path / "list.csv").write_text("\n".join(lines).replace(";train", ";dev"))
    wrong = classnorm("train", "--images", tmp_path / "list.csv", *SMALL, *KERNEL, "--out", out)
    assert wrong.code == 2 and "is 'dev'; it must be train or test" in wrong.err


def test_a_labelled_folder_is_scored_entirely(classnorm, train, shapes, out):
    assert train("--unseen", "blue_bar", "--quiet").code == 0
    (shapes / "red_bar" / "broken.png").write_bytes(b"no image")
    try:
        outcome = classnorm("evaluate", out / "seed-0", shapes, "--json")
        shown = classnorm("evaluate", out / "seed-0", shapes)
        answers = csv.DictReader(io.StringIO(classnorm("predict", out / "seed-0", shapes, "--quiet").out))
    finally:
        (shapes / "red_bar" / "broken.png").unlink()
    document = json.loads(outcome.out)
    right = [answer["image"].split("/")[0] == answer["class"] for answer in answers]
    assert (document["images"], document["right"]) == (100, sum(right))
    assert document["skipped"] == ["red_bar/broken.png"]
    by_class = {row["class"]: row for row in document["classes"]}
    assert by_class["blue_bar"]["kind"] == "unseen" and by_class["red_bar"]["images"] == 10
    accuracies = [row["right"] / row["images"] for row in document["classes"] if row["kind"] == "seen"]
    assert document["scores"]["seen"] == pytest.approx(100 * np.mean(accuracies))
    assert f"{sum(right)} of 100 images right; 90 are of seen, 10 of unseen classes; 1 could not be read" in shown.out


def test_a_folder_with_a_class_that_the_model_does_not_know_is_refused(
    classnorm, train, shapes, out, tmp_path, write_image
):
    assert train("--unseen", "blue_bar", "--quiet").code == 0
    write_image(tmp_path / "photos" / "red_baar" / "one.png")
    outcome = classnorm("evaluate", out / "seed-0", tmp_path / "photos")
    assert outcome.code == 2 and "class 'red_baar'" in outcome.err and "did you mean 'red_bar'?" in outcome.err


def test_several_encoders_and_mirror_images_are_recorded_and_used_again_by_predict(classnorm, train, shapes, out):
    assert train("--encoder", "convnet+convnet-gray", "--flip").code == 0
    record = json.loads((out / "seed-0" / "encoder.json").read_text())
    assert [part["flip"] for part in record["parts"]] == [True, True]
    model = json.loads((out / "seed-0" / "model.json").read_text())
    assert model["config"]["feature_blocks"] == "128,128"  # each encoder has its own geometry
    data = load(out / "features.npz")
    picture = shapes / data.image_files[0]
    features = frozen_encoder("convnet+convnet-gray", 32, flip=True)
    expected, _ = encode_images([picture], features)
    np.testing.assert_allclose(data.features[0], expected[0], rtol=1e-4, atol=1e-5)
    named = classnorm("predict", out / "seed-0", picture, "--encoder", "convnet+convnet-gray", "--size", 32)
    assert classnorm("predict", out / "seed-0", picture).out == named.out != ""
    assert "using the features" in train("--encoder", "convnet+convnet-gray", "--flip").err
    assert "using the features" not in train("--encoder", "convnet+convnet-gray").err
