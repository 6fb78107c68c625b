"""`classnorm data convert`: GBU folder ↔ bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from classnorm.cli.console import notice, print_json
from classnorm.cli.options import DataOptions, OutputOptions, parse
from classnorm.data import save_bundle, save_gbu
from classnorm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataConvert:
    """Convert a dataset to an .npz bundle (a target that ends in .npz) or to a GBU folder (any other target).

    Examples:
      classnorm data convert xlsa17/data/CUB cub.npz --features res101 --float16
      classnorm data convert glyphs glyphs-gbu
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Dataset, as for train."""
    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """File ending in .npz, or a folder."""
    float16: bool = False
    """Store the features of a bundle in half precision."""
    source: Annotated[DataOptions, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if Path(self.data).is_dir() and self.target.resolve() == Path(self.data).resolve():
            raise ConfigError(f"{self.target}: is the dataset itself; writing there would lose what only it holds")
        dataset = self.source.load(self.data)
        if self.float16:
            if self.target.suffix != ".npz":
                raise ConfigError("--float16 is for bundles; MATLAB files have no half precision")
            dataset = replace(dataset, features=np.asarray(dataset.features, dtype=np.float16))
        if self.target.suffix == ".npz":
            save_bundle(dataset, self.target)
        else:
            save_gbu(dataset, self.target)
        if self.output.json:
            print_json({"target": str(self.target), "checksum": dataset.checksum, "sizes": dataset.sizes})
        else:
            how = ""
            if self.target.suffix != ".npz":
                how = "; train with --features features, and --attributes original_att for descriptors as they were"
            notice(f"wrote {self.target}{how}", self.output.quiet)


def main(arguments: Sequence[str], program: str) -> None:
    parse(DataConvert, arguments, program).run()
