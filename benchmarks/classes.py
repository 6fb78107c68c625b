"""Many classes at run time: add 20,000 classes by their descriptors, then find the top 5 for 10,000 rows.

The time of `top` is compared with the bare float32 product of features and prototypes, [n, d] × [d, K], the lower bound
for comparing every row with every class. Both are timed alternately and the minimum of each counts, since a shared
machine stalls at times. Peak memory is the growth of the resident set beyond features and descriptors; the scores of
all rows and classes alone would take 0.8 GB in single precision. Run ``python benchmarks/classes.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.scoring import Scorer, fit

CLASSES, ROWS, D_A, D_Z, K, PAIRS = 20_000, 10_000, 312, 2048, 5, 3


def resident() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_growth(action: Callable[[], object]) -> float:
    """Largest growth of the resident set during `action`, in GB."""
    before, highest, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.005):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        action()
    finally:
        done.set()
        watcher.join()
    return max(0, highest - before) / 1e9


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def product(n: int, d: int, k: int) -> Callable[[], object]:
    """The bare product, in blocks of rows to avoid the cost of fresh memory."""
    left, right = torch.randn(1000, d), torch.randn(k, d)
    result = torch.empty(1000, k)

    def run() -> None:
        for _ in range(n // 1000):
            torch.mm(left, right.T, out=result)

    return run


def measure(scorer: Scorer, features: np.ndarray, new: dict[str, np.ndarray]) -> None:
    adding = min(seconds(lambda: scorer.add_classes(new)) for _ in range(PAIRS))
    extended = scorer.add_classes(new)
    n_classes = len(extended.class_names)
    width = extended.only(extended.class_names[:2]).prototypes().shape[1]
    memory = peak_growth(lambda: extended.top(features, K))
    bare = product(ROWS, width, n_classes)
    pairs = [(seconds(bare), seconds(lambda: extended.top(features, K))) for _ in range(PAIRS)]
    limit, top = (min(column) for column in zip(*pairs, strict=True))
    print(
        f"{scorer.method:10s} add {len(new):,} classes: {adding:.2f} s; top {K} of {n_classes:,} classes "
        f"for {ROWS:,} rows: {top:.2f} s, prototypes of width {width} included; "
        f"bare product: {limit:.2f} s = {limit / top:.0%}; peak memory +{memory:.2f} GB"
    )


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, best of {PAIRS} pairs")
    data = synthetic(SyntheticConfig(classes=200, unseen=50, rows=4000, features=D_Z, attributes=D_A))
    generator = np.random.default_rng(0)
    table = generator.lognormal(size=(CLASSES, D_A)).astype(np.float32)
    new = {f"new class {i}": row for i, row in enumerate(table)}
    features = generator.random((ROWS, D_Z), dtype=np.float32)
    for method in ("classnorm", "kernel"):
        measure(fit(data, method, epochs=1, calibration="bias:1", device="cpu"), features, new)


if __name__ == "__main__":
    main()
