"""The page of the reproduction: generated whole from the committed numbers, its verdicts recomputed from them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from classnorm.errors import DataError
from classnorm_lab.paper.answer import QUESTIONS, short_answer
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.page import Numbers, Page, known_runs, read_numbers, write_numbers
from classnorm_lab.paper.tables import TABLES
from classnorm_lab.paper.verdicts import Finding, Verdict

DOCS = Path(__file__).parents[3] / "docs" / "reproduction.md"
COMMITTED = {made.name: made for made in read_numbers(DOCS.with_suffix(""))}
MEASURED_TABLES = sorted(set(COMMITTED) & set(TABLES))
SCORINGS = {"calibrated by validation": "harmonic", "as released, s fixed": "released harmonic"}


def recomputed(better, worse, margin):
    """The verdict on a difference, by scipy's paired test instead of our own code."""
    differences = np.subtract(better, worse)
    if differences.mean() <= 0:
        return "does not hold"
    if len(differences) < 2:
        return "holds weakly"
    low = differences.mean() if differences.std() == 0 else stats.ttest_rel(better, worse).confidence_interval(0.95).low
    return "holds" if low > 0 and differences.mean() >= margin else "holds weakly"


def verdict_rows(page):
    """(claim, data, scored, verdict) of every row of the verdict tables of a page."""
    rows = []
    for block in page.split("Do the claims hold here?\n")[1:]:
        for line in block.strip("\n").split("\n\n")[0].splitlines()[2:]:
            cells = [cell.replace("\\", "").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows.append((cells[0], cells[1], cells[2] if len(cells) == 5 else "", cells[-1]))
    return rows


def test_the_committed_page_is_generated_from_the_committed_numbers():
    assert DOCS.read_text(encoding="utf-8") == Page.read(DOCS).text()


def test_the_runs_of_all_tables_are_known_by_their_keys(tmp_path):
    rows = [{"row": r, "setting": "a", "key": r, "diverged": 0, "numbers": {"harmonic": [1.0]}} for r in ("x", "y")]
    write_numbers(tmp_path, Numbers("main", "", {"settings": [], "runs": rows[:1]}))
    write_numbers(tmp_path, Numbers("ns-an-cn", "", {"settings": [], "runs": rows}))
    write_numbers(tmp_path, Numbers("smoothness", "", {"runs": [{"key": ["a", 1], "mean": 2.0}]}))
    assert {key: list(runs.values("harmonic")) for key, runs in known_runs(tmp_path).items()} == {
        "x": [1.0],
        "y": [1.0],
    }


def test_every_picture_of_the_page_is_committed():
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", DOCS.read_text(encoding="utf-8"))
    assert pictures
    assert [name for name in pictures if not (DOCS.parent / name).is_file()] == []


@pytest.mark.parametrize("name", MEASURED_TABLES)
def test_the_verdicts_of_a_table_follow_from_the_numbers_of_its_seeds(name):
    numbers, shown = COMMITTED[name].numbers, verdict_rows(DOCS.read_text(encoding="utf-8"))
    runs = {(run["row"], run["setting"]): run["numbers"] for run in numbers["runs"]}
    settings = [setting for setting in numbers["settings"] if not setting["missing"]]
    checked = 0
    for claim in TABLES[name].claims:
        for setting in settings:
            for scoring, score in SCORINGS.items():
                better, worse = (runs[v.label, setting["name"]][score] for v in (claim.better, claim.worse))
                n = min(len(better), len(worse))
                verdict = recomputed(better[:n], worse[:n], claim.margin)
                assert (f"{claim.text} (by {claim.margin:g} H)", setting["label"], scoring, verdict) in shown
                checked += 1
    assert checked == len(COMMITTED[name].present().verdicts)


def test_every_verdict_of_the_page_is_that_of_the_committed_numbers():
    expected = [
        (verdict.claim, verdict.dataset, verdict.scoring, verdict.verdict)
        for made in COMMITTED.values()
        for verdict in made.present().verdicts
    ]
    assert verdict_rows(DOCS.read_text(encoding="utf-8")) == expected


def test_every_number_of_the_short_answer_is_that_of_the_verdicts():
    page = DOCS.read_text(encoding="utf-8")
    short = page.split("## In short\n")[1].split("\n## ")[0]
    artifacts = [made.present() for made in COMMITTED.values()]
    lines = {line[2:] for line in short.splitlines() if line.startswith("- ")}
    assert len(lines) <= 20, "it is short"
    for question in QUESTIONS:
        verdicts = [
            v
            for a in artifacts
            if a.name in question.items
            for v in a.verdicts
            if v.claim.startswith(question.claims) and v.scoring != "as released, s fixed"
            if question.scored in ("", v.scoring)
        ]
        if verdicts:
            held = sum(v.verdict == "holds" for v in verdicts)
            assert any(line.startswith(f"{question.text}: {held} of {len(verdicts)}") for line in lines)


def test_the_page_names_no_place_of_the_machine_that_made_it():
    for path in [DOCS, *DOCS.with_suffix("").glob("*.json")]:
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users|mnt)/", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_questions_are_about_entries_of_the_catalog(question):
    assert set(question.items) <= set(CATALOG)
    for name in set(question.items) & set(TABLES):
        claims = [f"{claim.text} (by {claim.margin:g} H)" for claim in TABLES[name].claims]
        assert all(any(claim.startswith(start) for claim in claims) for start in question.claims)


