"""`classnorm data fetch`: download a public dataset."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import counted, notice, print_json, progress_display
from classnorm.cli.options import Command, OutputOptions, optional
from classnorm.data.fetching import SOURCES, fetch


@dataclass(frozen=True, kw_only=True)
class DataFetch(Command):
    """Download a public dataset: gbu (ResNet-101 features of CUB, SUN, AWA1, AWA2, APY) or cub (the images).

    Examples:
      classnorm data fetch gbu
      classnorm train data/gbu/xlsa17/data/CUB
      classnorm data fetch cub --out data --mirror https://example.org/CUB_200_2011.tgz

    Notes:
      To continue an interrupted download, run the same command again. The archive is
      compared with its published checksum or, if there is none, with that of the first
      download.
    """

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="{gbu,cub}")]
    """Dataset to download."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("data")
    """Folder in which a folder of that name is made."""
    mirror: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], optional("URL")] = ()
    """Address of the same archive, tried before the publisher's. Repeat the flag for several."""
    output: OutputOptions

    def run(self) -> None:
        with progress_display(self.output.quiet) as announce:
            target, fetched = fetch(self.name, self.out, self.mirror, announce)
        if self.output.json:
            print_json({"target": str(target), **asdict(fetched)})
            return
        size = f"{counted(fetched.files, 'file')}, {fetched.bytes / 2**20:.0f} MB, from {fetched.url}"
        notice(f"{target}: {size}", SOURCES[self.name].terms, quiet=self.output.quiet)
