"""`classnorm train`: fit and score."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.console import notice, print_json, print_table, progress_display
from classnorm.cli.image_options import ImageOptions
from classnorm.cli.options import DataOptions, MethodCommand, OutputOptions, chosen_seeds, given, parse_for_method
from classnorm.encoders.preparation import Prepared
from classnorm.errors import ConfigError
from classnorm.experiments.experiment import Experiment, dataset_record, run
from classnorm.methods import resolve
from classnorm.report import SCORES, group_results, terminal_table, write_report
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import RESULT, Result
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Train(MethodCommand):
    """Train on a dataset's training rows and score its test rows, once, at the end.

    With --images DIR instead of DATA it starts from images: a folder per class, a CSV with path and label, or CUB's
    layout. Features, descriptors and a report are kept in the folder of the runs, and a second run goes on from them.

    Examples:
      classnorm train glyphs
      classnorm train xlsa17/data/CUB --features res101 --recipe reference --seeds 3
      classnorm train mine.npz --recipe paper --hidden 512 --epochs 30 --out runs/mine --json
      classnorm train --images photos --descriptions animals.csv --method kernel --out runs/animals
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = "glyphs"
    """glyphs, glyphs-light, synthetic[:classes=…], a folder with att_splits.mat, or an .npz bundle."""
    images: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Start from these images; the flags from --encoder on say how."""
    recipe: str = "reference"
    """Preset: reference, paper (the publication's settings), for classnorm also baseline (without CN) and best; or the
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
    how: Annotated[ImageOptions, tyro.conf.arg(name="")]
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self, command: str) -> None:
        seeds = chosen_seeds(self.seed, self.seeds)
        prepared = self._prepared()
        dataset = self.source.load(self.data) if prepared is None else prepared.dataset
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
        groups = group_results(results)
        if prepared is not None:
            for result in results:
                prepared.write_examples(result.folder)
            write_report(groups, out / "report", f"{dataset.name}: zero-shot results")
        if self.output.json:
            document = self._document(dataset_record(dataset), results)
            if prepared is not None:
                document |= {"skipped": prepared.skipped, "report": str(out / "report" / "index.html")}
            print_json(document)
            return
        print_table(
            terminal_table(groups, f"{dataset.name}, {dataset.d_z}-d {dataset.provenance.get('features', '')} features")
        )
        calibrations = ", ".join(dict.fromkeys(result.document["calibration"] for result in results))
        print(f"calibration: {calibrations}\nruns: {out}")
        if prepared is not None:
            print(f"report: {out / 'report' / 'index.html'}")
            weights = ["--weights", str(self.how.weights)] if self.how.weights is not None else []
            ask = ["classnorm", "predict", str(results[0].folder), str(self.images), "--top", "3", *weights]
            if Path(str(self.images)).exists():  # glyphs are in no file
                print(f"next: {shlex.join(ask)}")

    def _prepared(self) -> Prepared | None:
        """The dataset that images make; None where there are none."""
        if self.images is None:
            if self.how != ImageOptions():
                flag = next(name for name, value in vars(ImageOptions()).items() if getattr(self.how, name) != value)
                raise ConfigError(f"--{flag.replace('_', '-')} goes with --images DIR; give that instead of DATA")
            return None
        if self.data != Train.data:
            raise ConfigError(f"both DATA ({self.data}) and --images ({self.images}); give one of them")
        return self.how.prepare(self.images, self.out, self.source, self.device, self.output.quiet)

    def _document(self, dataset: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
        [group] = group_results(results)
        keys = ("seed", "scores", "calibration", "validation", "train_seconds", "fit_seconds")
        return {
            "dataset": dataset,
            "method": self.method,
            "recipe": self.recipe,
            "config": results[0].document["config"],
            "average": "class",
            "runs": [{**{key: r.document[key] for key in keys}, "model": str(r.folder)} for r in results],
            "mean": {name: json_number(group.mean(name)) for name in SCORES},
            "std": {name: json_number(group.std(name)) for name in SCORES},
        }


def main(arguments: Sequence[str], program: str) -> None:
    parse_for_method(Train, arguments, program).run(shlex.join([*program.split(), *arguments]))


if __name__ == "__main__":
    main(sys.argv[1:], "classnorm train")
