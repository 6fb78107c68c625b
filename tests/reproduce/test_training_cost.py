"""The tables of training times and hyperparameters."""

import json

import numpy as np
import pytest

from classnorm.reproduce.benchmarks import find_benchmarks
from classnorm.reproduce.reproduction import measure
from classnorm.reproduce.training_cost import hyperparameters, training_time
from classnorm.reproduce.variants import CN


@pytest.fixture(scope="module")
def reproduction(reproduce, tiny, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), tiny, find_benchmarks(["CUB"], None, None)[0], seeds=2)


def test_training_times_are_those_of_the_runs(reproduction):
    measure(reproduction, "a table", [CN])
    artifact = training_time(reproduction)
    files = (reproduction.folder / "training-time").glob("runs/*/result.json")
    seconds = [json.loads(file.read_text())["train_seconds"] for file in files]
    assert len(seconds) == 2  # trained again, one at a time, since the others ran in parallel
    row = [cell.text for cell in artifact.tables[0].body[0]]
    assert row[:3] == ["tiny (simulated)", f"{np.mean(seconds):.1f}", f"{np.max(seconds):.1f}"]
    assert [cell.text for cell in artifact.tables[0].body[1]] == ["CUB", "–", "–", "–"]
    assert [verdict.verdict for verdict in artifact.verdicts] == ["holds"]


def test_hyperparameters_are_those_of_the_recipes(reproduction):
    artifact = hyperparameters(reproduction)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in artifact.tables[1].body}
    assert rows["tiny, paper"] == ["2", "128", "0.002", "50", "0.001", "512", "5"]  # few classes: the settings of AwA2
    assert rows["tiny, reference"][0] == "2"
