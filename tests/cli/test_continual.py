"""`classnorm continual` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, save_bundle, save_gbu, synthetic

SMALL = ["--tasks", "4", "--hidden", "16", "--epochs", "1", "--quiet"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    save_bundle(synthetic(SyntheticConfig(classes=12, unseen=3, rows=240, features=16, attributes=10)), path)
    return path


def test_the_document_has_what_scripts_rely_on(classnorm, bundle, tmp_path):
    outcome = classnorm("continual", bundle, *SMALL, "--seeds", 2, "--json", "--out", tmp_path)
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert set(document["scores"]) == {"mSA", "mUA", "mH", "mAUC", "mJA", "forgetting"}
    assert document["scores"] == document["mean"]
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    assert len(document["per_task"]) == 4
    assert document["per_task"][-1]["unseen"] is None
    mean = np.mean([run["scores"]["mH"] for run in document["runs"]])
    assert document["mean"]["mH"] == pytest.approx(mean, abs=1e-3)


@pytest.mark.parametrize("strategy", ["sequential", "multitask", "ewc", "mas", "agem", "replay", "lwf"])
@pytest.mark.parametrize("flag", ["--class-norm", "--no-class-norm"])
def test_every_strategy_runs_with_and_without_class_normalization(classnorm, bundle, tmp_path, strategy, flag):
    outcome = classnorm("continual", bundle, "--strategy", strategy, flag, *SMALL, "--json", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    config = json.loads(outcome.out)["runs"][0]["config"]
    assert config["class_norm"] == (flag == "--class-norm")


def test_validation_tasks_choose_what_is_not_given(classnorm, bundle, tmp_path):
    arguments = ["--strategy", "ewc", "--penalty", "3", "--validation-tasks", "2", "--jobs", "1", "--out", tmp_path]
    outcome = classnorm("continual", bundle, *SMALL, *arguments)
    assert outcome.code == 0, outcome.err
    assert "chosen by mAUC on the first 2 tasks: lr" in outcome.out
    assert "after task 2" in outcome.out and "after task 3" not in outcome.out
    saved = json.loads((tmp_path / "seed-0" / "result.json").read_text())
    assert saved["config"]["penalty"] == 3
    assert saved["stream"]["part"] == [2, None]


@pytest.mark.slow
def test_hard_streams_are_recorded_and_have_sections_of_their_own(classnorm, bundle, tmp_path):
    hard = ["--blurry", "0.4", "--late-attributes", "0.5", "--rows-at-once", "8"]
    for flags, folder in ((hard, "hard"), ([], "plain")):
        assert classnorm("continual", bundle, *SMALL, *flags, "--out", tmp_path / folder).code == 0
    saved, plain = (json.loads((tmp_path / f / "seed-0" / "result.json").read_text()) for f in ("hard", "plain"))
    assert saved["stream"]["arrivals"] == {"blurry": 0.4, "late_attributes": 0.5, "rows_at_once": 8}
    assert plain["stream"]["arrivals"] == {}
    assert saved["stream"]["checksum"] != plain["stream"]["checksum"]
    outcome = classnorm("report", tmp_path / "hard", "--format", "markdown")
    assert "blurry 0.4, late attributes 0.5, rows at once 8" in outcome.out, "alone, too"
    outcome = classnorm("report", tmp_path / "hard", tmp_path / "plain", "--format", "markdown")
    assert "blurry 0.4, late attributes 0.5, rows at once 8" in outcome.out and "plain stream" in outcome.out
    outcome = classnorm("continual", bundle, *SMALL, "--imbalance", "0.5", "--out", tmp_path / "wrong")
    assert outcome.code == 2 and "imbalance is 0.5; it must be at least 1" in outcome.err


@pytest.mark.slow
def test_a_stream_of_images_is_planned_before_it_starts(classnorm, tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path / "cache"))
    arguments = ["--tasks", "2", "--epochs", "1", "--encoder", "convnet-gray", "--size", "16"]
    outcome = classnorm("continual", "glyphs-light", *arguments, "--freeze-blocks", "3", "--augment", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "plan: 2 tasks" in outcome.err and "rows to train on at" in outcome.err
    outcome = classnorm("continual", "glyphs-light", "--freeze-blocks", "3", "--out", tmp_path / "none")
    assert outcome.code == 2 and "name it with --encoder" in outcome.err


def test_the_wide_grid_is_for_penalties(classnorm, bundle, tmp_path):
    arguments = ["--validation-tasks", "2", "--lr", "0.01", "--select-grid", "wide", "--jobs", "1", "--out", tmp_path]
    outcome = classnorm("continual", bundle, *SMALL, *arguments, "--strategy", "mas", "--json")
    [choice] = json.loads(outcome.out)["chosen"]
    assert list(choice["settings"]) == ["penalty"]
    assert len(list((tmp_path / "validation").glob("*/result.json"))) == 8  # 6 values, 2 neighbours of the best
    outcome = classnorm("continual", bundle, *SMALL, *arguments, "--strategy", "agem")
    assert outcome.code == 2 and "agem has no penalty" in outcome.err


@pytest.mark.slow
def test_the_analytic_strategy_chooses_its_bias(classnorm, bundle, tmp_path):
    arguments = ["--strategy", "analytic", "--tasks", "4", "--validation-tasks", "2", "--jobs", "1", "--quiet"]
    outcome = classnorm("continual", bundle, *arguments, "--json", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["chosen"][0]["settings"]["bias"] == document["runs"][0]["config"]["bias"]
    fixed = ["--descriptor-power", "1", "--error-share", "0", "--ridge", "0.3", "--length", "1", "--bias", "0.05"]
    outcome = classnorm("continual", bundle, *arguments, *fixed, "--out", tmp_path / "o")
    assert outcome.code == 2 and "nothing to choose" in outcome.err
    outcome = classnorm("continual", bundle, *arguments, "--bias", "0.05", "--out", tmp_path / "p")
    assert (
        "synthetic: analytic; percent" in outcome.out
        and "chosen by mAUC on the first 2 tasks: descriptor_power" in outcome.out
    )
    assert "bias" not in outcome.out


def test_other_strategies_choose_a_bias_when_asked(classnorm, bundle, tmp_path):
    arguments = ["--validation-tasks", "2", "--calibrate", "--lr", "0.01", "--jobs", "1", "--json", "--out", tmp_path]
    document = json.loads(classnorm("continual", bundle, *SMALL, *arguments).out)
    assert list(document["chosen"][0]["settings"]) == ["bias"]


def test_the_grid_of_the_paper(classnorm, bundle, tmp_path):
    arguments = ["--validation-tasks", "2", "--select-grid", "paper", "--jobs", "1", "--out", tmp_path, "--json"]
    fixed = ["--momentum", "0.9", "--grad-clip", "10"]
    document = json.loads(classnorm("continual", bundle, *SMALL, *arguments, *fixed).out)
    assert set(document["chosen"][0]["settings"]) == {"init_distribution", "lr"}
    assert len(list((tmp_path / "validation").glob("*/result.json"))) == 4


def test_simulated_features_are_called_so(classnorm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("classnorm.data.loading._SIMULATED_ROWS", 240)
    save_gbu(synthetic(SyntheticConfig(classes=12, unseen=3, rows=60, features=8, attributes=10)), tmp_path / "zoo")
    (tmp_path / "zoo" / "features.mat").unlink()
    outcome = classnorm("continual", "simulated:zoo", "--tasks", "3", "--hidden", "16", "--epochs", "1")
    assert outcome.code == 0, outcome.err
    assert "features are simulated" in outcome.err
    assert "zoo (simulated features): sequential" in outcome.out
    saved = json.loads(
        (tmp_path / "runs/zoo (simulated features)/continual-sequential-cn-tasks-3/seed-0/result.json").read_text()
    )
    assert saved["dataset"]["name"] == "zoo (simulated features)"


def test_an_image_split_decides_the_training_rows(classnorm, bundle, tmp_path):
    data = synthetic(SyntheticConfig(classes=12, unseen=3, rows=240, features=16, attributes=10))
    files = [f"{data.labels[i]}/{i}.jpg" for i in range(data.n_rows)]
    named = tmp_path / "named.npz"
    save_bundle(replace(data, image_files=tuple(files)), named)
    table = "path,is_train\n" + "".join(f"{file},{i % 24 < 12}\n" for i, file in enumerate(files))
    (tmp_path / "split.csv").write_text(table)
    outcome = classnorm(
        "continual", named, *SMALL, "--image-split", tmp_path / "split.csv", "--json", "--out", tmp_path / "o"
    )
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["runs"][0]["stream"]["image_split"] == "official"


def test_streams_of_different_kinds_have_different_folders(classnorm, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags in ([], ["--blurry", "0.3"], ["--bias", "0.1"]):
        outcome = classnorm("continual", bundle, "--strategy", "analytic", "--tasks", "3", *flags)
        assert outcome.code == 0, outcome.err
        assert ("blurry 0.3" in outcome.out) == ("--blurry" in flags)
        assert ("not calibrated" in outcome.out) == ("--bias" not in flags)
    [folder] = (tmp_path / "runs").iterdir()
    names = ["continual-analytic-tasks-3", "continual-analytic-tasks-3-blurry-0.3"]
    assert sorted(f.name for f in folder.iterdir()) == names


def test_the_name_of_a_strategy_may_be_that_of_a_folder(classnorm, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = classnorm("continual", bundle, *SMALL, "--no-class-norm", "--out", "analytic", "--json")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "analytic" / "seed-0" / "result.json").is_file()


def test_it_ends_with_a_page_unless_a_script_asked(classnorm, bundle, tmp_path):
    outcome = classnorm("continual", bundle, *SMALL, "--seeds", 2, "--out", tmp_path / "a")
    page = tmp_path / "a" / "report" / "index.html"
    assert outcome.out.endswith(f"runs: {tmp_path / 'a'}\nreport: {page}\n")
    assert "sequential + CN" in page.read_text(encoding="utf-8")
    outcome = classnorm("continual", bundle, *SMALL, "--json", "--out", tmp_path / "b")
    assert "report" not in json.loads(outcome.out)
    assert not (tmp_path / "b" / "report").exists()


def test_a_report_leaves_out_what_validation_tried(classnorm, bundle, tmp_path):
    arguments = ["--validation-tasks", "2", "--seeds", 2, "--jobs", 1, "--json"]
    runs = json.loads(classnorm("continual", bundle, *SMALL, *arguments, "--out", tmp_path / "a").out)["runs"]
    outcome = classnorm("report", tmp_path / "a", "--out", tmp_path / "page", "--json")
    [stream] = json.loads(outcome.out)["streams"]
    assert (stream["model"], stream["dataset"], stream["seeds"]) == ("sequential + CN", "synthetic, tasks 3 to 4", 2)
    assert stream["mean"]["mH"] == pytest.approx(np.mean([run["scores"]["mH"] for run in runs]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "many"], "--tasks 'many' is not understood"),
        (["--tasks", "9"], "cannot make 9 tasks"),
        (["--tasks", "5,5"], "add up to the 12 classes"),
        (["--strategy", "sequentail"], "did you mean 'sequential'"),
        (["--seed", "1", "--seeds", "2"], "exclude each other"),
        (["--seeds", "0"], "at least 1"),
        (["--lr", "-1"], "lr is -1.0"),
        (["--encoder", "convnet-gray"], "--images DIR"),
        (["--validation-tasks", "9"], "at least 2 must choose"),
        (["--validation-tasks", "2", "--lr", "0.1"], "nothing to choose"),
        (["--image-split", "absent.txt"], "absent.txt"),
        (["--strategy", "analytic", "--no-class-norm"], "leave out --class-norm"),
        (["--strategy=analytic", "--class-norm"], "strategy analytic has no setting class_norm"),
        (["--strategy", "agem", "--penalty", "3"], "strategy agem has no setting penalty; leave out --penalty"),
        (["--strategy", "analytic", "--encoder", "convnet-gray"], "leave out --encoder"),
        (["--strategy", "ranpac", "--encoder", "convnet-gray"], "leave out --encoder"),
        (["--strategy", "analytic", "--validation-tasks", "2", "--select-grid", "paper"], "not in the paper"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(refused, bundle, tmp_path, arguments, message):
    assert message in refused("continual", bundle, "--quiet", *arguments, "--out", tmp_path / "out")


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_scores(bundle, tmp_path):
    command = [
        sys.executable,
        "-m",
        "classnorm",
        "continual",
        str(bundle),
        "--tasks",
        "4",
        "--hidden",
        "64",
        "--epochs",
        "30",
    ]
    once = subprocess.Popen([*command, "--out", str(tmp_path / "killed")], stderr=subprocess.DEVNULL)
    folder = tmp_path / "killed" / "seed-0"
    deadline = time.monotonic() + 60
    while (
        not (folder / "checkpoint" / "logits-02.npy").is_file() and once.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    once.send_signal(signal.SIGKILL)
    once.wait()
    assert not (folder / "result.json").is_file()  # killed in the middle
    environment = dict(os.environ)
    subprocess.run([*command, "--resume", "--quiet", "--out", str(tmp_path / "killed")], check=True, env=environment)
    subprocess.run([*command, "--quiet", "--out", str(tmp_path / "whole")], check=True, env=environment)
    killed, whole = (
        json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("killed", "whole")
    )
    assert killed["matrix"] == whole["matrix"]
    assert killed["scores"] == whole["scores"]
