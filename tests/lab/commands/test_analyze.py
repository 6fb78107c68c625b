"""`classnorm analyze` as a user runs it."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from classnorm.cli import main
from classnorm.cli.messages import as_flags
from classnorm.data import SyntheticConfig, load, save_bundle, save_gbu, synthetic
from classnorm.results.artifact import Artifact
from classnorm_lab.diagnoses.attributes import attribute_advice, attribute_statistics
from classnorm_lab.diagnoses.variance import variance_advice

FAST = {
    "variance": ["--iterations", 5, "--seeds", 1, "--jobs", 1],
    "smoothness": ["--iterations", 4, "--every", 2, "--hidden", 8, "--jobs", 1],
    "attributes": [],
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    save_bundle(synthetic(SyntheticConfig(classes=24, unseen=6, rows=480, features=16, attributes=12)), path)
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Where diagnoses are kept between the tests, as between two commands."""
    return tmp_path_factory.mktemp("out")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_command_alone_lists_the_three(classnorm, arguments):
    outcome = classnorm("analyze", *arguments)
    assert outcome.code == 0
    assert re.findall(r"^  (analyze \w+)", outcome.out, re.M) == [f"analyze {kind}" for kind in FAST]


def test_another_kind_is_answered_with_the_nearest(classnorm):
    outcome = classnorm("analyze", "varience")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "did you mean 'analyze variance'?" in outcome.err


@pytest.mark.parametrize("kind", FAST)
def test_json_is_one_document(classnorm, bundle, out, kind):
    outcome = classnorm("analyze", kind, bundle, *FAST[kind], "--out", out / kind, "--json", "--quiet")
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert (document["dataset"], document["kind"], document["out"]) == ("synthetic", kind, str(out / kind))
    assert document["verdict"] == document["data"]["verdict"]
    if kind == "attributes":
        assert document["verdict"] == attribute_advice(attribute_statistics(load(bundle).descriptors))
    if kind == "variance":
        assert document["verdict"] == [as_flags(line) for line in variance_advice(load(bundle))[0]]


@pytest.mark.parametrize("kind", FAST)
def test_a_verdict_is_printed_and_files_are_written(classnorm, bundle, out, kind):
    outcome = classnorm("analyze", kind, bundle, *FAST[kind], "--out", out / kind, "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    files = {path.name for path in (out / kind).iterdir()}
    assert {"table.md", "table.csv", "table.tex", "data.json", "artifact.json"} <= files
    verdict = json.loads((out / kind / "data.json").read_text())["verdict"]
    assert len(verdict) >= 2 and all(line in outcome.out.splitlines() for line in verdict)
    plots = outcome.out.splitlines()[-1].removeprefix("plots: ").split(", ")
    assert plots and all(Path(plot).read_bytes().startswith(b"\x89PNG") for plot in plots)


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("variance", "iterations"),
        ("variance", "seeds"),
        ("smoothness", "iterations"),
        ("smoothness", "every"),
        ("smoothness", "hidden"),
        ("smoothness", "seeds"),
    ],
)
def test_a_count_below_one_is_one_line(classnorm, bundle, tmp_path, kind, flag):
    outcome = classnorm("analyze", kind, bundle, f"--{flag}", 0, "--out", tmp_path / "out")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == f"classnorm: error: --{flag} is 0; it must be at least 1"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", FAST)
def test_data_that_is_not_there_is_one_line(classnorm, tmp_path, kind):
    outcome = classnorm("analyze", kind, tmp_path / "nowhere.npz")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "no such file" in outcome.err


def test_too_few_classes_for_statistics_are_one_line(classnorm, tmp_path):
    save_bundle(
        synthetic(SyntheticConfig(classes=7, unseen=2, rows=70, features=8, attributes=4)), tmp_path / "few.npz"
    )
    outcome = classnorm("analyze", "attributes", tmp_path / "few.npz", "--out", tmp_path / "out", "--quiet")
    assert outcome.code == 2
    assert outcome.err == "classnorm: error: statistics of attributes need at least 8 classes, there are 7\n"


def test_the_attribute_table_of_a_gbu_folder_can_be_chosen(classnorm, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_gbu(load(bundle), tmp_path / "zoo", "hog")
    arguments = ["--features", "hog", "--attributes", "original_att", "--json", "--quiet"]
    outcome = classnorm("analyze", "attributes", tmp_path / "zoo", *arguments)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["data"]["normality"]["zoo"]["chi2"]
    raw, unit = (
        attribute_statistics(load(tmp_path / "zoo", features="hog", attributes=table).descriptors).chi2
        for table in ("original_att", "att")
    )
    assert found == pytest.approx(raw, rel=1e-4)
    assert found != pytest.approx(unit, rel=1e-2)
    default = tmp_path / "runs" / "zoo" / "analyze-attributes"  # beside the runs of the dataset
    assert Artifact.load(default).title == "zoo: attributes"


@pytest.fixture(scope="module")
def diagnosis(bundle, out):
    folder = out / "diagnosis"
    with contextlib.redirect_stdout(io.StringIO()):
        main(["analyze", "attributes", str(bundle), "--out", str(folder), "--quiet"])
    return folder


def test_a_report_shows_a_diagnosis_without_any_run(classnorm, diagnosis, tmp_path):
    outcome = classnorm("report", diagnosis, "--out", tmp_path, "--quiet")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "index.html").read_text()
    assert '<h2 id="analyze-attributes">synthetic: attributes</h2>' in page
    assert "prefer unit norm" in page
    assert page.count("data:image/png;base64,") == 4


def test_a_report_shows_a_diagnosis_beside_runs(classnorm, diagnosis, write_run, tmp_path):
    run = write_run(tmp_path / "run", dataset="world").folder
    outcome = classnorm("report", run, diagnosis, "--out", tmp_path, "--json")
    assert outcome.code == 0, outcome.err
    assert [group["dataset"] for group in json.loads(outcome.out)["groups"]] == ["world"]
    page = (tmp_path / "index.html").read_text()
    assert 'id="analyze-attributes"' in page and "world" in page


def test_a_report_on_a_damaged_diagnosis_is_one_line(classnorm, tmp_path):
    (tmp_path / "artifact.json").write_text('"damaged"')
    outcome = classnorm("report", tmp_path, "--out", tmp_path / "report")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "artifact.json: the document is" in outcome.err and "; make it again" in outcome.err
