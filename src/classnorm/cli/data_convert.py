"""`classnorm data convert`: between GBU folders and bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.options import Command, DataArgument, DataOptions, Flag, OutputOptions, check_positive, optional
from classnorm.data import load_bundle, load_folder, save_bundle, save_folder, save_gbu
from classnorm.data.row_store import DType
from classnorm.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataConvert(Command):
    """Convert a dataset to an .npz bundle, a folder bundle or a GBU folder.

    Examples:
      classnorm data convert xlsa17/data/CUB cub.npz --features res101 --float16
      classnorm data convert large.npz --out large --dtype float16
      classnorm data convert glyphs glyphs-gbu

    Notes:
      A folder bundle holds the features in shards. Training and scoring read them in
      blocks, so that they need not fit in memory.
    """

    data: DataArgument
    target: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET", help_behavior_hint="")] = None
    """Bundle to write, if it ends in .npz, else the GBU folder."""
    out: Annotated[Path | None, optional("FOLDER")] = None
    """Folder bundle to write, instead of TARGET."""
    dtype: Annotated[DType | None, optional("{float16,float32}")] = None
    """Precision of the features in a bundle (default: as they are)."""
    float16: Flag = False
    """The same as --dtype float16."""
    rows_per_shard: Annotated[int | None, optional("N")] = None
    """Rows of each shard of a folder bundle (default: 128 MiB)."""
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        target, dtype = self._checked()
        dataset = self.dataset.load(self.data)
        if self.out is not None:
            with stage_progress("convert", self.output.quiet) as progress:
                save_folder(dataset, self.out, dtype, self.rows_per_shard, progress)
            dataset = load_folder(self.out)
        elif target.suffix == ".npz":
            save_bundle(dataset, target, dtype)
            dataset = load_bundle(target)
        else:
            save_gbu(dataset, target)
        if self.output.json:
            print_json({"target": str(target), "checksum": dataset.checksum, "sizes": dataset.sizes})
        else:
            is_gbu = self.out is None and target.suffix != ".npz"
            hint = "; train with --features features, and --attributes original_att for the unscaled descriptors"
            notice(f"wrote {target}{hint * is_gbu}", quiet=self.output.quiet)

    def _checked(self) -> tuple[Path, DType | None]:
        """The target and the precision."""
        check_positive("rows-per-shard", self.rows_per_shard)
        target = self.out or self.target
        if target is None or (self.out and self.target):
            raise ConfigError("give either TARGET or --out FOLDER")
        if self.rows_per_shard is not None and self.out is None:
            raise ConfigError("--rows-per-shard is for folder bundles; use --out FOLDER")
        if Path(self.data).is_dir() and target.resolve() == Path(self.data).resolve():
            raise ConfigError(f"{target}: is the dataset itself; give another target")
        if self.float16 and self.dtype == "float32":
            raise ConfigError("--float16 and --dtype float32 contradict each other; leave out one")
        dtype = "float16" if self.float16 else self.dtype
        if dtype is not None and self.out is None and target.suffix != ".npz":
            raise ConfigError(
                f"--{'float16' if self.float16 else 'dtype'} is for bundles; MATLAB files are in double precision"
            )
        return target, dtype
