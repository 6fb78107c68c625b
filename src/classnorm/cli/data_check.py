"""`classnorm data check`: look at a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.table import Table

from classnorm.cli.console import notice, print_json, print_table
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data import recognise
from classnorm.experiments.run import dataset_record


@dataclass(frozen=True, kw_only=True)
class DataCheck:
    """Load a dataset, check it, and say what is in it. Exit code 2 if it cannot be used.

    Examples:
      classnorm data check glyphs
      classnorm data check xlsa17/data/CUB --features res101 --json
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset, as for train."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        dataset = self.source.load(self.data)
        benchmark = recognise(dataset.class_names, dataset.n_rows)
        record = dataset_record(dataset) | {"benchmark": benchmark, "notices": dataset.notices}
        if self.output.json:
            print_json(record)
            return
        table = Table(title=dataset.name, title_justify="left", show_header=False)
        facts = {name.replace("_", " "): str(value) for name, value in dataset.sizes.items()}
        sign = "non-negative" if dataset.features.min() >= 0 else "of either sign"
        facts |= {"feature type": f"{dataset.features.dtype}, {sign}"}
        facts |= {"benchmark": benchmark or "not one of the GBU benchmarks"} | dataset.provenance
        facts |= {"checksum": dataset.checksum, "split checksum": dataset.split.checksum}
        for name, value in facts.items():
            table.add_row(name, value)
        print_table(table)
        for text in dataset.notices:
            notice(text, self.output.quiet)
        print("ready to train")


def main(arguments: Sequence[str], program: str) -> None:
    parse(DataCheck, arguments, program).run()
