"""`classnorm data synthesize`: write a synthetic dataset of any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, stage_progress
from classnorm.cli.options import Command, OutputOptions, check_positive, optional
from classnorm.data import SyntheticConfig, load_folder, synthesize
from classnorm.data.row_store import DType


@dataclass(frozen=True, kw_only=True)
class DataSynthesize(Command):
    """Write a synthetic dataset of any size as a folder bundle.

    Examples:
      classnorm data synthesize --rows 50000 --classes 500 --unseen 100 --out small
      classnorm data synthesize --rows 1300000 --classes 1000 --unseen 200 --features-dim 2048 --out large

    Notes:
      Class means depend on skewed, correlated attributes; rows scatter around them. A
      fifth of the rows of each seen class are test rows. Memory does not grow with
      the rows. To continue after an interruption, run the same command again.
    """

    rows: int = SyntheticConfig.rows
    """Number of rows."""
    classes: int = SyntheticConfig.classes
    """Number of classes."""
    unseen: int = SyntheticConfig.unseen
    """Number of unseen classes."""
    features_dim: int = SyntheticConfig.features
    """Dimension of the features."""
    attributes_dim: int = SyntheticConfig.attributes
    """Dimension of the class descriptors."""
    noise: float = SyntheticConfig.noise
    """Standard deviation within a class, relative to that of the class means."""
    dtype: DType = "float16"
    """Precision of the features."""
    rows_per_shard: Annotated[int | None, optional("N")] = None
    """Rows of each shard (default: 128 MiB)."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder bundle to write."""
    seed: int = 0
    """Seed of all random numbers."""
    output: OutputOptions

    def run(self) -> None:
        check_positive("rows-per-shard", self.rows_per_shard)
        config = SyntheticConfig(
            classes=self.classes,
            unseen=self.unseen,
            rows=self.rows,
            features=self.features_dim,
            attributes=self.attributes_dim,
            noise=self.noise,
            seed=self.seed,
        )
        with stage_progress("synthesize", self.output.quiet) as progress:
            synthesize(config, self.out, self.dtype, self.rows_per_shard, progress)
        dataset = load_folder(self.out)
        if self.output.json:
            print_json({"target": str(self.out), "checksum": dataset.checksum, "sizes": dataset.sizes})
        else:
            notice(f"wrote {self.out}: {dataset.n_rows} rows of {dataset.d_z} dimensions", quiet=self.output.quiet)
