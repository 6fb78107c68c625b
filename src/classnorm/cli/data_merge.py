"""`classnorm data merge`: join the parts of an extraction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.options import Command, OutputOptions
from classnorm.preparation.merging import merge


@dataclass(frozen=True, kw_only=True)
class DataMerge(Command):
    """Join the parts that extract --shard has written to one folder bundle.

    Examples:
      classnorm data merge part-* --out photos
    """

    parts: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PART…")]
    """Folders of all parts, in any order."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder bundle to write."""
    output: OutputOptions

    def run(self) -> None:
        with stage_progress("merge", self.output.quiet) as progress:
            table = merge(self.parts, self.out, progress)
        if self.output.json:
            print_json({"target": str(self.out), "parts": len(self.parts), "images": len(table)})
        else:
            notice(f"wrote {self.out}: {len(table)} images of {len(self.parts)} parts", quiet=self.output.quiet)
