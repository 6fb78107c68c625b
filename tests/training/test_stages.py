"""The stages of a training step."""

import pytest

from classnorm.training import stage, stage_seconds


@pytest.fixture
def clock(monkeypatch):
    """Advances by 1 second per look."""
    looks = iter(range(100))
    monkeypatch.setattr("classnorm.training.loop.time.perf_counter", lambda: float(next(looks)))


def test_the_time_of_a_stage_adds_up_over_steps(clock):
    with stage_seconds() as seconds:
        for _ in range(3):
            with stage("gather"):
                pass
            with stage("backward"):
                pass
    assert seconds == {"gather": 3.0, "backward": 3.0}


def test_stages_outside_are_not_counted(clock):
    with stage("gather"):
        pass
    with stage_seconds() as seconds, stage_seconds() as inner, stage("logits"):
        pass
    with stage("optimizer"):
        pass
    assert (seconds, list(inner)) == ({}, ["logits"])
