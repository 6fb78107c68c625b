"""Overlays of visitors: in files that any worker can load, limited in size and age."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from classnorm.serve.messages import RequestError
from classnorm.serve.models import Served
from classnorm.serve.sessions import Sessions, UserExamples, new_key
from classnorm.serve.settings import Limits

DAY = 86400


@pytest.fixture(scope="module")
def served(model_folder):
    return Served.load(model_folder, "letters")


def adding(served, *names):
    vectors = {name: served.scorer.descriptors[i] + 0.5 for i, name in enumerate(names)}
    return lambda session: session.with_additions(served, classes=vectors)


def test_another_worker_sees_a_change_at_once(served, tmp_path):
    one, other = (Sessions(tmp_path, Limits()) for _ in range(2))
    key = new_key()
    assert other.get(key).scorer(served) is served.scorer
    for names in (["a"], ["a", "b"], []):
        one.change(key, adding(served, *names))
        found = other.get(key).scorer(served)
        assert found.class_names[len(served.scorer.class_names) :] == tuple(names)
        np.testing.assert_array_equal(found.descriptors, one.get(key).scorer(served).descriptors)


def test_a_session_comes_back_from_its_file_as_it_was(served, tmp_path):
    rows = np.random.default_rng(0).random((3, served.scorer.d_z), dtype=np.float32)
    change = adding(served, "é", "<b>")
    key = new_key()
    sessions = Sessions(tmp_path, Limits())
    sessions.change(key, lambda session: change(session).with_additions(served, examples=(UserExamples(7, "é", rows),)))
    additions = Sessions(tmp_path, Limits()).get(key).of(served)
    assert list(additions.classes) == ["é", "<b>"]
    [given] = additions.examples
    assert (given.number, given.name) == (7, "é")
    np.testing.assert_array_equal(given.rows, rows)


def test_files_do_not_tell_the_keys_and_are_private(served, tmp_path):
    key = new_key()
    Sessions(tmp_path, Limits()).change(key, adding(served, "a"))
    [file] = tmp_path.iterdir()
    assert key not in str(file) and key.encode() not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0


def test_additions_to_another_model_is_not_used(served, tmp_path):
    sessions, key = Sessions(tmp_path, Limits()), new_key()
    sessions.change(key, adding(served, "a"))
    assert sessions.get(key).scorer(replace(served, fingerprint="another")) is served.scorer


def test_a_damaged_file_is_an_empty_session(served, tmp_path):
    sessions, key = Sessions(tmp_path, Limits()), new_key()
    sessions.change(key, adding(served, "a"))
    [file] = tmp_path.iterdir()
    for content in (b"", b"\xff" * 100, file.read_bytes()[:-10]):
        file.write_bytes(content)
        assert sessions.get(key).scorer(served) is served.scorer


def test_old_sessions_are_forgotten_and_the_oldest_make_room(served, tmp_path):
    sessions = Sessions(tmp_path, Limits(session_days=2))
    keys = [new_key() for _ in range(4)]
    for age, key in zip((3, 1.5, 1, 0), keys, strict=True):
        sessions.change(key, adding(served, "a"))
        os.utime(sessions._file(key), (time.time() - age * DAY,) * 2)
    assert not sessions.get(keys[0]).additions  # before it is deleted
    sessions.sweep(at_once=True)
    assert [sessions._file(key).exists() for key in keys] == [False, True, True, True]
    size = sessions._file(keys[1]).stat().st_size
    small = Sessions(tmp_path, replace(Limits(), sessions_mb=1))
    sessions._file(keys[3]).write_bytes(bytes((1 << 20) - size - 1))
    os.utime(sessions._file(keys[3]))
    small.sweep(at_once=True)
    assert [sessions._file(key).exists() for key in keys] == [False, False, True, True]


def test_a_session_that_is_too_large_changes_nothing(served, tmp_path):
    sessions, key = Sessions(tmp_path, Limits(session_mb=1, examples=10_000)), new_key()
    sessions.change(key, adding(served, "a"))
    rows = np.ones((1000, served.scorer.d_z), dtype=np.float32)
    with pytest.raises(RequestError, match="more than 1 MB"):
        sessions.change(key, lambda session: session.with_additions(served, examples=(UserExamples(1, "a", rows),)))
    assert not sessions.get(key).of(served).examples
