"""Many classes at run time: 20,000 new ones from their descriptors alone, then the best 5 of 10,000 features.

The time of `top` is set against the bare float32 product of features and prototypes, [n, d] × [d, K], which nothing
that compares every feature with every class can beat. Both are timed in turn and the shortest of each counts, since a
shared machine stalls at times. Peak memory is the growth of the resident set over what features and descriptors take;
the scores of all rows and classes alone would be 0.8 GB in single precision. Run: python benchmarks/classes.py
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
    """Bytes of memory this process holds now."""
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
    """The bare product, in blocks of rows so that it is not slowed by fresh memory."""
    left, right = torch.randn(1000, d), torch.randn(k, d)
    result = torch.empty(1000, k)

    def run() -> None:
        for _ in range(n // 1000):
            torch.mm(left, right.T, out=result)

    return run


def measure(scorer: Scorer, features: np.ndarray, new: dict[str, np.ndarray]) -> None:
    adding = min(seconds(lambda: scorer.add_classes(new)) for _ in range(PAIRS))
    more = scorer.add_classes(new)
    width = more.only(more.class_names[:2]).prototypes().shape[1]
    memory = peak_growth(lambda: more.top(features, K))
    bare = product(ROWS, width, len(more.class_names))
    pairs = [(seconds(bare), seconds(lambda: more.top(features, K))) for _ in range(PAIRS)]
    limit, top = (min(column) for column in zip(*pairs, strict=True))
    print(
        f"{scorer.method:10s} add {len(new):,} classes: {adding:.2f} s; top {K} of {len(more.class_names):,} classes "
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
