"""`classnorm extract`: turn images into features."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from classnorm.cli.console import counted, print_json
from classnorm.cli.image_options import ImageOptions, notice_skipped
from classnorm.cli.options import Command, DataOptions, DeviceOption, Flag, OutputOptions, optional
from classnorm.data.images import is_unlabelled, unlabelled_images
from classnorm.data.row_store import DType
from classnorm.encoders import Encoder, check_encoder
from classnorm.errors import ConfigError
from classnorm.preparation.parts import PartOf
from classnorm.progress import notice, stage
from classnorm.runs.cluster import Cluster
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

        part = None if self.shard is None else PartOf.parse(self.shard)
        local = self.backend == "local"
        device = pick_device(self.device) if local else "cuda" if self.cluster.gpus else "cpu"
        encoder = self.image.load_encoder()
        if self.maps:
            encoder = encoder.with_maps()
        from classnorm.preparation import Encoding, Target, extract

        cluster = None if local else self.cluster.results
        encoding = Encoding(encoder, device, self.batch_size, cluster, self.image.strict)
        target = Target(self.out, self.dtype or ("float16" if self.maps else "float32"), self.rows_per_shard, part)
        split = self.image.split if trainable else None
        reuse = (self.out,) if trainable and target.is_file and local else ()
        started = time.monotonic()
        with stage("extract"):
            result = extract(table, encoding, target, split, reuse)
        if result.reused:
            notice(f"using the features of {result.images} images in {self.out}")
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
