"""`classnorm evaluate`: the scores of a run again, from its files alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classnorm import Scorer
from classnorm.data import ZeroShotDataset, save_bundle


def scores(outcome: Any) -> dict[str, float]:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)["scores"]


@pytest.fixture
def recorded(trained) -> dict[str, float]:
    return json.loads((trained / "result.json").read_text())["scores"]


def test_evaluating_a_run_gives_exactly_the_scores_it_recorded(classnorm, trained, world, recorded):
    assert scores(classnorm("evaluate", trained, world.bundle, "--json")) == recorded


def test_scores_agree_with_a_count_of_right_answers(classnorm, trained, world):
    data, rows = world.data, world.data.split.test_seen
    right = np.array(Scorer.load(trained).predict(data.features[rows])) == np.array(data.class_names)[data.labels[rows]]
    by_class = [right[data.labels[rows] == c].mean() for c in np.unique(data.labels[rows])]
    seen = scores(classnorm("evaluate", trained, world.bundle, "--json"))["seen"]
    assert seen == pytest.approx(100 * np.mean(by_class), abs=1e-3)


@pytest.fixture
def uneven(world, tmp_path) -> Path:
    """`world` with most test rows of two thirds of the classes taken out."""
    split, labels, generator = world.data.split, world.data.labels, np.random.default_rng(0)

    def thinned(rows: np.ndarray) -> np.ndarray:
        return rows[(labels[rows] % 3 == 0) | (generator.random(len(rows)) < 0.3)]

    thin = replace(split, test_seen=thinned(split.test_seen), test_unseen=thinned(split.test_unseen))
    save_bundle(replace(world.data, split=thin), tmp_path / "uneven.npz")
    return tmp_path / "uneven.npz"


def test_averaging_over_samples_gives_other_scores_where_classes_differ_in_size(classnorm, trained, uneven):
    by_class = scores(classnorm("evaluate", trained, uneven, "--json"))
    by_sample = scores(classnorm("evaluate", trained, uneven, "--average", "sample", "--json"))
    assert by_class["seen"] != by_sample["seen"]


def test_averaging_over_samples_is_the_share_of_right_answers(classnorm, trained, world, uneven):
    with np.load(uneven) as archive:
        rows = archive["test_unseen_idx"]
    names = np.array(world.data.class_names)[world.data.labels[rows]]
    right = np.array(Scorer.load(trained).predict(world.data.features[rows])) == names
    by_sample = scores(classnorm("evaluate", trained, uneven, "--average", "sample", "--json"))
    assert by_sample["unseen"] == pytest.approx(100 * right.mean(), abs=1e-3)


def test_a_calibration_given_here_replaces_the_models_own(classnorm, trained, world, recorded):
    biased = scores(classnorm("evaluate", trained, world.bundle, "--calibration", "bias:3", "--json"))
    assert biased["unseen"] > recorded["unseen"] and biased["seen"] < recorded["seen"]
    assert biased["zsl"] == recorded["zsl"]


def test_a_converted_folder_gives_the_same_scores(classnorm, trained, world, tmp_path, recorded):
    classnorm("data", "convert", world.bundle, tmp_path / "folder")
    which = ["--features", "features", "--attributes", "original_att"]
    assert scores(classnorm("evaluate", trained, tmp_path / "folder", *which, "--json")) == recorded


def test_classes_are_joined_by_name_and_not_by_position(classnorm, trained, world, tmp_path, recorded):
    order = np.random.default_rng(0).permutation(world.data.n_classes)  # new class i is old class order[i]
    shuffled = replace(
        world.data,
        class_names=tuple(world.data.class_names[c] for c in order),
        descriptors=world.data.descriptors[order],
        labels=np.argsort(order)[world.data.labels],
    )
    save_bundle(shuffled, tmp_path / "shuffled.npz")
    assert scores(classnorm("evaluate", trained, tmp_path / "shuffled.npz", "--json")) == pytest.approx(recorded)


def test_classes_that_training_did_not_know_take_part(classnorm, trained, world, tmp_path):
    names = list(world.descriptors)
    data = ZeroShotDataset.from_arrays(
        np.concatenate([world.data.features, world.features]),
        np.concatenate([world.data.labels, [35 + names.index(name) for name in world.truth]]),
        np.concatenate([world.data.descriptors, np.stack(list(world.descriptors.values()))]),
        [*world.data.class_names, *names],
        train=world.data.split.train,
        test_seen=world.data.split.test_seen,
        test_unseen=np.arange(len(world.features)) + world.data.n_rows,
    )
    save_bundle(data, tmp_path / "more.npz")
    assert scores(classnorm("evaluate", trained, tmp_path / "more.npz", "--json"))["zsl"] > 30  # chance: 10


def test_without_json_a_table_is_printed(classnorm, trained, world):
    outcome = classnorm("evaluate", trained, world.bundle)
    assert "AUSUC" in outcome.out and "calibration: none" in outcome.out
