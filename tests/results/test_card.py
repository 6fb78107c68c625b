"""The README.md of a run folder: everything in it comes from the document of the result."""

import re

from tests.results.test_run_folder import RUN, STREAM

from classnorm.results.card import run_card, search_card


def rows(card, section):
    """The first cell of each row of the table in a section, with the second."""
    text = card.split(f"## {section}\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {name.replace("\\", ""): value for name, value, *_ in cells[2:]}


def test_the_card_of_a_run_says_what_was_trained_on_what_and_the_scores():
    card = run_card(RUN | {"config": {"hidden": 8, "lr": 0.5}}, ["model.json"])
    assert card.startswith("# classnorm on toy\n")
    assert "seed 0, trained on 3 rows of 3 seen classes in 1.0 seconds" in card
    assert rows(card, "Scores") == {"unseen": "50.0", "seen": "50.0", "harmonic": "50.0", "zsl": "60.0", "ausuc": "–"}
    assert rows(card, "Settings") == {"hidden": "8", "lr": "0.5"}
    assert "checksum `c`" in card


def test_only_files_that_exist_are_listed():
    assert rows(run_card(RUN, ["model.json", ".lock", "mine.txt"]), "Files").keys() == {"result.json", "model.json"}
    assert rows(run_card(STREAM, ["state.safetensors"]), "Files").keys() == {"result.json", "state.safetensors"}


def test_the_card_says_how_the_calibration_was_chosen():
    assert "seen classes: none.\n" in run_card(RUN, [])
    chosen = RUN | {"calibration": "scale:0.9", "validation": {"harmonic": 50.0, "splits": 2, "kind": "matched"}}
    assert "seen classes: scale:0.9, chosen on 2 validation splits of the training rows." in run_card(chosen, [])


def test_the_card_of_a_stream_says_its_tasks_and_who_chose_the_settings():
    card = run_card(STREAM | {"chosen": {"by": "mAUC", "settings": ["final_relu"]}}, [])
    assert "A stream of 1 tasks with 2 classes, learnt one after another from features" in card
    assert "Chosen by mAUC on earlier tasks, which are left out here: final\\_relu." in card
    assert rows(card, "Scores")["mH"] == "50.0"


def test_the_card_of_a_search_has_its_best_trial_and_the_scores_of_the_winner():
    states = [("complete", 40.0), ("complete", 60.0), ("pruned", 70.0)]
    document = {
        "dataset": RUN["dataset"],
        "method": "classnorm",
        "sampler": "tpe",
        "trials": [{"state": state, "harmonic": harmonic} for state, harmonic in states],
        "best": {"lr": 0.5},
        "runs": [{}, {}],
        "scores": RUN["scores"],
    }
    card = search_card(document, ["trials.csv", "fits"])
    assert "Trials: 3 (tpe). The best has a harmonic mean of 60.0" in card and "Seeds: 2." in card
    assert rows(card, "Settings") == {"lr": "0.5"}
    assert rows(card, "Files").keys() == {"trials.csv", "fits"}
    assert "`classnorm train --recipe`" in search_card(document, ["recipe.json"])


def test_names_of_others_do_not_change_the_layout_of_the_card():
    hostile = RUN["dataset"] | {"name": "a | b\n# <script>"}
    card = run_card(RUN | {"dataset": hostile, "command": "classnorm train 'a\n\n<b>'"}, [])
    assert card.startswith("# classnorm on a \\| b # \\<script>\n")
    assert not re.search(r"^(# \\?<|<)", card, re.MULTILINE)
    assert "\n    classnorm train 'a <b>'\n" in card
