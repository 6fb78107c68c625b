"""The outcome of an experiment or a diagnosis: tables, plots and notes as plain data, which reports draw."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from classnorm.errors import DataError
from classnorm.io.documents import read_json
from classnorm.io.files import write_json
from classnorm.results.shapes import ArtifactDocument

ARTIFACT = "artifact.json"
_WORD = re.compile(r"[^\W\d_]{3}")
_COLOR = re.compile("#[0-9A-Fa-f]{6}")


@dataclass(frozen=True)
class Cell:
    text: str
    rank: int | None = None
    """1 for the best of its column, 2 for the second best."""


def ranks(means: Sequence[float], digits: int = 1, lower_is_better: bool = False) -> list[int | None]:
    """1 for the best mean, 2 for the second best, None for the rest and for NaN.

    Means that are equal in the printed digits share a rank: after two bests there is no second best.

    >>> ranks([0.10, 0.25, -0.02], digits=2, lower_is_better=True)
    [2, None, 1]
    """
    sign = -1 if lower_is_better else 1
    rounded = [sign * round(mean, digits) for mean in means]
    places = [1 + sum(other > value for other in rounded) for value in rounded]
    return [None if math.isnan(mean) or place > 2 else place for place, mean in zip(places, means, strict=True)]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the models; the others hold numbers or words."""

    title: str
    header: list[str]
    body: list[list[Cell]]

    @property
    def is_ranked(self) -> bool:
        return any(cell.rank for row in self.body for cell in row)

    @property
    def has_words(self) -> list[bool]:
        """Whether a column holds words, which are aligned on the left: the first, and those with words in most cells.

        >>> rows = [["CN", "55.3 ± 0.6", "CUB"], ["–", "–", "–"], ["3", "diverged", "SUN"]]
        >>> Table.of("", ["", "H", "data"], rows).has_words
        [True, False, True]
        """
        words = [[bool(_WORD.search(row[i].text)) for row in self.body] for i in range(len(self.header))]
        return [i == 0 or 2 * sum(column) > len(column) for i, column in enumerate(words)]

    @classmethod
    def of(cls, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        """A table without ranks."""
        return cls(title, list(header), [[Cell(text) for text in row] for row in rows])


@dataclass(frozen=True)
class Series:
    """A line, a box, a histogram, a point, a row of a heat map or one colour of stacked bars."""

    label: str
    model: str
    """Decides the colour."""
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None
    variant: str = ""
    """Decides the dashes, which tell lines of one model apart; a line without a variant is solid."""


@dataclass(frozen=True)
class Plot:
    name: str
    kind: Literal["lines", "boxes", "histogram", "points", "heatmap", "bars"]
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    lines_at: dict[str, float] = field(default_factory=dict)
    """Horizontal lines: label → height."""
    limits: list[float] | None = None
    """Range of the y axis or, for a heat map, of the colours (0 to 100 by default)."""
    ticks: list[str] = field(default_factory=list)
    """Labels of the bars."""
    colors: dict[str, str] = field(default_factory=dict)
    """Model → its colour, like #0072B2; other models get colours that are free."""


@dataclass(frozen=True)
class Artifact:
    """Tables and plots that belong together: a diagnosis of a dataset, or a table or figure of a paper."""

    name: str
    title: str
    text: str
    """What it shows or measures."""
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    """The underlying numbers, for scripts."""

    def save(self, folder: Path) -> None:
        write_json(folder / ARTIFACT, {"format": "classnorm-artifact", **asdict(self)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        path, remedy = folder / ARTIFACT, "make it again"
        document = read_json(path, ArtifactDocument, remedy)
        for plot in document["plots"]:
            if not _can_be_drawn(plot):
                raise DataError(f"{path}: the numbers of plot {plot['name']!a} do not belong together; {remedy}")
        if any(len(row) != len(table["header"]) for table in document["tables"] for row in table["body"]):
            raise DataError(f"{path}: a row of a table has another length than its header; {remedy}")
        try:
            content = {name: document[name] for name in ("name", "title", "text", "notes", "data")}
            content["tables"] = [
                Table(**{**t, "body": [[Cell(**cell) for cell in row] for row in t["body"]]})
                for t in document["tables"]
            ]
            content["plots"] = [Plot(**{**p, "series": [Series(**s) for s in p["series"]]}) for p in document["plots"]]
            return cls.of_document(content, document.get("verdicts", []))
        except TypeError as error:  # a key that no version has written
            raise DataError(f"{path}: {error}; {remedy}") from error

    @classmethod
    def of_document(cls, content: dict[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> Self:
        """The artifact from the fields of its document; the verdicts of the laboratory on claims are one more table."""
        if verdicts:
            columns = [name for name, value in verdicts[0].items() if isinstance(value, str)]
            rows = [[str(verdict.get(name, "")) for name in columns] for verdict in verdicts]
            content["tables"].append(Table.of("Do the claims hold here?", columns, rows))
        return cls(**content)


def _can_be_drawn(plot: Mapping[str, Any]) -> bool:
    """Whether each series has the numbers that its kind of plot needs, and every colour is one."""
    kind, series = plot["kind"], plot["series"]
    if len(plot.get("limits") or (0, 1)) != 2 or not all(map(_COLOR.fullmatch, plot.get("colors", {}).values())):
        return False
    if kind == "boxes":
        return all(s["y"] for s in series)
    if any(
        len(s["x"]) != len(s["y"]) or any(len(s.get(k) or s["x"]) != len(s["x"]) for k in ("low", "high"))
        for s in series
    ):
        return False
    if kind in ("heatmap", "bars"):
        wanted = len(series) if kind == "heatmap" else len(plot.get("ticks", ()))
        return all(len(s["x"]) == wanted for s in series) and bool(series or kind == "bars")
    return all(len(s["x"]) >= {"histogram": 2, "points": 1}.get(kind, 0) for s in series)


def find_artifacts(paths: Sequence[Path]) -> list[Artifact]:
    """All artifacts in or below the folders, in a stable order."""
    folders = dict.fromkeys(file.parent for path in paths for file in sorted(path.rglob(ARTIFACT)))
    return [Artifact.load(folder) for folder in folders]
