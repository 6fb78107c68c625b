"""`classnorm reproduce` as a user runs it."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classnorm.cli import main
from classnorm.data import save_bundle, save_gbu
from classnorm_lab.paper import leaderboard
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.tables import TABLES

FAST = ["--quick", "--epochs", "1", "--seeds", "1", "--jobs", "1", "--quiet"]


@pytest.fixture(scope="module")
def data(easy_data):
    return replace(easy_data, name="tiny")


@pytest.fixture(scope="module")
def bundle(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    save_bundle(data, path)
    return path


@pytest.fixture(scope="module")
def made(bundle, tmp_path_factory):
    """A folder with a table and a figure in it, and a page of documentation beside."""
    folder = tmp_path_factory.mktemp("made")
    where = ["--out", str(folder / "out"), "--docs", str(folder / "docs" / "page.md")]
    with contextlib.redirect_stdout(io.StringIO()):
        main(["reproduce", "ns-an-cn", "correlations", "--data", str(bundle), *FAST, *where])
    return folder


def one_line(outcome):
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    return outcome.err


def test_the_page_names_the_seconds_of_a_search(classnorm, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "entries", list)  # none
    docs = tmp_path / "docs" / "page.md"
    where = ["--data", str(bundle), "--out", str(tmp_path / "out"), "--docs", str(docs)]
    outcome = classnorm("reproduce", "leaderboard", *where, *FAST, "--search-seconds", "12.5")
    assert outcome.code == 0
    assert "--search-seconds 12.5" in docs.read_text()
    assert "same 12.5 CPU seconds" in docs.read_text()
    assert "search-seconds" in one_line(classnorm("reproduce", "leaderboard", "--search-seconds", "0"))


@pytest.mark.parametrize("arguments", [[], ["list"], ["list", "main"]])
def test_the_list_names_everything_with_its_kind(classnorm, arguments):
    outcome = classnorm("reproduce", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, item.kind] for name, item in CATALOG.items()]


def test_the_list_as_json(classnorm):
    outcome = classnorm("reproduce", "list", "--json")
    entries = json.loads(outcome.out)
    assert {entry["name"]: entry["kind"] for entry in entries} == {name: i.kind for name, i in CATALOG.items()}


def test_an_unknown_name_is_answered_with_the_nearest_one(classnorm, tmp_path):
    error = one_line(classnorm("reproduce", "ns-an-nc", "--out", tmp_path / "out"))
    assert "unknown table or figure 'ns-an-nc'; did you mean 'ns-an-cn'?" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", 0], "--seeds is 0; it must be at least 1"),
        (["--epochs", -1], "--epochs is -1; it must be at least 1"),
        (["--data", "CUB", "--quiet"], "no dataset found; add glyphs-light"),
        (["--data", "nowhere.npz2"], "nowhere.npz2: no such dataset"),
        (["--data-root", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(classnorm, tmp_path, arguments, message):
    assert message in one_line(classnorm("reproduce", "main", *arguments, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_table_is_written_in_every_form(made):
    files = {path.name for path in (made / "out" / "ns-an-cn").iterdir()}
    assert {"table.md", "table.csv", "table.tex", "data.json", "artifact.json", "claims.md"} <= files
    labels = [variant.label for variant in TABLES["ns-an-cn"].variants]
    markdown = (made / "out" / "ns-an-cn" / "table.md").read_text()
    assert all(f"| {label} |" in markdown for label in labels)
    page = (made / "out" / "index.html").read_text()
    assert all(f'<td class="words">{label}</td>' in page for label in labels)
    numbers = json.loads((made / "out" / "ns-an-cn" / "data.json").read_text())
    assert [setting["label"] for setting in numbers["settings"]] == ["tiny (simulated)"]
    assert set(labels) <= {entry["row"] for entry in numbers["runs"]}
    assert all(len(entry["numbers"]["harmonic"]) == 1 for entry in numbers["runs"])
    assert len(list((made / "out" / "runs").glob("*/result.json"))) == len(labels)


def test_the_page_holds_all_that_was_made(made):
    page = (made / "out" / "index.html").read_text()
    assert re.findall(r'<h2 id="(.*?)">', page) == ["ns-an-cn", "correlations"]


def test_documentation_is_markdown_with_pictures_that_exist(made):
    text = (made / "docs" / "page.md").read_text()
    links = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert links == ["page/correlations/correlations.png"]
    assert (made / "docs" / links[0]).read_bytes().startswith(b"\x89PNG")
    assert "## In short" in text and "## All claims" in text and "Vanilla MLP -NS -AN" in text
    arguments = "--data tiny --seeds 1 --epochs 1 --quick --docs docs/page.md"
    assert f"\nclassnorm reproduce ns-an-cn correlations {arguments}\n" in text
    own = (made / "out" / "reproduction.md").read_text()
    for link in re.findall(r"!\[.*?\]\((.*?)\)", own):
        assert (made / "out" / link).is_file()


def test_the_page_is_made_again_from_its_numbers_alone(classnorm, made, tmp_path):
    shutil.copytree(made / "docs" / "page", tmp_path / "docs" / "page", ignore=shutil.ignore_patterns("*.png"))
    outcome = classnorm("reproduce", "render", "--docs", tmp_path / "docs" / "page.md")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"page: {tmp_path / 'docs' / 'page.md'}, 2 tables and figures\n"
    assert (tmp_path / "docs" / "page.md").read_text() == (made / "docs" / "page.md").read_text()
    assert (tmp_path / "docs" / "page" / "correlations" / "correlations.png").is_file()
    document = json.loads(classnorm("reproduce", "render", "--docs", tmp_path / "docs" / "page.md", "--json").out)
    assert document["names"] == ["ns-an-cn", "correlations"]


def test_a_page_without_numbers_is_one_line(classnorm, tmp_path):
    error = one_line(classnorm("reproduce", "render", "--docs", tmp_path / "page.md"))
    assert "no numbers; measure a table with --docs" in error
    assert "render takes no other name" in one_line(classnorm("reproduce", "render", "main"))


def test_settings_name_features_and_descriptors(classnorm, data, tmp_path):
    save_gbu(data, tmp_path / "data" / "CUB", "hog")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "words.npz", class_names=np.array(data.class_names), descriptors=rng.normal(size=(24, 5)))
    names = ["CUB:hog", f"CUB:hog:{tmp_path / 'words.npz'}"]
    where = ["--data-root", tmp_path / "data", "--out", tmp_path / "out", "--docs", tmp_path / "docs" / "page.md"]
    outcome = classnorm("reproduce", "hyperparameters", "--data", *names, *where, "--json")
    assert outcome.code == 0, outcome.err
    text = (tmp_path / "docs" / "page.md").read_text()
    assert "--data CUB:hog CUB:hog:words.npz " in text and str(tmp_path) not in text
    assert "| CUB:hog:words, literal |" in text


def test_a_second_command_keeps_what_was_made_and_trains_nothing_twice(classnorm, made, bundle):
    runs = made / "out" / "runs"
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/*")}
    outcome = classnorm("reproduce", "normality", "ns-an-cn", "--data", bundle, *FAST, "--out", made / "out", "--json")
    assert outcome.code == 0, outcome.err
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*/*")} == before
    document = json.loads(outcome.out)
    assert [artifact["name"] for artifact in document["artifacts"]] == ["normality", "ns-an-cn"]
    assert all(artifact["verdicts"] for artifact in document["artifacts"])
    page = (made / "out" / "index.html").read_text()
    assert re.findall(r'<h2 id="(.*?)">', page) == ["ns-an-cn", "normality", "correlations"]


def test_the_table_and_its_verdicts_are_printed(classnorm, made, bundle):
    outcome = classnorm("reproduce", "correlations", "--data", bundle, *FAST, "--out", made / "out")
    assert "Attributes are not independent" in outcome.out
    assert outcome.out.rstrip().endswith(f"page: {made / 'out' / 'index.html'}")
    assert outcome.err == ""


def test_a_dataset_that_is_missing_is_announced_on_stderr(classnorm, made, bundle):
    arguments = [argument for argument in FAST if argument != "--quiet"]
    outcome = classnorm("reproduce", "correlations", "--data", "CUB", bundle, *arguments, "--out", made / "out")
    assert outcome.code == 0
    assert "classnorm: CUB: give --data-root DIR" in outcome.err


def test_a_gbu_folder_is_data_like_any_other(classnorm, data, tmp_path):
    save_gbu(data, tmp_path / "zoo", "hog")
    outcome = classnorm("reproduce", "hyperparameters", "--data", tmp_path / "zoo", *FAST, "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "zoo, reference" in (tmp_path / "out" / "hyperparameters" / "table-2.md").read_text()


def test_attributes_suffice_for_the_figures_about_them(classnorm, data, tmp_path):
    save_gbu(data, tmp_path / "SUN", "res101")
    (tmp_path / "SUN" / "res101.mat").unlink()
    arguments = ["--data", "SUN", "--data-root", tmp_path, "--out", tmp_path / "out"]
    outcome = classnorm("reproduce", "normality", *arguments)
    assert outcome.code == 0, outcome.err
    assert "res101" not in outcome.err
    assert "| SUN | 12 |" in (tmp_path / "out" / "normality" / "table.md").read_text()
    assert "no dataset found" in classnorm("reproduce", "main", *arguments).err


def test_a_damaged_artifact_of_an_earlier_command_is_one_line(classnorm, bundle, tmp_path):
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "artifact.json").write_text("{")
    outcome = classnorm("reproduce", "correlations", "--data", bundle, *FAST, "--out", tmp_path, "--json")
    assert re.search(r"main/artifact\.json: not readable .*; make it again", one_line(outcome))


@pytest.mark.slow
def test_a_killed_command_continues_where_it_stopped(classnorm, bundle, tmp_path):
    small = ["--quick", "--epochs", "2", "--seeds", "3", "--jobs", "1", "--quiet"]
    arguments = ["ns-an-cn", "--data", str(bundle), *small]
    total = sum(min(3, variant.seeds or 3) for variant in TABLES["ns-an-cn"].variants)
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "classnorm", "reproduce", *arguments, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 90
        while not finished(out) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    done = finished(out)
    assert 0 < len(done) < total
    assert not (out / "index.html").exists()
    outcome = classnorm("reproduce", *arguments, "--out", out)
    assert outcome.code == 0, outcome.err
    after = finished(out)
    assert len(after) == total
    assert {path: after[path] for path in done} == done
    assert (out / "index.html").is_file() and (out / "ns-an-cn" / "table.md").is_file()


def finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}


def test_the_verdicts_of_a_quick_run_say_that_they_mean_nothing(classnorm, bundle, tmp_path):
    outcome = classnorm("reproduce", "ns-an-cn", "--data", bundle, *FAST, "--out", tmp_path, "--json")
    document = json.loads(outcome.out)
    verdicts = document["artifacts"][0]["verdicts"]
    assert document["quick"] and verdicts
    assert all(verdict["measured"].endswith("(quick run: no evidence)") for verdict in verdicts)
    page = (tmp_path / "index.html").read_text()
    assert page.count("quick run: no evidence") >= len(verdicts) and "are no evidence" in page
