"""`classnorm report`: from run folders to tables, plots and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, print_table
from classnorm.cli.options import OutputOptions, parse
from classnorm.experiments.run_folder import find_results
from classnorm.report import SCORES, group_results, terminal_table, write_report


@dataclass(frozen=True, kw_only=True)
class Report:
    """Compare finished runs: a table here, and index.html, results.md and plots in a folder.

    Examples:
      classnorm report runs/glyphs
      classnorm report runs/CUB/classnorm-reference runs/CUB/classnorm-baseline --out report/cub
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS…")]
    """Run folders, or folders above them."""
    out: Path = Path("report")
    """Folder for the page, the Markdown table and the plots."""
    title: str = "Zero-shot results"
    """Title of the page."""
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        groups = group_results(find_results(self.runs))
        written = write_report(groups, self.out, self.title)
        if self.output.json:
            summary = [
                {"model": g.label, "dataset": g.dataset, "seeds": len(g.results)}
                | {"mean": {n: g.mean(n) for n in SCORES}, "std": {n: g.std(n) for n in SCORES}}
                for g in groups
            ]
            print_json({"groups": summary, "files": [str(path) for path in written]})
            return
        for name in dict.fromkeys(group.dataset for group in groups):
            print_table(terminal_table([group for group in groups if group.dataset == name], name))
        notice(f"wrote {', '.join(str(path) for path in written)}", self.output.quiet)


def main(arguments: Sequence[str], program: str) -> None:
    parse(Report, arguments, program).run()
