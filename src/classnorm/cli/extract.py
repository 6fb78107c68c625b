"""`classnorm extract`: turn images into features."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from classnorm.cli.console import counted, print_json
from classnorm.cli.image_options import ImageOptions, notice_skipped
from classnorm.cli.options import Command, DataOptions, Flag, OutputOptions, optional
from classnorm.cli.run_options import DeviceOption
from classnorm.cluster import Cluster
from classnorm.data import load_bundle
from classnorm.data.image_table import ImageTable
from classnorm.data.images import is_unlabelled, unlabelled_images
from classnorm.data.row_store import DType
from classnorm.encoders import Encoder, check_encoder
from classnorm.errors import ConfigError
from classnorm.io.files import locked
from classnorm.preparation.dataset import features_key, refreshed, with_split
from classnorm.preparation.parts import PartOf
from classnorm.progress import notice, stage
from classnorm.settings import check_positive
from classnorm.training import pick_device

if TYPE_CHECKING:
    from classnorm.preparation import Extraction


@dataclass(frozen=True, kw_only=True)
class Extract(Command):
    """Turn images into a bundle of features.

    Examples:
      classnorm extract photos --out photos.npz
      classnorm extract photos --descriptions animals.csv --out animals.npz
      classnorm extract CUB_200_2011 --like xlsa17/data/CUB --encoder efficientnet-lite2 --out cub.npz
      classnorm extract list.csv --encoder hf:facebook/dinov2-base --size 224 --out dino.npz --device cuda
      classnorm extract photos --descriptions animals.csv --maps --out animals-maps
      classnorm extract photos --descriptions animals.csv --shard 3/16 --out part-3
      classnorm extract new_photos --unlabelled --out rows.npz
      classnorm extract photos --out photos.npz --backend ray --address auto --gpus 1

    Notes:
      IMAGES is a folder per class, a CSV file with the columns path and label, a
      folder in the layout of CUB-200-2011, glyphs or glyphs-light; without labels
      an image, a folder of images or a CSV file with the column path. With
      --descriptions, --hold-out or --like the bundle is a complete dataset for
      train; otherwise the last line names what is missing. To continue after an
      interruption, run the same command again. With --shard, every machine extracts
      a part of the images; classnorm data merge joins the parts. With --backend ray, all
      machines of the cluster need the images at the same path.
    """

    to_continue = "run the same command again"

    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """A folder, a .csv file, glyphs or glyphs-light."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.npz|FOLDER")]
    """Bundle to write: a file, or a folder for features larger than memory."""
    unlabelled: Flag = False
    """Take all images below IMAGES, without classes, for predict, explain, adapt or an exported model."""
    shard: Annotated[str | None, optional("K/N")] = None
    """Extract only the K-th of N parts of the images, into a folder."""
    maps: Flag = False
    """Keep the features of every position instead of their mean, in a folder, for sgma and dvbe."""
    dtype: Annotated[DType | None, optional("{float16,float32}")] = None
    """Precision of the features in a folder (default: float32, with --maps float16)."""
    rows_per_shard: Annotated[int | None, optional("N")] = None
    """Rows of each shard of a folder (default: 128 MiB)."""
    batch_size: Annotated[int | None, optional("N")] = None
    """Images per batch (default: 8 on a CPU, else 64)."""
    device: DeviceOption = "auto"
    backend: Literal["local", "ray"] = "local"
    """Encode in this process or on a Ray cluster, on its CPUs or, with --gpus, its GPUs."""
    cluster: Cluster
    image: ImageOptions
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        self._check()
        trainable = self.image.descriptions is not None or self.image.hold_out is not None or bool(self.image.unseen)
        unlabelled = self.unlabelled or (not trainable and self.image.like is None and is_unlabelled(Path(self.images)))
        if unlabelled and (trainable or self.image.like is not None or self.shard is not None):
            raise ConfigError("--unlabelled goes with none of --descriptions, --hold-out, --like and --shard")
        table = unlabelled_images(Path(self.images)) if unlabelled else self.image.table(self.images, self.dataset)
        if trainable:
            table = self.image.described(table, None)

        def finish(readable: ImageTable) -> ImageTable:
            return with_split(readable, **split) if split is not None else readable

        split: dict[str, Any] | None = None
        if trainable:
            split = {"hold_out": self.image.hold_out, "seed": self.image.split_seed}
            split |= {"unseen": list(self.image.unseen)} if self.image.unseen else {}
        finish(table)  # raises before hours are spent on the images
        part = None if self.shard is None else PartOf.parse(self.shard, split)
        local = self.backend == "local"
        device = pick_device(self.device) if local else "cuda" if self.cluster.gpus else "cpu"
        encoder = self.image.load_encoder()
        if self.maps:
            encoder = encoder.with_maps()
        dtype = self.dtype or ("float16" if self.maps else "float32")
        from classnorm.preparation import extract_features, extract_folder

        extract: Callable[..., Extraction] = extract_features
        if self.out.suffix != ".npz":
            extract = partial(extract_folder, part=part, dtype=dtype, rows_per_shard=self.rows_per_shard)
        started = time.monotonic()
        if trainable and self.out.suffix == ".npz" and local and self._has_features(table, encoder, finish):
            return
        with locked(self.out), stage("extract") as progress:
            result = extract(
                table,
                encoder,
                self.out,
                batch_size=self.batch_size,
                device=device,
                cluster=None if local else self.cluster,
                strict=self.image.strict,
                finish=finish,
                progress=progress,
            )
        self._report(result, encoder, time.monotonic() - started)

    def _check(self) -> None:
        if self.backend == "ray" and self.device != "auto":
            raise ConfigError("--device does not go with --backend ray; --gpus says whether workers use their GPUs")
        check_positive(batch_size=self.batch_size, rows_per_shard=self.rows_per_shard)
        check_encoder(self.image.encoder, self.image.size)
        is_file = self.out.suffix == ".npz" and not self.out.is_dir()
        if not is_file and self.out.suffix:
            raise ConfigError(f"--out {self.out}: must be a file that ends in .npz, or a folder")
        for_folders = (self.shard, self.rows_per_shard, self.dtype, self.maps or None)
        if is_file and any(value is not None for value in for_folders):
            raise ConfigError(f"--out {self.out}: --shard, --rows-per-shard, --dtype and --maps need a folder")

    def _has_features(self, table: ImageTable, encoder: Encoder, finish: Callable[[ImageTable], ImageTable]) -> bool:
        """Whether the bundle has the features already, perhaps with another split; then only the rest is written."""
        if not refreshed(table, features_key(table, encoder), self.out, finish, self.image.strict, self.out):
            return False
        from classnorm.preparation import Extraction

        data = load_bundle(self.out)
        notice(f"using the features of {data.n_rows} images in {self.out}")
        self._report(Extraction(data.n_rows, 0, data.provenance.skipped, ()), encoder, 0.0)
        return True

    def _report(self, result: Extraction, encoder: Encoder, seconds: float) -> None:
        notice_skipped(result.skipped)
        rate = result.new / max(seconds, 1e-9)
        if self.output.json:
            print_json(
                {
                    "target": str(self.out),
                    "images": result.images,
                    "skipped": result.skipped,
                    "missing_for_train": list(result.missing),
                    "encoder": encoder.record(),
                    "seconds": round(seconds, 3),
                    "images_per_second": round(rate, 2),
                }
            )
            return
        verdict = f"ready for classnorm train {self.out}"
        if self.shard is not None:
            verdict = f"part {self.shard}: join all parts with classnorm data merge"
        elif "labels" in result.missing:
            verdict = "without labels: for predict, explain, adapt or an exported model, not for train"
        elif result.missing:
            hint = "use --descriptions FILE or --like DATA, or add these arrays"
            verdict = f"not yet a dataset for train: {', '.join(result.missing)} missing; {hint}"
        summary = f"{counted(result.images, 'image')}, {encoder.maps or encoder.d_z} dimensions, {rate:.1f} images/s"
        notice(f"wrote {self.out}: {summary}", verdict)
