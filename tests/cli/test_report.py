"""`classnorm report` from end to end."""

import csv
import io
import json

import pytest

from classnorm.cli import main


@pytest.fixture(scope="module")
def runs(write_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for recipe, skill in {"weak": 1.0, "strong": 3.0}.items():
        write_run(folder / recipe, recipe, skill=skill, scores={"unseen": 10 * skill, "seen": 40.0} | _REST)
    return folder


_REST = {"harmonic": 30.0, "zsl": 20.0, "ausuc": None}


def test_csv_on_stdout_is_the_file_and_nothing_else(runs, tmp_path, capsys):
    main(["report", str(runs), "--out", str(tmp_path), "--format", "csv"])
    out = capsys.readouterr().out
    assert out == (tmp_path / "results.csv").read_text()
    assert [row["recipe"] for row in csv.DictReader(io.StringIO(out))] == ["strong", "weak"]


@pytest.mark.parametrize(("name", "file"), [("markdown", "results.md"), ("latex", "results.tex")])
def test_markdown_and_latex_on_stdout_are_the_files(runs, tmp_path, capsys, name, file):
    main(["report", str(runs), "--out", str(tmp_path), "--format", name, "--against", "weak", "--quiet"])
    output = capsys.readouterr()
    assert output.out == (tmp_path / file).read_text()
    assert "weak" in next(line for line in output.out.splitlines() if "against" in line)
    assert output.err == ""


def test_json_lists_groups_differences_and_files(runs, tmp_path, capsys):
    main(["report", str(runs), "--out", str(tmp_path), "--against", str(runs / "weak"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [group["mean"]["unseen"] for group in document["groups"]] == [30.0, 10.0]
    assert document["groups"][0]["mean"]["ausuc"] is None
    (difference,) = document["differences"]
    assert (difference["model"], difference["against"]) == ("classnorm · strong", "classnorm · weak")
    assert 0 < difference["unseen"]["low"] < difference["unseen"]["value"] < difference["unseen"]["high"]
    assert {str(tmp_path / name) for name in ("index.html", "curve.png", "calibration.png")} <= set(document["files"])


def test_an_unknown_reference_ends_the_command_before_anything_is_written(runs, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(runs), "--out", str(tmp_path / "out"), "--against", "nobody"])
    assert "nobody" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_report_on_nothing_says_what_is_missing(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", "--out", str(tmp_path / "out")])
    assert "no RUNS given" in capsys.readouterr().err
