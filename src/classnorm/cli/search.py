"""`classnorm search`: hyperparameters on validation classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.table import Table

from classnorm.cli.console import notice, print_json, print_table, stage_progress
from classnorm.cli.options import DataOptions, MethodCommand, OutputOptions, given, parse_for_method
from classnorm.errors import ConfigError, TrainingError
from classnorm.experiments.engine import Engine, run_tasks
from classnorm.experiments.experiment import Experiment, dataset_record
from classnorm.experiments.search import SearchConfig, Trial, search, trials_csv, write_recipe
from classnorm.experiments.space import parse_space
from classnorm.files import replacing, write_text
from classnorm.methods import MethodConfig, Space, method_named, resolve
from classnorm.report import SCORES, group_results, terminal_table
from classnorm.report.plots import png
from classnorm.report.search_plot import parallel_coordinates
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import Result


@dataclass(frozen=True, kw_only=True)
class Search(MethodCommand):
    """Choose hyperparameters by validation alone, then train the winner on all training rows and score it once.

    Writes trials.csv, trials.png and recipe.json (for train --recipe) into the output folder. A killed search goes on
    where it was when the same command is run again.

    Examples:
      classnorm search glyphs-light --trials 25 --jobs 2
      classnorm search mine.npz --sampler grid --space lr=5e-4,2e-3 hidden=512,1024
      classnorm search mine.npz --space lr=1e-4..1e-2:log gamma=3..10 --epochs 20 --seeds 3
      classnorm search mine.npz --backend ray --address auto
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset, as for train."""
    recipe: str = "reference"
    """Where to start from: what is not searched over stays as the recipe says."""
    space: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUES…", help_behavior_hint="")] = ()
    """What to vary: FIELD=a,b,c or FIELD=low..high[:log], several after one --space (default: for each method a few
    values for grid and wider ranges for tpe)."""
    seeds: int = 1
    """The winner is trained with seeds 0 … N−1."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder of the search (default: runs/DATASET/METHOD-search-SAMPLER)."""
    how: Annotated[SearchConfig, tyro.conf.arg(name="")]
    engine: Annotated[Engine, tyro.conf.arg(name="")]
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if self.seeds < 1:
            raise ConfigError(f"--seeds is {self.seeds}; it must be at least 1")
        dataset = self.source.load(self.data)
        _, base = resolve(dataset, self.method, self.recipe, **self._base_settings())
        space = self._space(base)
        for text in dataset.notices:
            notice(text, self.output.quiet)
        out = self.out or Path("runs") / dataset.name / f"{self.method}-search-{self.how.sampler}"
        with stage_progress("validation fits", self.output.quiet) as progress:
            trials, best = search(dataset, self.method, base, space, self.how, out / "fits", self.engine, progress)
        write_text(out / "trials.csv", trials_csv(trials))
        with replacing(out / "trials.png") as temporary:
            temporary.write_bytes(png(parallel_coordinates([asdict(trial) for trial in trials])))
        write_recipe(out / "recipe.json", self.method, best)
        experiments = [Experiment(dataset, self.method, "search", best, seed) for seed in range(self.seeds)]
        with stage_progress("runs of the winner", self.output.quiet) as progress:
            failed = run_tasks(experiments, out / "test", self.engine, progress)
        if failed:
            raise TrainingError(f"the winner could not be trained: {next(iter(failed.values())).message}")
        results = [Result.read(out / "test" / experiment.name) for experiment in experiments]
        if self.output.json:
            print_json(self._document(dataset_record(dataset), trials, best, results, out))
            return
        print_table(_trials_table(trials))
        print_table(terminal_table(group_results(results), f"{dataset.name}: the winner, trained on all training rows"))
        print(f"calibration: {best.calibration}\nrecipe: {out / 'recipe.json'}\ntrials: {out / 'trials.csv'} and .png")

    def _base_settings(self) -> dict[str, Any]:
        """A calibration is part of what a search chooses, unless one is given."""
        default = "validation:grid" if self.how.sampler == "grid" else "validation"
        return {"calibration": default} | given(self.settings)

    def _space(self, base: MethodConfig) -> Space:
        if self.space:
            return parse_space(self.space, base)
        fixed = given(self.settings)
        defaults = method_named(self.method).search_space(self.how.sampler)
        return {name: values for name, values in defaults.items() if name not in fixed}

    def _document(
        self, dataset: dict[str, Any], trials: Sequence[Trial], best: MethodConfig, results: Sequence[Result], out: Path
    ) -> dict[str, Any]:
        [group] = group_results(results)
        return {
            "dataset": dataset,
            "method": self.method,
            "sampler": self.how.sampler,
            "trials": [asdict(trial) for trial in trials],
            "best": best.as_dict(),
            "recipe_file": str(out / "recipe.json"),
            "runs": [
                {"seed": r.document["seed"], "scores": r.document["scores"], "model": str(r.folder)} for r in results
            ],
            "scores": {name: json_number(group.mean(name)) for name in SCORES},
            "std": {name: json_number(group.std(name)) for name in SCORES},
        }


def _trials_table(trials: Sequence[Trial], most: int = 10) -> Table:
    """The best trials."""
    ranked = sorted(trials, key=lambda t: (t.state != "complete", -(t.harmonic or 0.0)))
    names = list(trials[0].settings)
    counts = ", ".join(f"{sum(t.state == s for t in trials)} {s}" for s in ("complete", "pruned", "failed"))
    table = Table(title=f"best of {len(trials)} trials ({counts})", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("trial", "validation H", *names):
        table.add_column(name.replace("_", " "), justify="right")
    for t in ranked[:most]:
        values = [f"{t.settings[n]:.3g}" if isinstance(t.settings[n], float) else str(t.settings[n]) for n in names]
        table.add_row(str(t.number), "–" if t.harmonic is None else f"{t.harmonic:.1f}", *values)
    return table


def main(arguments: Sequence[str], program: str) -> None:
    parse_for_method(Search, arguments, program).run()
