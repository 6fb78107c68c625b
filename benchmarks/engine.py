"""Throughput of the parallel engine: sequential runs with all threads against one process per core.

Measured on small runs, and on runs of CUB's shape, whose larger products gain more from threads. Run
``python benchmarks/engine.py``.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.methods import resolve
from classnorm.runs.engine import Engine, run_tasks
from classnorm.runs.experiment import Experiment

CORES = os.cpu_count() or 1


def seconds(dataset: ZeroShotDataset, n_runs: int, engine: Engine, **settings: object) -> float:
    """Time of a batch of runs that differ only in the seed."""
    _, config = resolve(dataset, calibration="none", **settings)
    runs = [Experiment(dataset, "classnorm", "reference", config, seed) for seed in range(n_runs)]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        failed = run_tasks(runs, Path(folder), engine)
        assert not failed, failed
        return time.perf_counter() - started


def compare(title: str, dataset: ZeroShotDataset, n_runs: int, **settings: object) -> None:
    sequential, parallel = Engine(jobs=1), Engine(jobs=CORES)
    seconds(dataset, CORES, parallel, epochs=1, hidden=8)  # starts the processes, which the next batch reuses
    torch.set_num_threads(CORES)
    times = [
        (seconds(dataset, n_runs, sequential, **settings), seconds(dataset, n_runs, parallel, **settings))
        for _ in range(2)
    ]
    one, many = (min(column) for column in zip(*times, strict=True))
    print(
        f"{title}: {n_runs} runs, 1 process × {CORES} threads {one:.1f} s, "
        f"{CORES} processes × 1 thread {many:.1f} s: {one / many:.2f}× the throughput"
    )


def main() -> None:
    small = synthetic(SyntheticConfig(classes=60, unseen=15, rows=3000, features=256, attributes=50))
    compare("small runs", small, 60, hidden=256, epochs=10)
    cub = synthetic(SyntheticConfig(classes=200, unseen=50, rows=11_800, features=1280, attributes=312))
    compare("CUB's shape", cub, 4, epochs=3)


if __name__ == "__main__":
    main()
