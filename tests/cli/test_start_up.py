"""Help, reports and usage errors come at once: they load neither PyTorch nor other packages that take long."""

import json
import subprocess
import sys

import pytest

from classnorm.cli import commands
from classnorm.continual import STRATEGIES
from classnorm.continual.strategies import strategy_config
from classnorm.methods import METHODS

HEAVY = [
    "torch",
    "transformers",
    "sklearn",
    "scipy",
    "matplotlib",
    "pandas",
    "pyarrow",
    "h5py",
    "optuna",
    "ray",
    "starlette",
    "uvicorn",
]
DATA = "synthetic:classes=10,unseen=3,rows=100,features=8"
HELP = [
    ["--help"],
    *([*command.split(), "--help"] for command in commands()),
    *(["train", "--method", method, "--help"] for method in METHODS if "classnorm." in METHODS.reference(method)),
    *(["search", "--method", method, "--help"] for method in ("kernel", "ale")),
    *(["continual", "--strategy", strategy, "--help"] for strategy in STRATEGIES),
]
MISTAKES = {
    "unknown command": ["trian"],
    "unknown flag": ["train", DATA, "--no-such-flag", "1"],
    "flag of another method": ["train", DATA, "--method", "eszsl", "--hidden", "8"],
    "flag of another strategy": ["continual", DATA, "--strategy", "ewc", "--temperature", "2"],
    "wrong type": ["train", DATA, "--epochs", "many"],
    "wrong choice": ["train", DATA, "--schedule", "never"],
    "unknown method": ["train", DATA, "--method", "classnrom"],
    "unknown method of search": ["search", DATA, "--method", "classnrom"],
    "unknown recipe": ["train", DATA, "--recipe", "secret"],
    "unknown strategy": ["continual", DATA, "--strategy", "never"],
    "unknown encoder": ["train", "--images", "glyphs-light", "--encoder", "resnet1"],
    "unknown encoder of extract": ["extract", "glyphs-light", "--encoder", "resnet1", "--out", "x.npz"],
    "unknown encoder of continual": ["continual", DATA, "--encoder", "resnet1"],
    "unknown encoder of predict": ["predict", "model", "photos", "--encoder", "resnet1"],
    "unknown text encoder": ["describe", "names.txt", "--encoder", "minilmm", "--out", "x.npz"],
    "unknown dataset": ["train", "glpyhs"],
    "unknown dataset of search": ["search", "glpyhs"],
    "unknown dataset of continual": ["continual", "glpyhs"],
    "unknown dataset of analyze": ["analyze", "variance", "glpyhs"],
    "unknown dataset of data check": ["data", "check", "glpyhs"],
    "unknown table": ["reproduce", "mian"],
    "unknown dataset of reproduce": ["reproduce", "main", "--data", "glpyhs"],
    "missing argument": ["predict"],
    "missing model of evaluate": ["evaluate", "model"],
    "no model there": ["evaluate", "nowhere", DATA],
    "no model to export": ["export", "nowhere", "x.onnx"],
    "no model to predict with": ["predict", "nowhere", "features.npy"],
    "no model to serve": ["serve", "nowhere"],
    "token of a server": ["serve", "--host", "0.0.0.0"],
    "limit of a server": ["serve", "--body-mb", "0"],
    "no runs there": ["report", "nowhere"],
    "setting out of range": ["train", DATA, "--lr", "-1"],
    "setting of kernel out of range": ["train", DATA, "--method", "kernel", "--ridge", "0"],
    "setting of a search out of range": ["search", DATA, "--epochs", "0"],
    "trials out of range": ["search", DATA, "--trials", "0"],
    "search space": ["search", DATA, "--space", "lr=high"],
    "setting of a strategy out of range": [
        "continual",
        DATA,
        "--tasks",
        "2",
        "--strategy",
        "lwf",
        "--temperature",
        "0",
    ],
    "tasks": ["continual", DATA, "--tasks", "some"],
    "seeds out of range": ["train", DATA, "--seeds", "0"],
    "iterations out of range": ["analyze", "smoothness", DATA, "--iterations", "0"],
    "calibration": ["evaluate", "model", DATA, "--calibration", "scale:x"],
}
SCRIPT = """
import contextlib, io, json, sys
from classnorm.cli import main

for arguments in json.load(sys.stdin):
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            code = main(arguments) or 0
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, error.getvalue(), sorted(set(sys.argv[1:]) & set(sys.modules))]), flush=True)
"""


def loaded(commands, folder):
    """Exit code, stderr and loaded heavy packages of each command, run one after another in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *HEAVY],
        input=json.dumps(commands),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_no_help_loads_pytorch(tmp_path):
    for arguments, (code, error, heavy) in zip(HELP, loaded(HELP, tmp_path), strict=True):
        assert (code, error, heavy) == (0, "", []), arguments


def test_no_usage_error_loads_pytorch(tmp_path):
    (tmp_path / "names.txt").write_text("zebra\nokapi\n", encoding="utf-8")
    for (kind, arguments), (code, error, heavy) in zip(
        MISTAKES.items(), loaded([*MISTAKES.values()], tmp_path), strict=True
    ):
        assert code == 2, (kind, error)
        assert "Traceback" not in error, kind
        assert not heavy, (kind, arguments, error)


def test_reports_are_made_without_pytorch(write_stream, tmp_path):
    write_stream(tmp_path / "stream", [[60.0, None], [40.0, 70.0]])
    [(code, error, heavy)] = loaded([["report", "stream", "--out", "report"]], tmp_path)
    assert code == 0, error
    assert "torch" not in heavy


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_settings_that_help_shows_are_those_of_the_strategy(name):
    assert strategy_config(name) is STRATEGIES[name].Config


def test_names_of_a_package_are_found_where_they_are_defined():
    import classnorm.methods
    from classnorm.methods.model import ZeroShotModel

    assert classnorm.methods.ZeroShotModel is ZeroShotModel
    assert "ZeroShotModel" in dir(classnorm.methods)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = classnorm.methods.Nothing
