"""How well a calibration chosen on validation splits fits the final model, without a look at test rows.

A validation split of the training rows takes the place of the dataset: its training rows are split again to choose the
bias of the seen scores, and its held-out rows are the test. Run, with any settings of the method,

    python benchmarks/nested_validation.py CUB --data-root xlsa17/data --features efficientnet_lite0 --method dascn
    python benchmarks/nested_validation.py CUB --data-root xlsa17/data --features efficientnet_lite0 --method dascn \
        --set classifier_reach=0
    python benchmarks/nested_validation.py CUB:efficientnet_lite0:cub_sentences.npz --data-root xlsa17/data \
        --method tfvaegan --set lr=1e-3 decoder_lr=1e-3
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from classnorm.data import ZeroShotDataset, validation_dataset
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import calibrated_scores, choose_calibration
from classnorm.scoring import fit_calibrated
from classnorm_lab.paper.datasets import find_datasets


def measure(data: ZeroShotDataset, method: str, split: int, **changes: Any) -> str:
    """Scores on the held-out rows of a split with the chosen bias, and with the best one."""
    part = validation_dataset(data, seed=split)
    fitted = fit_calibrated(
        FitJob(part, *resolve(part, method, calibration="validation:bias", **changes)),
        FitContext(torch.device("cpu")),
    )
    assert fitted.validation is not None
    best_scores = fitted.scorer.best_scores(part.features[part.test_rows], part.labels[part.test_rows])
    unseen, seen, harmonic = calibrated_scores(best_scores, fitted.scorer.calibration)
    best, highest = choose_calibration([best_scores], "bias")
    return (
        f"split {split}: U {unseen:.1f}, S {seen:.1f}, H {harmonic:.1f} with {fitted.scorer.calibration} "
        f"(H {fitted.validation['harmonic']:.1f} where it was chosen); H {highest:.1f} with the best, {best}"
    )


def setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, ast.literal_eval(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--features")
    parser.add_argument("--method", default="fclswgan")
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    [benchmark] = find_datasets([options.data], options.data_root, options.features)
    for split in options.splits:
        print(measure(benchmark.dataset, options.method, split, **dict(options.set)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
