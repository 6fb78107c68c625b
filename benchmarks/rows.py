"""Time per epoch and peak memory against the number of rows, of folder bundles that training reads in blocks.

For each size a synthetic folder is written (or found) in the folder of ``--data``. Each method trains on it in a fresh
process, in one thread, without calibration, and scores the test rows in one pass. CPU time is fitted by a power of
rows, since other work on the machine slows down wall time; memory is the peak resident set of the whole process, with
Python and PyTorch, beside that of a process that only imports them. Prints JSON, draws ``rows.png``. Run

    python benchmarks/rows.py --data /tmp/rows --rows 10000 100000 1300000
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classnorm.data import SyntheticConfig, load, synthesize
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.progress import Display, OnProgress, shown_on
from classnorm.runs.experiment import score
from classnorm.scoring import fit_calibrated
from classnorm.training.stored_rows import ShuffledPools

SIZES = {"classes": 1000, "unseen": 200, "features": 2048, "attributes": 300}
FEW, MANY = 50_000, 4  # rows below which an epoch is repeated, and how often


def peak() -> float:
    """Largest resident set of this process so far, in GiB."""
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent process, too
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20  # type: ignore[index]


def measure(method: str, folder: Path) -> dict[str, Any]:
    """Train and score once, in this process."""
    torch.set_num_threads(1)
    imported = peak()
    data = load(folder)
    epochs = MANY if data.n_rows < FEW else 1
    starts, ends = [], []
    shuffled = ShuffledPools.epoch

    def epoch(self: ShuffledPools, number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        starts.append(now())
        yield from shuffled(self, number)

    class EpochEnds(Display):
        def stage(self, name: str) -> AbstractContextManager[OnProgress]:
            return nullcontext(lambda step: ends.append(now()))

    ShuffledPools.epoch = epoch  # type: ignore[method-assign]
    began = now()
    job = FitJob(data, *resolve(data, method, "reference", epochs=epochs, calibration="none"))
    with shown_on(EpochEnds()):
        fitted = fit_calibrated(job, FitContext(torch.device("cpu")))
    trained, ended = peak(), now()
    scores = score(fitted.scorer, data)[1]
    cpu, wall = np.median(np.array(ends) - np.array(starts), axis=0)
    return {
        "rows": data.n_rows,
        "train_rows": len(data.split.train),
        "epochs": epochs,
        "epoch_cpu_seconds": float(cpu),
        "epoch_seconds": float(wall),
        "preparation_cpu_seconds": starts[0][0] - began[0],
        "score_cpu_seconds": now()[0] - ended[0],
        "seconds": now()[1] - began[1],
        "peak_gib": peak(),
        "peak_training_gib": trained,
        "imported_gib": imported,
        "harmonic": scores.harmonic,
    }


def now() -> tuple[float, float]:
    """CPU time and wall time."""
    return time.process_time(), time.perf_counter()


def exponent(results: list[dict[str, Any]], quantity: str) -> float:
    """Slope of log(quantity) over log(rows)."""
    points = np.log([[result["rows"], result[quantity]] for result in results])
    return float(np.polyfit(points[:, 0], points[:, 1], 1)[0])


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for method, runs in results.items():
        rows = [run["rows"] for run in runs]
        slope = exponent(runs, "epoch_cpu_seconds")
        left.loglog(rows, [run["epoch_cpu_seconds"] for run in runs], "o-", label=f"{method}, exponent {slope:.2f}")
        right.semilogx(rows, [run["peak_gib"] for run in runs], "o-", label=method)
    size = [2 * SIZES["features"] * n / 2**30 for n in rows]
    right.semilogx(rows, size, "k:", label="size of the features")
    left.set(xlabel="rows", ylabel="CPU seconds per epoch")
    right.set(xlabel="rows", ylabel="peak resident memory, GiB", ylim=(0, 6))
    left.legend()
    right.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder for the synthetic datasets")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_300_000])
    parser.add_argument("--methods", nargs="+", default=["classnorm", "kernel"])
    parser.add_argument("--plot", type=Path, default=Path("rows.png"))
    parser.add_argument("--one", help="measure this method on the folder --data, and nothing else")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.data)))
        return
    results: dict[str, list[dict[str, Any]]] = {method: [] for method in arguments.methods}
    for rows in sorted(arguments.rows):
        folder = arguments.data / str(rows)
        if not folder.is_dir():
            synthesize(SyntheticConfig(rows=rows, **SIZES), folder)
        for method in arguments.methods:
            command = [sys.executable, __file__, "--one", method, "--data", str(folder)]
            results[method].append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
            print(method, results[method][-1], file=sys.stderr, flush=True)
    exponents = {method: exponent(runs, "epoch_cpu_seconds") for method, runs in results.items()}
    print(json.dumps({"sizes": SIZES, "exponents": exponents, "results": results}, indent=2))
    draw(results, arguments.plot)


if __name__ == "__main__":
    main()
