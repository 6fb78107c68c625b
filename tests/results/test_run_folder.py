"""Run folders of both kinds."""

import json
import os

import numpy as np
import pytest

from classnorm.errors import DataError
from classnorm.results.run_folder import Result, find_results, is_finished, write_arrays

_COMMON = {"config": {}, "seed": 0, "train_seconds": 1.0, "versions": {}}
_DATASET = {"name": "toy", "checksum": "c", "split_checksum": "s", "provenance": {}}
_SIZES = ("train_rows", "test_seen_rows", "test_unseen_rows", "seen_classes", "unseen_classes", "feature_dim")
RUN = _COMMON | {
    "dataset": _DATASET | {"sizes": dict.fromkeys(_SIZES, 3)},
    "method": "classnorm",
    "recipe": "reference",
    "scores": {"unseen": 50.0, "seen": 50.0, "harmonic": 50.0, "zsl": 60.0, "ausuc": None},
    "calibration": "none",
    "fit_seconds": 1.0,
}
STREAM = _COMMON | {
    "kind": "stream",
    "dataset": _DATASET,
    "stream": {"tasks": [2], "checksum": "o", "image_split": "stratified", "part": [0, None]},
    "encoder": None,
    "image_size": None,
    "strategy": "ewc",
    "scores": dict.fromkeys(("mSA", "mUA", "mH", "mAUC", "mJA"), 50.0) | {"forgetting": None},
    "per_task": [dict.fromkeys(("seen", "unseen", "harmonic", "ausuc", "joint", "forgetting"))],
    "matrix": [[40.0]],
}


def part(*tasks):
    return {"stream": STREAM["stream"] | {"part": list(tasks)}}


def write(folder, document):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(document))
    return folder


def test_a_result_without_a_kind_is_a_run(tmp_path):
    result = Result.read(write(tmp_path, RUN))
    assert (result.kind, result.is_trial, result.scores["harmonic"]) == ("run", False, 50.0)


def test_a_stream_is_read(tmp_path):
    result = Result.read(write(tmp_path, STREAM))
    assert result.kind == result.document["kind"] == "stream"
    assert result.scores["mH"] == 50.0 and result.scores["forgetting"] != result.scores["forgetting"]  # NaN
    assert is_finished(tmp_path)


def test_both_kinds_are_found_but_no_trials_of_a_validation_sequence(tmp_path):
    write(tmp_path / "a", RUN)
    write(tmp_path / "b", STREAM)
    write(tmp_path / "c", STREAM | part(3, None))
    write(tmp_path / "validation" / "d", STREAM | part(0, 3))
    results = find_results([tmp_path, tmp_path / "a"])
    assert [(result.folder.name, result.kind) for result in results] == [("a", "run"), ("b", "stream"), ("c", "stream")]
    with pytest.raises(DataError, match="no finished run but trials of a validation sequence"):
        find_results([tmp_path / "validation"])


def test_a_folder_without_a_result_is_unfinished(tmp_path):
    assert not is_finished(tmp_path)
    with pytest.raises(DataError, match=r"result\.json: no such file"):
        Result.read(tmp_path)
    with pytest.raises(DataError, match="holds no finished run; choose a folder with a result"):
        find_results([tmp_path])


@pytest.mark.parametrize("missing", ["scores", "stream", "per_task", "matrix"])
def test_a_stream_without_a_required_key_is_not_readable(tmp_path, missing):
    document = {name: value for name, value in STREAM.items() if name != missing}
    with pytest.raises(DataError, match=rf"result\.json: {missing} is missing; repeat the run"):
        Result.read(write(tmp_path, document))


def leaves(document, keys=()):
    """The keys that lead to every value that is not a list or an object."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from leaves(value, (*keys, key))
        else:
            yield (*keys, key)


def changed(document, keys, value):
    copy = json.loads(json.dumps(document))
    place = copy
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return copy


@pytest.mark.parametrize("value", [[], {}, 10**30, -1, "x", True, 1.5], ids=str)
@pytest.mark.parametrize("whole", [RUN, STREAM | {"kind": "stream"}], ids=["run", "stream"])
def test_a_wrong_value_anywhere_is_read_or_refused_with_its_key(tmp_path, whole, value):
    messages = {}
    for keys in leaves(whole):
        try:
            Result.read(write(tmp_path, changed(whole, keys, value)))
        except DataError as error:
            messages[str(keys[-1] if isinstance(keys[-1], str) else keys[-2])] = str(error)
    assert messages and all(key in message for key, message in messages.items())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not readable as JSON"),
        (b'{"method": "\\ud800"}', "half a character"),
        (b"\xff\xfe{", "not readable as JSON"),
        (b"[]", "the document is \\[\\], but must be an object"),
    ],
)
def test_a_hostile_document_is_refused_in_one_line(tmp_path, content, reason):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        Result.read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_in_place_of_a_result_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(DataError, match="not a regular file"):
        Result.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("label", np.full(120, 24)),
        ("top1", np.full(120, -1)),
        ("best_seen_score", np.full(120, np.nan)),
        ("best_unseen", np.zeros(3, dtype=int)),
        ("seen", np.zeros(23, dtype=bool)),
        ("class_names", np.zeros(24)),
        ("label", np.zeros((120, 1), dtype=int)),
    ],
)
def test_predictions_that_do_not_belong_together_are_refused(write_run, tmp_path, name, array):
    result = write_run(tmp_path)
    write_arrays(tmp_path / "predictions.npz", Result.read(tmp_path).predictions | {name: array})
    with pytest.raises(DataError, match="do not belong together"):
        Result.read(result.folder).predictions  # noqa: B018
