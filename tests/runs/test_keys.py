"""Keys of runs: committed results are found again, and results under a changed rule are not."""

import math
from pathlib import Path

import pytest

from classnorm.methods import FitJob, method_named, resolve
from classnorm.results.run_folder import VERSIONS
from classnorm.runs.engine import Engine
from classnorm.runs.experiment import Experiment
from classnorm.runs.search import ValidationTask
from classnorm_lab.paper.datasets import find_datasets
from classnorm_lab.paper.page import known_runs
from classnorm_lab.paper.reproduction import Effort, Reproduction, measure
from classnorm_lab.paper.tables import TABLES

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def glyphs():
    """A reproduction on glyphs-light that has no time to run anything."""
    return Reproduction(
        find_datasets(["glyphs-light"], None, None),
        Effort(seeds=3),
        Engine(jobs=1),
        COMMITTED,
        lambda stage: None,
        known=known_runs(COMMITTED),
        until=-math.inf,
    )


@pytest.fixture
def keys(data, experiment):
    """Makes the keys of a run of a method, of its weights, of a validation fit, and of a stream."""
    _, config = resolve(data, "classnorm")

    def make():
        return [
            Experiment(data, "classnorm", "reference", config).key,
            FitJob(data, method_named("classnorm"), config).key,
            ValidationTask(data, "classnorm", config, seed=0, split=0).name,
            experiment().key,
        ]

    return make


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("calibration", [True, False, False, False]),
        ("validation", [True, False, True, False]),
        ("scores", [True, False, False, False]),
        ("stream scores", [False, False, False, True]),
        ("method classnorm", [True, True, True, False]),
        ("strategy sequential", [False, False, False, True]),
        ("method kernel", [False, False, False, False]),
    ],
)
def test_a_changed_rule_gives_other_keys_to_the_results_it_decides(keys, monkeypatch, rule, other):
    before = keys()
    monkeypatch.setitem(VERSIONS, rule, 2)
    second = keys()
    assert [a != b for a, b in zip(before, second, strict=True)] == other
    monkeypatch.setitem(VERSIONS, rule, 3)
    assert [a != b for a, b in zip(second, keys(), strict=True)] == other


def test_committed_results_are_found_again_by_their_keys(glyphs):
    spec = TABLES["main"]
    found = measure(glyphs, "main", spec.variants).runs
    assert [label for label, _ in found] == [variant.label for variant in spec.variants]


def test_a_changed_rule_of_calibration_does_not_find_them(glyphs, monkeypatch):
    monkeypatch.setitem(VERSIONS, "calibration", 2)
    assert measure(glyphs, "main", TABLES["main"].variants).runs == {}
