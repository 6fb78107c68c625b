"""Reports of documents that somebody else wrote: nothing in them becomes part of the page, or of another language."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from classnorm.cli import main
from classnorm.errors import DataError
from classnorm.report import group_results, write_report
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts
from classnorm.results.run_folder import find_results

SCRIPT = "<script>alert(1)</script>"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "h4", "p", "b", "u", "div", "span", "table"),
    *("thead", "tbody", "tr", "th", "td", "img", "details", "summary", "dl", "dt", "dd", "figure", "figcaption", "br"),
    "footer",
}
ATTRIBUTES = {"lang", "charset", "name", "content", "class", "style", "alt", "src", "id"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, text):
        self.words += text


def leaves(document, keys=()):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from leaves(value, (*keys, key))
        else:
            yield (*keys, key)


def scripted(document, keys):
    """The document with a script at one leaf; for a key of free choice, as the key too."""
    copy = json.loads(json.dumps(document))
    place = copy
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = SCRIPT
    if isinstance(place, dict) and keys[:-1] in (("config",), ("versions",), ("dataset", "provenance")):
        place[f'"{SCRIPT}'] = "value"
    return copy


@pytest.fixture
def everything(write_run, write_stream, tmp_path):
    """A folder with a document of each kind."""
    runs = tmp_path / "runs"
    write_run(runs / "run", validated=True, calibration="scale:0.9")
    write_run(runs / "other", "baseline")
    chosen = {"settings": ["lr"], "by": "mH"}
    write_stream(runs / "stream", [[40.0, 10.0], [30.0, 50.0]], chosen=chosen, encoder="convnet", image_size=24)
    artifact = Artifact(
        "name",
        "title",
        "text",
        tables=[Table("table", ["a", "b"], [[Cell("x", 1), Cell("y")]])],
        plots=[Plot("plot", "lines", "title", "x", "y", [Series("s", "m", [1.0, 2.0], [3.0, 4.0])], ticks=["t"])],
        notes=["note"],
    )
    (runs / "artifact").mkdir()
    artifact.save(runs / "artifact")
    document = json.loads((runs / "artifact" / "artifact.json").read_text())
    document["verdicts"] = [{"claim": "claim", "dataset": "data", "measured": "+1", "verdict": "holds"}]
    (runs / "artifact" / "artifact.json").write_text(json.dumps(document))
    return runs


def report(runs, folder):
    write_report(group_results(find_results([runs])), folder, "title", artifacts=find_artifacts([runs]))
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.slow
def test_a_script_at_any_leaf_of_any_document_is_shown_or_refused(everything, tmp_path, monkeypatch):
    monkeypatch.setattr("classnorm.report.files.png", lambda figure: b"")  # drawing has a test of its own
    monkeypatch.setattr("classnorm.report.page.png", lambda figure: b"")
    shown = refused = 0
    for path in sorted(everything.rglob("*.json")):
        whole = path.read_text(encoding="utf-8")
        for keys in leaves(json.loads(whole)):
            if keys[:2] == ("validation", "curves") and keys[-1] != 0:
                continue  # one number of a list stands for all
            path.write_text(json.dumps(scripted(json.loads(whole), keys)), encoding="utf-8")
            try:
                page = Page(report(everything, tmp_path / "page"))
            except DataError:
                refused += 1
                continue
            assert page.tags <= TAGS and page.attributes <= ATTRIBUTES, keys
            shown += SCRIPT in page.words
        path.write_text(whole, encoding="utf-8")
    assert shown > 30 and refused > 30


NAME = "x\n\\input{/etc/passwd} <img src=y> [a](javascript:b) a[/b] $\\a$ \x1b[31m | &lt;"


@pytest.fixture
def named(write_run, tmp_path):
    """A report of runs whose dataset, recipe and classes have a hostile name."""
    write_run(tmp_path / "runs" / "a", NAME, dataset=NAME, validated=True)
    write_run(tmp_path / "runs" / "b", f"={NAME}", dataset=NAME)
    images, n = np.zeros((2, 8, 8), dtype=np.uint8), {"position": np.array([0, 1])}
    np.savez(tmp_path / "runs" / "a" / "examples.npz", image=images, **n)
    predictions = tmp_path / "runs" / "a" / "predictions.npz"
    content = dict(np.load(predictions))
    np.savez(predictions, **content | {"class_names": np.array([f"{NAME} {i}" for i in range(24)])})
    return tmp_path


def test_a_hostile_name_is_text_in_every_file_and_on_the_terminal(named, capsys):
    main(["report", str(named / "runs"), "--out", str(named / "page"), "--title", NAME])
    terminal = capsys.readouterr().out
    assert "a[/b]" in terminal and "\x1b" not in terminal
    page = Page((named / "page" / "index.html").read_text(encoding="utf-8"))
    assert page.tags <= TAGS and page.attributes <= ATTRIBUTES
    latex = (named / "page" / "results.tex").read_text(encoding="utf-8")
    assert not re.search(r"^(?!%).*\\input", latex, re.MULTILINE)
    assert all(line.startswith(("%", "\\", "model", "classnorm", "against")) for line in latex.splitlines() if line)
    markdown = (named / "page" / "results.md").read_text(encoding="utf-8")
    assert not re.search(r"(?<!\\)<|\](?=\()", markdown)
    assert [line for line in markdown.splitlines() if line.startswith("#")] == [
        line for line in markdown.splitlines() if "input" in line and not line.startswith("|")
    ]


def test_a_table_for_the_terminal_has_no_markup_in_title_header_and_cells():
    from classnorm.report import rich_table

    console = Console(width=100, file=io.StringIO(), force_terminal=False)
    console.print(rich_table(Table("a[/b]", ["[red]h", "[/x]"], [[Cell("[bold]c"), Cell("\x1b]0;t\x07")]])))
    text = console.file.getvalue()
    assert all(part in text for part in ("a[/b]", "[red]h", "[/x]", "[bold]c", r"\x1b]0;t\x07"))


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+cmd|x", "-2+3+cmd", "@SUM(1)", "\t=1"])
def test_no_cell_of_a_csv_table_is_a_formula(text):
    from classnorm.report.tables import csv_table

    [_, [cell]] = csv.reader(io.StringIO(csv_table(Table.of("", ["h"], [[text]]))))
    assert cell == f"'{text}"


def test_numbers_and_intervals_in_csv_tables_stay_as_they_are():
    from classnorm.report.tables import csv_table

    cells = ["-0.5", "+2.3 [+1.0, +3.5]", "−0.4", "plain"]
    [_, row] = csv.reader(io.StringIO(csv_table(Table.of("", ["h"] * 4, [cells]))))
    assert row == cells


@pytest.mark.parametrize("kind", ["lines", "boxes", "histogram", "points", "heatmap", "bars"])
def test_no_text_of_a_plot_is_read_as_a_formula(kind):
    from classnorm.report.draw import draw, png

    bad = r"$\a$ " * 200
    x = [1.0, 2.0] if kind != "points" else [1.0]
    series = [Series(f"{bad}{i}", bad, x, x) for i in range(2)]
    plot = Plot(bad, kind, bad, bad, bad, series, lines_at={bad: 1.5}, ticks=[bad, bad])
    assert png(draw(plot)).startswith(b"\x89PNG")


def test_a_history_without_epochs_or_losses_is_left_out_of_the_plot(write_run, tmp_path):
    from classnorm.report.plots import training_plot

    folder = write_run(tmp_path / "run").folder
    (folder / "history.jsonl").write_text('{"loss": 1.0}\n{"epoch": 1}\n{"epoch": 2, "loss": 0.5}\n')
    [series] = training_plot(group_results(find_results([tmp_path]))).series
    assert (series.x, series.y) == ([2], [0.5])
