"""The tables of training times and hyperparameters."""

import json

import numpy as np
import pytest

from classnorm_lab.paper import training_cost
from classnorm_lab.paper.datasets import find_datasets
from classnorm_lab.paper.training_cost import (
    Timed,
    hyperparameters,
    measure_hyperparameters,
    measure_training_time,
    training_time,
)


@pytest.fixture(scope="module")
def reproduction(reproduce, tiny, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), tiny, find_datasets(["CUB"], None, None)[0], seeds=2)


@pytest.fixture(scope="module")
def times(reproduction):
    with pytest.MonkeyPatch.context() as patch:
        timed = (training_cost.TIMED[0], Timed("f-CLSWGAN, published schedule", "fclswgan", "reference", 1, stride=2))
        patch.setattr(training_cost, "TIMED", timed)
        yield json.loads(json.dumps(measure_training_time(reproduction), allow_nan=False))


def test_all_models_are_timed_in_turn_and_a_part_of_a_schedule_is_extrapolated(times):
    [rounds] = times["times"].values()
    assert len(rounds["times"]) == 2
    assert all(list(entry) == ["3-layer MLP + CN", "f-CLSWGAN, published schedule"] for entry in rounds["times"])
    table = training_time(times).tables[0]
    for row in table.body:
        entries = [entry[row[0].text] for entry in rounds["times"]]
        assert float(row[3].text) == pytest.approx(
            np.mean([entry["epochs"] * entry["seconds_per_epoch"] for entry in entries]), abs=0.051
        )
        assert row[-1].text == ("measured" if entries[0]["run"] == entries[0]["epochs"] else "extrapolated")
    assert [row[-1].text for row in table.body] == ["measured", "extrapolated"]
    assert float(table.body[1][2].text) == pytest.approx(0.5, abs=0.01)  # half of the rows for one epoch


def test_the_claims_on_times_are_about_the_whole_schedule(times):
    artifact = training_time(times)
    ratios = [
        entry["f-CLSWGAN, published schedule"]["epochs"]
        * entry["f-CLSWGAN, published schedule"]["seconds_per_epoch"]
        / (entry["3-layer MLP + CN"]["epochs"] * entry["3-layer MLP + CN"]["seconds_per_epoch"])
        for entry in times["times"]["tiny"]["times"]
    ]
    short, fast = artifact.verdicts
    assert short.verdict == "holds"
    assert (fast.verdict == "holds") == all(ratio >= 50 for ratio in ratios)
    assert "CUB: not measured, its features are missing." in artifact.notes


def test_hyperparameters_are_those_of_the_recipes(reproduction):
    artifact = hyperparameters(measure_hyperparameters(reproduction))
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[1].body}
    assert rows["tiny, paper"] == ["2", "128", "0.002", "50", "0.001", "512", "5"]  # few classes: the settings of AwA2
    assert rows["tiny, reference"][0] == "2"
