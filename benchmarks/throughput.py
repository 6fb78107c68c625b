"""Training throughput as a share of this machine's float32 matrix-product rate, for the shapes of CUB, SUN and AwA2.

The products of the embedder and the logits are counted, forward and backward; the time is that of whole training epochs
of the recipe `reference`. Products and epochs are timed alternately and the minimum of each counts, since a shared
machine stalls at times. Run ``python benchmarks/throughput.py``.
"""

from __future__ import annotations

import itertools
import time

import torch

from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.methods import FitContext, resolve
from classnorm.training import pick_device

# name: seen classes, unseen classes, descriptor dimension, training rows, target share of the product rate
SHAPES = {"CUB": (150, 50, 312, 7057, 0.55), "SUN": (645, 72, 102, 10320, 0.65), "AwA2": (40, 10, 85, 23527, 0.35)}
D_Z, HIDDEN, BATCH, PAIRS = 2048, 1024, 256, 6

Product = tuple[int, int, int]


def embedder_products(n_classes: int, d_a: int) -> list[Product]:
    """Products [a, b] × [b, c] of a step: forward, weight gradients, input gradients of all layers but the first."""
    products: list[Product] = []
    for layer, (d_in, d_out) in enumerate(itertools.pairwise([d_a, HIDDEN, HIDDEN, D_Z])):
        products += [(n_classes, d_in, d_out), (d_out, n_classes, d_in)]
        if layer:
            products.append((n_classes, d_out, d_in))
    return products


def logit_products(n_classes: int) -> list[Product]:
    """Forward, and the gradient of the prototypes; features need no gradient."""
    return [(BATCH, D_Z, n_classes), (n_classes, BATCH, D_Z)]


def seconds_of(products: list[Product], device: torch.device, repeats: int = 10) -> float:
    factors = [(torch.randn(a, b, device=device), torch.randn(b, c, device=device)) for a, b, c in products]
    results = [left @ right for left, right in factors]
    started = time.perf_counter()
    for _ in range(repeats):
        for (left, right), result in zip(factors, results, strict=True):
            torch.mm(left, right, out=result)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeats


def epoch_seconds(dataset: ZeroShotDataset, device: torch.device) -> float:
    method, config = resolve(dataset, recipe="reference", epochs=1, calibration="none")
    return method.fit(dataset, config, 0, FitContext(device)).history[0]["seconds"]


def main() -> None:
    device = pick_device()
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads, best of {PAIRS} pairs")
    for name, (seen, unseen, d_a, rows, target) in SHAPES.items():
        per_class = -(-rows * 5 // (4 * seen))  # a fifth of the rows of a class are test rows
        config = SyntheticConfig(seen + unseen, unseen, per_class * (seen + unseen), D_Z, d_a)
        dataset = synthetic(config)
        rows = len(dataset.split.train)
        embedder, logits = embedder_products(seen, d_a), logit_products(seen)
        steps = -(-rows // BATCH)
        flops = 2 * (
            steps * sum(a * b * c for a, b, c in embedder) + rows / BATCH * sum(a * b * c for a, b, c in logits)
        )
        products, epoch = float("inf"), float("inf")
        for _ in range(PAIRS):
            pair = steps * seconds_of(embedder, device) + rows / BATCH * seconds_of(logits, device)
            products, epoch = min(products, pair), min(epoch, epoch_seconds(dataset, device))
        share = products / epoch
        verdict = "ok" if share >= target else "BELOW"
        print(
            f"{name:5s} {flops / epoch / 1e9:4.0f} of {flops / products / 1e9:4.0f} GFLOP/s = {share:.0%} "
            f"(target {target:.0%}: {verdict}), {epoch:.2f} s per epoch of {rows} rows"
        )


if __name__ == "__main__":
    main()
