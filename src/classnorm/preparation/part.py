"""Parts of an extraction, for example one per machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from classnorm.data.dataset import check_descriptors
from classnorm.data.image_table import ImageTable
from classnorm.data.row_store import IntArray
from classnorm.encoders.encoder import Encoder
from classnorm.errors import ConfigError
from classnorm.io.files import digest


@dataclass(frozen=True)
class PartOf:
    """One of several parts of the images, which are extracted independently, for example on several machines."""

    number: int  # from 1
    of: int
    split: dict[str, Any] | None = None  # settings with which `merge` adds a split; None adds none

    @classmethod
    def parse(cls, text: str, split: dict[str, Any] | None = None) -> PartOf:
        """Parse ``3/16``."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(f"`shard` is {text!r}; write 3/16 for the third of sixteen parts (1 to 16)")
        return cls(int(number), int(of), split)

    def rows(self, n: int) -> IntArray:
        """The rows of this part, of n."""
        if n < self.of:
            raise ConfigError(f"{n} images cannot be divided into {self.of} parts; use fewer in `shard`")
        return np.arange(n * (self.number - 1) // self.of, n * self.number // self.of)

    def document(self, table: ImageTable, encoder: Encoder) -> dict[str, Any]:
        """What all parts have in common, and the number. File times and folders may differ between machines."""
        images = digest([table.files, table.labels.tolist(), table.class_names])
        return {
            "number": self.number,
            "of": self.of,
            "images": images,
            "encoder": encoder.record(),
            "split": self.split,
        }


def check_table(table: ImageTable) -> None:
    """Validate descriptors and split, before hours are spent on features."""
    if table.descriptors is not None and table.split is not None:
        table.dataset(np.zeros((len(table), 1), dtype=np.float32))
    elif table.descriptors is not None:
        check_descriptors(table.descriptors, table.class_names, table.name)
