"""`classnorm train`: fit and score."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from classnorm.cli.console import notice, print_json, print_table, progress_display
from classnorm.cli.options import DataOptions, MethodCommand, OutputOptions, chosen_seeds, given, parse_for_method
from classnorm.experiments.run import Experiment, dataset_record, run
from classnorm.experiments.run_folder import RESULT, Result
from classnorm.methods import resolve
from classnorm.report import SCORES, group_results, terminal_table
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Train(MethodCommand):
    """Train on a dataset's training rows and score its test rows, once, at the end.

    Examples:
      classnorm train glyphs
      classnorm train xlsa17/data/CUB --features res101 --recipe reference --seeds 3
      classnorm train mine.npz --recipe paper --hidden 512 --epochs 30 --out runs/mine --json
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = "glyphs"
    """glyphs, glyphs-light, synthetic[:classes=…], a folder with att_splits.mat, or an .npz bundle."""
    recipe: str = "reference"
    """Preset: reference, paper (the publication's settings), for classnorm also baseline (reference without CN); or the
    recipe.json of a search."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """One run with this seed (default 0)."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """N runs with seeds 0 … N−1."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the runs, one sub-folder a seed (default: runs/DATASET/METHOD-RECIPE)."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    checkpoint_every: int = 10
    """Save the state of training after every N epochs; 0 never."""
    resume: bool = False
    """Continue interrupted runs from their checkpoints, and keep finished ones."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self, command: str) -> None:
        seeds = chosen_seeds(self.seed, self.seeds)
        dataset = self.source.load(self.data)
        _, config = resolve(dataset, self.method, self.recipe, **given(self.settings))
        for text in dataset.notices:
            notice(text, self.output.quiet)
        out = self.out or Path("runs") / dataset.name / f"{self.method}-{Path(self.recipe).stem}"
        if not self.resume:
            for seed in seeds:
                if (out / f"seed-{seed}" / RESULT).is_file():
                    notice(f"replacing the finished run {out / f'seed-{seed}'}", self.output.quiet)
        with progress_display(self.output.quiet) as announce:
            results = [
                run(
                    Experiment(dataset, self.method, self.recipe, config, seed),
                    out / f"seed-{seed}",
                    device=self.device,
                    checkpoint_every=self.checkpoint_every,
                    resume=self.resume,
                    announce=lambda stage, seed=seed: announce(f"seed {seed}, {stage}"),  # type: ignore[misc]
                    command=command,
                )
                for seed in seeds
            ]
        if self.output.json:
            print_json(self._document(dataset_record(dataset), results))
            return
        groups = group_results(results)
        print_table(
            terminal_table(groups, f"{dataset.name}, {dataset.d_z}-d {dataset.provenance.get('features', '')} features")
        )
        calibrations = ", ".join(dict.fromkeys(result.document["calibration"] for result in results))
        print(f"calibration: {calibrations}\nruns: {out}")

    def _document(self, dataset: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
        keys = ("seed", "scores", "calibration", "validation", "train_seconds", "fit_seconds")
        return {
            "dataset": dataset,
            "method": self.method,
            "recipe": self.recipe,
            "config": results[0].document["config"],
            "average": "class",
            "runs": [{**{key: r.document[key] for key in keys}, "model": str(r.folder)} for r in results],
            "mean": _statistics(results, np.mean),
            "std": _statistics(results, lambda values: np.std(values, ddof=1) if len(values) > 1 else 0.0),
        }


def _statistics(results: Sequence[Result], function: Any) -> dict[str, float | None]:
    values = {name: float(function([result.scores[name] for result in results])) for name in SCORES}
    return {name: None if np.isnan(value) else round(value, 4) for name, value in values.items()}


def main(arguments: Sequence[str], program: str) -> None:
    parse_for_method(Train, arguments, program).run(shlex.join([*program.split(), *arguments]))


if __name__ == "__main__":
    main(sys.argv[1:], "classnorm train")
