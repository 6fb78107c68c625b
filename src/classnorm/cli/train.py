"""`classnorm train`: fit and score."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from classnorm.cli.console import print_json, print_table
from classnorm.cli.image_options import ImageOptions
from classnorm.cli.options import (
    DataArgument,
    DataOptions,
    MethodCommand,
    OutputOptions,
    RunOptions,
    mean_and_std,
    optional,
    run_records,
)
from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.io.escapes import file_name
from classnorm.methods import resolve
from classnorm.preparation.dataset import Prepared
from classnorm.progress import notice, stages_of
from classnorm.report import group_results, terminal_table, write_report
from classnorm.results.run_folder import Result
from classnorm.runs.experiment import Experiment
from classnorm.runs.job import Execution, dataset_record
from classnorm.training import Precision, pick_device, precision_notice, process_group

_RECORDED = ("seed", "scores", "calibration", "validation", "train_seconds", "fit_seconds")  # of a run, in JSON


@dataclass(frozen=True, kw_only=True)
class Train(MethodCommand):
    """Train a model on a dataset and score it once on the test rows.

    Examples:
      classnorm train glyphs
      classnorm train xlsa17/data/CUB --features res101 --recipe reference --seeds 3
      classnorm train mine.npz --recipe paper --hidden 512 --epochs 30 --out runs/mine --json
      classnorm train --images photos --descriptions animals.csv --method kernel --out runs/animals
      torchrun --nproc-per-node 4 -m classnorm train large.npz --out runs/large

    Notes:
      --images takes a folder per class, a CSV file with the columns path, label and,
      if it has a split, split (train or test), or a folder in the layout of
      CUB-200-2011. Features and descriptors are cached
      in the output folder, and a report is written beside the runs.
      torchrun divides the rows among processes, on one machine or several; the result
      is that of one process. If one dies, run the same command with --resume.
    """

    to_continue = "run the same command with --resume"

    data: DataArgument = "glyphs"
    images: Annotated[str | None, optional("DIR")] = None
    """Train on these images instead of DATA; see the image options."""
    checkpoint_every: int = 10
    """Epochs between checkpoints; 0 writes none."""
    training: RunOptions
    image: ImageOptions
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        seeds = self.training.seed_numbers()
        with process_group(self.training.device) as (processes, device):
            with processes.first_goes_ahead() if self.images else nullcontext():
                prepared = self._prepared()
            dataset = self.dataset.load(self.data) if prepared is None else prepared.dataset
            _, config = resolve(dataset, self.method, self.recipe, **self.set_values)
            precision: Precision = getattr(config, "precision", "float32")
            if text := precision_notice(precision, pick_device(device)):
                notice(text)
            out = self._folder(dataset)
            execution = Execution(
                device=device,
                processes=processes,
                resume=self.training.resume,
                checkpoint_every=self.checkpoint_every,
                command=self.command_line,
                label=self.training.label or "",
                examples=prepared.examples if prepared is not None else None,
            )
            results = []
            for seed, folder in zip(seeds, self.training.folders(out, seeds), strict=True):
                with stages_of(f"seed {seed}"):
                    results.append(Experiment(dataset, self.method, self.recipe, config, seed).run(folder, execution))
            if processes.is_first:
                self._show(dataset, results, prepared)

    def _folder(self, dataset: ZeroShotDataset) -> Path:
        run = f"{self.method}-{Path(self.recipe).stem}"
        return self.training.out or Path("runs") / file_name(dataset.name) / run

    def _show(self, dataset: ZeroShotDataset, results: list[Result], prepared: Prepared | None) -> None:
        out = self._folder(dataset)
        report = out / "report" / "index.html"
        if prepared is not None:
            write_report(group_results(results), report.parent, f"{dataset.name}: zero-shot results")
        notice(*dict.fromkeys(text for r in results for text in r.document.get("notices", ())))
        if self.output.json:
            images = {"skipped": prepared.skipped, "report": str(report)} if prepared is not None else {}
            print_json(self._document(dataset, results) | images)
            return
        title = f"{dataset.name}, {dataset.d_z}-d {dataset.provenance.get('features', '')} features"
        print_table(terminal_table(group_results(results), title))
        calibrations = ", ".join(dict.fromkeys(result.document["calibration"] for result in results))
        print(f"calibration: {calibrations}")
        for name, value in results[0].document.get("choices", {}).items():
            print(f"{name.replace('_', ' ')}: {', '.join(map(str, value))} (chosen by the fit)")
        print(f"runs: {out}")
        if self.images is not None:
            print(f"report: {report}")
        self._print_next_step(results[0].folder, dataset)

    def _prepared(self) -> Prepared | None:
        """The dataset made of `images`, if any."""
        if self.images is None:
            for name, default in vars(ImageOptions()).items():
                if getattr(self.image, name) != default:
                    raise ConfigError(f"--{name.replace('_', '-')} needs --images DIR; give that instead of DATA")
            return None
        if self.data != Train.data:
            raise ConfigError(f"both DATA ({self.data}) and --images ({self.images}); give one of them")
        return self.image.prepare(self.images, self.training.out, self.dataset, self.training.device)

    def _document(self, dataset: ZeroShotDataset, results: Sequence[Result]) -> dict[str, Any]:
        return {
            "dataset": dataset_record(dataset),
            "method": self.method,
            "recipe": self.recipe,
            "config": results[0].document["config"],
            "average": "class",
            "runs": [
                {
                    **record,
                    "choices": result.document.get("choices", {}),
                    "notices": result.document.get("notices", []),
                }
                for record, result in zip(run_records(results, *_RECORDED), results, strict=True)
            ],
            **mean_and_std(results),
        }

    def _print_next_step(self, model: Path, dataset: ZeroShotDataset) -> None:
        weights = ["--weights", str(self.image.weights)] if self.image.weights is not None else []
        takes_images = self.images is not None or "encoder" in dataset.provenance
        rows = self.images or ("new_images" if takes_images else "features.npy")
        about = "" if takes_images else f"  # {rows}: rows of {dataset.d_z} numbers, made like those of the training"
        if self.images is None or Path(self.images).exists():  # glyphs have no files
            print(f"next: {shlex.join(['classnorm', 'predict', str(model), rows, '--top', '3', *weights])}{about}")
