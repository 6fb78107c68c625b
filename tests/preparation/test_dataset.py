"""The split of images that come without one."""

from __future__ import annotations

import numpy as np
import pytest

from classnorm.data import Split
from classnorm.data.image_table import ImageTable
from classnorm.errors import ClassNormError
from classnorm.preparation.dataset import SplitSettings, with_split

LABELS = np.repeat(np.arange(10), np.arange(1, 11))  # 1 to 10 images of ten classes


def split_of(n_classes: int, hold_out: float | None, seed: int = 0, n_rows: int | None = None) -> Split:
    labels, names = LABELS[:n_rows], tuple(map(str, range(n_classes)))
    split = with_split(
        ImageTable("x", tuple(map(str, range(len(labels)))), labels, names), SplitSettings(hold_out, seed)
    ).split
    assert split is not None
    return split


@pytest.mark.parametrize(
    ("n_classes", "hold_out", "held_out"),
    [(10, None, 2), (12, None, 0), (10, 0.0, 0), (12, 0.5, 5), (10, 0.01, 1), (10, 0.99, 8)],
)
def test_the_share_is_of_the_classes_with_images_and_two_are_always_left(
    n_classes: int, hold_out: float | None, held_out: int
) -> None:
    split = split_of(n_classes, hold_out)
    unseen = set(LABELS[split.test_unseen])
    assert len(unseen) == held_out
    assert unseen.isdisjoint(LABELS[split.train]) and unseen.isdisjoint(LABELS[split.test_seen])
    parts = np.concatenate([split.train, split.test_seen, split.test_unseen])
    np.testing.assert_array_equal(np.sort(parts), np.arange(len(LABELS)))


def test_of_seen_classes_a_fifth_is_tested_and_something_of_each_is_trained_on() -> None:
    split = split_of(10, 0.0)
    assert len(split.test_seen) == pytest.approx(0.2 * len(LABELS), abs=1)
    assert set(LABELS[split.train]) == set(range(10))


def test_the_seed_decides() -> None:
    checksums = [split_of(10, 0.3, seed).checksum for seed in (0, 0, 1)]
    assert checksums[0] == checksums[1] != checksums[2]


def test_two_classes_are_enough_unless_one_is_to_be_held_out() -> None:
    assert not len(split_of(2, None, n_rows=3).test_unseen)
    with pytest.raises(ClassNormError, match="x: 2 classes have images; 3 are needed to hold one out, 2 to train"):
        split_of(2, 0.5, n_rows=3)


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_a_share_is_from_0_to_below_1(share: float) -> None:
    with pytest.raises(ClassNormError, match="it must be a share of the classes"):
        split_of(10, share)
