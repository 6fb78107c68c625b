"""`classnorm bench` as a user runs it."""

import json
import re

import pytest

from classnorm_lab.bench.measures import measured, measures, read_bench

SMALL = ("--quick", "--features-dim", 16, "--repeats", 1, "--threads", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(autouse=True)
def _no_child_processes(monkeypatch, request):
    """Children that load PyTorch take seconds; the slow test starts them."""
    if "slow" not in request.keywords:
        monkeypatch.setattr("classnorm_lab.bench.suite._cpu_seconds", lambda arguments: 0.5)


@pytest.fixture
def bench(folder, classnorm):
    """bench.json of a small run."""
    path = folder / "bench.json"
    if not path.is_file():
        assert classnorm("bench", *SMALL, "--out", folder, "--quiet").code == 0
    return path


def test_json_is_one_document_with_every_quantity(classnorm, tmp_path):
    outcome = classnorm("bench", *SMALL, "--shapes", "AwA1", "CUB", "--out", tmp_path, "--json", "--quiet")
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert {key: value for key, value in document.items() if key != "out"} == read_bench(tmp_path / "bench.json")
    assert document["machine"]["threads"] == 1
    assert document["settings"] == {"recipe": "reference", "features_dim": 16, "repeats": 1, "quick": True}
    assert list(document["shapes"]) == ["AwA1"]  # --quick measures one
    shape = document["shapes"]["AwA1"]
    assert (shape["data"], shape["rows"], shape["features_dim"], shape["epochs"]) == ("synthetic", 768, 16, 50)
    assert shape["sizes"] == {"seen": 40, "classes": 50, "attributes": 85}
    units = {name: measure.unit for name, measure in measures(document)}
    expected = {
        "AwA1 ours epoch": "s",
        "AwA1 textbook training": "s",
        "AwA1 ours step backward": "s",
        "AwA1 textbook over ours": "×",
        "AwA1 product share": "share",
        "AwA1 top 5": "rows/s",
        "AwA1 kernel fit": "s",
        "AwA1 kernel fit with calibration": "s",
        "ausuc time": "s",
        "start up help": "CPU s",
        "start up train help": "CPU s",
    }
    assert expected.items() <= units.items()
    assert all(0 < measure.low <= measure.median <= measure.high for _, measure in measures(document["ausuc"]))


def test_tables_and_files(classnorm, tmp_path):
    outcome = classnorm("bench", *SMALL, "--out", tmp_path)
    assert outcome.code == 0
    for words in ("s per epoch", "s for 50 epochs", "CUB ours (768 × 16, synthetic)", "CUB textbook", "backward"):
        assert words in outcome.out
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_a_busy_machine_is_told_on_stderr_and_in_the_document(classnorm, tmp_path, monkeypatch):
    monkeypatch.setattr("classnorm_lab.bench.suite.load_average", lambda: 99.0)
    outcome = classnorm("bench", *SMALL, "--out", tmp_path, "--json")
    (warning,) = json.loads(outcome.out)["warnings"]
    assert "load average 99.0" in warning
    assert f"classnorm: {warning}" in outcome.err


def test_compare_says_what_became_slower(classnorm, bench, tmp_path):
    old = json.loads(bench.read_text())
    old["ausuc"]["time"] = measured([1e-9], "s")
    old["start_up"]["help"] = measured([1e6], "CPU s")
    old["machine"]["threads"] = 7
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    outcome = classnorm("bench", *SMALL, "--out", tmp_path / "new", "--compare", path, "--quiet")
    assert outcome.code == 0
    assert re.search(r"ausuc time .* slower", outcome.out)
    assert re.search(r"start up help .* faster", outcome.out)
    assert "not the same conditions: threads 7 → 1\n" in outcome.out


def test_compare_is_part_of_the_json(classnorm, bench, tmp_path):
    outcome = classnorm("bench", *SMALL, "--out", tmp_path, "--compare", bench, "--json", "--quiet")
    comparison = json.loads(outcome.out)["comparison"]
    assert (comparison["differences"], comparison["unmatched"]) == ([], [])
    for change in comparison["changes"]:
        assert change["ratio"] == pytest.approx(change["new"]["median"] / change["old"]["median"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shapes", "cubb"], "did you mean 'CUB'?"),
        (["--repeats", 0], "--repeats is 0; it must be at least 1"),
        (["--threads", -1], "--threads is -1; it must be at least 1"),
        (["--features-dim", 0], "--features-dim is 0; it must be at least 1"),
        (["--compare", "nothing.json"], "nothing.json: no such file"),
        (["--compare", "pyproject.toml"], "give one that `classnorm bench` wrote"),
        (["--data-root", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_bad_input_is_one_line(classnorm, monkeypatch, request, tmp_path, arguments, words):
    monkeypatch.chdir(request.config.rootpath)
    outcome = classnorm("bench", *arguments, "--out", tmp_path / "out", "--quiet")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert words in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_start_up_is_measured_in_children(classnorm, tmp_path):
    outcome = classnorm("bench", *SMALL, "--out", tmp_path, "--json", "--quiet")
    start_up = json.loads(outcome.out)["start_up"]
    assert 0 < start_up["help"]["median"] <= start_up["train_help"]["median"]
