"""Tables in every format: right numbers, right marks, nothing that breaks the format."""

import csv
import io
import re
import statistics

import pytest
from rich.console import Console

from classnorm.report import group_results, latex_document, markdown_document, terminal_table
from classnorm.report.differences import compare
from classnorm.report.tables import (
    csv_document,
    group_ranks,
    html_table,
    latex_table,
    markdown_table,
    results_table,
    rich_table,
)
from classnorm.results.artifact import Cell, Table
from classnorm.results.run_folder import find_results


def _scores(harmonic):
    return {"unseen": harmonic, "seen": harmonic, "harmonic": harmonic, "zsl": 50.0, "ausuc": None}


@pytest.fixture(scope="module")
def groups(write_run, tmp_path_factory):
    """Mean H 40, 60, 50 and 49.96, the last two of which print alike; T1 is 50 for all; AUSUC has no value."""
    folder = tmp_path_factory.mktemp("runs")
    for name, harmonic in {"a": 40.0, "b": 60.0, "c_d": 50.0, "e&f": 49.96}.items():
        for seed in (0, 1):
            write_run(folder / name / str(seed), name, seed, scores=_scores(harmonic + (1, -1)[seed]))
    return group_results(find_results([folder]))


def _columns(lines):
    """Cells of a Markdown table by column title."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {table[0][i].strip(): [row[i] for row in table[2:]] for i in range(len(table[0]))}


def test_ranks_go_by_the_printed_digits_and_ties_share_one(groups):
    assert group_ranks(groups, "harmonic") == [None, 1, 2, 2]
    assert group_ranks(groups, "zsl") == [1, 1, 1, 1]
    assert group_ranks(groups, "ausuc") == [None] * 4
    assert group_ranks(groups[:1], "harmonic") == [None]


def test_after_two_bests_there_is_no_second_best(groups):
    assert group_ranks([groups[0], groups[2], groups[3]], "harmonic") == [None, 1, 1]


def test_markdown_has_a_row_per_group_best_bold_second_best_in_italics(groups):
    columns = _columns(markdown_table(results_table(groups)).splitlines())
    spread = statistics.stdev([41, 39])
    assert columns["model"][0] == "classnorm · a"
    assert columns["H"] == [
        f"40.0 ± {spread:.1f}",
        f"**60.0 ± {spread:.1f}**",
        f"*50.0 ± {spread:.1f}*",
        f"*50.0 ± {spread:.1f}*",
    ]
    assert columns["AUSUC"] == ["–"] * 4
    assert columns["seconds"] == ["1.5 ± 0.0"] * 4


def test_the_csv_reads_back_as_numbers_with_mean_and_deviation_apart(groups):
    rows = list(csv.DictReader(io.StringIO(csv_document(groups))))
    assert [row["model"] for row in rows] == [group.label for group in groups]
    assert float(rows[1]["harmonic_mean"]) == pytest.approx(60.0)
    assert float(rows[1]["harmonic_std"]) == pytest.approx(statistics.stdev([59, 61]), abs=1e-4)
    assert rows[0]["ausuc_mean"] == rows[0]["ausuc_std"] == ""
    assert (rows[0]["seeds"], float(rows[0]["train_seconds_mean"])) == ("2", 1.5)
    assert not re.search("[*±]", csv_document(groups))


def test_latex_is_escaped_and_marked(groups):
    text = latex_table(results_table(groups))
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 5
    assert all(len(re.findall(r"(?<!\\)&", row)) == 7 for row in rows)
    assert r"c\_d" in rows[3] and r"e\&f" in rows[4]
    assert r"\textbf{60.0 $\pm$ 1.4}" in rows[2] and r"\underline{50.0 $\pm$ 1.4}" in rows[3]
    assert text.isascii()
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_every_special_character_of_latex_is_escaped():
    text = latex_table(Table("", ["x"], [[Cell("\\ ~ ^ & % $ # _ { }")]])).splitlines()[4]
    assert text == r"\textbackslash{} \textasciitilde{} \textasciicircum{} \& \% \$ \# \_ \{ \} \\"


def test_columns_of_words_are_aligned_on_the_left_and_numbers_on_the_right():
    rows = [["a", "−1.5 [−2, 0]", "CUB", "–"], ["b", "diverged", "SUN", "–"]]
    table = Table.of("", ["model", "ΔH", "data", "none"], rows)
    assert markdown_table(table).splitlines()[1] == "| --- | ---: | --- | ---: |"
    assert r"\begin{tabular}{lrlr}" in latex_table(table)
    assert re.findall(r'<td class="words">(.*?)</td>', html_table(table)) == ["a", "CUB", "b", "SUN"]
    console = Console(width=80, file=io.StringIO())
    console.print(rich_table(table))
    assert " CUB    " in console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_narrow_terminals_show_names_headers_and_numbers_in_several_lines(width):
    console = Console(width=width, file=io.StringIO())
    header = ["model", "seeds", "variance between classes, step 100", *"abcdef"]
    table = Table.of("", header, [["classnorm · reference", "3", "0.987", *["57.8 ± 4.8"] * 6]])
    console.print(rich_table(table))
    shown = "".join(console.file.getvalue().split())
    for word in ("classnorm", "reference", "variance", "step", "0.987"):
        letters = iter(shown)
        assert all(letter in letters for letter in word)  # in this order, perhaps on several lines
    assert shown.count("57.8") == shown.count("4.8") == 6


def test_html_escapes_and_marks(groups):
    text = html_table(results_table(groups), {"classnorm · a": "#123456"})
    assert "e&amp;f" in text
    assert "<b>60.0 ± 1.4</b>" in text and "<u>50.0 ± 1.4</u>" in text
    assert text.count("#123456") == 1


def test_the_terminal_marks_the_best_without_colours(groups):
    console = Console(width=140, file=io.StringIO())
    console.print(terminal_table(groups, "title"))
    lines = console.file.getvalue().splitlines()
    row = {name: next(line for line in lines if f"· {name}" in line) for name in ("a", "b", "c_d")}
    assert "60.0 ± 1.4 *" in row["b"] and "50.0 ± 1.4 +" in row["c_d"]
    assert "40.0 ± 1.4 " in row["a"] and "40.0 ± 1.4 *" not in row["a"]
    assert any("* best" in line for line in lines)


def test_the_documents_hold_results_and_differences(groups):
    compared = {"toy": compare(groups)}
    markdown = markdown_document(groups, compared)
    assert "## toy" in markdown and "against classnorm · b" in markdown and "significance test" in markdown
    assert latex_document(groups, compared).count(r"\begin{tabular}") == 2


def test_runs_with_another_label_are_a_group_of_their_own(write_run, tmp_path):
    for name, label in {"a": "before", "b": "after", "c": None}.items():
        for seed in (0, 1):
            write_run(tmp_path / name / str(seed), seed=seed, **({"label": label} if label else {}))
    found = group_results(find_results([tmp_path]))
    assert [group.label for group in found] == [
        "before: classnorm · reference",
        "after: classnorm · reference",
        "classnorm · reference",
    ]
    assert [len(group.results) for group in found] == [2, 2, 2]
