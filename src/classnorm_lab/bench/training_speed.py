"""Training speed: epochs of `reference`, of `fast`, of the textbook loop, and the bare products of both, in turn."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import torch

from classnorm.data import ZeroShotDataset
from classnorm.methods import ClassNormConfig, FitContext, ZeroShotModel, resolve
from classnorm.methods.method import Fit
from classnorm.progress import Display, report, shown_on
from classnorm.training import Stage, stage_seconds
from classnorm_lab.bench import textbook
from classnorm_lab.bench.measures import measured
from classnorm_lab.bench.timing import peak_memory, seconds_of

RECIPE, FAST = "reference", "fast"
_PRODUCT_REPEATS = 5  # steps whose products are timed together

Product = tuple[int, int, int]


def embedder_products(config: ClassNormConfig, d_a: int, d_z: int, n_seen: int) -> list[Product]:
    """Products [a, b] × [b, c] of a step: forward, weight gradients, input gradients of all layers but the first."""
    products: list[Product] = []
    widths = [d_a, *[config.hidden] * (config.layers - 1), d_z]
    for layer, (d_in, d_out) in enumerate(itertools.pairwise(widths)):
        products += [(n_seen, d_in, d_out), (d_out, n_seen, d_in)]
        if layer:
            products.append((n_seen, d_out, d_in))
    return products


def logit_products(batch: int, d_z: int, n_seen: int) -> list[Product]:
    """Forward, and the gradient of the prototypes; features need no gradient."""
    return [(batch, d_z, n_seen), (n_seen, batch, d_z)]


def _timer(products: Sequence[Product], device: torch.device) -> Callable[[], float]:
    """A function that times these products."""
    factors = [(torch.randn(a, b, device=device), torch.randn(b, c, device=device)) for a, b, c in products]
    results = [left @ right for left, right in factors]

    def run() -> None:
        for _ in range(_PRODUCT_REPEATS):
            for (left, right), result in zip(factors, results, strict=True):
                torch.mm(left, right, out=result)
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()

    return lambda: seconds_of(run) / _PRODUCT_REPEATS


@dataclass(frozen=True)
class _Epoch:
    """A training of one epoch."""

    loss: float
    seconds: float
    setup: float
    """Seconds around the epoch: preparing the rows, building the model."""
    cpu: float
    """CPU seconds of both."""
    stages: dict[str, float]
    memory: list[float]

    def training(self, epochs: int) -> float:
        """Seconds of a training of that many epochs, extrapolated."""
        return self.setup + epochs * self.seconds


def _one_epoch(
    fit: Fit, dataset: ZeroShotDataset, config: ClassNormConfig, context: FitContext
) -> tuple[_Epoch, ZeroShotModel]:
    started, cpu = time.perf_counter(), time.process_time()
    with peak_memory() as memory, stage_seconds() as stages, shown_on(Display()):  # only repeats are shown
        fitted = fit(dataset, config, 0, context)
    total, cpu = time.perf_counter() - started, time.process_time() - cpu
    seconds = fitted.history[0]["seconds"]
    parts: dict[str, float] = {}
    if context.device.type == "cpu":
        parts = {name: stages.get(name, 0.0) for name in get_args(Stage)}
        parts["other"] = seconds - sum(parts.values())
    return _Epoch(fitted.history[0]["loss"], seconds, total - seconds, cpu, parts, memory), fitted.model


def measure_training(
    dataset: ZeroShotDataset, repeats: int, context: FitContext
) -> tuple[dict[str, Any], ZeroShotModel]:
    """Speed, memory and stages of both loops, and our model after one epoch.

    Products, our epochs, products and the textbook's epoch alternate, so that a busy machine hits them alike; the first
    of each only warms up.
    """
    method, recipe = resolve(dataset, "classnorm", RECIPE)
    fast = cast(ClassNormConfig, resolve(dataset, "classnorm", FAST)[1])
    epochs = cast(ClassNormConfig, recipe).epochs
    config = cast(ClassNormConfig, recipe.replace(epochs=1))
    rows, n_seen = len(dataset.split.train), int(dataset.seen.sum())
    batch = min(config.batch_size, rows)
    embedder = embedder_products(config, dataset.d_a, dataset.d_z, n_seen)
    logits = logit_products(batch, dataset.d_z, n_seen)
    steps = math.ceil(rows / batch)
    flops = 2 * (steps * _volume(embedder) + rows / batch * _volume(logits))
    time_embedder, time_logits = _timer(embedder, context.device), _timer(logits, context.device)

    def time_products() -> float:
        return steps * time_embedder() + rows / batch * time_logits()

    products, ours, quick, plain = [], [], [], []
    for i in range(repeats + 1):
        before = time_products()
        epoch, model = _one_epoch(method.fit, dataset, config, context)
        products.append((before + time_products()) / 2)
        ours.append(epoch)
        quick.append(_one_epoch(method.fit, dataset, fast.replace(epochs=1), context)[0])
        plain.append(_one_epoch(textbook.fit, dataset, config, context)[0])
        report(i + 1, repeats + 1)
    products, ours, quick, plain = products[1:], ours[1:], quick[1:], plain[1:]
    speedups = [b.training(epochs) / a.training(epochs) for a, b in zip(ours, plain, strict=True)]
    fast_speedups = [b.training(epochs) / a.training(fast.epochs) for a, b in zip(quick, plain, strict=True)]
    document = {
        "epochs": epochs,
        "ours": _summary(ours, epochs, steps),
        "textbook": _summary(plain, epochs, steps),
        "textbook_over_ours": measured(speedups, "×"),
        "fast": {
            "training": measured([run.training(fast.epochs) for run in quick], "s"),
            "textbook_over_fast": measured(fast_speedups, "×"),
        },
        "product_share": measured([p / a.seconds for p, a in zip(products, ours, strict=True)], "share"),
        "product_rate": measured([flops / seconds / 1e9 for seconds in products], "GFLOP/s"),
    }
    return document, model


def _volume(products: Sequence[Product]) -> int:
    return sum(a * b * c for a, b, c in products)


def _summary(runs: Sequence[_Epoch], epochs: int, steps: int) -> dict[str, Any]:
    memory = [peak for run in runs for peak in run.memory]
    return {
        "epoch": measured([run.seconds for run in runs], "s"),
        "training": measured([run.training(epochs) for run in runs], "s"),
        "one_epoch_training": measured([run.cpu for run in runs], "CPU s"),
        **({"memory": measured(memory, "GB")} if memory else {}),
        "step": {name: measured([run.stages[name] / steps for run in runs], "s") for name in runs[0].stages},
        "loss": runs[-1].loss,
    }
