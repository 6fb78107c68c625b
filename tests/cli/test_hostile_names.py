"""Names in files of others: no file is written elsewhere, and nothing in a name is a command."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, save_bundle, synthetic
from classnorm.io.escapes import file_name

COMMANDS = {
    "train": ["--hidden", 8, "--epochs", 1, "--calibration", "none"],
    "search": ["--sampler", "grid", "--space", "lr=1e-3", "--epochs", 1, "--hidden", 8, "--splits", 1, "--jobs", 1],
    "continual": ["--tasks", 2, "--hidden", 8, "--epochs", 1],
    "analyze attributes": [],
}


@pytest.mark.parametrize(
    ("command", "name"), [*((command, "../../outside") for command in COMMANDS), ("train", "{root}/outside")]
)
def test_a_dataset_name_never_leads_out_of_the_output_folder(classnorm, tmp_path, monkeypatch, command, name):
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8, attributes=5))
    save_bundle(replace(data, name=name.format(root=tmp_path)), here / "data.npz")
    outcome = classnorm(*command.split(), "data.npz", *COMMANDS[command])
    assert outcome.code == 0, outcome.err
    assert {path.name for path in tmp_path.iterdir()} == {"a"} and {p.name for p in (tmp_path / "a").iterdir()} == {"b"}
    assert {path.name for path in here.iterdir()} == {"data.npz", "runs"}
    [folder] = (here / "runs").iterdir()
    assert folder.name == file_name(name.format(root=tmp_path))


def test_different_names_have_different_folders():
    names = ["a/b", "a-b", "a b", "a:b", "A/b", "a//b", "", ".", "x" * 300, "x" * 301, "..", "/a/b", "a/b/"]
    assert len(set(map(file_name, names))) == len(names)


def test_a_name_with_markup_and_control_characters_trains_and_prints_as_text(
    classnorm, arrays, write_bundle, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_bundle(tmp_path / "data.npz", arrays | {"name": np.array("a[/b] \x1b[2J\x9b31m")})
    outcome = classnorm("train", "data.npz", *COMMANDS["train"], "--out", "run")
    assert outcome.code == 0
    assert "a[/b]" in outcome.out and not set("\x1b\x9b") & set(outcome.out + outcome.err)


def test_predictions_in_csv_are_no_formulas_and_do_not_control_the_terminal(
    classnorm, arrays, write_bundle, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = ['=HYPERLINK("x")', "@b", "-c|d", "+1 f", "plain"]
    bundle = write_bundle(tmp_path / "data.npz", arrays | {"class_names": np.array(names)})
    assert classnorm("train", bundle, *COMMANDS["train"], "--out", "run").code == 0
    np.save("x.npy", arrays["features"])
    rows = list(csv.DictReader(io.StringIO(classnorm("predict", "run/seed-0", "x.npy", "--top", 5).out)))
    assert {row["class"] for row in rows} == {f"'{name}" for name in names[:4]} | {"plain"}
