"""`classnorm report`: from run folders to tables, plots and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from classnorm.cli.console import notice, print_json, print_table
from classnorm.cli.options import OutputOptions, parse
from classnorm.errors import ConfigError
from classnorm.report import (
    STEPS,
    Comparison,
    Group,
    by_dataset,
    comparisons,
    csv_documents,
    difference_table,
    group_results,
    latex_document,
    markdown_document,
    mean_matrix,
    rich_table,
    task_values,
    terminal_table,
    write_report,
)
from classnorm.results.artifact import find_artifacts
from classnorm.results.numbers import json_numbers
from classnorm.results.run_folder import find_results


@dataclass(frozen=True, kw_only=True)
class Report:
    """Compare finished runs: tables here, and in a folder a page (index.html), tables (results.*) and plots.

    Examples:
      classnorm report runs/glyphs
      classnorm report runs/CUB/classnorm-reference runs/CUB/classnorm-baseline --out report/cub
      classnorm report runs --against baseline --format latex
      classnorm report runs/CUB/classnorm-reference runs/CUB/analyze-variance
      classnorm report runs/CUB/continual-ewc-cn runs/CUB/continual-analytic
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS…")]
    """Run folders of `train` and `continual`, or folders above them; also what `reproduce` and `analyze` made."""
    out: Path = Path("report")
    """Folder for the page, the tables and the plots."""
    title: str = "Zero-shot results"
    """Title of the page."""
    against: Annotated[str | None, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")] = None
    """What the others are compared with: a model's name or a part of it, or a run folder (default: the best H)."""
    format: Literal["terminal", "markdown", "csv", "latex"] = "terminal"
    """How the tables are printed here; the folder gets all of them."""
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if not self.runs:
            raise ConfigError("no RUNS given; name the folders of finished runs, or folders above them")
        artifacts = find_artifacts(self.runs)
        groups = group_results(find_results(self.runs, may_be_empty=bool(artifacts)))
        if self.against is not None and all(group.is_stream for group in groups):
            raise ConfigError("--against compares runs of `train`, and RUNS holds none; leave it out")
        compared = comparisons(groups, self.against)
        written = write_report(groups, self.out, self.title, compared, artifacts)
        if self.output.json:
            print_json(json_numbers(_document(groups, compared, written)))
            return
        if self.format == "terminal":
            _print_tables(groups, compared)
        elif self.format == "csv":
            print("\n".join(csv_documents(groups).values()), end="")
        else:
            document = markdown_document if self.format == "markdown" else latex_document
            print(document(groups, compared), end="")
        notice(f"wrote {', '.join(str(path) for path in written)}", self.output.quiet)


def _print_tables(groups: Sequence[Group], compared: Mapping[str, Comparison]) -> None:
    for name, part in by_dataset(groups).items():
        print_table(terminal_table(part, name))
        if name in compared and compared[name].differences:
            table = rich_table(difference_table(compared[name]))
            table.caption = "percentage points; [95 % interval by a paired bootstrap over the test classes]"
            print_table(table)


def _document(groups: Sequence[Group], compared: Mapping[str, Comparison], written: Sequence[Path]) -> dict[str, Any]:
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
    files = [str(path) for path in written]
    return {"groups": summaries[False], "streams": summaries[True], "differences": differences, "files": files}


def _steps(group: Group) -> dict[str, Any]:
    """Means over seeds after each task, and on each task."""
    means = {name: task_values(group.results, name).mean(axis=0).tolist() for name in STEPS}
    per_task = [dict(zip(means, step, strict=True)) for step in zip(*means.values(), strict=True)]
    return {"per_task": per_task, "matrix": mean_matrix(group).tolist()}


def main(arguments: Sequence[str], program: str) -> None:
    parse(Report, arguments, program).run()
