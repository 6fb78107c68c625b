"""`classnorm continual`: learn a stream of classes, task by task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import tyro

from classnorm.cli.console import print_json, print_table
from classnorm.cli.options import DataArgument, DataOptions, Flag, OutputOptions, RunOptions, SettingsCommand, optional
from classnorm.continual import STRATEGIES, StreamOptions, TaskStream, configure, read_image_split
from classnorm.continual.config import ContinualConfig, SolvedConfig
from classnorm.continual.strategies import strategy_config
from classnorm.data import ZeroShotDataset
from classnorm.data.descriptions import with_descriptors
from classnorm.encoders import check_encoder
from classnorm.errors import ConfigError
from classnorm.io.escapes import file_name
from classnorm.progress import notice, stage
from classnorm.report import (
    STREAM_COSTS,
    STREAM_SCORES,
    group_results,
    rich_table,
    step_table,
    stream_options_text,
    terminal_table,
    write_report,
)
from classnorm.results.numbers import json_number, mean, std
from classnorm.results.run_folder import Result
from classnorm.runs.engine import Engine
from classnorm.runs.job import Execution, dataset_record
from classnorm.runs.streams import ContinualExperiment, ImageMode
from classnorm.runs.validation_sequence import Chosen, GridName, Selection, named_grid, validated
from classnorm.training import pick_device


@dataclass(frozen=True, kw_only=True)
class Continual(SettingsCommand):
    """Learn the classes of a dataset task by task and score all of them each time.

    Examples:
      classnorm continual glyphs-light --tasks 5 --strategy agem
      classnorm continual xlsa17/data/CUB --image-split CUB_200_2011/train_test_split.txt --validation-tasks 3 --seeds 3
      classnorm continual mine.npz --tasks 20,10,10 --no-class-norm --lr 0.1
      classnorm continual xlsa17/data/CUB --strategy analytic --validation-tasks 3
      classnorm continual glyphs-light --tasks 4 --encoder convnet-gray --size 24
      classnorm continual glyphs-light --tasks 5 --blurry 0.3 --late-attributes 0.5

    Notes:
      All rows are used. The image split of the dataset, --image-split or a
      stratified split by seed separates training from test rows. With
      --validation-tasks 3 the first three tasks choose the unset settings; a fresh
      model learns the other tasks, and only those are scored. Compare strategies
      with `classnorm report`.
    """

    to_continue = "run the same command with --resume"

    data: DataArgument = "glyphs-light"
    tasks: Annotated[str | None, optional("N|SIZES")] = None
    """Number of tasks, or their sizes: 47,47,48 (default: 15 for SUN, else 10)."""
    image_split: Annotated[Path | None, optional("FILE")] = None
    """Training and test images: CUB's train_test_split.txt, or a CSV file with the columns path and is_train."""
    descriptors: Annotated[Path | None, optional("FILE")] = None
    """Descriptors of the classes, instead of those of the dataset: an .npz, .csv, .parquet, .json or .npy file."""
    encoder: Annotated[str | None, optional("NAME")] = None
    """Train this image encoder too: efficientnet-lite0, resnet18, resnet50, convnet, convnet-gray, hf:FOLDER (default:
    none)."""
    size: Annotated[int | None, optional("PX")] = None
    """Side of the encoder's input in pixels (default: set by the encoder)."""
    images: Annotated[Path | None, optional("DIR")] = None
    """Folder with the image files of the dataset, for --encoder."""
    weights: Annotated[Path | None, optional("FILE")] = None
    """Other weights for the encoder: a .safetensors or .pth file, Keras' model.json or .h5 file for resnet50."""
    freeze_blocks: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Do not train the first N blocks of the encoder; their outputs are computed once and kept in the cache folder."""
    validation_tasks: int = 0
    """Number of tasks that choose settings; 0 chooses none and scores all tasks."""
    select: Selection = "mAUC"
    """Score that chooses settings; a bias is always chosen by mH, since mAUC does not depend on it."""
    select_grid: GridName = "default"
    """Settings to choose from: learning rates over four orders of magnitude and penalties; those with penalties over
    ten orders or ridges over five (wide); or the grid of the paper."""
    calibrate: Flag = False
    """Also choose a bias of the seen scores, as analytic, ranpac and acil always do with validation tasks."""
    strategy: str = "sequential"
    arrivals: StreamOptions
    training: RunOptions
    engine: Engine
    dataset: DataOptions
    output: OutputOptions
    settings: Any
    """Unset options take the defaults of the strategy."""

    def run(self) -> None:
        seeds = self.training.seed_numbers()
        if self.encoder is not None:
            check_encoder(self.encoder, self.size)
        if self.calibrate and not self.validation_tasks:
            raise ConfigError("--calibrate needs tasks to choose a bias on; add --validation-tasks 3")
        dataset = self.dataset.load(self.data)
        if self.descriptors is not None:
            dataset = with_descriptors(dataset, self.descriptors)
        if self.image_split is not None:
            split = read_image_split(self.image_split, dataset.image_files)
            dataset = dataclasses.replace(dataset, is_train=split)
        experiments = [self._experiment(dataset, seed) for seed in seeds]
        if self.encoder is not None and not self.output.quiet:
            self._plan(experiments)
        out = self.training.out or Path("runs") / file_name(dataset.name) / self._folder(experiments[0])
        chosen = self._validated(experiments, out) if self.validation_tasks else []
        experiments = [choice.experiment for choice in chosen] or experiments
        results = []
        for experiment, folder in zip(experiments, self.training.folders(out, seeds), strict=True):
            with stage(f"seed {experiment.seed}"):
                execution = Execution(
                    device=self.training.device,
                    resume=self.training.resume,
                    command=self.command_line,
                    label=self.training.label or "",
                )
                results.append(experiment.run(folder, execution))
        if self.output.json:
            print_json(self._document(dataset, results, chosen))
        else:
            self._print(dataset, results, chosen, out)

    @classmethod
    def _parse(cls, arguments: Sequence[str], program: str) -> Self:
        return cls._parse_with_settings(arguments, program, "strategy", STRATEGIES, strategy_config)

    def _experiment(self, dataset: ZeroShotDataset, seed: int) -> ContinualExperiment:
        tasks = _tasks(self.tasks)
        stream = TaskStream.make(dataset, tasks, seed, arrivals=self.arrivals)
        mode = None
        if self.encoder:
            mode = ImageMode(self.encoder, self.size, self.images, self.weights, self.freeze_blocks)
        elif self.weights is not None or self.freeze_blocks:
            raise ConfigError("--weights and --freeze-blocks are of an image encoder; name it with --encoder")
        if mode and issubclass(strategy_config(self.strategy), SolvedConfig):
            raise ConfigError(f"strategy {self.strategy} learns from fixed features; leave out --encoder")
        config = configure(stream, self.strategy, **(mode.settings if mode else {}) | self.set_values)
        return ContinualExperiment(dataset, self.strategy, config, seed, tasks, arrivals=self.arrivals, images=mode)

    def _folder(self, experiment: ContinualExperiment) -> str:
        """The default folder, one for each kind of stream."""
        kind = {True: "cn", False: "plain", None: ""}[getattr(experiment.config, "class_norm", None)]
        tasks = f"tasks-{self.tasks}" if self.tasks else ""
        arrivals = (f"{name.replace('_', '-')}-{value:g}" for name, value in self.arrivals.changed().items())
        return file_name("-".join(filter(None, ["continual", self.strategy, kind, self.encoder, tasks, *arrivals])))

    def _plan(self, experiments: Sequence[ContinualExperiment]) -> None:
        """Say how long the runs will take, without a validation sequence."""
        from classnorm.runs.image_plan import plan_images

        first = experiments[0]
        assert first.images is not None and isinstance(first.config, ContinualConfig)
        with stage("images"):
            encoder, inputs = first.images.load(first.dataset, first.seed, pick_device(self.training.device))
        plan = plan_images(first.stream, first.config, encoder.to(inputs.device), inputs)
        runs = f", {len(experiments)} times" if len(experiments) > 1 else ""
        notice(f"plan: {plan}{runs}")

    def _validated(self, experiments: Sequence[ContinualExperiment], out: Path) -> list[Chosen]:
        grid = named_grid(self.select_grid, self.strategy, self.encoder is not None)
        grid = dataclasses.replace(grid, bias=grid.bias or self.calibrate).without(self.set_values)
        if not grid.names:
            raise ConfigError("--validation-tasks has nothing to choose: all settings of the grid are set")
        with stage("validation sequence"):
            return validated(
                experiments,
                out / "validation",
                self.engine,
                score=self.select,
                validation_tasks=self.validation_tasks,
                grid=grid,
            )

    def _document(
        self, dataset: ZeroShotDataset, results: Sequence[Result], chosen: Sequence[Chosen]
    ) -> dict[str, Any]:
        keys = ("seed", "scores", "per_task", "matrix", "config", "stream", "oracle_mH", *STREAM_COSTS)
        runs: list[dict[str, Any]] = [
            {key: r.document.get(key) for key in keys} | {"folder": str(r.folder)} for r in results
        ]
        scores = {name: [run["scores"][name] for run in runs] for name in STREAM_SCORES}
        means = {name: _over_seeds(mean, values) for name, values in scores.items()}
        steps = zip(*(run["per_task"] for run in runs), strict=True)
        return {
            "dataset": dataset_record(dataset),
            "strategy": self.strategy,
            "average": "class",
            "runs": runs,
            "chosen": [{"settings": choice.settings, "edges": list(choice.edges)} for choice in chosen],
            "mean": means,
            "std": {name: _over_seeds(std, values) for name, values in scores.items()},
            "scores": means,
            "per_task": [{name: _over_seeds(mean, [s[name] for s in step]) for name in step[0]} for step in steps],
        }

    def _print(self, dataset: ZeroShotDataset, results: Sequence[Result], chosen: Sequence[Chosen], out: Path) -> None:
        groups = group_results(results)
        suffixes = {True: ", with class normalization", False: ", without class normalization", None: ""}
        kind = suffixes[results[0].document["config"].get("class_norm")]
        hard = stream_options_text(results[0].document["stream"])
        kind += f", {hard}" if hard else ""
        print_table(terminal_table(groups, f"{dataset.name}: {self.strategy}{kind}; percent, forgetting a fraction"))
        for group in groups:
            print_table(rich_table(step_table(group, f"step by step: {group.label}")))
        if chosen:
            print(f"chosen by {self.select} on the first {self.validation_tasks} tasks: {'; '.join(map(str, chosen))}")
        elif not results[0].document["config"]["bias"]:
            print("not calibrated, so seen classes are favoured: set --bias, or add --validation-tasks 3 --calibrate")
        if any(choice.edges for choice in chosen):
            print("(edge): the smallest or largest value of the grid; set it by hand, or --select another score")
        write_report(groups, out / "report", f"{dataset.name}: continual zero-shot results")
        print(f"runs: {out}\nreport: {out / 'report' / 'index.html'}")


def _tasks(text: str | None) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--tasks {text!r} is not understood; give a number, or sizes like 47,47,48") from None
    return sizes if len(sizes) > 1 else sizes[0]


def _over_seeds(statistic: Callable[[Sequence[float]], float], values: Sequence[float | None]) -> float | None:
    """The statistic of the defined values; None without any."""
    defined = [value for value in values if value is not None]
    return json_number(statistic(defined)) if defined else None
