"""Many classes: training with a sample of them, kernels over landmarks, and the top 5 of 21,000 for 10,000 rows.

``python benchmarks/classes.py top`` adds 20,800 classes by their descriptors to a trained model and compares
`Scorer.top` with the bare float32 product of features and prototypes, [n, d] × [d, K], the lower bound for comparing
every row with every class. Both are timed alternately; a shared machine stalls at times, so the minimum of each counts,
and with ``--cpu`` the time of the processor, on one thread. Peak memory is the growth of the resident set; the scores
of all rows and classes alone would take 0.84 GB in single precision.

``python benchmarks/classes.py sample`` trains with all classes and with samples of them, by turns, and scores classes
held out of the training ones: H with the best bias, the accuracy on the unseen ones alone (T1), and the time per step.

``python benchmarks/classes.py fit`` fits both methods with 21,000 classes: time per step, or of the fit, and memory.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import best_seen_and_unseen, choose_calibration, gzsl_scores
from classnorm.scoring import Scorer, fit

CLASSES, ROWS, D_A, D_Z, K = 21_000, 10_000, 312, 2048, 5
CPU = torch.device("cpu")
clock = time.perf_counter


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
    started = clock()
    action()
    return clock() - started


def product(n: int, d: int, k: int) -> Callable[[], object]:
    """The bare product, in blocks of rows to avoid the cost of fresh memory."""
    left, right = torch.randn(1000, d), torch.randn(k, d)
    result = torch.empty(1000, k)

    def run() -> None:
        for _ in range(n // 1000):
            torch.mm(left, right.T, out=result)

    return run


def top(methods: list[str], pairs: int) -> None:
    data = synthetic(SyntheticConfig(classes=200, unseen=50, rows=4000, features=D_Z, attributes=D_A))
    generator = np.random.default_rng(0)
    table = generator.lognormal(size=(CLASSES - 200, D_A)).astype(np.float32)
    new = {f"new class {i}": row for i, row in enumerate(table)}
    features = generator.random((ROWS, D_Z), dtype=np.float32)
    for method in methods:
        scorer = fit(data, method, epochs=1, calibration="bias:1", device="cpu").add_classes(new)
        first = seconds(lambda scorer=scorer: scorer.top(features[:1], K))  # type: ignore[misc]
        width = scorer.prototypes().shape[1]
        memory = peak_growth(lambda scorer=scorer: scorer.top(features, K))  # type: ignore[misc]
        bare = product(ROWS, width, CLASSES)
        times = [(seconds(bare), seconds(lambda scorer=scorer: scorer.top(features, K))) for _ in range(pairs)]  # type: ignore[misc]
        limit, ours = (min(column) for column in zip(*times, strict=True))
        print(
            f"{method:10s} top {K} of {CLASSES:,} classes for {ROWS:,} rows: {ours:.2f} s; bare product of width "
            f"{width}: {limit:.2f} s = {limit / ours:.0%}; peak memory +{memory:.2f} GB; "
            f"class vectors once: {first:.1f} s"
        )


def steps(job: FitJob) -> int:
    return job.config.epochs * -(-len(job.dataset.split.train) // job.config.batch_size)  # type: ignore[attr-defined]


def compared(dataset: Any, method: str, variants: list[dict[str, Any]], seeds: int, **settings: Any) -> Iterator[str]:
    """A line for each variant: mean scores on held-out classes and time per step."""
    results: dict[int, list[tuple[float, float, float]]] = {i: [] for i in range(len(variants))}
    for seed in range(seeds):
        for i, changes in enumerate(variants):
            job = FitJob(dataset, *resolve(dataset, method, **settings | changes), seed).validation(0)
            started = clock()
            scorer = Scorer.of(job, job.fit(FitContext(CPU)).model)
            per_step = 1e3 * (clock() - started) / steps(job)
            rows, labels = job.dataset.test_rows, job.dataset.labels[job.dataset.test_rows]
            logits = scorer.logits(job.dataset.features[rows])
            _, harmonic = choose_calibration([best_seen_and_unseen(logits, labels, job.dataset.seen)], "bias")
            zsl = gzsl_scores(logits, labels, job.dataset.seen).zsl
            results[i].append((harmonic, zsl, per_step))
    n_seen = int(job.dataset.seen.sum())
    for i, changes in enumerate(variants):
        harmonic, zsl, per_step = np.array(results[i]).T
        name = ", ".join(f"{key} {value}" for key, value in changes.items())
        yield (
            f"{method:10s} {n_seen} seen classes, {name}: H {harmonic.mean():.1f} ± {harmonic.std():.1f}, "
            f"T1 {zsl.mean():.1f} ± {zsl.std():.1f}, {per_step.min():.0f} ms per step"
        )


def sample(classes: int, seeds: int) -> None:
    sizes = SyntheticConfig(
        classes=classes, unseen=classes // 5, rows=10 * classes, features=256, attributes=100, factors=40
    )
    dataset = synthetic(sizes)
    samples = [{"sampled_classes": size} for size in (0, 1024, 256)]
    for line in compared(dataset, "classnorm", samples, seeds, epochs=5, hidden=512):
        print(line, flush=True)
    kernels = [{"landmarks": m, "sampled_classes": n} for m, n in ((classes, 0), (2000, 0), (2000, 1024), (500, 1024))]
    for line in compared(dataset, "kernel", kernels, seeds):
        print(line, flush=True)


def fit_all() -> None:
    sizes = SyntheticConfig(
        classes=CLASSES + 1000, unseen=1000, rows=2 * (CLASSES + 1000), features=1024, attributes=300
    )
    dataset = synthetic(sizes)
    variants: list[tuple[str, dict[str, Any]]] = [
        ("classnorm", {"epochs": 1}),
        ("kernel", {"recipe": "closed-form"}),
        ("kernel", {"epochs": 1}),
    ]
    for method, settings in variants:
        job = FitJob(dataset, *resolve(dataset, method, **settings))
        fitted: list[Scorer] = []
        took = [0.0]

        def run(job: FitJob = job, fitted: list[Scorer] = fitted, took: list[float] = took) -> None:
            took[0] = seconds(lambda: fitted.append(Scorer.of(job, job.fit(FitContext(CPU)).model)))

        memory = peak_growth(run)
        table = seconds(lambda fitted=fitted: fitted[0].top(dataset.features[:1], K))  # type: ignore[misc]
        per_step = (
            "" if "recipe" in settings else f", {1e3 * took[0] / steps(job):.0f} ms per step with all preparation"
        )
        print(
            f"{method:10s} {settings} {CLASSES:,} seen classes, {len(dataset.split.train):,} rows of {dataset.d_z}: "
            f"{took[0]:.1f} s{per_step}; +{memory:.2f} GB; prototypes of all classes {table:.1f} s",
            flush=True,
        )


def main() -> None:
    global clock
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("top", "sample", "fit"), nargs="?", default="top")
    parser.add_argument("--classes", type=int, default=4000, help="classes of `sample`, a fifth of them unseen")
    parser.add_argument("--methods", nargs="+", default=["classnorm", "kernel"], help="methods of `top`")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="time of the processor, on one thread")
    options = parser.parse_args()
    if options.cpu:
        torch.set_num_threads(1)
        clock = time.process_time
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if options.part == "top":
        top(options.methods, options.pairs)
    elif options.part == "sample":
        sample(options.classes, options.seeds)
    else:
        fit_all()


if __name__ == "__main__":
    main()
