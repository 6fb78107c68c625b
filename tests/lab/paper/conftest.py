"""A small benchmark, and reproductions in one process."""

from dataclasses import replace

import pytest

from classnorm.runs.engine import Engine
from classnorm_lab.paper.benchmarks import Benchmark
from classnorm_lab.paper.reproduction import Effort, Reproduction


@pytest.fixture(scope="session")
def tiny(easy_data):
    changes = {"hidden": 16, "epochs": 2}
    return Benchmark("tiny", "tiny", "simulated", changes=changes, loaded=replace(easy_data, name="tiny"))


@pytest.fixture(scope="session")
def reproduce():
    """A function that makes a reproduction from a folder, benchmarks and the fields of its effort."""

    def make(folder, *benchmarks, **effort):
        return Reproduction(benchmarks, Effort(**effort), Engine(jobs=1), folder)

    return make
