"""`classnorm search`: choose hyperparameters on validation classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from classnorm.cli.console import print_json, print_table
from classnorm.cli.options import (
    DataArgument,
    DataOptions,
    MethodCommand,
    OutputOptions,
    mean_and_std,
    optional,
    run_records,
)
from classnorm.errors import TrainingError
from classnorm.io.escapes import file_name
from classnorm.io.files import replacing, write_text
from classnorm.methods import MethodConfig, Space, method_named, resolve
from classnorm.methods.space import parse_space
from classnorm.progress import stage
from classnorm.report import group_results, rich_table, terminal_table
from classnorm.report.draw import png
from classnorm.report.plots import parallel_coordinates
from classnorm.results.artifact import Table
from classnorm.results.card import search_card
from classnorm.results.numbers import number_text
from classnorm.results.run_folder import CARD, Result
from classnorm.runs.engine import Engine, run_tasks
from classnorm.runs.experiment import Experiment
from classnorm.runs.job import dataset_record
from classnorm.runs.search import SearchConfig, Trial, search, trials_csv, write_recipe
from classnorm.settings import check_positive


@dataclass(frozen=True, kw_only=True)
class Search(MethodCommand):
    """Choose hyperparameters on validation classes; train and score the winner.

    Examples:
      classnorm search glyphs-light --trials 25 --jobs 2
      classnorm search mine.npz --sampler grid --space lr=5e-4,2e-3 hidden=512,1024
      classnorm search mine.npz --space lr=1e-4..1e-2:log gamma=3..10 --epochs 20 --seeds 3
      classnorm search mine.npz --backend ray --address auto

    Notes:
      Settings outside the search space stay as in the recipe. The winner is trained
      on all training rows and scored once on the test rows. The output folder holds
      trials.csv, trials.png and recipe.json (for train --recipe). To continue an
      interrupted search, run the same command again.
    """

    to_continue = "run the same command again"

    data: DataArgument
    space: Annotated[tuple[str, ...], optional("FIELD=VALUES…")] = ()
    """Settings to vary: FIELD=a,b,c or FIELD=low..high[:log], one or more (default: set by method and sampler)."""
    seeds: int = 1
    """Train the winner with seeds 0 … N−1."""
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder of the search (default: runs/DATASET/METHOD-search-SAMPLER)."""
    search: SearchConfig
    engine: Engine
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        check_positive(seeds=self.seeds)
        dataset = self.dataset.load(self.data)
        # The search chooses a calibration too, unless one is set.
        default = "validation:grid" if self.search.sampler == "grid" else "validation"
        _, base = resolve(dataset, self.method, self.recipe, **{"calibration": default} | self.set_values)
        space = self._space(base)
        out = self.out or Path("runs") / file_name(dataset.name) / f"{self.method}-search-{self.search.sampler}"
        with stage("validation fits"):
            trials, best = search(dataset, self.method, base, space, self.search, out / "fits", self.engine)
        write_text(out / "trials.csv", trials_csv(trials))
        with replacing(out / "trials.png") as temporary:
            temporary.write_bytes(png(parallel_coordinates([asdict(trial) for trial in trials])))
        write_recipe(out / "recipe.json", self.method, best)
        experiments = [Experiment(dataset, self.method, "search", best, seed) for seed in range(self.seeds)]
        with stage("runs of the winner"):
            failed = run_tasks(experiments, out / "test", self.engine)
        if failed:
            raise TrainingError(f"training the winner failed: {next(iter(failed.values())).message}")
        results = [Result.read(out / "test" / experiment.name) for experiment in experiments]
        statistics = mean_and_std(results)
        document = {
            "dataset": dataset_record(dataset),
            "method": self.method,
            "sampler": self.search.sampler,
            "trials": [asdict(trial) for trial in trials],
            "best": best.as_dict(),
            "recipe_file": str(out / "recipe.json"),
            "runs": run_records(results, "seed", "scores"),
            "scores": statistics["mean"],
            "std": statistics["std"],
        }
        write_text(out / CARD, search_card(document, [path.name for path in out.iterdir()]))
        if self.output.json:
            print_json(document)
            return
        print_table(rich_table(_trials_table(trials)))
        print_table(terminal_table(group_results(results), f"{dataset.name}: the winner, trained on all training rows"))
        print(f"calibration: {best.calibration}\nrecipe: {out / 'recipe.json'}\ntrials: {out / 'trials.csv'} and .png")

    def _space(self, base: MethodConfig) -> Space:
        if self.space:
            return parse_space(self.space, base)
        defaults = method_named(self.method).search_space(self.search.sampler)
        return {name: values for name, values in defaults.items() if name not in self.set_values}


def _trials_table(trials: Sequence[Trial]) -> Table:
    """The ten best trials."""
    ranked = sorted(trials, key=lambda t: (t.state != "complete", -(t.harmonic or 0.0)))
    counts = ", ".join(f"{sum(t.state == s for t in trials)} {s}" for s in ("complete", "pruned", "failed"))
    rows = []
    for t in ranked[:10]:
        settings = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in t.settings.values()]
        rows.append([str(t.number), number_text(t.harmonic), *settings])
    header = ["trial", "validation H", *(name.replace("_", " ") for name in trials[0].settings)]
    return Table.of(f"best of {len(trials)} trials ({counts})", header, rows)
