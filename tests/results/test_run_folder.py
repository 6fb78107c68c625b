"""Run folders of both kinds, and those that version 0.1 wrote."""

import json

import pytest

from classnorm.errors import DataError
from classnorm.results.run_folder import Result, find_results, result_file

RUN = {"scores": {"harmonic": 50.0, "ausuc": None}, "dataset": {"checksum": "c"}}
STREAM = {
    "scores": {"mH": 50.0, "forgetting": None},
    "dataset": {"checksum": "c"},
    "stream": {"part": [0, None]},
    "per_task": [],
    "matrix": [],
}


def write(folder, document, name="result.json"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(document))
    return folder


def test_a_result_without_a_kind_is_a_run(tmp_path):
    result = Result.read(write(tmp_path, RUN))
    assert (result.kind, result.is_trial, result.scores["harmonic"]) == ("run", False, 50.0)


@pytest.mark.parametrize(("name", "extra"), [("result.json", {"kind": "stream"}), ("continual.json", {})])
def test_streams_of_this_version_and_of_0_1_are_read(tmp_path, name, extra):
    result = Result.read(write(tmp_path, STREAM | extra, name))
    assert result.kind == result.document["kind"] == "stream"
    assert result.scores["mH"] == 50.0 and result.scores["forgetting"] != result.scores["forgetting"]  # NaN
    assert result_file(tmp_path) == tmp_path / name


def test_the_new_file_name_takes_precedence_over_the_old_one(tmp_path):
    write(tmp_path, STREAM, "continual.json")
    write(tmp_path, RUN)
    assert Result.read(tmp_path).kind == "run"
    assert len(find_results([tmp_path])) == 1


def test_both_kinds_are_found_but_no_trials_of_a_validation_sequence(tmp_path):
    write(tmp_path / "a", RUN)
    write(tmp_path / "b", STREAM, "continual.json")
    write(tmp_path / "c", STREAM | {"kind": "stream", "stream": {"part": [3, None]}})
    write(tmp_path / "validation" / "d", STREAM | {"kind": "stream", "stream": {"part": [0, 3]}})
    write(tmp_path / "validation" / "e", STREAM | {"stream": {"part": [0, 3]}}, "continual.json")
    results = find_results([tmp_path, tmp_path / "a"])
    assert [(result.folder.name, result.kind) for result in results] == [("a", "run"), ("b", "stream"), ("c", "stream")]
    with pytest.raises(DataError, match="no finished run but trials of a validation sequence"):
        find_results([tmp_path / "validation"])


def test_a_folder_without_a_result_is_unfinished(tmp_path):
    assert not result_file(tmp_path).is_file()
    with pytest.raises(DataError, match=r"result\.json: no such file"):
        Result.read(tmp_path)
    with pytest.raises(DataError, match="holds no finished run; choose a folder with a result"):
        find_results([tmp_path])


@pytest.mark.parametrize("missing", ["scores", "stream", "per_task", "matrix"])
def test_a_stream_without_a_required_key_is_not_readable(tmp_path, missing):
    document = {name: value for name, value in STREAM.items() if name != missing}
    with pytest.raises(DataError, match="not a readable result"):
        Result.read(write(tmp_path, document, "continual.json"))
