"""`classnorm continual`: learn a stream of classes, task by task."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.console import notice, print_json, print_table, stage_progress
from classnorm.cli.options import DataOptions, OutputOptions, chosen_seeds, given, parse_with_settings
from classnorm.continual import STRATEGIES, ContinualConfig, StreamConfig, TaskStream, configure, read_image_split
from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.experiments.engine import Engine
from classnorm.experiments.experiment import dataset_record
from classnorm.experiments.streams import ContinualExperiment, ImageMode, run_continual
from classnorm.experiments.validation_sequence import Chosen, GridName, Selection, default_grid, paper_grid, validated
from classnorm.report import STREAM_SCORES, group_results, rich_table, step_table, terminal_table, write_report
from classnorm.results.numbers import json_number, mean, std
from classnorm.results.run_folder import Result, result_file
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Continual:
    """Learn the classes of a dataset task by task; after each, all classes compete, those to come as well.

    Every row takes part: the dataset's own image split (or --image-split, or a stratified one by seed) says which rows
    are for training and which for testing. With --validation-tasks 3 the first three tasks choose the settings that are
    not given, a fresh model learns the others, and only those count. An interrupted run goes on with --resume. Without
    --json a page with tables and plots is written too; `classnorm report` compares several strategies.

    Examples:
      classnorm continual glyphs-light --tasks 5 --strategy agem
      classnorm continual xlsa17/data/CUB --image-split CUB_200_2011/train_test_split.txt --validation-tasks 3 --seeds 3
      classnorm continual mine.npz --tasks 20,10,10 --no-class-norm --lr 0.1
      classnorm continual xlsa17/data/CUB --strategy analytic --validation-tasks 3
      classnorm continual glyphs-light --tasks 4 --encoder convnet-gray --size 24
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = "glyphs-light"
    """Dataset, as for train, or simulated:FOLDER: the attributes of a GBU folder with drawn features."""
    tasks: Annotated[str | None, tyro.conf.arg(metavar="N|SIZES", help_behavior_hint="")] = None
    """Number of tasks, or their sizes: 47,47,48 (default: 10 for CUB, 15 for SUN, else 10)."""
    image_split: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Official training and test images: CUB's train_test_split.txt (images.txt beside it), or a CSV with the columns
    path and is_train; joined by the dataset's image files."""
    encoder: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Learn from images with this encoder, trained along: efficientnet-lite0, resnet18, hf:FOLDER, convnet or, for gray
    images, convnet-gray (default: learn from features)."""
    size: Annotated[int | None, tyro.conf.arg(metavar="PX", help_behavior_hint="")] = None
    """Side of the images that the encoder sees (default: what it was made for)."""
    images: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Where the dataset's image files lie."""
    validation_tasks: int = 0
    """Tasks that only choose settings; 0 chooses none and reports all tasks."""
    select: Selection = "mAUC"
    """The score by which validation tasks choose; a bias is always chosen by mH, since mAUC is blind to it."""
    select_grid: GridName = "default"
    """What validation tasks try: learning rates over four orders of magnitude and penalties, or the paper's grid."""
    calibrate: bool = False
    """Let validation tasks choose a bias of the seen scores too, as strategy analytic always does."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """One run with this seed (default 0): it orders the classes and draws the weights."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """N runs with seeds 0 … N−1."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder for the runs (default: runs/DATASET/continual-STRATEGY-cn or -plain)."""
    device: Device = "auto"
    """auto is CUDA where there is one, then MPS, then the CPU."""
    resume: bool = False
    """Continue interrupted runs after their last finished task, and keep finished ones."""
    strategy: str = "sequential"
    settings: Any
    engine: Annotated[Engine, tyro.conf.arg(name="")]
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self, command: str) -> None:
        seeds = chosen_seeds(self.seed, self.seeds)
        dataset = self.source.load(self.data)
        if self.image_split is not None:
            split = read_image_split(self.image_split, dataset.image_files)
            dataset = dataclasses.replace(dataset, is_train=split)
        for text in dataset.notices:
            notice(text, self.output.quiet)
        experiments = [self._experiment(dataset, seed) for seed in seeds]
        out = self.out or Path("runs") / dataset.name / f"continual-{self.strategy}{_suffix(experiments[0].config)}"
        if self.calibrate and not self.validation_tasks:
            raise ConfigError("--calibrate needs tasks to choose a bias on; add --validation-tasks 3")
        chosen = self._validated(experiments, out) if self.validation_tasks else []
        experiments = [choice.experiment for choice in chosen] or experiments
        folders = [out / f"seed-{experiment.seed}" for experiment in experiments]
        for folder in folders:
            if not self.resume and result_file(folder).is_file():
                notice(f"replacing the finished run {folder}", self.output.quiet)
        results = []
        for experiment, folder in zip(experiments, folders, strict=True):
            with stage_progress(f"seed {experiment.seed}", self.output.quiet) as progress:
                results.append(
                    run_continual(
                        experiment,
                        folder,
                        device=self.device,
                        resume=self.resume,
                        progress=progress,
                        command=command,
                    )
                )
        if self.output.json:
            print_json(self._document(dataset, results, chosen))
        else:
            self._print(dataset, results, chosen, out)

    def _experiment(self, dataset: ZeroShotDataset, seed: int) -> ContinualExperiment:
        tasks = _tasks(self.tasks)
        stream = TaskStream.make(dataset, tasks, seed)
        mode = ImageMode(self.encoder, self.size, self.images) if self.encoder else None
        if mode and self.strategy == "analytic":
            raise ConfigError(
                "strategy analytic learns from features, which no encoder may change; leave out --encoder"
            )
        config = configure(stream, self.strategy, **(mode.settings if mode else {}) | given(self.settings))
        return ContinualExperiment(dataset, self.strategy, config, seed, tasks, images=mode)

    def _validated(self, experiments: Sequence[ContinualExperiment], out: Path) -> list[Chosen]:
        fixed = given(self.settings)
        paper = self.select_grid == "paper"
        grid = paper_grid(self.strategy, self.encoder is not None) if paper else default_grid(self.strategy)
        grid = dataclasses.replace(grid, bias=grid.bias or self.calibrate).without(fixed)
        if not grid.names:
            raise ConfigError("--validation-tasks has nothing to choose: all settings that it varies are given")
        with stage_progress("validation sequence", self.output.quiet) as progress:
            return validated(
                experiments,
                out / "validation",
                self.engine,
                score=self.select,
                validation_tasks=self.validation_tasks,
                grid=grid,
                progress=progress,
            )

    def _document(
        self, dataset: ZeroShotDataset, results: Sequence[Result], chosen: Sequence[Chosen]
    ) -> dict[str, Any]:
        keys = ("seed", "scores", "per_task", "matrix", "config", "stream", "train_seconds")
        runs = [{key: r.document[key] for key in keys} | {"folder": str(r.folder)} for r in results]
        means = {name: _over_seeds(mean, [run["scores"][name] for run in runs]) for name in STREAM_SCORES}
        steps = zip(*(run["per_task"] for run in runs), strict=True)
        return {
            "dataset": dataset_record(dataset),
            "strategy": self.strategy,
            "average": "class",
            "runs": runs,
            "chosen": [{"settings": choice.settings, "edges": list(choice.edges)} for choice in chosen],
            "mean": means,
            "std": {name: _over_seeds(std, [run["scores"][name] for run in runs]) for name in STREAM_SCORES},
            "scores": means,
            "per_task": [{name: _over_seeds(mean, [s[name] for s in step]) for name in step[0]} for step in steps],
        }

    def _print(self, dataset: ZeroShotDataset, results: Sequence[Result], chosen: Sequence[Chosen], out: Path) -> None:
        groups = group_results(results)
        words = {True: ", with class normalization", False: ", without class normalization", None: ""}
        kind = words[results[0].document["config"].get("class_norm")]
        print_table(terminal_table(groups, f"{dataset.name}: {self.strategy}{kind}; percent, forgetting a fraction"))
        for group in groups:
            print_table(rich_table(step_table(group, f"step by step: {group.label}")))
        if chosen:
            print(f"chosen by {self.select} on the first {self.validation_tasks} tasks: {'; '.join(map(str, chosen))}")
        if any(choice.edges for choice in chosen):
            print("(edge): the smallest or largest value tried; set it by hand, or --select by another score")
        write_report(groups, out / "report", f"{dataset.name}: continual zero-shot results")
        print(f"runs: {out}\nreport: {out / 'report' / 'index.html'}")


def _suffix(config: StreamConfig) -> str:
    if not isinstance(config, ContinualConfig):
        return ""
    return "-cn" if config.class_norm else "-plain"


def _tasks(text: str | None) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--tasks {text!r} is not understood; give a number, or sizes like 47,47,48") from None
    return sizes if len(sizes) > 1 else sizes[0]


def _over_seeds(statistic: Callable[[Sequence[float]], float], values: Sequence[float | None]) -> float | None:
    """Of the values that are defined; None if none is."""
    known = [value for value in values if value is not None]
    return json_number(statistic(known)) if known else None


def main(arguments: Sequence[str], program: str) -> None:
    configs = {name: strategy.Config for name, strategy in STRATEGIES.items()}
    command = parse_with_settings(Continual, arguments, program, "strategy", "sequential", configs)
    command.run(shlex.join([*program.split(), *arguments]))
