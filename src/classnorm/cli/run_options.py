"""Options of the commands that train runs, and the scores of these runs as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from classnorm.cli.options import Flag, optional
from classnorm.errors import ConfigError
from classnorm.progress import notice
from classnorm.report import SCORES, group_results
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import Result, is_finished
from classnorm.settings import check_positive, check_seed
from classnorm.training import Device

_MOST_SEEDS = 10_000

DeviceOption = Annotated[Device, tyro.conf.arg(help="Where to compute; auto prefers CUDA, then MPS, then the CPU.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Seeds, folder and device of the runs."""

    seed: Annotated[int | None, optional("N")] = None
    """Run once, with this seed (default: 0)."""
    seeds: Annotated[int | None, optional("N")] = None
    """Run N times, with seeds 0 … N−1."""
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder for the runs, with a subfolder per seed (default: a folder in runs/DATASET)."""
    label: Annotated[str | None, optional("TEXT")] = None
    """Name of the runs in reports, to tell them from others of the same data and method."""
    device: DeviceOption = "auto"
    resume: Flag = False
    """Continue interrupted runs and keep finished ones."""

    def seed_numbers(self) -> list[int]:
        if self.seed is not None and self.seeds is not None:
            raise ConfigError("--seed and --seeds exclude each other: run once with a seed, or with seeds 0 … N−1")
        check_positive(seeds=self.seeds)
        check_seed(self.seed or 0)
        if self.seeds is not None and self.seeds > _MOST_SEEDS:
            raise ConfigError(f"--seeds is {str(self.seeds)[:30]}; it must be at most {_MOST_SEEDS:,}")
        return list(range(self.seeds)) if self.seeds is not None else [self.seed or 0]

    def folders(self, root: Path, seeds: Sequence[int]) -> list[Path]:
        """The run folder of each seed; a notice announces runs that will be replaced."""
        folders = [root / f"seed-{seed}" for seed in seeds]
        for folder in folders:
            if not self.resume and is_finished(folder):
                notice(f"replacing the finished run {folder}")
        return folders


def mean_and_std(results: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation of the scores of one group of runs."""
    [group] = group_results(results)
    statistics: dict[str, Any] = {"mean": group.mean, "std": group.std}
    return {key: {name: json_number(value(name)) for name in SCORES} for key, value in statistics.items()}


def run_records(results: Sequence[Result], *keys: str) -> list[dict[str, Any]]:
    """The values of these keys and the folder of each run."""
    return [{key: result.document[key] for key in keys} | {"model": str(result.folder)} for result in results]
