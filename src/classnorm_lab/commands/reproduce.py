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
from classnorm.io.files import write_text
from classnorm.progress import notice
from classnorm.report.tables import rich_table
from classnorm.runs.engine import Engine
from classnorm.runs.streams import ImageMode
from classnorm.settings import check_positive
from classnorm_lab.paper.benchmarks import EMBEDDED, find_benchmarks
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.page import (
    TITLE,
    Numbers,
    known_runs,
    known_streams,
    markdown_page,
    render,
    reproduction_page,
    verdict_table,
    write_finding,
    write_numbers,
)
from classnorm_lab.paper.published import PAPER_BENCHMARKS
from classnorm_lab.paper.reproduction import QUICK, Effort, Reproduction
from classnorm_lab.paper.verdicts import Finding

_DOCS = Path("docs/reproduction.md")


_PREVIEW = "Quick run, with narrow models and few epochs: its verdicts show the output and are no evidence."


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
        artifacts = []
        reproduction = self._reproduction(any(CATALOG[name].needs_features for name in names))
        for name in names:
            numbers = CATALOG[name].measure(reproduction)
            artifact = CATALOG[name].present(numbers)
            if self.quick:
                artifact = _marked_as_preview(artifact)
            write_finding(artifact, self.out / name)
            artifacts.append(artifact)
            if self.docs is not None:
                write_numbers(self.docs.with_suffix(""), Numbers(name, self._arguments(reproduction), numbers))
        saved = [Finding.load(self.out / name) for name in CATALOG if (self.out / name / "artifact.json").is_file()]
        write_text(self.out / "index.html", reproduction_page(saved, TITLE, self._introduction()))
        write_text(self.out / "reproduction.md", markdown_page(saved, TITLE, self._introduction(), "{name}"))
        if self.docs is not None:
            render(self.docs)
        if self.output.json:
            documents = [
                {"name": a.name, "verdicts": [asdict(verdict) for verdict in a.verdicts], "data": a.data}
                for a in artifacts
            ]
            print_json({"out": str(self.out), "quick": self.quick, "artifacts": documents})
            return
        for artifact in artifacts:
            _print(artifact)
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
        names = [artifact.name for artifact in render(docs)]
        if self.output.json:
            print_json({"page": str(docs), "names": names})
        else:
            print(f"page: {docs}, {len(names)} tables and figures")

    def _arguments(self, reproduction: Reproduction) -> str:
        """The arguments that decide the numbers, without the places of files on this machine."""
        data = " ".join(benchmark.argument for benchmark in reproduction.benchmarks)
        arguments = ["--data-root xlsa17/data"] if self.data_root is not None else []
        light = " ".join(benchmark.argument for benchmark in reproduction.benchmarks if benchmark.is_light)
        arguments += [f"--data {data}", *([f"--light {light}"] if light else [])]
        once = " ".join(benchmark.argument for benchmark in reproduction.benchmarks if benchmark.one_seed)
        arguments += [f"--seeds {reproduction.effort.seeds}", *([f"--one-seed {once}"] if once else [])]
        arguments += [f"--features {self.features}"] if self.features is not None else []
        arguments += [f"--epochs {self.epochs}"] if self.epochs is not None else []
        arguments += [f"--search-seconds {self.search_seconds:g}"] if self.search_seconds is not None else []
        arguments += [f"--image-split {self.image_split.name}"] if self.image_split is not None else []
        if self.images is not None:
            arguments += [f"--images {self.images.name} --encoder {self.encoder}"]
            arguments += [f"--size {self.size} --freeze-blocks {self.freeze_blocks}"]
            arguments += [f"--weights {self.weights.name}"] if self.weights is not None else []
        return " ".join([*arguments, *(["--quick"] if self.quick else [])])

    def _reproduction(self, needs_features: bool) -> Reproduction:
        check_positive(seeds=self.seeds, epochs=self.epochs, minutes=self.minutes, search_seconds=self.search_seconds)
        effort = QUICK if self.quick else Effort()
        if self.seeds is not None:
            effort = dataclasses.replace(effort, seeds=self.seeds)
        if self.epochs is not None:
            effort = dataclasses.replace(effort, changes={**effort.changes, "epochs": self.epochs})
        if self.search_seconds is not None:
            effort = dataclasses.replace(effort, search_seconds=self.search_seconds)
        names = self.data or (*PAPER_BENCHMARKS, EMBEDDED)
        benchmarks = find_benchmarks(names, self.data_root, self.features, self.light, self.one_seed)
        known = known_runs(self.docs.with_suffix("")) if self.docs is not None else {}
        until = math.inf if self.minutes is None else time.monotonic() + 60 * self.minutes
        reproduction = Reproduction(benchmarks, effort, self.engine, self.out, self.image_split, known, until)
        if self.images is not None:
            check_encoder(self.encoder, self.size)
            mode = ImageMode(self.encoder, self.size, self.images, self.weights, self.freeze_blocks)
            streams = known_streams(self.docs.with_suffix("")) if self.docs is not None else {}
            reproduction = dataclasses.replace(reproduction, images=mode, known_streams=streams)
        unusable = [b.missing for b in benchmarks if b.missing and (needs_features or not b.folder)]
        notice(*unusable)
        if len(unusable) == len(benchmarks):
            raise ConfigError("no dataset found; add glyphs-light to --data, which needs no files")
        return reproduction

    def _introduction(self) -> str:
        effort = "quick runs, a preview of the output" if self.quick else "full runs"
        return (
            "The tables and figures of the paper's zero-shot part, regenerated beside the published numbers. Numbers "
            f"on different image features, which each table names, are not comparable. ({effort})"
        )


def _marked_as_preview(artifact: Finding) -> Finding:
    """The artifact of a quick run, whose verdicts say so wherever they are shown."""
    verdicts = [dataclasses.replace(v, measured=f"{v.measured} (quick run: no evidence)") for v in artifact.verdicts]
    return dataclasses.replace(artifact, verdicts=verdicts, notes=[*artifact.notes, *([_PREVIEW] if verdicts else [])])


def _print(artifact: Finding) -> None:
    for table in artifact.tables:
        if table.header[0] == "published":
            continue  # too wide for a terminal; the files and the page have it
        rendered = rich_table(table)
        if table.is_ranked:
            rendered.caption = "* best, + second best"
        print_table(rendered)
    if artifact.verdicts:
        print_table(rich_table(verdict_table(artifact.verdicts)))
    for note in artifact.notes:
        print(f"- {as_flags(note)}")
    print()
