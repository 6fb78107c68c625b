"""Several processes: the same result as one, however the rows are divided."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from classnorm.errors import ConfigError
from classnorm.methods import METHODS, check_parallel
from classnorm.training import Processes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """How far training in two processes is from training in one."""
    script = Path(__file__).with_name("together.py")
    folder = tmp_path_factory.mktemp("together") / "rows"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 5, 8, 256, 1001])
def test_the_processes_divide_all_rows_evenly(count, n):
    parts = [range(n)[Processes(rank, count).part(n)] for rank in range(count)]
    assert [row for part in parts for row in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 5, 8, 256])
def test_the_shares_of_a_batch_add_up_and_no_part_is_empty(count, n):
    parts = [Processes(rank, count).batch_part(n) for rank in range(count)]
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert all(len(range(n)[part]) == max(1, round(share * n)) for part, share in parts)


def test_a_method_that_cannot_be_divided_is_refused():
    check_parallel("eszsl", 1)
    check_parallel("kernel", 2)
    with pytest.raises(ConfigError, match=r"eszsl trains in one process.* classnorm, .*kernel"):
        check_parallel("eszsl", 2)


@pytest.mark.slow
def test_uneven_batches_give_the_gradients_of_one_process(found):
    assert len(found["loops"]) == 5
    for name, (weights, losses) in found["loops"].items():
        assert weights < 1e-12, name
        assert losses < 1e-5, name  # recorded in float32


@pytest.mark.slow
def test_every_method_that_can_be_divided_agrees_with_one_process(found):
    assert {name.split()[0] for name in found["methods"]} == {n for n, method in METHODS.items() if method.parallel}
    for name, gap in found["methods"].items():
        limit = 1e-6 if name == "kernel closed-form" else 1e-5
        assert gap["scores"] < limit, name
        if not name.startswith("sync"):  # its weights solve an ill-conditioned system
            assert gap["weights"] < limit, name
        assert gap["harmonic"][0] == pytest.approx(gap["harmonic"][1], abs=1e-3), name


@pytest.mark.slow
def test_the_processes_tell_each_other_what_they_found(found):
    assert found["told"] == 7
    assert found["squares"] == [0, 1, 4, 9, 16]
    assert found["odd"] == [False, True, False, True, False]
