"""`classnorm train` as a user runs it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import make_dataclass, replace

import numpy as np
import pytest

from classnorm.cli import main
from classnorm.data import SyntheticConfig, save_bundle, synthetic
from classnorm.methods import METHODS
from classnorm.results.run_folder import Result

QUICK = ["--hidden", "32", "--epochs", "3", "--lr", "3e-3"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "small.npz"
    save_bundle(synthetic(SyntheticConfig(classes=30, unseen=8, rows=900, features=32, attributes=20)), path)
    return path


def train_json(capsys, *arguments):
    main(["train", *map(str, arguments), "--json", "--quiet"])
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_a_label_names_the_runs_in_reports(capsys, bundle, tmp_path):
    for label in ("first try", "second try"):
        train_json(capsys, bundle, *QUICK, "--calibration", "none", "--label", label, "--out", tmp_path / label)
    main(["report", str(tmp_path), "--out", str(tmp_path / "report"), "--quiet"])
    table = (tmp_path / "report" / "results.md").read_text()
    assert "first try: classnorm · reference" in table and "second try: classnorm · reference" in table


def test_json_has_the_promised_shape(capsys, bundle, tmp_path):
    document = train_json(capsys, bundle, *QUICK, "--seeds", 2, "--out", tmp_path)
    assert {"dataset", "method", "recipe", "runs", "mean", "std"} <= document.keys()
    assert {"name", "checksum", "sizes"} <= document["dataset"].keys()
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    names = {"unseen", "seen", "harmonic", "zsl", "ausuc"}
    for run in document["runs"]:
        assert {"seed", "scores", "calibration", "train_seconds", "fit_seconds", "model"} <= run.keys()
        assert run["scores"].keys() == names
    for name in names:
        values = [run["scores"][name] for run in document["runs"]]
        assert document["mean"][name] == pytest.approx(np.mean(values), abs=1e-3)
        assert document["std"][name] == pytest.approx(np.std(values, ddof=1), abs=1e-3)


def test_the_next_step_says_what_the_file_of_features_holds(capsys, bundle, tmp_path):
    main(["train", str(bundle), *QUICK, "--calibration", "none", "--out", str(tmp_path), "--quiet"])
    step = capsys.readouterr().out.splitlines()[-1]
    command = f"next: classnorm predict {tmp_path / 'seed-0'} features.npy --top 3"
    assert step.startswith(f"{command}  # features.npy: rows of 32 numbers")


def test_the_model_path_of_a_run_is_a_run_folder(capsys, bundle, tmp_path):
    document = train_json(capsys, bundle, *QUICK, "--calibration", "none", "--out", tmp_path)
    from pathlib import Path

    assert Result.read(Path(document["runs"][0]["model"])).scores == document["runs"][0]["scores"]


def test_every_field_of_the_config_is_a_flag_and_reaches_the_training(capsys, bundle, tmp_path):
    flags = {
        "epochs": 2, "batch_size": 64, "optimizer": "adamw", "lr": 0.001, "weight_decay": 0.01, "momentum": 0.5,
        "schedule": "cosine", "lr_drop": 0.5, "lr_drop_at": 0.25, "grad_clip": 0.5, "calibration": "bias:0.25",
        "validation": "paper", "validation_splits": 1, "layers": 4, "hidden": 24,
        "attribute_normalization": "standardize", "normalization": "class-variance",
        "standardize_before_relu": False, "final_relu": False, "init": "xavier",
        "hidden_init": "kaiming_fan_in", "attribute_correction": True, "init_distribution": "normal",
        "logits": "cosine", "gamma": "auto", "learn_gamma": True, "entropy_weight": 0.002, "geometry": True,
        "power": 0.7, "dimensions": 8, "shrinkage": 0.2, "whitening": 0.4, "within": 0.5, "hubness": 0.0,
        "virtual_classes": 5, "descriptor_noise": 0.1,
    }  # fmt: skip
    arguments = [text for name, value in flags.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    document = train_json(capsys, bundle, *arguments, "--out", tmp_path)
    assert document["config"] == flags


@pytest.mark.parametrize("spelling", [["--final-relu", "False"], ["--final-relu=False"], ["--no-final-relu"]])
def test_a_truth_value_can_be_denied_in_three_spellings(capsys, bundle, tmp_path, spelling):
    document = train_json(capsys, *spelling, bundle, *QUICK, "--calibration", "none", "--out", tmp_path)
    assert document["config"]["final_relu"] is False


@pytest.mark.parametrize("spelling", [["--learn-gamma", "True"], ["--learn-gamma"]])
def test_a_truth_value_needs_no_value_to_be_affirmed(capsys, bundle, tmp_path, spelling):
    document = train_json(capsys, *spelling, bundle, *QUICK, "--calibration", "none", "--out", tmp_path)
    assert document["config"]["learn_gamma"] is True


@pytest.mark.parametrize("command", ["train", "search"])
@pytest.mark.parametrize("method", METHODS)
def test_the_help_of_a_method_lists_its_own_settings_and_all_methods(capsys, monkeypatch, command, method):
    monkeypatch.setenv("COLUMNS", "100")  # wider help has two columns
    with pytest.raises(SystemExit) as caught:
        main([command, "--method", method, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    flags = set(re.findall(r"^\W*?(--[a-z-]+)", out, flags=re.MULTILINE))
    settings = {f"--{name.replace('_', '-')}" for name in METHODS[method].config.__dataclass_fields__}
    assert settings <= flags
    others = {f"--{name.replace('_', '-')}" for name in METHODS["classnorm"].config.__dataclass_fields__} - settings
    assert not others & flags
    assert f"classnorm {command} --method NAME --help" in re.sub(r"[\s│]+", " ", out)
    assert all(name in out for name in METHODS)


@pytest.mark.parametrize("spelling", [["--method", "fclswgan"], ["--method=fclswgan"]])
def test_a_method_is_trained_with_flags_of_its_own(capsys, bundle, tmp_path, spelling):
    quick = ["--epochs", "1", "--hidden", "8", "--critic-steps", "2", "--synthesized", "5", "--classifier-epochs", "1"]
    document = train_json(capsys, bundle, *spelling, *quick, "--calibration", "none", "--out", tmp_path)
    assert document["method"] == "fclswgan"
    assert (document["config"]["critic_steps"], document["config"]["synthesized"]) == (2, 5)


@pytest.mark.parametrize("command", ["train", "search"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "clasnorm"], "unknown method 'clasnorm'; did you mean 'classnorm'?"),
        (["--method=clasnorm", "--help"], "unknown method 'clasnorm'; did you mean 'classnorm'?"),
    ],
)
def test_an_unknown_method_is_answered_with_the_nearest_name(classnorm, bundle, command, arguments, message):
    outcome = classnorm(command, bundle, *arguments)
    assert outcome.code == 2 and message in outcome.err


@pytest.fixture
def outside_method(monkeypatch):
    """A registered method with a setting called like a flag of `train`."""
    base = METHODS["eszsl"]
    config = make_dataclass("Config", [("checkpoint_every", int, 3)], bases=(base.config,), frozen=True, kw_only=True)
    monkeypatch.setitem(METHODS, "outside", replace(base, config=config))


@pytest.mark.parametrize("spelling", ["--checkpoint-every", "--checkpoint_every"])
def test_a_flag_of_the_command_is_never_taken_for_a_setting_of_another_method(
    capsys, bundle, tmp_path, outside_method, spelling
):
    train_json(capsys, bundle, *QUICK, "--calibration", "none", spelling, "1", "--out", tmp_path)


def test_a_setting_called_like_a_flag_of_the_command_is_one_line(classnorm, bundle, outside_method):
    outcome = classnorm("train", bundle, "--method", "outside")
    error = "method outside: its setting checkpoint_every has the name of a flag of the command; rename it"
    assert (outcome.code, outcome.err) == (2, f"classnorm: error: {error}\n")


def test_a_flag_of_another_method_is_refused(classnorm, bundle):
    outcome = classnorm("train", bundle, "--method", "fclswgan", "--gamma", "5")
    assert outcome.code == 2 and "gamma" in outcome.err


def test_a_method_that_refuses_the_data_leaves_no_folders(classnorm, bundle, tmp_path):
    outcome = classnorm("train", bundle, "--method", "clip", "--out", tmp_path / "new" / "runs")
    assert outcome.code == 2 and "clip compares images and text of one model" in outcome.err
    assert not any(tmp_path.iterdir())


def test_the_table_goes_to_stdout_and_progress_to_stderr(capsys, bundle, tmp_path):
    main(["train", str(bundle), *QUICK, "--calibration", "none", "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert "AUSUC" in out
    assert "training: 3/3, loss" in err
    assert "loss" not in out


def test_the_default_folder_says_dataset_method_and_recipe(capsys, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_json(capsys, bundle, *QUICK, "--calibration", "none", "--recipe", "baseline", "--seed", 3)
    assert (tmp_path / "runs" / "synthetic" / "classnorm-baseline" / "seed-3" / "result.json").is_file()


@pytest.mark.long
@pytest.mark.slow
def test_a_run_killed_by_a_signal_resumes_to_the_same_weights(bundle, tmp_path):
    """A real process, a real SIGKILL, the same bytes in the end."""
    base = [sys.executable, "-m", "classnorm", "train", str(bundle), "--hidden", "256", "--epochs", "60"]
    base += ["--calibration", "none", "--checkpoint-every", "3", "--quiet", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*base, "--out", str(tmp_path / "whole")], check=True, env=environment, stdout=subprocess.DEVNULL)
    victim = subprocess.Popen([*base, "--out", str(tmp_path / "killed")], env=environment, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "killed" / "seed-0" / "checkpoint" / "training.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and victim.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert checkpoint.exists(), "the run ended before it could be killed"
    subprocess.run(
        [*base, "--out", str(tmp_path / "killed"), "--resume"], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    weights = [(tmp_path / name / "seed-0" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
    assert not checkpoint.exists()


def test_weights_of_descriptor_blocks_are_shown_and_recorded(capsys, bundle, tmp_path):
    main(["train", str(bundle), "--method", "kernel", "--blocks", "5,15", "--out", str(tmp_path), "--quiet"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("block weights: ")]
    weights = json.loads((tmp_path / "seed-0" / "result.json").read_text())["choices"]["block_weights"]
    assert line == f"block weights: {weights[0]}, {weights[1]} (chosen by the fit)"
    assert sum(weights) == pytest.approx(1.0)
