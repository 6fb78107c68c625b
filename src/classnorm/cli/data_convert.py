"""`classnorm data convert`: between GBU folders and bundles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from classnorm.cli.console import notice, print_json
from classnorm.cli.options import Command, DataArgument, DataOptions, Flag, OutputOptions
from classnorm.data import save_bundle, save_gbu
from classnorm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataConvert(Command):
    """Convert a dataset to an .npz bundle or a GBU folder.

    Examples:
      classnorm data convert xlsa17/data/CUB cub.npz --features res101 --float16
      classnorm data convert glyphs glyphs-gbu
    """

    data: DataArgument
    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")]
    """Bundle to write, if it ends in .npz, else the GBU folder."""
    float16: Flag = False
    """Store the features of the bundle in half precision."""
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        if Path(self.data).is_dir() and self.target.resolve() == Path(self.data).resolve():
            raise ConfigError(f"{self.target}: is the dataset itself; give another target")
        dataset = self.dataset.load(self.data)
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
            hint = "; train with --features features, and --attributes original_att for the unscaled descriptors"
            notice(f"wrote {self.target}{'' if self.target.suffix == '.npz' else hint}", quiet=self.output.quiet)
