"""`classnorm report`: tables, plots and a page from run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from classnorm import report
from classnorm.cli.console import print_json, print_table
from classnorm.cli.options import Command, OutputOptions, optional
from classnorm.errors import ConfigError
from classnorm.progress import notice
from classnorm.results.artifact import find_artifacts
from classnorm.results.numbers import json_numbers
from classnorm.results.run_folder import find_results


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Compare finished runs in tables, plots and an HTML page.

    Examples:
      classnorm report runs/glyphs
      classnorm report runs/CUB/classnorm-reference runs/CUB/classnorm-baseline --out report/cub
      classnorm report runs --against baseline --format latex
      classnorm report runs/CUB/classnorm-reference runs/CUB/analyze-variance
      classnorm report runs/CUB/continual-ewc-cn runs/CUB/continual-analytic

    Notes:
      Prints the tables, and writes them (results.*), the plots and the page
      (index.html) to the output folder.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, optional("RUNS…")]
    """Run folders of train and continual, output folders of reproduce and analyze, or folders that contain these."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("report")
    """Folder for the page, the tables and the plots."""
    title: str = "Results"
    """Title of the page."""
    against: Annotated[str | None, optional("MODEL")] = None
    """Baseline of the comparisons: a model's name or part of it, or a run folder (default: the best H)."""
    format: Literal["terminal", "markdown", "csv", "latex"] = "terminal"
    """Format of the printed tables; the output folder gets all formats."""
    output: OutputOptions

    def run(self) -> None:
        if not self.runs:
            raise ConfigError("no RUNS given; name folders of finished runs, or folders that contain some")
        artifacts = find_artifacts(self.runs)
        results = find_results(self.runs, may_be_empty=bool(artifacts))
        groups = report.group_results(results)
        if repeated := len(results) - sum(len(group.results) for group in groups):
            notice(f"{repeated} of {len(results)} runs repeat a seed and are left out")
        if self.against is not None and all(group.is_stream for group in groups):
            raise ConfigError("--against compares runs of `classnorm train`, and RUNS has none; leave it out")
        compared = report.comparisons(groups, self.against)
        files = [str(path) for path in report.write_report(groups, self.out, self.title, compared, artifacts)]
        if self.output.json:
            print_json(json_numbers(_document(groups, compared) | {"files": files}))
            return
        if self.format == "terminal":
            _print_tables(groups, compared)
        elif self.format == "csv":
            print("\n".join(report.csv_documents(groups).values()), end="")
        else:
            document = report.markdown_document if self.format == "markdown" else report.latex_document
            print(document(groups, compared), end="")
        notice(f"wrote {', '.join(files)}")


def _print_tables(groups: Sequence[report.Group], compared: Mapping[str, report.Comparison]) -> None:
    for name, part in report.by_dataset(groups).items():
        print_table(report.terminal_table(part, name))
        if name in compared and compared[name].differences:
            table = report.rich_table(report.difference_table(compared[name]))
            table.caption = "percentage points; [95 % interval by a paired bootstrap over the test classes]"
            print_table(table)


def _document(groups: Sequence[report.Group], compared: Mapping[str, report.Comparison]) -> dict[str, Any]:
    summaries = {
        stream: [
            {"model": g.label, "dataset": g.dataset, "seeds": len(g.results)}
            | {"mean": {n: g.mean(n) for n in g.scores}, "std": {n: g.std(n) for n in g.scores}}
            | (_steps(g) if stream else {})
            for g in groups
            if g.is_stream == stream
        ]
        for stream in (False, True)
    }
    differences = [
        {"dataset": name, "model": label, "against": comparison.reference.label}
        | {score: asdict(difference) for score, difference in scores.items()}
        for name, comparison in compared.items()
        for label, scores in comparison.differences.items()
    ]
    return {"groups": summaries[False], "streams": summaries[True], "differences": differences}


def _steps(group: report.Group) -> dict[str, Any]:
    """Means over seeds: scores after each task, and accuracy on each task."""
    means = {name: report.task_values(group.results, name).mean(axis=0).tolist() for name in report.STEPS}
    per_task = [dict(zip(means, step, strict=True)) for step in zip(*means.values(), strict=True)]
    return {"per_task": per_task, "matrix": report.mean_matrix(group).tolist()}
