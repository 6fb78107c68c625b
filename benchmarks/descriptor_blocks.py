"""Two descriptions of the same classes: what `kernel` makes of them, with equal and with chosen weights.

    classnorm describe xlsa17/data/CUB --encoder minilm --out names.npz
    python benchmarks/descriptor_blocks.py xlsa17/data/CUB names.npz --features efficientnet_lite0

Scores are H at the best bias and T1 on validation splits of the training rows; test rows are not used. The weights are
chosen inside each fit, which does not see the classes that its split holds out.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from classnorm.data import ZeroShotDataset, load
from classnorm.data.descriptions import read_descriptions
from classnorm.data.names import match_names
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import calibrated_gzsl_scores, choose_calibration
from classnorm.scoring.fitting import validate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="anything that `classnorm train` takes")
    parser.add_argument("second", type=Path, help="descriptors of the same classes")
    parser.add_argument("--features", default=None, help="feature file of a GBU folder")
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    data = load(options.data, **({"features": options.features} if options.features else {}))
    second = read_descriptions(options.second, numbers=True)
    assert second.table is not None
    table = second.table[match_names(data.class_names, options.data, second.names, str(options.second))]
    both = replace(data, descriptors=np.concatenate([_unit(data.descriptors), _unit(table)], axis=1))
    blocks = f"{data.d_a},{table.shape[1]}"
    print("| descriptors | H | T1 | weights |\n| --- | ---: | ---: | --- |")
    show("the first", data, options.splits)
    show("the second", replace(data, descriptors=table), options.splits)
    show("both, one kernel", both, options.splits)
    show("both, equal weights", both, options.splits, blocks=blocks, block_weights="equal")
    show("both, chosen weights", both, options.splits, blocks=blocks)


def _unit(table: np.ndarray) -> np.ndarray:
    return (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)


def show(label: str, data: ZeroShotDataset, splits: int, **changes: str) -> None:
    job, context = FitJob(data, *resolve(data, "kernel", **changes)), FitContext(torch.device("cpu"))
    scores, weights = [], []
    for split in range(splits):
        fitted = validate(job, split, context)
        calibration, harmonic = choose_calibration([fitted.best_scores], "bias")
        scores.append([harmonic, calibrated_gzsl_scores(fitted.best_scores, calibration).zsl])
        weights.append(str(fitted.scorer.model.choices().get("block_weights", "")))
    harmonic, zsl = np.mean(scores, axis=0)
    print(f"| {label} | {harmonic:.1f} | {zsl:.1f} | {', '.join(dict.fromkeys(weights))} |", flush=True)


if __name__ == "__main__":
    main()
