"""Findings: artifacts with verdicts, kept as JSON, shown as a page, as Markdown and as files."""

import re
from dataclasses import replace

import pytest

from classnorm.errors import DataError
from classnorm.report.page import artifact_section
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts
from classnorm_lab.paper.page import html_page, markdown_page, write_finding
from classnorm_lab.paper.verdicts import Finding, Verdict

NAMES = ("3-layer MLP + CN", "a <b>bold</b> & brash | one_two", "γ = 5, −AN")


@pytest.fixture(scope="module")
def finding():
    body = [[Cell(name), Cell(f"{10 * i}.5 ± 0.1", rank=i or None)] for i, name in enumerate(NAMES)]
    lines = Series("CN", "3-layer MLP + CN", [1.0, 2.0], [0.5, 0.7], [0.4, 0.6], [0.6, 0.8], "−AN")
    return Finding(
        "main",
        "Results <on> glyphs",
        "What the paper says & shows.",
        tables=[Table("Measured <here>", ["model", "H"], body), Table.of("Paper", ["model", "H"], [["RN", "–"]])],
        plots=[
            Plot("curve", "lines", "A <curve>", "x", "y", [lines], log_x=True, lines_at={"one": 1.0}),
            Plot("boxes", "boxes", "Boxes", "", "y", [Series("d", "d", [], [1.0, 2.0, 3.0])]),
        ],
        verdicts=[
            Verdict("CN <helps>", "glyphs (hog)", "+2.3", "holds"),
            Verdict("AN helps", "glyphs (hog)", "+0.3", "holds weakly"),
            Verdict("NS helps", "glyphs (hog)", "−0.3", "does not hold"),
            Verdict("more", "glyphs (hog)", "", "not measured"),
        ],
        notes=["CUB: give --data-root <DIR>"],
        data={"numbers": [1, 2.5, None]},
    )


@pytest.fixture(scope="module")
def page(finding):
    return html_page([finding], "Introduction & more")


def test_a_loaded_finding_equals_the_saved_one(finding, tmp_path):
    finding.save(tmp_path)
    assert Finding.load(tmp_path) == finding


def test_a_damaged_verdict_is_a_data_error_that_names_the_file(finding, tmp_path):
    finding.save(tmp_path)
    path = tmp_path / "artifact.json"
    for damage in ('"verdicts": [5, ', '"verdicts": [{"claim": "no more"}, '):
        path.write_text(path.read_text().replace('"verdicts": [', damage))
        with pytest.raises(DataError, match=r"artifact\.json: .*; make it again"):
            Finding.load(tmp_path)


def test_the_library_shows_the_verdicts_of_a_finding_as_a_table(finding, tmp_path):
    finding.save(tmp_path)
    [artifact] = find_artifacts([tmp_path])
    assert type(artifact) is Artifact
    assert (artifact.tables[:-1], artifact.plots, artifact.notes) == (finding.tables, finding.plots, finding.notes)
    rows = [[cell.text for cell in row] for row in artifact.tables[-1].body]
    assert artifact.tables[-1].header == ["claim", "dataset", "measured", "verdict", "scoring"]
    assert rows == [[v.claim, v.dataset, v.measured, v.verdict, ""] for v in finding.verdicts]
    assert "CN &lt;helps&gt;" in artifact_section(artifact)


def test_the_claims_are_a_file_beside_the_tables(finding, tmp_path):
    write_finding(finding, tmp_path / "main")
    write_finding(replace(finding, verdicts=[]), tmp_path / "bare")
    assert "| CN \\<helps> | glyphs (hog) | +2.3 | holds |" in (tmp_path / "main" / "claims.md").read_text()
    with_claims, bare = ({path.name for path in (tmp_path / name).iterdir()} for name in ("main", "bare"))
    assert with_claims == bare | {"claims.md"}


def test_the_page_escapes_names_and_shows_everything(page):
    assert "a &lt;b&gt;bold&lt;/b&gt; &amp; brash | one_two" in page
    for raw in ("<b>bold", "<on>", "<here>", "<helps>", "<DIR>", "A <curve>"):
        assert raw not in page
    for text in ("Results &lt;on&gt; glyphs", "Introduction &amp; more", "What the paper says &amp; shows."):
        assert text in page
    assert page.count("data:image/png;base64,") == 2
    assert '<a href="#main">' in page and '<h2 id="main">' in page


def test_the_contents_count_the_verdicts(finding):
    bare = replace(finding, plots=[])
    page = html_page([bare, replace(bare, name="bare", verdicts=[])], "I")
    entries = re.findall(r"<li>(.*?)</li>", page)
    assert re.sub("<[^>]+>", "", entries[0]).endswith(
        "(1\N{NO-BREAK SPACE}✓, 1\N{NO-BREAK SPACE}~, 1\N{NO-BREAK SPACE}✗)"
    )
    assert entries[1].endswith("</a>")


def test_verdicts_differ_by_a_mark_and_not_by_colour_alone(page):
    for cell in (
        '"words right">✓ holds',
        '"words weak">~ holds weakly',
        '"words wrong">✗ does not hold',
        "not measured</td>",
    ):
        assert cell in page


def test_the_page_is_one_file_without_links_to_elsewhere(page):
    assert not re.search(r'(src|href)="(?!#|data:)', page)


def test_markdown_links_the_plots_of_each_finding_in_its_folder(finding):
    page = markdown_page([finding, replace(finding, name="other")], "I", "pictures/{name}")
    assert re.findall(r"!\[.*?\]\((.*?)\)", page) == [
        "pictures/main/curve.png",
        "pictures/main/boxes.png",
        "pictures/other/curve.png",
        "pictures/other/boxes.png",
    ]
    assert "- CUB: give --data-root <DIR>" in page
    tally = page.split("## All claims")[1].split("## Results")[0]
    assert "| CN \\<helps> | – | 2 | – | – |" in tally
    assert page.count("| CN \\<helps> | glyphs (hog) | +2.3 | holds |") == 2


def test_markdown_without_verdicts_has_no_section_of_claims(finding):
    assert "All claims" not in markdown_page([replace(finding, verdicts=[])], "I", "{name}")
