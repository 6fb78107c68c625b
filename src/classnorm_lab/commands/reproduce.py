"""`classnorm reproduce`: the tables and figures of the paper."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import print_json, print_table
from classnorm.cli.messages import as_flags
from classnorm.cli.options import Command, Flag, OutputOptions, optional
from classnorm.encoders import check_encoder
from classnorm.errors import ConfigError, unknown_name
from classnorm.progress import notice
from classnorm.report.tables import rich_table
from classnorm.runs.engine import Engine
from classnorm.runs.streams import ImageMode
from classnorm.settings import check_positive
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.datasets import EMBEDDED, find_datasets
from classnorm_lab.paper.page import (
    Numbers,
    Page,
    as_preview,
    known_runs,
    known_streams,
    verdict_table,
    write_finding,
    write_numbers,
    write_pages,
)
from classnorm_lab.paper.published import PAPER_DATASETS
from classnorm_lab.paper.reproduction import QUICK, Effort, Reproduction
from classnorm_lab.paper.verdicts import Finding

_DOCS = Path("docs/reproduction.md")
_DECIDE_NUMBERS = (
    *("data_root", "data", "light", "seeds", "one_seed", "features", "epochs", "search_seconds", "image_split"),
    *("images", "encoder", "size", "freeze_blocks", "weights", "quick"),
)
_OF_IMAGES = ("encoder", "size", "freeze_blocks", "weights")


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Regenerate tables and figures of the paper, beside the published numbers.

    Examples:
      classnorm reproduce list
      classnorm reproduce main --quick
      classnorm reproduce additional --data-root xlsa17/data --data CUB SUN --seeds 3
      classnorm reproduce main --data-root xlsa17/data --data CUB CUB:resnet50:sentences.npz
      classnorm reproduce all --data-root xlsa17/data --out reproduction
      classnorm reproduce render --docs docs/reproduction.md

    Notes:
      Writes DIR/NAME (tables, plots, data.json) and DIR/index.html. DIR/runs keeps
      every training: tables share them, and an interrupted command continues when
      it is run again. With --docs FILE.md, the numbers of each table and figure go
      to FILE/NAME.json, and the page is generated from all that are there; rows
      whose numbers are there already are not trained again, and with --minutes a
      long table grows over several commands. render only generates the page, and
      includes FILE/introduction.md, which is yours.
    """

    to_continue = "run the same command again"

    names: Annotated[tuple[str, ...], tyro.conf.Positional, optional("NAME…")] = ()
    """Names of tables and figures, or all; list prints the names, render makes --docs from its numbers."""
    data_root: Annotated[Path | None, optional("DIR")] = None
    """Folder of the GBU folders, like DIR/CUB/att_splits.mat."""
    data: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """SUN, CUB, AWA1, AWA2 (in --data-root; also NAME:FEATURES or NAME:FEATURES:DESCRIPTORS.npz), glyphs-light or any
    DATA of train (default: these five)."""
    light: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """Those of --data whose MLPs have 512 units and 25 epochs, as on the embedded datasets."""
    one_seed: Annotated[tuple[str, ...], optional("NAME…")] = ()
    """Those of --data on which the zero-shot tables run a single seed."""
    features: Annotated[str | None, optional("NAME")] = None
    """Feature file of the GBU folders (default: res101, or the only one)."""
    image_split: Annotated[Path | None, optional("FILE")] = None
    """CUB's train_test_split.txt, for the continual tables (default: a stratified split)."""
    seeds: Annotated[int | None, optional("N")] = None
    """Seeds per variant (default: 3; 2 with --quick)."""
    epochs: Annotated[int | None, optional("N")] = None
    """Epochs per training (default: set by the recipe)."""
    quick: Flag = False
    """Use narrow models and few epochs, to preview the output."""
    images: Annotated[Path | None, optional("DIR")] = None
    """Folder with the images of CUB, for czsl-images."""
    encoder: Annotated[str, tyro.conf.arg(metavar="NAME")] = "efficientnet-lite0"
    """Encoder that czsl-images trains."""
    weights: Annotated[Path | None, optional("FILE")] = None
    """Other weights for this encoder."""
    size: Annotated[int, tyro.conf.arg(metavar="PX")] = 128
    """Side of its input in pixels."""
    freeze_blocks: Annotated[int, tyro.conf.arg(metavar="N")] = 15
    """Its first N blocks are not trained; their outputs are computed once."""
    minutes: Annotated[float | None, optional("M")] = None
    """Start no further row of a table after this time; the same command continues (default: no limit)."""
    search_seconds: Annotated[float | None, optional("S")] = None
    """CPU seconds after which a method on the leaderboard starts no further trial (default: 60)."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("reproduction")
    """Output folder."""
    docs: Annotated[Path | None, optional("FILE.md")] = None
    """Also write the page as Markdown, with its numbers and plots in a folder of the same name."""
    engine: Engine
    output: OutputOptions

    def run(self) -> None:
        if not self.names or "list" in self.names:
            self._list()
            return
        if "render" in self.names:
            self._render()
            return
        for name in self.names:
            if name not in CATALOG and name != "all":
                raise unknown_name("table or figure", name, ["all", "list", "render", *CATALOG])
        names = list(CATALOG) if "all" in self.names else list(dict.fromkeys(self.names))
        findings = []
        reproduction = self._reproduction(any(CATALOG[name].needs_features for name in names))
        for name in names:
            numbers = CATALOG[name].measure(reproduction)
            finding = CATALOG[name].present(numbers)
            finding = as_preview(finding) if self.quick else finding
            write_finding(finding, self.out / name)
            findings.append(finding)
            if self.docs is not None:
                write_numbers(self.docs.with_suffix(""), Numbers(name, self._arguments(reproduction), numbers))
        write_pages(self.out, self.quick)
        if self.docs is not None:
            Page.read(self.docs).write()
        if self.output.json:
            documents = [
                {"name": f.name, "verdicts": [asdict(verdict) for verdict in f.verdicts], "data": f.data}
                for f in findings
            ]
            print_json({"out": str(self.out), "quick": self.quick, "artifacts": documents})
            return
        for finding in findings:
            _print(finding)
        print(f"page: {self.out / 'index.html'}")

    def _list(self) -> None:
        if self.output.json:
            print_json([{"name": name, "kind": item.kind, "title": item.title} for name, item in CATALOG.items()])
            return
        for name, item in CATALOG.items():
            print(f"{name:24s}{item.kind:8s}{item.title}")

    def _render(self) -> None:
        if len(self.names) > 1:
            raise ConfigError("render takes no other name: it makes the page from all numbers of --docs")
        docs = self.docs or _DOCS
        page = Page.read(docs)
        page.write()
        names = [finding.name for finding in page.findings]
        if self.output.json:
            print_json({"page": str(docs), "names": names})
        else:
            print(f"page: {docs}, {len(names)} tables and figures")

    def _arguments(self, reproduction: Reproduction) -> str:
        """The flags that decide the numbers, without the places of files on this machine."""
        datasets = reproduction.datasets
        values = vars(self) | {
            "data_root": None if self.data_root is None else "xlsa17/data",
            "data": [dataset.argument for dataset in datasets],
            "light": [dataset.argument for dataset in datasets if dataset.is_light],
            "one_seed": [dataset.argument for dataset in datasets if dataset.one_seed],
            "seeds": reproduction.effort.seeds,
        }
        if self.images is None:
            values |= dict.fromkeys(_OF_IMAGES)
        return " ".join(_flag(name, values[name]) for name in _DECIDE_NUMBERS if values[name] not in (None, False, []))

    def _reproduction(self, needs_features: bool) -> Reproduction:
        check_positive(seeds=self.seeds, epochs=self.epochs, minutes=self.minutes, search_seconds=self.search_seconds)
        effort = QUICK if self.quick else Effort()
        if self.seeds is not None:
            effort = dataclasses.replace(effort, seeds=self.seeds)
        if self.epochs is not None:
            effort = dataclasses.replace(effort, changes={**effort.changes, "epochs": self.epochs})
        if self.search_seconds is not None:
            effort = dataclasses.replace(effort, search_seconds=self.search_seconds)
        names = self.data or (*PAPER_DATASETS, EMBEDDED)
        datasets = find_datasets(names, self.data_root, self.features, self.light, self.one_seed)
        known = known_runs(self.docs.with_suffix("")) if self.docs is not None else {}
        until = math.inf if self.minutes is None else time.monotonic() + 60 * self.minutes
        reproduction = Reproduction(datasets, effort, self.engine, self.out, self.image_split, known, until)
        if self.images is not None:
            check_encoder(self.encoder, self.size)
            mode = ImageMode(self.encoder, self.size, self.images, self.weights, self.freeze_blocks)
            streams = known_streams(self.docs.with_suffix("")) if self.docs is not None else {}
            reproduction = dataclasses.replace(reproduction, images=mode, known_streams=streams)
        unusable = [b.missing for b in datasets if b.missing and (needs_features or not b.folder)]
        notice(*unusable)
        if len(unusable) == len(datasets):
            raise ConfigError("no dataset found; add glyphs-light to --data, which needs no files")
        return reproduction


def _flag(name: str, value: object) -> str:
    """A flag as it is written on the command line; a file by its name alone.

    >>> _flag("one_seed", ["CUB", "SUN"]), _flag("quick", True), _flag("search_seconds", 60.0)
    ('--one-seed CUB SUN', '--quick', '--search-seconds 60')
    """
    values = [] if value is True else value if isinstance(value, list) else [value]
    words = (v.name if isinstance(v, Path) else f"{v:g}" if isinstance(v, float) else str(v) for v in values)
    return " ".join([f"--{name.replace('_', '-')}", *words])


def _print(finding: Finding) -> None:
    for table in finding.tables:
        if table.header[0] == "published":
            continue  # too wide for a terminal; the files and the page have it
        rendered = rich_table(table)
        if table.is_ranked:
            rendered.caption = "* best, + second best"
        print_table(rendered)
    if finding.verdicts:
        print_table(rich_table(verdict_table(finding.verdicts)))
    for note in finding.notes:
        print(f"- {as_flags(note)}")
    print()
