"""The cost of training against rows, classes, dimensions and processes: measured where it fits, modelled beyond.

Each method trains on synthetic data of a grid of sizes, in one thread; a model that is linear in counted operations is
fitted to the CPU times (non-negative least squares of relative errors) and checked on sizes outside the grid. Times of
several processes are modelled from the same coefficients: the work that is divided, the work that every process
repeats, and the sums between them at an assumed bandwidth; one and two processes are measured beside. Prints JSON,
draws ``scale.png``. Run

    python benchmarks/scale.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.methods.settings.kernel import KernelConfig

D_A, HIDDEN, BATCH = 300, 1024, 256
KERNEL = KernelConfig()
LARGE = 4096  # batch of `classnorm` in several processes
BANDWIDTH = 1.25e9  # bytes per second between machines, 10 Gbit/s
GRID = [(2_000, 10_000), (50, 200, 800), (512, 2048)]  # rows, seen classes, feature dimensions
BEYOND = [(30_000, 400, 1024), (10_000, 1600, 1024), (60_000, 200, 2048)]
IMAGENET = (1_281_167, 1000, 2048)
METHODS = ("classnorm", "kernel")


class Size(NamedTuple):
    rows: int
    seen: int
    d_z: int


class Work(NamedTuple):
    """Counted operations: those divided by the processes, those that each repeats, bytes they send."""

    divided: list[float]
    repeated: list[float]
    sent: float


def work(method: str, size: Size, batch: int = BATCH) -> Work:
    """The work of an epoch of `classnorm`, or of a fit of `kernel`."""
    rows, seen, d_z = size
    if method == "classnorm":
        weights = D_A * HIDDEN + HIDDEN * HIDDEN + HIDDEN * d_z
        steps = math.ceil(rows / batch)
        return Work(
            [rows * seen * d_z, rows * d_z], [steps * seen * weights, steps * weights, steps], steps * 8 * weights
        )
    # Moments of the rows, then the refinement by steps; eigenvectors of features and of the kernel.
    rank, steps = min(seen, KERNEL.landmarks), KERNEL.epochs * math.ceil(rows / batch)
    k = min(KERNEL.dimensions, d_z)
    weights = (k + rank) * k
    divided: list[float] = [rows * d_z**2, KERNEL.epochs * rows * (seen + k) * k, rows * d_z]
    repeated = [d_z**3, rank**3, steps * seen * rank * k, steps * weights, 1.0]
    return Work(divided, repeated, 8 * d_z**2 + steps * 4 * weights)


def seconds(method: str, size: Size) -> float:
    """CPU seconds in one thread of an epoch, or of a fit."""
    data = synthetic(
        SyntheticConfig(classes=size.seen + 10, unseen=10, rows=size.rows, features=size.d_z, attributes=D_A, seed=0)
    )
    changes = {"epochs": 1} if method == "classnorm" else {}
    job = FitJob(data, *resolve(data, method, "reference", calibration="none", **changes))
    times = []
    for _ in range(3):
        started = time.process_time()
        job.fit(FitContext(torch.device("cpu")))
        times.append(time.process_time() - started)
    return min(times)


def fitted(method: str, sizes: Sequence[Size], times: Sequence[float]) -> np.ndarray:
    """Seconds per counted operation."""
    counts = np.array([[*work(method, size).divided, *work(method, size).repeated] for size in sizes])
    scale = counts.max(axis=0)
    relative = counts / scale / np.array(times)[:, None]
    return nnls(relative, np.ones(len(sizes)))[0] / scale


def modelled(method: str, cost: np.ndarray, size: Size, processes: int = 1, batch: int = BATCH) -> float:
    """Seconds of an epoch, or of a fit, divided among processes with one thread each."""
    divided, repeated, sent = work(method, size, batch)
    n = len(divided)
    communication = 0.0 if processes == 1 else sent * 2 * (processes - 1) / processes / BANDWIDTH
    return float(cost[:n] @ divided / processes + cost[n:] @ repeated + communication)


def together(method: str, size: Size, processes: int) -> float:
    """Wall seconds of a training under torchrun, one thread each, as the command reports them."""
    data = f"synthetic:classes={size.seen + 10},unseen=10,rows={size.rows},features={size.d_z},attributes={D_A}"
    settings = ["--epochs", "1", "--batch-size", str(LARGE)] if method == "classnorm" else []
    command = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m", "classnorm", "train", data]
    command += ["--method", method, *settings, "--calibration", "none", "--json", "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, check=True, env=environment)
    return float(json.loads(done.stdout)["runs"][0]["train_seconds"])


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for color, method in zip(("C0", "C1"), METHODS, strict=True):
        result = results[method]
        cost = np.array(result["seconds_per_operation"])
        for points, marker, label in (("grid", "o", "fitted sizes"), ("beyond", "s", "sizes outside the fit")):
            pairs = np.array([[p["measured"], p["modelled"]] for p in result[points]])
            axes[0].loglog(*pairs.T, marker, color=color, mfc="none", label=f"{method}, {label}")
        rows = np.logspace(4, 9, 26)
        times = [modelled(method, cost, Size(int(n), 1000, 2048)) for n in rows]
        inside = rows <= max(p["size"][0] for p in result["beyond"])
        axes[1].loglog(
            rows[inside], np.array(times)[inside], "-", color=color, label=f"{method}, in the measured range"
        )
        axes[1].loglog(rows, times, ":", color=color, label=f"{method}, extrapolated")
        workers = np.unique(np.logspace(0, 2, 21).astype(int))
        for batch, style in ((BATCH, ":"), (65_536, "--")):
            billion = [modelled(method, cost, Size(10**9, 1000, 2048), int(n), batch) / 3600 for n in workers]
            axes[2].loglog(workers, billion, style, color=color, label=f"{method}, batch {batch:,}")
    limits = axes[0].get_xlim()
    axes[0].plot(limits, limits, "k", lw=0.5)
    axes[0].set(title="Model against measurement", xlabel="measured CPU s", ylabel="modelled CPU s")
    axes[1].set(title="1,000 classes, 2,048 dimensions, 1 thread", xlabel="rows", ylabel="s per epoch or kernel fit")
    axes[2].set(title="10⁹ rows (modelled)", xlabel="processes of 1 thread", ylabel="hours per epoch or kernel fit")
    for axis in axes:
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, default=Path("scale.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"bandwidth": BANDWIDTH}
    sizes, others = [Size(*size) for size in itertools.product(*GRID)], [Size(*size) for size in BEYOND]
    for method in METHODS:
        measured = {size: seconds(method, size) for size in [*sizes, *others]}
        cost = fitted(method, sizes, [measured[size] for size in sizes])
        result: dict[str, Any] = {"seconds_per_operation": cost.tolist()}
        for name, group in (("grid", sizes), ("beyond", others)):
            result[name] = [
                {"size": size, "measured": measured[size], "modelled": modelled(method, cost, size)} for size in group
            ]
            errors = [abs(point["modelled"] / point["measured"] - 1) for point in result[name]]
            result[f"{name}_median_error"], result[f"{name}_largest_error"] = float(np.median(errors)), max(errors)
        result["imagenet"] = modelled(method, cost, Size(*IMAGENET))
        batch = LARGE if method == "classnorm" else BATCH
        result["processes"] = [
            {
                "n": n,
                "measured": together(method, others[0], n),
                "modelled": modelled(method, cost, others[0], n, batch),
            }
            for n in (1, 2)
        ]
        result["billion_rows_hours"] = {
            n: modelled(method, cost, Size(10**9, 1000, 2048), n, 65_536) / 3600 for n in (1, 10, 100)
        }
        results[method] = result
        print(method, result, file=sys.stderr, flush=True)
    print(json.dumps(results, indent=2))
    draw(results, arguments.plot)


if __name__ == "__main__":
    main()
