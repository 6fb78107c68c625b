"""Search: the winner is the best on validation, and test rows play no part."""

from dataclasses import replace

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, synthetic, validation_dataset
from classnorm.errors import TrainingError
from classnorm.methods import METHODS, Choice, Range, resolve
from classnorm.metrics import best_seen_and_unseen, choose_calibration
from classnorm.runs.engine import Engine
from classnorm.runs.search import SearchConfig, search
from classnorm.scoring import fit

ONE = Engine(jobs=1)
SPACE = {"lr": Choice((1e-4, 3e-3)), "hidden": Choice((16, 32))}


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=40, unseen=10, rows=1200, features=32, attributes=20))


def base(dataset, **changes):
    return resolve(dataset, **({"epochs": 3, "calibration": "validation"} | changes))[1]


def test_a_grid_trial_scores_what_fits_made_by_hand_score(dataset, tmp_path):
    config = SearchConfig(sampler="grid", splits=2)
    trials, _ = search(dataset, "classnorm", base(dataset), SPACE, config, tmp_path, ONE)
    assert [trial.settings for trial in trials] == [{"lr": a, "hidden": b} for a in (1e-4, 3e-3) for b in (16, 32)]
    best_scores = []
    for split in range(2):
        part = validation_dataset(dataset, "matched", split)
        scorer = fit(part, epochs=3, calibration="none", lr=3e-3, hidden=16)
        best_scores.append(
            best_seen_and_unseen(scorer.logits(part.features[part.test_rows]), part.labels[part.test_rows], part.seen)
        )
    calibration, harmonic = choose_calibration(best_scores)
    assert trials[2].harmonic == pytest.approx(harmonic, abs=1e-4)
    assert trials[2].calibration == str(calibration)


def test_the_winner_is_the_best_trial_with_its_calibration(dataset, tmp_path):
    config = SearchConfig(sampler="grid", splits=2)
    trials, best = search(dataset, "classnorm", base(dataset), SPACE, config, tmp_path, ONE)
    winner = max(trials, key=lambda trial: trial.harmonic)
    assert (best.lr, best.hidden, best.calibration) == (*winner.settings.values(), winner.calibration)


def test_neither_test_rows_nor_unseen_classes_play_a_part(dataset, tmp_path):
    generator = np.random.default_rng(0)
    features, descriptors = dataset.features.copy(), dataset.descriptors.copy()
    features[dataset.test_rows] = generator.random((len(dataset.test_rows), 32))
    descriptors[~dataset.seen] = generator.random((10, 20)) + 1
    blinded = replace(dataset, features=features, descriptors=descriptors)
    config = SearchConfig(trials=6, batch=3, splits=2)
    space = {"lr": Range(1e-4, 1e-2, log=True), "hidden": Choice((16, 32))}
    results = [
        search(d, "classnorm", base(d), space, config, tmp_path / n, ONE) for n, d in (("a", dataset), ("b", blinded))
    ]
    assert results[0] == results[1]


def test_settings_that_exclude_each_other_fail_alone(dataset, tmp_path):
    space = {"geometry": Choice((True, False)), "final_relu": Choice((True, False))}
    config = SearchConfig(sampler="grid", splits=1)
    trials, best = search(dataset, "classnorm", base(dataset, hidden=16), space, config, tmp_path, ONE)
    assert [trial.state for trial in trials] == ["failed", "complete", "complete", "complete"]
    assert "final_relu=False" in trials[0].error
    assert not (best.geometry and best.final_relu)


def test_tpe_tries_as_many_trials_as_asked_and_stays_in_its_ranges(dataset, tmp_path):
    space = {"lr": Range(1e-4, 1e-2, log=True), "epochs": Range(1, 3, whole=True)}
    trials, _ = search(
        dataset, "classnorm", base(dataset, hidden=16), space, SearchConfig(trials=7, batch=3, splits=1), tmp_path, ONE
    )
    assert [trial.number for trial in trials] == list(range(7))
    assert all(1e-4 <= trial.settings["lr"] <= 1e-2 and trial.settings["epochs"] in (1, 2, 3) for trial in trials)
    assert len({trial.settings["lr"] for trial in trials}) == 7


@pytest.mark.slow
def test_pruned_trials_cost_fewer_splits_and_never_win(dataset, tmp_path):
    space = {"lr": Range(1e-5, 1e-2, log=True)}
    config = SearchConfig(trials=16, batch=4, splits=3)
    trials, best = search(dataset, "classnorm", base(dataset, hidden=32, epochs=8), space, config, tmp_path, ONE)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned
    assert all(trial.splits < 3 for trial in pruned)
    assert all(trial.splits == 3 for trial in trials if trial.state == "complete")
    assert best.lr not in [trial.settings["lr"] for trial in pruned]


def test_a_trial_that_diverges_is_recorded_and_the_others_go_on(dataset, tmp_path):
    wild = replace(dataset, features=dataset.features * np.float32(1e18))
    space = {"logits": Choice(("cosine", "dot"))}
    trials, best = search(
        wild, "classnorm", base(wild, lr=1e18, hidden=16), space | {"lr": Choice((1e-3, 1e18))},
        SearchConfig(sampler="grid", splits=1), tmp_path, ONE,
    )  # fmt: skip
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed
    assert "diverged" in failed[0].error
    assert best.lr == 1e-3


def test_if_every_trial_fails_the_search_says_why(dataset, tmp_path):
    wild = replace(dataset, features=dataset.features * np.float32(1e18))
    space = {"lr": Choice((1e30, 1e31))}
    with pytest.raises(TrainingError, match="every trial failed; the first said: training diverged"):
        search(
            wild,
            "classnorm",
            base(wild, logits="dot", hidden=16),
            space,
            SearchConfig(sampler="grid", splits=1),
            tmp_path,
            ONE,
        )


@pytest.mark.slow
def test_two_processes_find_the_same_as_one(dataset, tmp_path, monkeypatch):
    import torch

    torch.set_num_threads(1)  # as the workers have: more threads may add in another order
    config = SearchConfig(trials=6, batch=3, splits=2)
    space = {"lr": Range(1e-4, 1e-2, log=True)}
    results = [
        search(dataset, "classnorm", base(dataset, hidden=16), space, config, tmp_path / str(jobs), Engine(jobs=jobs))
        for jobs in (1, 2)
    ]
    assert results[0] == results[1]


def test_a_search_starts_no_trial_after_its_seconds_are_over(dataset, tmp_path):
    settings = SearchConfig(trials=9, batch=2, splits=1, seconds=1e-6)
    trials, _ = search(dataset, "eszsl", resolve(dataset, "eszsl")[1], METHODS["eszsl"].space, settings, tmp_path, ONE)
    assert len(trials) == 2
    again, _ = search(dataset, "eszsl", resolve(dataset, "eszsl")[1], METHODS["eszsl"].space, settings, tmp_path, ONE)
    assert again == trials
