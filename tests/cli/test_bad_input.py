"""Mistakes at the command line: exit code 2, one line on stderr that names the culprit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch

Arrays = dict[str, Any]
Arguments = list[Any]


@dataclass(frozen=True)
class Kit:
    """What a case makes its mistake with."""

    folder: Path  # inputs
    out: Path  # outputs: must stay empty
    arrays: Arrays
    write_bundle: Callable[..., Path]
    write_gbu: Callable[..., Path]
    world: Any
    trained: Path

    def bundle(self, **changes: Any) -> Path:
        return self.write_bundle(self.folder / "zoo.npz", self.arrays | changes)

    def gbu(self, **changes: Any) -> Path:
        return self.write_gbu(self.folder / "zoo", self.arrays, **changes)

    def model(self) -> Path:
        return Path(shutil.copytree(self.trained, self.folder / "model"))

    def features(self, **changes: Any) -> Path:
        np.save(self.folder / "features.npy", changes.get("rows", self.world.features[:5]))
        return self.folder / "features.npy"

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def train(self, data: object, *flags: Any) -> Arguments:
        small = ["--hidden", 8, "--epochs", 1, "--calibration", "none", "--quiet"]
        return ["train", data, "--out", self.out, *small, *flags]

    def predict(self, *flags: Any, model: Path | None = None, features: Path | None = None) -> Arguments:
        return ["predict", model or self.trained, features or self.features(), "--quiet", *flags]


@pytest.fixture
def kit(
    tmp_path: Path,
    arrays: Arrays,
    write_bundle: Callable[..., Path],
    write_gbu: Callable[..., Path],
    world: Any,
    trained: Path,
) -> Kit:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    return Kit(tmp_path / "in", tmp_path / "out", arrays, write_bundle, write_gbu, world, trained)


def changed(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[index] = value
    return copy


def cut(path: Path, share: float = 0.6) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])


def flip(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(raw)


def without(content: Arrays, key: str) -> Arrays:
    return {name: value for name, value in content.items() if name != key}


Case = tuple[Callable[[Kit], Arguments], str]
CASES: dict[str, Case] = {}


def case(message: str) -> Callable[[Callable[[Kit], Arguments]], Callable[[Kit], Arguments]]:
    """Registers a mistake and the words its error must hold."""

    def register(make: Callable[[Kit], Arguments]) -> Callable[[Kit], Arguments]:
        assert make.__name__ not in CASES
        CASES[make.__name__] = make, message
        return make

    return register


# Files of a dataset


@case(r"no/such/place: no such dataset")
def missing_dataset(kit: Kit) -> Arguments:
    return kit.train(kit.folder / "no/such/place")


@case(r"res101\.mat: no such file; use --features vit")
def missing_feature_file(kit: Kit) -> Arguments:
    return kit.train(kit.gbu(features="vit"))


@case(r"att_splits\.mat: no such file")
def missing_split_file(kit: Kit) -> Arguments:
    folder = kit.gbu()
    (folder / "att_splits.mat").unlink()
    return kit.train(folder)


@case(r"zoo\.npz: the array 'labels' is missing")
def missing_array_of_a_bundle(kit: Kit) -> Arguments:
    return kit.train(kit.write_bundle(kit.folder / "zoo.npz", without(kit.arrays, "labels")))


@case(r"res101\.mat: the variable 'labels' is missing")
def missing_variable_of_a_folder(kit: Kit) -> Arguments:
    folder = kit.gbu()
    scipy.io.savemat(folder / "res101.mat", {"features": kit.arrays["features"].T})
    return kit.train(folder)


@case(r"res101\.mat: not a readable MATLAB file")
def truncated_mat_v5(kit: Kit) -> Arguments:
    folder = kit.gbu(version="v5")
    cut(folder / "res101.mat")
    return kit.train(folder)


@case(r"res101\.mat: not a readable MATLAB file")
def truncated_mat_v73(kit: Kit) -> Arguments:
    folder = kit.gbu(version="v7.3")
    cut(folder / "res101.mat")
    return kit.train(folder)


@case(r"att_splits\.mat: not a readable MATLAB file")
def not_a_mat_file(kit: Kit) -> Arguments:
    folder = kit.gbu()
    (folder / "att_splits.mat").write_text("<!DOCTYPE html><title>404</title>" * 30)
    return kit.train(folder)


@case(r"zoo\.npz: not a readable \.npz bundle")
def truncated_npz(kit: Kit) -> Arguments:
    path = kit.bundle()
    cut(path)
    return kit.train(path)


@case(r"zoo\.npz: not a readable \.npz bundle")
def npz_that_is_something_else(kit: Kit) -> Arguments:
    return kit.train(kit.file("zoo.npz", "a text"))


@case(r"zoo\.npz: .*Python objects, which are never loaded")
def npz_with_python_objects(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(class_names=np.array(kit.arrays["class_names"], dtype=object)))


@case(r"notes\.txt: not a dataset")
def dataset_of_another_kind(kit: Kit) -> Arguments:
    return kit.train(kit.file("notes.txt", "hello"))


@case(r"unknown setting of synthetic 'clases'; did you mean 'classes'")
def synthetic_with_an_unknown_setting(kit: Kit) -> Arguments:
    return kit.train("synthetic:clases=3")


@case(r"seed is -1; it must lie between 0")
def synthetic_with_a_negative_seed(kit: Kit) -> Arguments:
    return kit.train("synthetic:seed=-1")


# What a dataset holds


@case(r"zoo\.npz: features of row 17 \(0-based\) hold NaN or infinity")
def nan_in_the_features(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(features=changed(kit.arrays["features"], (17, 3), np.nan)))


@case(r"zoo\.npz: features of row 4 \(0-based\) hold NaN or infinity")
def infinities_of_both_signs_in_the_features(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(features=changed(kit.arrays["features"], ([4, 9], 0), [np.inf, -np.inf])))


@case(r"zoo\.npz: label 5 of row 2 \(0-based\) is out of range")
def label_out_of_range(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(labels=changed(kit.arrays["labels"], 2, 5)))


@case(r"zoo\.npz: labels must be whole numbers")
def labels_that_are_infinite(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(labels=np.full(30, np.inf)))


@case(r"res101\.mat: labels start at 0; GBU labels are 1-based")
def zero_based_labels_in_a_folder(kit: Kit) -> Arguments:
    return kit.train(kit.gbu(in_features={"labels": kit.arrays["labels"][:, None] * 1.0}))


@case(r"zoo\.npz: test_unseen names row 30 \(0-based\), but there are 30 rows")
def split_row_out_of_range(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(test_unseen_idx=np.append(kit.arrays["test_unseen_idx"], 30)))


@case(r"zoo\.npz: 1 rows are in both train and test_seen \(first: row 4, 0-based\)")
def split_parts_that_overlap(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(train_idx=np.append(kit.arrays["train_idx"], 4)))


@case(r"zoo\.npz: class 'zebra' is among the test rows of unseen classes and has training rows")
def unseen_class_among_the_training_rows(kit: Kit) -> Arguments:
    rows = kit.arrays["test_unseen_idx"]
    return kit.train(kit.bundle(train_idx=np.append(kit.arrays["train_idx"], rows[-1]), test_unseen_idx=rows[:-1]))


@case(r"zoo\.npz: 4 descriptors for 5 class names")
def fewer_descriptors_than_classes(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(descriptors=kit.arrays["descriptors"][:4]))


@case(r"zoo\.npz: the descriptor of class 'okapi' is all zero")
def descriptor_that_is_all_zero(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(descriptors=changed(kit.arrays["descriptors"], 3, 0)))


@case(r"zoo\.npz: no training rows")
def no_training_rows(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(train_idx=np.zeros(0, dtype=int)))


@case(r"res101\.mat: class 'quagga' is not in att_splits\.mat")
def class_names_of_the_two_files_that_differ(kit: Kit) -> Arguments:
    return kit.train(kit.gbu(in_features={"allclasses_names": ["ant", "bee", "cow", "okapi", "quagga"]}))


# Names and settings


@case(r"unknown command 'trian'; did you mean 'train'\?")
def unknown_command(kit: Kit) -> Arguments:
    return ["trian", kit.bundle()]


@case(r"unknown command 'data chek'; did you mean 'data check'\?")
def unknown_data_command(kit: Kit) -> Arguments:
    return ["data", "chek", kit.bundle()]


@case(r"unknown recipe 'refrence'; did you mean 'reference'\?")
def unknown_recipe(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--recipe", "refrence")


@case(r"unknown method 'clasnorm'; did you mean 'classnorm'\?")
def unknown_method(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--method", "clasnorm")


@case(r"--seed and --seeds exclude each other")
def seed_and_seeds(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--seed", 1, "--seeds", 2)


@case(r"--seeds is 0; it must be at least 1")
def no_seeds(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--seeds", 0)


@case(r"--seed is -1; it must lie between 0 and")
def negative_seed(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--seed", -1)


@case(r"calibration 'sometimes' is not understood")
def calibration_that_is_not_understood(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--calibration", "sometimes")


@case(r"calibration 'scale:-1' is not understood")
def calibration_with_a_negative_scale(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--calibration", "scale:-1")


@case(r"calibration 'validation:best' is not understood")
def calibration_by_an_unknown_validation(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--calibration", "validation:best")


@case(r"calibration 'validation' is not understood")
def calibration_by_validation_when_evaluating(kit: Kit) -> Arguments:
    return ["evaluate", kit.trained, kit.world.bundle, "--calibration", "validation"]


@case(r"epochs is 0; it must be at least 1")
def no_epochs(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--epochs", 0)


@case(r"lr is nan; it must be positive")
def learning_rate_that_is_no_number(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--lr", "nan")


@case(r"--top is 0; it must be at least 1")
def top_zero(kit: Kit) -> Arguments:
    return kit.predict("--top", 0)


@case(r"unknown class 'clas 17'; did you mean 'class 17'\?")
def only_an_unknown_class(kit: Kit) -> Arguments:
    assert "class 17" in kit.world.data.class_names
    return kit.predict("--only", "clas 17")


@case(r"--out .*answers\.xlsx: must end in \.csv or \.json")
def predictions_in_an_unknown_format(kit: Kit) -> Arguments:
    return kit.predict("--out", kit.out / "answers.xlsx")


@case(r"--float16 is for bundles")
def half_precision_in_a_folder(kit: Kit) -> Arguments:
    return ["data", "convert", kit.bundle(), kit.out / "folder", "--float16"]


# Models, features and descriptors


@case(r"nothing/model\.json: no such file")
def missing_model(kit: Kit) -> Arguments:
    return kit.predict(model=kit.folder / "nothing")


@case(r"typo/model\.json: no such file")
def model_named_wrongly_inside_a_run(kit: Kit) -> Arguments:
    return kit.predict(model=kit.trained / "typo")


@case(r"model\.json: not a classnorm model")
def model_of_another_kind(kit: Kit) -> Arguments:
    model = kit.model()
    (model / "model.json").write_text(json.dumps({"model": "resnet", "layers": 101}))
    return kit.predict(model=model)


@case(r"model\.json: the document is \[1, 2\], but must be an object")
def model_that_is_a_list(kit: Kit) -> Arguments:
    model = kit.model()
    (model / "model.json").write_text("[1, 2]")
    return kit.predict(model=model)


@case(r"model\.json: model format 99 is not understood; update classnorm")
def model_of_a_later_version(kit: Kit) -> Arguments:
    model = kit.model()
    document = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(document | {"version": 99}))
    return kit.predict(model=model)


@case(r"the model files do not fit together")
def model_whose_config_does_not_fit_its_weights(kit: Kit) -> Arguments:
    model = kit.model()
    document = json.loads((model / "model.json").read_text())
    document = without(document, "document_sha256")
    document["config"]["hidden"] = 32
    (model / "model.json").write_text(json.dumps(document))
    return kit.predict(model=model)


@case(r"model\.json: is not as it was written")
def model_whose_description_was_edited(kit: Kit) -> Arguments:
    model = kit.model()
    document = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(document | {"temperature": 3.5}))
    return kit.predict(model=model)


@case(r"model\.json: seen is missing; train the model again")
def model_that_lacks_an_entry(kit: Kit) -> Arguments:
    model = kit.model()
    document = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(without(without(document, "seen"), "document_sha256")))
    return kit.predict(model=model)


@case(r"model\.safetensors: damaged")
def model_with_a_flipped_byte(kit: Kit) -> Arguments:
    model = kit.model()
    flip(model / "model.safetensors", -100)
    return kit.predict(model=model)


@case(r"model\.safetensors: damaged")
def model_with_truncated_weights(kit: Kit) -> Arguments:
    model = kit.model()
    cut(model / "model.safetensors")
    return kit.predict(model=model)


@case(r"model\.json: not readable")
def model_with_a_truncated_description(kit: Kit) -> Arguments:
    model = kit.model()
    cut(model / "model.json")
    return ["evaluate", model, kit.world.bundle]


@case(r"model\.json: not readable")
def model_description_with_a_flipped_byte(kit: Kit) -> Arguments:
    model = kit.model()
    flip(model / "model.json", 20)
    return ["evaluate", model, kit.world.bundle]


@case(r"features\.npy: features have 63 dimensions; the model was trained on 64")
def features_of_another_dimension(kit: Kit) -> Arguments:
    return kit.predict(features=kit.features(rows=np.ones((4, 63))))


@case(r"features\.npy: features of row 2 \(0-based\) hold NaN or infinity")
def features_to_predict_that_are_not_finite(kit: Kit) -> Arguments:
    return kit.predict(features=kit.features(rows=changed(np.ones((4, 64)), (2, 0), np.nan)))


@case(r"new\.csv: the descriptor of class 'okapi' has 3 dimensions; the model was trained on 30")
def descriptors_of_another_dimension(kit: Kit) -> Arguments:
    return kit.predict("--descriptors", kit.file("new.csv", "okapi,1,2,3\n"))


@case(r"new\.json: the descriptor of class 'okapi' is all zero")
def new_descriptor_that_is_all_zero(kit: Kit) -> Arguments:
    return kit.predict("--descriptors", kit.file("new.json", json.dumps({"okapi": [0] * 30})))


@case(r"new\.json: class 'okapi' must be a list of numbers")
def new_descriptor_that_is_one_number(kit: Kit) -> Arguments:
    return kit.predict("--descriptors", kit.file("new.json", '{"okapi": 3}'))


@case(r"new\.xlsx: descriptors cannot be read from a \.xlsx file")
def descriptors_in_an_unknown_format(kit: Kit) -> Arguments:
    return kit.predict("--descriptors", kit.file("new.xlsx", "PK"))


@case(r"zoo: features have 7 dimensions; the model was trained on 64")
def evaluation_on_other_features(kit: Kit) -> Arguments:
    return ["evaluate", kit.trained, kit.bundle()]


@case(r"zoo: shares no class name with the model")
def evaluation_on_another_dataset(kit: Kit) -> Arguments:
    return ["evaluate", kit.trained, kit.bundle(features=np.ones((30, 64)))]


@case(r"no/such/run: no such folder")
def report_of_nothing(kit: Kit) -> Arguments:
    return ["report", kit.folder / "no/such/run", "--out", kit.out]


@case(r"in: holds no finished run")
def report_of_an_unfinished_run(kit: Kit) -> Arguments:
    return ["report", kit.folder, "--out", kit.out]


# Sizes that are mistakes


@case(r"--seed is 99999999999999999999; it must lie between 0 and 9,223,372,036,854,775,807")
def seed_beyond_64_bits(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--seed", "99999999999999999999")


@case(r"layers is 1000000000; it must be at most 100")
def a_billion_layers(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--layers", "1000000000")


@case(r"epochs is 10000000000000000000; it must be at most 1,000,000")
def epochs_without_end(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--epochs", "10000000000000000000")


@case(r"--jobs is -5; it must be at least 1, or 0 for one per core")
def negative_jobs(kit: Kit) -> Arguments:
    return ["search", kit.bundle(), "--jobs", "-5", "--out", kit.out]


@case(r"recipe\.json: hidden is 10000000; it must be at most 32,768")
def recipe_of_a_huge_model(kit: Kit) -> Arguments:
    recipe = {"format": "classnorm-recipe", "method": "classnorm", "config": {"hidden": 10**7}}
    return kit.train(kit.bundle(), "--recipe", kit.file("recipe.json", json.dumps(recipe)))


# Outputs


@case(r"cannot write .*file\.txt/runs: Not a directory")
def runs_below_a_file(kit: Kit) -> Arguments:
    return kit.train(kit.bundle(), "--out", kit.file("file.txt", "x") / "runs")


@case(r"cannot write .*file\.txt.*: (Not a directory|File exists)")
def predictions_below_a_file(kit: Kit) -> Arguments:
    return kit.predict("--out", kit.file("file.txt", "x") / "answers.csv")


@case(r"cannot write .*file\.txt.*: (Not a directory|File exists)")
def bundle_below_a_file(kit: Kit) -> Arguments:
    return ["data", "convert", kit.bundle(), kit.file("file.txt", "x") / "copy.npz"]


@case(r"cannot write .*file\.txt.*: (Not a directory|File exists)")
def folder_below_a_file(kit: Kit) -> Arguments:
    return ["data", "convert", kit.bundle(), kit.file("file.txt", "x") / "copy"]


@case(r"cannot write .*file\.txt.*: (Not a directory|File exists)")
def report_below_a_file(kit: Kit) -> Arguments:
    return ["report", kit.trained, "--out", kit.file("file.txt", "x") / "page"]


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_ends_in_one_line_and_leaves_nothing_behind(
    classnorm: Callable[..., Any], kit: Kit, name: str
) -> None:
    make, message = CASES[name]
    outcome = classnorm(*make(kit))
    assert outcome.code == 2
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("classnorm: error: ")
    assert re.search(message, lines[0]), lines[0]
    assert [path for path in kit.out.rglob("*") if path.is_file()] == []


def test_a_device_that_is_not_there_is_refused(classnorm: Callable[..., Any], kit: Kit) -> None:
    device = "mps" if torch.cuda.is_available() else "cuda"
    outcome = classnorm(*kit.train(kit.bundle(), "--device", device))
    assert outcome.code == 2
    assert outcome.err == f"classnorm: error: device {device!r} is not available on this machine; use --device auto\n"
    assert list(kit.out.iterdir()) == []


@pytest.mark.parametrize(
    "flags", [["--device", "mps"], ["--calibration", "scale:x"], ["--epochs", 0], ["--recipe", "papre"]]
)
def test_a_mistake_leaves_the_result_of_an_earlier_run_alone(
    classnorm: Callable[..., Any], kit: Kit, flags: Arguments
) -> None:
    result = kit.out / "seed-0" / "result.json"
    result.parent.mkdir()
    result.write_text("{}")
    assert classnorm(*kit.train(kit.bundle(), *flags)).code == 2
    assert result.read_text() == "{}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "glyphs", "--no-such-flag", "1"],
        ["train", "glyphs", "--epochs", "many"],
        ["train", "glyphs", "--device", "abacus"],
        ["predict"],
        ["evaluate", "model", "data", "--average", "median"],
        ["data", "check"],
    ],
    ids=" ".join,
)
def test_a_usage_error_exits_with_code_2(classnorm: Callable[..., Any], arguments: list[str]) -> None:
    outcome = classnorm(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err + outcome.out


# The same through a real process


def run_process(arguments: Arguments, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it; with `limit`, no file may grow beyond so many bytes."""
    return subprocess.run(
        [sys.executable, "-m", "classnorm", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unknown_command", "bundle_below_a_file", "model_with_a_flipped_byte"])
def test_a_process_ends_in_one_line_without_a_traceback(kit: Kit, name: str) -> None:
    make, message = CASES[name]
    ended = run_process(make(kit))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"classnorm: error: .*{message}.*\n", ended.stderr)


# A full disk: no file may grow beyond a limit, so that writes fail half-way

FULL = r"classnorm: error: cannot write .*: File too large; .*free some space\n"


@pytest.fixture
def on_a_full_disk(classnorm: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Runs the command in this process while no file may grow beyond `limit` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def run(arguments: Arguments, limit: int) -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            return classnorm(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    yield run
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def weights(kit: Kit) -> Arguments:
    return kit.train(kit.world.bundle, "--hidden", 64, "--checkpoint-every", 0)


def checkpoint(kit: Kit) -> Arguments:
    return kit.train(kit.world.bundle, "--hidden", 64, "--epochs", 2, "--checkpoint-every", 1)


def converted_bundle(kit: Kit) -> Arguments:
    return ["data", "convert", kit.world.bundle, kit.out / "copy.npz", "--quiet"]


def converted_folder(kit: Kit) -> Arguments:
    return ["data", "convert", kit.world.bundle, kit.out / "copy", "--quiet"]


def predictions(kit: Kit) -> Arguments:
    return kit.predict("--top", 35, "--out", kit.out / "answers.csv", features=kit.features(rows=kit.world.features))


@pytest.mark.parametrize("make", [weights, checkpoint, converted_bundle, converted_folder, predictions])
def test_a_full_disk_is_reported_and_leaves_no_piece_of_a_file(
    on_a_full_disk: Callable[..., Any], kit: Kit, make: Callable[[Kit], Arguments]
) -> None:
    arguments = make(kit)  # writes its inputs
    outcome = on_a_full_disk(arguments, limit=20_000)
    assert outcome.code == 2
    assert re.fullmatch(FULL, outcome.err)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("make", [converted_bundle, converted_folder])
def test_a_process_on_a_full_disk_says_nothing_more_when_it_exits(kit: Kit, make: Callable[[Kit], Arguments]) -> None:
    ended = run_process(make(kit), limit=20_000)
    assert ended.returncode == 2
    assert re.fullmatch(FULL, ended.stderr)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []


def test_a_disk_that_fills_up_after_the_weights_leaves_nothing(on_a_full_disk: Callable[..., Any], kit: Kit) -> None:
    tiny = kit.train(kit.world.bundle, "--hidden", 2, "--layers", 2, "--checkpoint-every", 0)
    outcome = on_a_full_disk(tiny, limit=6_800)  # between model.safetensors and predictions.npz
    assert outcome.code == 2
    assert re.fullmatch(FULL, outcome.err)
    assert [path.name for path in kit.out.rglob("*") if path.is_file()] == []
