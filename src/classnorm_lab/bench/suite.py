"""All measurements in one run: training, inference, AUSUC, the kernel method, start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.methods import FitContext, FitJob, ZeroShotModel, resolve
from classnorm.metrics import ausuc
from classnorm.progress import notice, stage
from classnorm.scoring import Scorer, fit_calibrated
from classnorm.training import pick_device
from classnorm_lab.bench.measures import FORMAT, measured
from classnorm_lab.bench.shapes import Shape, find_dataset
from classnorm_lab.bench.timing import (
    busy_warning,
    load_average,
    machine,
    processor_share,
    seconds_of,
    threads,
)
from classnorm_lab.bench.training_speed import RECIPE, measure_training

_QUICK_ROWS = 768  # three steps
_TOP = 5
_MOST_ROWS = 10_000  # that inference is timed with
_SLOW_REPEATS = 3  # at most, of what takes seconds and varies little


@dataclass(frozen=True)
class BenchSettings:
    """What is measured, and how often."""

    shapes: tuple[Shape, ...]
    """The kernel method is measured on the first."""
    features_dim: int = 2048
    """Of synthetic data."""
    repeats: int = 5
    data_root: Path | None = None
    threads: int | None = None
    quick: bool = False
    """The first shape alone, with a few hundred rows."""


def run_bench(settings: BenchSettings) -> dict[str, Any]:
    """Measure everything; the document for bench.json. A notice says at once if the machine is busy."""
    with threads(settings.threads):
        context = FitContext(pick_device())
        load, share = load_average(), processor_share()
        warning = busy_warning(load, share, os.cpu_count() or 1)
        if warning:
            notice(warning)
        return {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(context.device),
            "settings": {
                "recipe": RECIPE,
                "features_dim": settings.features_dim,
                "repeats": settings.repeats,
                "quick": settings.quick,
            },
            "busy": {"load": load, "processor_share": round(share, 3)},
            "warnings": [warning] if warning else [],
            "shapes": _shapes(settings, context),
            "ausuc": _ausuc(settings),
            "start_up": _start_up(1 if settings.quick else min(settings.repeats, _SLOW_REPEATS)),
        }


def _shapes(settings: BenchSettings, context: FitContext) -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for shape in settings.shapes[: 1 if settings.quick else None]:
        if settings.quick:
            shape = replace(shape, rows=_QUICK_ROWS)
        dataset, data = find_dataset(shape, settings.features_dim, settings.data_root)
        with stage(f"{shape.name} shape"):
            training, model = measure_training(dataset, settings.repeats, context)
        document = {
            "data": data,
            "rows": len(dataset.split.train),
            "sizes": {"seen": int(dataset.seen.sum()), "classes": dataset.n_classes, "attributes": dataset.d_a},
            "features_dim": dataset.d_z,
            **training,
            f"top_{_TOP}": _inference(dataset, model, settings.repeats),
        }
        if not documents:
            document["kernel"] = _kernel(dataset, settings.repeats, context, training["textbook"]["training"]["median"])
        documents[shape.name] = document
    return documents


def _inference(dataset: ZeroShotDataset, model: ZeroShotModel, repeats: int) -> dict[str, Any]:
    """Rows per second of `Scorer.top`."""
    scorer = Scorer.of(FitJob(dataset, *resolve(dataset, "classnorm", RECIPE)), model)
    features = dataset.features[dataset.test_rows[:_MOST_ROWS]]
    times = [seconds_of(lambda: scorer.top(features, _TOP)) for _ in range(repeats + 1)]
    return measured([len(features) / seconds for seconds in times[1:]], "rows/s")


def _kernel(dataset: ZeroShotDataset, repeats: int, context: FitContext, textbook_seconds: float) -> dict[str, Any]:
    """The final fit, the fit with calibration, and how often the latter fits into a training of the textbook loop."""
    job = FitJob(dataset, *resolve(dataset, "kernel"))
    fits = [fit_calibrated(job, context) for _ in range(min(repeats, _SLOW_REPEATS) + 1)][1:]
    return {
        "fit": measured([fit.train_seconds for fit in fits], "s"),
        "fit_with_calibration": measured([fit.fit_seconds for fit in fits], "s"),
        "textbook_training_over_kernel": measured([textbook_seconds / fit.fit_seconds for fit in fits], "×"),
    }


def _ausuc(settings: BenchSettings) -> dict[str, Any]:
    n_samples, n_classes = (2_000, 100) if settings.quick else (20_000, 1_000)
    generator = np.random.default_rng(0)
    labels = generator.integers(0, n_classes, n_samples)
    seen = np.arange(n_classes) < 0.75 * n_classes
    logits = generator.standard_normal((n_samples, n_classes), dtype=np.float32)
    logits[np.arange(n_samples), labels] += 3.0
    times = [seconds_of(lambda: ausuc(logits, labels, seen)) for _ in range(settings.repeats + 1)]
    return {"samples": n_samples, "classes": n_classes, "time": measured(times[1:], "s")}


def _start_up(repeats: int) -> dict[str, Any]:
    """CPU seconds of commands that only print help, each in a process of its own."""
    commands = {"help": ["--help"]} | {f"{name}_help": [name, "--help"] for name in ("train", "search", "continual")}
    return {
        name: measured([_cpu_seconds(command) for _ in range(repeats)], "CPU s") for name, command in commands.items()
    }


def _cpu_seconds(arguments: list[str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-m", "classnorm", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system