def test_the_short_answer_sorts_claims_by_verdict_and_counts_settings():
    def verdicts(claim, judgements, scoring):
        return [
            Verdict(claim, f"data {i}", "", judgement, scoring, difference)
            for i, (judgement, difference) in enumerate(judgements)
        ]

    good = [("holds", 2.0), ("holds", 3.5)]
    mixed = [("holds", 1.0), ("holds weakly", 0.4), ("does not hold", -0.2)]
    bad = [("does not hold", -1.0), ("holds weakly", 0.1)]
    found = [
        *verdicts("CN beats the plain MLP (by 2 H)", good, "calibrated by validation"),
        *verdicts("CN beats the plain MLP (by 2 H)", bad, "as released, s fixed"),
        *verdicts("CN beats standardization alone (by 0.5 H)", mixed, "calibrated by validation"),
        *verdicts("CN beats the plain MLP, no final ReLU (by 2 H)", bad, "calibrated by validation"),
    ]
    text = short_answer([Finding("main", "", "", verdicts=found)])
    hold, weak, fail = re.split(r"\*\*(?:Hold|Hold in part or weakly|Do not hold)\*\*", text)[1:]
    assert "- CN improves the plain MLP: 2 of 2 (0 of 2, weakly in 1); H +2.0 to +3.5.\n" in hold
    assert "standardization alone and the proper variance alone: 1 of 3, weakly in 1; H −0.2 to +1.0.\n" in weak
    assert "which only the release has: 0 of 2, weakly in 1; H −1.0 to +0.1.\n" in fail


@pytest.fixture
def page(tmp_path):
    """A page with one table and what a person wrote."""
    numbers = {
        "settings": [{"name": "tiny", "label": "tiny (own)", "paper": "", "missing": ""}],
        "recipes": {
            "tiny": {
                recipe: dict.fromkeys(("batch_size", "epochs", "entropy_weight", "hidden", "gamma"), 2)
                | {"layers": 3, "lr": 1 / 3}
                for recipe in ("paper", "literal", "reference")
            }
        },
    }
    path = tmp_path / "docs" / "page.md"
    write_numbers(path.with_suffix(""), Numbers("hyperparameters", "--data tiny --seeds 3", numbers))
    (path.with_suffix("") / "introduction.md").write_text("By a person.\n")
    return path


def test_a_page_has_the_text_of_a_person_the_commands_and_the_tables(page):
    made = Page.read(page)
    made.write()
    [finding] = made.findings
    text = page.read_text()
    assert finding.name == "hyperparameters"
    assert "\nBy a person.\n" in text
    assert "classnorm reproduce hyperparameters --data tiny --seeds 3 --docs docs/page.md\n" in text
    assert "classnorm reproduce render --docs docs/page.md\n" in text
    assert "| tiny, literal | 2 | 2 | 0.33333 |" in text


def test_numbers_are_stored_with_five_digits_one_record_a_line(page):
    text = (page.with_suffix("") / "hyperparameters.json").read_text()
    assert '"lr": 0.33333}' in text
    assert json.loads(text)["arguments"] == "--data tiny --seeds 3"
    assert max(map(len, text.splitlines())) < 500


@pytest.mark.parametrize("content", ["{", '{"format": "other"}', "[]"])
def test_a_damaged_file_of_numbers_is_named(page, content):
    (page.with_suffix("") / "hyperparameters.json").write_text(content)
    with pytest.raises(DataError, match=r"hyperparameters\.json: .*`classnorm reproduce hyperparameters`"):
        Page.read(page).write()
    assert not page.exists()


def test_incomplete_numbers_are_named(page):
    write_numbers(page.with_suffix(""), Numbers("main", "", {"settings": []}))
    with pytest.raises(DataError, match=r"main\.json: incomplete numbers"):
        Page.read(page).write()
    assert not page.exists()


def test_no_numbers_are_an_error_that_says_how_to_get_them(tmp_path):
    with pytest.raises(DataError, match="no numbers; measure a table with `docs="):
        Page.read(tmp_path / "page.md")
