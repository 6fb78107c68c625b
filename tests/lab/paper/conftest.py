"""A small dataset, and reproductions in one process."""

from dataclasses import replace

import pytest

from classnorm.runs.engine import Engine
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.reproduction import Effort, Reproduction


@pytest.fixture(scope="session")
def tiny(easy_data):
    changes = {"hidden": 16, "epochs": 2}
    return PaperDataset("tiny", "tiny", "simulated", changes=changes, loaded=replace(easy_data, name="tiny"))


@pytest.fixture(scope="session")
def reproduce():
    """A function that makes a reproduction from a folder, datasets and the fields of its effort."""

    def make(folder, *datasets, **effort):
        return Reproduction(datasets, Effort(**effort), Engine(jobs=1), folder)

    return make
