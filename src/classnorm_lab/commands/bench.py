"""`classnorm bench`: how fast classnorm is on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from classnorm.cli.console import print_json, print_table
from classnorm.cli.options import Command, Flag, OutputOptions, optional
from classnorm.io.files import write_json
from classnorm.report.draw import draw, png
from classnorm.report.files import write_files
from classnorm.report.tables import rich_table
from classnorm.settings import check_positive
from classnorm_lab.bench.measures import NOTES, bench_tables, compare, comparison_table, read_bench, step_plot
from classnorm_lab.bench.shapes import chosen_shapes


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Measure training, inference and start-up on this machine.

    Examples:
      classnorm bench
      classnorm bench --shapes CUB SUN --repeats 3 --threads 1
      classnorm bench --compare runs/bench/bench.json --out runs/bench-new

    Trains the recipe reference on data of the shapes of CUB, SUN, AwA1 and AwA2, in turn with a plain PyTorch loop and
    with the bare matrix products; times inference, AUSUC, the method kernel and start-up; writes DIR/bench.json and
    DIR/bench.png.
    """

    shapes: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """CUB, SUN, AwA1, AwA2 (default: all). The method kernel is measured on the first."""
    features_dim: Annotated[int, optional("N")] = 2048
    """Feature dimension of synthetic data (default: 2048)."""
    data_root: Annotated[Path | None, optional("DIR")] = None
    """Folder with GBU folders: DIR/CUB/att_splits.mat and so on. Missing datasets are replaced by synthetic data."""
    repeats: Annotated[int | None, optional("N")] = None
    """Measurements of each quantity; tables show the median and the range (default: 5; 2 with --quick)."""
    threads: Annotated[int | None, optional("N")] = None
    """Threads of PyTorch (default: its own choice)."""
    quick: Flag = False
    """One shape and a few steps: shows the output, measures little."""
    compare: Annotated[Path | None, optional("OLD.json")] = None
    """bench.json of an earlier run: report what became slower."""
    out: Annotated[Path, optional("DIR")] = Path("runs/bench")
    """Folder for bench.json and bench.png (default: runs/bench)."""
    output: OutputOptions

    def run(self) -> None:
        check_positive(features_dim=self.features_dim, repeats=self.repeats, threads=self.threads)
        shapes = chosen_shapes(self.shapes)
        old = read_bench(self.compare) if self.compare else None

        from classnorm_lab.bench.suite import BenchSettings, run_bench  # PyTorch, which --help can spare

        repeats = self.repeats or (2 if self.quick else 5)
        settings = BenchSettings(
            tuple(shapes), self.features_dim, repeats, self.data_root, self.threads, quick=self.quick
        )
        document = run_bench(settings)
        write_json(self.out / "bench.json", document)
        write_files(self.out, {"bench.png": png(draw(step_plot(document)))})
        changes = compare(old, document) if old else None
        if self.output.json:
            more = {"comparison": changes.as_dict()} if changes else {}
            print_json({**document, **more, "out": str(self.out)})
            return
        for table in bench_tables(document):
            print_table(rich_table(table))
        print(NOTES)
        if changes:
            print_table(rich_table(comparison_table(changes)))
            if changes.differences:
                print(f"not the same conditions: {'; '.join(changes.differences)}")
        print(f"{self.out / 'bench.json'}, {self.out / 'bench.png'}")
