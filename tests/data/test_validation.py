"""Validation splits: made of training rows alone, in the promised shares, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classnorm.data import SplitKind, ZeroShotDataset, validation_dataset
from classnorm.data.validation import hold_out, hold_out_rows
from classnorm.errors import DataError

KINDS: tuple[SplitKind, ...] = ("paper", "matched")


def make(rows_per_class: list[int], unseen: int) -> ZeroShotDataset:
    """Seen classes with so many training rows and one test row each, then unseen classes of 3 rows."""
    labels = np.concatenate(
        [np.repeat(np.arange(len(rows_per_class)), np.array(rows_per_class) + 1), np.repeat(np.arange(unseen), 3)]
    )
    n_seen_rows = sum(rows_per_class) + len(rows_per_class)
    labels[n_seen_rows:] += len(rows_per_class)
    order = np.random.default_rng(0).permutation(len(labels))  # rows of a class lie anywhere
    labels = labels[order]
    n_seen = len(rows_per_class)
    first = {int(c): int(np.flatnonzero(labels == c)[0]) for c in range(n_seen)}
    rows = np.arange(len(labels))
    is_first = np.isin(rows, list(first.values()))
    return ZeroShotDataset.from_arrays(
        np.arange(len(labels), dtype=np.float32)[:, None],
        labels,
        np.eye(n_seen + unseen) + 1,
        [f"c{i}" for i in range(n_seen + unseen)],
        train=rows[(labels < n_seen) & ~is_first],
        test_seen=rows[is_first],
        test_unseen=rows[labels >= n_seen],
        name="zoo",
    )


datasets = st.builds(make, st.lists(st.integers(1, 9), min_size=3, max_size=14), st.integers(0, 6))


@settings(max_examples=60, deadline=None)
@given(datasets, st.sampled_from(KINDS), st.integers(0, 2**31))
def test_a_split_uses_each_training_row_once_and_no_other(parent, kind, seed):
    split = validation_dataset(parent, kind, seed).split
    used = [*split.train, *split.test_seen, *split.test_unseen]
    assert sorted(used) == sorted(parent.split.train)


@settings(max_examples=60, deadline=None)
@given(datasets, st.sampled_from(KINDS), st.integers(0, 2**31))
def test_whole_classes_are_held_out(parent, kind, seed):
    split = validation_dataset(parent, kind, seed).split
    held_out = set(parent.labels[split.test_unseen])
    assert held_out and not held_out & set(parent.labels[[*split.train, *split.test_seen]])


@settings(max_examples=60, deadline=None)
@given(datasets, st.sampled_from(KINDS), st.integers(0, 2**31))
def test_every_remaining_class_keeps_a_training_row(parent, kind, seed):
    split = validation_dataset(parent, kind, seed).split
    remaining = set(parent.labels[parent.split.train]) - set(parent.labels[split.test_unseen])
    assert set(parent.labels[split.train]) == remaining
    assert len(remaining) >= 2


@settings(max_examples=60, deadline=None)
@given(datasets, st.sampled_from(KINDS), st.integers(0, 2**31))
def test_a_split_passes_the_door_again(parent, kind, seed):
    part = validation_dataset(parent, kind, seed)
    rows = np.sort(parent.split.train)
    position = {row: i for i, row in enumerate(rows)}
    again = ZeroShotDataset.from_arrays(
        part.features[rows],
        part.labels[rows],
        part.descriptors,
        part.class_names,
        train=[position[row] for row in part.split.train],
        test_seen=[position[row] for row in part.split.test_seen],
        test_unseen=[position[row] for row in part.split.test_unseen],
    )
    assert again.seen.tolist() == part.seen.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_descriptors_are_those_of_the_seen_classes_alone(kind):
    parent = make([4, 5, 6, 7, 4, 5], unseen=3)
    part = validation_dataset(parent, kind)
    assert part.class_names == ("c0", "c1", "c2", "c3", "c4", "c5")
    np.testing.assert_array_equal(part.descriptors, parent.descriptors[:6])


def test_names_follow_their_classes_where_unseen_ones_lie_between():
    parent = ZeroShotDataset.from_arrays(
        np.zeros((9, 1)),
        [0, 0, 1, 2, 2, 3, 4, 4, 4],
        np.eye(5),
        ["a", "unseen b", "c", "unseen d", "e"],
        train=[0, 1, 3, 4, 6, 7, 8],
        test_unseen=[2, 5],
    )
    part = validation_dataset(parent)
    assert part.class_names == ("a", "c", "e")
    names = [part.class_names[c] for c in part.labels[parent.split.train]]
    assert names == ["a", "a", "c", "c", "e", "e", "e"]


@pytest.mark.parametrize(("n_seen", "held_out"), [(20, 3), (40, 6), (49, 7), (50, 5), (100, 10), (150, 15)])
def test_paper_holds_out_a_tenth_of_the_classes_or_15_percent_below_50(n_seen, held_out):
    part = validation_dataset(make([10] * n_seen, unseen=7), "paper")
    assert int((~part.seen).sum()) == held_out


@pytest.mark.parametrize(("n_seen", "unseen", "held_out"), [(150, 50, 38), (40, 10, 8), (10, 10, 5), (12, 0, 1)])
def test_matched_holds_out_the_datasets_own_share_of_classes(n_seen, unseen, held_out):
    part = validation_dataset(make([10] * n_seen, unseen), "matched")
    # The share of unseen classes among all, e.g. 50 of 200; 37.5 rounds to 38.
    assert int((~part.seen).sum()) == held_out


@pytest.mark.parametrize(("kind", "share"), [("paper", 0.1), ("matched", 0.2)])
@pytest.mark.parametrize("rows_per_class", [2, 3, 4, 10, 40])
def test_the_promised_share_of_the_remaining_rows_is_held_out(kind, share, rows_per_class):
    split = validation_dataset(make([rows_per_class] * 60, unseen=20), kind).split
    remaining = len(split.train) + len(split.test_seen)
    assert len(split.test_seen) / remaining == pytest.approx(share, rel=0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_rows_come_from_all_remaining_classes_where_there_are_enough(kind):
    parent = make([20] * 12, unseen=4)
    split = validation_dataset(parent, kind).split
    assert set(parent.labels[split.test_seen]) == set(parent.labels[split.train])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_split(kind):
    parent = make([6] * 20, unseen=5)
    assert validation_dataset(parent, kind, 3).checksum == validation_dataset(parent, kind, 3).checksum


@pytest.mark.parametrize("kind", KINDS)
def test_different_seeds_hold_out_different_classes(kind):
    parent = make([6] * 30, unseen=10)
    held_out = {tuple(np.flatnonzero(~validation_dataset(parent, kind, seed).seen)) for seed in range(6)}
    assert len(held_out) == 6


def test_a_split_of_a_split_never_sees_what_the_first_held_out():
    first = validation_dataset(make([8] * 20, unseen=5), "matched", 0)
    second = validation_dataset(first, "matched", 0)
    used = {*second.split.train, *second.split.test_seen, *second.split.test_unseen}
    assert used == set(first.split.train)


@pytest.mark.parametrize("kind", KINDS)
def test_two_seen_classes_are_too_few_and_the_error_says_what_to_do(kind):
    with pytest.raises(DataError, match=r'zoo: 2 seen classes are too few .*use `calibration="none"`'):
        validation_dataset(make([5, 5], unseen=3), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_three_seen_classes_are_enough(kind):
    part = validation_dataset(make([5, 5, 5], unseen=9), kind)
    assert int(part.seen.sum()) == 2
    assert len(part.split.test_seen) >= 1


@given(datasets, st.integers(1, 20), st.integers(0, 2**31))
def test_nothing_of_the_test_set_is_in_a_held_out_part(parent, n_classes, seed):
    part = hold_out(parent, n_classes, None, seed)
    used = [*part.split.train, *part.split.test_seen, *part.split.test_unseen]
    assert sorted(used) == sorted(parent.split.train)
    assert set(part.class_names) == {parent.class_names[c] for c in np.flatnonzero(parent.seen)}
    assert int((~part.seen).sum()) == min(n_classes, int(parent.seen.sum()) - 2)


@pytest.mark.parametrize("rows", [[8] * 20, [3, 9, 5, 7] * 5, [40, 2, 2, 2] * 5])
@pytest.mark.parametrize("n_classes", [1, 4])
def test_without_a_share_as_many_rows_of_other_classes_are_held_out(rows, n_classes):
    split = hold_out(make(rows, unseen=5), n_classes, None, 0).split
    assert len(split.test_seen) == pytest.approx(len(split.test_unseen), abs=1)


def test_at_most_half_of_the_other_rows_are_held_out():
    split = hold_out(make([8] * 10, unseen=5), 8, None, 0).split
    assert (len(split.test_unseen), len(split.test_seen), len(split.train)) == (64, 8, 8)


def test_a_share_of_the_other_rows_can_be_held_out():
    split = hold_out(make([10] * 10, unseen=5), 2, 0.3, 0).split
    assert (len(split.test_unseen), len(split.test_seen), len(split.train)) == (20, 24, 56)


def test_two_seeds_hold_out_different_classes():
    parent = make([8] * 20, unseen=5)
    first, again, other = (hold_out(parent, 5, None, seed) for seed in (0, 0, 1))
    assert first.checksum == again.checksum != other.checksum
    assert first.name == "zoo (without 5 classes, split 0)"


@settings(max_examples=60, deadline=None)
@given(datasets)
def test_folds_hold_out_every_row_once_but_no_class_entirely(parent):
    counts = np.bincount(parent.labels[parent.split.train], minlength=parent.n_classes)
    folds = [hold_out_rows(parent, fold, 3) for fold in range(3)]
    held_out = np.sort(np.concatenate([fold.split.test_seen for fold in folds]))
    assert held_out.tolist() == sorted(row for row in parent.split.train if counts[parent.labels[row]] > 1)
    for fold in folds:
        assert sorted([*fold.split.train, *fold.split.test_seen]) == sorted(parent.split.train)
        assert not len(fold.split.test_unseen)
        assert fold.seen.tolist() == parent.seen.tolist()
        assert fold.class_names == parent.class_names
