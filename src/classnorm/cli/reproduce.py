"""`classnorm reproduce`: the paper's tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import notice, print_json, print_table, progress_display
from classnorm.cli.options import OutputOptions, parse
from classnorm.errors import ConfigError, unknown_name
from classnorm.experiments.engine import Engine
from classnorm.files import replacing, write_text
from classnorm.progress import Announce
from classnorm.report.artifacts import markdown_page, reproduction_page, verdict_table, write_artifact
from classnorm.report.tables import rich_table
from classnorm.reproduce.benchmarks import EMBEDDED, find_benchmarks
from classnorm.reproduce.catalog import CATALOG
from classnorm.reproduce.published import PAPER_BENCHMARKS
from classnorm.reproduce.reproduction import QUICK, Effort, Reproduction
from classnorm.results.artifact import Artifact

_TITLE = "Class Normalization for (Continual)? Generalized Zero-Shot Learning: the paper, regenerated"


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Run a table or figure of the paper on the data at hand; the paper's own figures stand beside.

    Writes DIR/NAME (tables, plots, data.json) and DIR/index.html. Every training is kept in DIR/runs, so that an
    interrupted command goes on where it was, and tables share what they have in common. NAME is one or more of those
    that `list` lists, or `all`.

    Examples:
      classnorm reproduce list
      classnorm reproduce main --quick
      classnorm reproduce additional --data-root xlsa17/data --data CUB SUN --seeds 3
      classnorm reproduce all --data-root xlsa17/data --out reproduction
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME…")] = ()
    """Tables and figures, `all`, or `list`."""
    data_root: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder with GBU folders: DIR/CUB/att_splits.mat and so on."""
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…", help_behavior_hint="")] = ()
    """Datasets: SUN, CUB, AWA1, AWA2 (below --data-root), glyphs-light, or any other that train takes (default: the
    four benchmarks and glyphs-light)."""
    features: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Feature file of the GBU folders (default: res101, or the one that is there)."""
    image_split: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """CUB's train_test_split.txt (images.txt beside it), for the continual part; without it a stratified split."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Seeds of every row (default 3; 2 with --quick)."""
    epochs: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Epochs of every row instead of the recipe's."""
    quick: bool = False
    """A small version: narrow models, few epochs. To see how it looks, not what holds."""
    out: Path = Path("reproduction")
    """Folder for everything."""
    docs: Annotated[Path | None, tyro.conf.arg(metavar="FILE.md", help_behavior_hint="")] = None
    """Also write the page as Markdown here, its plots into a folder of the same name."""
    engine: Annotated[Engine, tyro.conf.arg(name="")]
    output: Annotated[OutputOptions, tyro.conf.arg(name="")]

    def run(self) -> None:
        if not self.names or "list" in self.names:
            self._list()
            return
        for name in self.names:
            if name not in CATALOG and name != "all":
                raise unknown_name("table or figure", name, ["all", "list", *CATALOG])
        names = list(CATALOG) if "all" in self.names else list(dict.fromkeys(self.names))
        artifacts = []
        with progress_display(self.output.quiet) as announce:
            reproduction = self._reproduction(announce)
            for name in names:
                artifact = CATALOG[name].make(reproduction)
                write_artifact(artifact, self.out / name)
                artifacts.append(artifact)
        if not self.output.json:
            for artifact in artifacts:
                _print(artifact)
        made = self._everything()
        write_text(self.out / "index.html", reproduction_page(made, _TITLE, self._introduction()))
        write_text(self.out / "reproduction.md", markdown_page(made, _TITLE, self._introduction(), "{name}"))
        if self.docs is not None:
            self._write_docs(made, self.docs)
        if self.output.json:
            print_json({"out": str(self.out), "artifacts": [_document(artifact) for artifact in artifacts]})
        else:
            print(f"page: {self.out / 'index.html'}")

    def _list(self) -> None:
        rows = [[name, item.kind, item.title] for name, item in CATALOG.items()]
        if self.output.json:
            print_json([{"name": name, "kind": kind, "title": title} for name, kind, title in rows])
            return
        for name, kind, title in rows:
            print(f"{name:24s}{kind:8s}{title}")

    def _reproduction(self, announce: Announce) -> Reproduction:
        effort = QUICK if self.quick else Effort()
        if self.seeds is not None:
            if self.seeds < 1:
                raise ConfigError(f"--seeds is {self.seeds}; it must be at least 1")
            effort = dataclasses.replace(effort, seeds=self.seeds)
        if self.epochs is not None:
            if self.epochs < 1:
                raise ConfigError(f"--epochs is {self.epochs}; it must be at least 1")
            effort = dataclasses.replace(effort, changes={**effort.changes, "epochs": self.epochs})
        benchmarks = find_benchmarks(self.data or (*PAPER_BENCHMARKS, EMBEDDED), self.data_root, self.features)
        reproduction = Reproduction(benchmarks, effort, self.engine, self.out, announce, self.image_split)
        for text in reproduction.missing:
            notice(text, self.output.quiet)
        if not reproduction.available:
            raise ConfigError("none of the datasets is at hand; add glyphs-light to --data, which needs no file")
        return reproduction

    def _everything(self) -> list[Artifact]:
        """All that was made in the folder, now or before."""
        return [Artifact.load(self.out / name) for name in CATALOG if (self.out / name / "artifact.json").is_file()]

    def _introduction(self) -> str:
        how = "a quick, small version: it shows the form, not what holds" if self.quick else "full runs"
        return (
            "Every table and figure of the paper's zero-shot part, run again on the data at hand, with the paper's own "
            f"figures beside. Figures of different image features are not comparable; each says which it is. ({how})"
        )

    def _write_docs(self, artifacts: Sequence[Artifact], path: Path) -> None:
        folder = path.with_suffix("")
        for artifact in artifacts:
            for plot in artifact.plots:
                with replacing(folder / artifact.name / f"{plot.name}.png") as temporary:
                    temporary.write_bytes((self.out / artifact.name / f"{plot.name}.png").read_bytes())
        write_text(path, markdown_page(artifacts, _TITLE, self._introduction(), f"{folder.name}/{{name}}"))


def _document(artifact: Artifact) -> dict[str, object]:
    return {"name": artifact.name, "verdicts": [asdict(v) for v in artifact.verdicts], "data": artifact.data}


def _print(artifact: Artifact) -> None:
    for table in artifact.tables:
        if table.header[0] == "published":
            continue  # wide, and in the files and on the page
        shown = rich_table(table)
        if table.is_ranked:
            shown.caption = "* best, + second best"
        print_table(shown)
    if artifact.verdicts:
        print_table(rich_table(verdict_table(artifact.verdicts)))
    for note in artifact.notes:
        print(f"- {note}")
    print()


def main(arguments: Sequence[str], program: str) -> None:
    parse(Reproduce, arguments, program).run()
