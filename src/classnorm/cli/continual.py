"""`classnorm continual`: learn a stream of classes, task by task."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from classnorm.cli.console import notice, print_json, print_table, stage_progress
from classnorm.cli.options import DataOptions, OutputOptions, chosen_seeds, given, parse_with_settings
from classnorm.continual import STRATEGIES, ContinualConfig, StreamConfig, TaskStream, configure, read_image_split
from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError
from classnorm.experiments.engine import Engine
from classnorm.experiments.experiment import dataset_record
from classnorm.experiments.streams import (
    MARKER,
    SCORES,
    Chosen,
    ContinualExperiment,
    GridName,
    ImageMode,
    Selection,
    default_grid,
    paper_grid,
    run_continual,
    validated,
)
from classnorm.report.tables import rich_table
from classnorm.results.artifact import Table
from classnorm.training import Device


@dataclass(frozen=True, kw_only=True)
class Continual:
    """Learn the classes of a dataset task by task; after each, all classes compete, those to come as well.

    Every row takes part: the dataset's own image split (or --image-split, or a stratified one by seed) says which rows
    are for training and which for testing. With --validation-tasks 3 the first three tasks choose the settings that are
    not given, a fresh model learns the others, and only those count. An interrupted run goes on with --resume.

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
        for experiment in experiments:
            if not self.resume and (out / f"seed-{experiment.seed}" / MARKER).is_file():
                notice(f"replacing the finished run {out / f'seed-{experiment.seed}'}", self.output.quiet)
        documents = []
        for experiment in experiments:
            with stage_progress(f"seed {experiment.seed}", self.output.quiet) as progress:
                folder = out / f"seed-{experiment.seed}"
                document = run_continual(
                    experiment,
                    folder,
                    device=self.device,
                    resume=self.resume,
                    progress=progress,
                    command=command,
                )
                documents.append(document | {"folder": str(folder)})
        if self.output.json:
            print_json(self._document(dataset, documents, chosen))
        else:
            self._print(dataset, documents, chosen, out)

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
        self, dataset: ZeroShotDataset, documents: Sequence[Mapping[str, Any]], chosen: Sequence[Chosen]
    ) -> dict[str, Any]:
        keys = ("seed", "scores", "per_task", "matrix", "config", "stream", "train_seconds", "folder")
        steps = range(len(documents[0]["per_task"]))
        names = documents[0]["per_task"][0]
        mean = {name: _mean([d["scores"][name] for d in documents]) for name in SCORES}
        return {
            "dataset": dataset_record(dataset),
            "strategy": self.strategy,
            "average": "class",
            "runs": [{key: document[key] for key in keys} for document in documents],
            "chosen": [{"settings": choice.settings, "edges": list(choice.edges)} for choice in chosen],
            "mean": mean,
            "std": {name: _std([d["scores"][name] for d in documents]) for name in SCORES},
            "scores": mean,
            "per_task": [{name: _mean([d["per_task"][t][name] for d in documents]) for name in names} for t in steps],
        }

    def _print(
        self, dataset: ZeroShotDataset, documents: Sequence[Mapping[str, Any]], chosen: Sequence[Chosen], out: Path
    ) -> None:
        rows = [[f"seed {d['seed']}", *(_text(name, d["scores"][name]) for name in SCORES)] for d in documents]
        if len(documents) > 1:
            rows.append(["mean", *(_text(name, _mean([d["scores"][name] for d in documents])) for name in SCORES)])
            rows.append(["std", *(_text(name, _std([d["scores"][name] for d in documents])) for name in SCORES)])
        words = {True: ", with class normalization", False: ", without class normalization", None: ""}
        kind = words[documents[0]["config"].get("class_norm")]
        title = f"{dataset.name}: {self.strategy}{kind}; percent, forgetting a fraction"
        print_table(rich_table(Table.of(title, ["run", *SCORES], rows)))
        names = ("seen", "unseen", "harmonic", "ausuc", "joint", "forgetting")
        document = documents[0]
        steps = [
            [f"after task {t}", *(_text(name, step[name]) for name in names)]
            for t, step in enumerate(document["per_task"], start=1)
        ]
        print_table(
            rich_table(
                Table.of(
                    f"step by step, seed {document['seed']}", ["", "S", "U", "H", "AUSUC", "joint", "forgetting"], steps
                )
            )
        )
        if chosen:
            print(f"chosen by {self.select} on the first {self.validation_tasks} tasks: {'; '.join(map(str, chosen))}")
        if any(choice.edges for choice in chosen):
            print("(edge): the smallest or largest value tried; set it by hand, or --select by another score")
        print(f"runs: {out}")


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


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _std(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return (round(float(np.std(known, ddof=1)), 4) if len(known) > 1 else 0.0) if known else None


def _text(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.2f}" if name == "forgetting" else f"{value:.1f}"


def main(arguments: Sequence[str], program: str) -> None:
    configs = {name: strategy.Config for name, strategy in STRATEGIES.items()}
    analytic = "analytic" in arguments or "--strategy=analytic" in arguments
    if analytic and ("--class-norm" in arguments or "--no-class-norm" in arguments):
        raise ConfigError("strategy analytic trains no embedder to normalize; leave out --class-norm")
    command = parse_with_settings(Continual, arguments, program, "strategy", "sequential", configs)
    command.run(shlex.join([*program.split(), *arguments]))
