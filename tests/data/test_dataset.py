"""The door: every mistake is refused with its file, row or class; what is legal is let in as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.data import Split, ZeroShotDataset
from classnorm.errors import DataError

Arrays = dict[str, Any]
NAMES = {"train_idx": "train", "test_seen_idx": "test_seen", "test_unseen_idx": "test_unseen"}


def build(arrays: Arrays, **more: Any) -> ZeroShotDataset:
    return ZeroShotDataset.from_arrays(**{NAMES.get(key, key): value for key, value in arrays.items()}, **more)


def changed(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[index] = value
    return copy


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_that_is_not_finite_is_named(arrays, value, dtype):
    arrays["features"] = changed(arrays["features"].astype(dtype), (17, 2), value)
    with pytest.raises(DataError, match=r"zoo\.npz: features of row 17 \(0-based\) hold NaN or infinity"):
        build(arrays, where="zoo.npz")


def test_a_bad_row_far_into_the_data_is_named_by_its_own_number(arrays):
    features = np.zeros((10_000, 3), dtype=np.float32)
    features[9_123, 1] = np.nan
    with pytest.raises(DataError, match="row 9123 "):
        ZeroShotDataset.from_arrays(features, np.zeros(10_000), np.eye(2), ["a", "b"], train=[0])


def test_infinities_of_both_signs_do_not_cancel_out(arrays):
    arrays["features"] = changed(changed(arrays["features"], (3, 0), np.inf), (4, 0), -np.inf)
    with pytest.raises(DataError, match=r"zoo: .*row 3 "):
        build(arrays, where="zoo")


def test_values_that_float32_cannot_hold_are_refused(arrays):
    arrays["features"] = changed(arrays["features"].astype(np.float64), (2, 0), 1e300)
    with pytest.raises(DataError, match="row 2 "):
        build(arrays)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros(30), "must be a numeric matrix"),
        (np.zeros((30, 2, 2)), "must be a numeric matrix"),
        (np.full((30, 2), "x"), "must be a numeric matrix"),
        (np.zeros((30, 2), dtype=complex), "must be a numeric matrix"),
        (np.zeros((30, 0)), "no columns"),
        (np.zeros((29, 7)), "30 labels for 29 rows"),
    ],
)
def test_features_that_are_no_matrix_of_the_rows_are_refused(arrays, features, message):
    with pytest.raises(DataError, match=rf"zoo: .*{message}"):
        build(arrays | {"features": features}, where="zoo")


@pytest.mark.parametrize("label", [-1, 5, 99])
def test_a_label_out_of_range_is_named_with_its_row(arrays, label):
    arrays["labels"] = changed(arrays["labels"], 11, label)
    with pytest.raises(DataError, match=rf"zoo: label {label} of row 11 \(0-based\) is out of range; .*0 to 4"):
        build(arrays, where="zoo")


@pytest.mark.parametrize("labels", [np.full(30, x) for x in (0.5, np.nan, np.inf, 1e300, "ant")])
def test_labels_that_are_not_whole_numbers_are_refused(arrays, labels):
    with pytest.raises(DataError, match="zoo: labels must be whole numbers"):
        build(arrays | {"labels": labels}, where="zoo")


def test_labels_may_be_whole_floats_in_a_column(arrays):
    data = build(arrays | {"labels": arrays["labels"].astype(float)[:, None]})
    assert data.labels.dtype == np.int64 and data.labels.tolist() == arrays["labels"].tolist()


@pytest.mark.parametrize("part", NAMES)
@pytest.mark.parametrize("row", [-1, 30])
def test_a_split_row_out_of_range_is_named(arrays, part, row):
    arrays[part] = np.append(arrays[part], row)
    with pytest.raises(DataError, match=rf"zoo: {NAMES[part]} names row {row} \(0-based\), but there are 30 rows"):
        build(arrays, where="zoo")


@pytest.mark.parametrize("part", NAMES)
def test_a_row_listed_twice_is_named(arrays, part):
    arrays[part] = np.append(arrays[part], arrays[part][0])
    with pytest.raises(DataError, match=rf"{NAMES[part]} names row {arrays[part][0]} \(0-based\) twice"):
        build(arrays)


@pytest.mark.parametrize(
    ("one", "other"),
    [("train_idx", "test_seen_idx"), ("train_idx", "test_unseen_idx"), ("test_seen_idx", "test_unseen_idx")],
)
def test_parts_that_share_a_row_are_refused(arrays, one, other):
    row = arrays[one][-1]
    arrays[other] = np.append(arrays[other], row)
    with pytest.raises(
        DataError, match=rf"zoo: 1 rows are in both {NAMES[one]} and {NAMES[other]} \(first: row {row}, 0-based"
    ):
        build(arrays, where="zoo")


def test_an_unseen_class_among_the_training_rows_is_named(arrays):
    arrays["train_idx"] = np.append(arrays["train_idx"], 20)
    arrays["test_unseen_idx"] = np.setdiff1d(arrays["test_unseen_idx"], [20])
    with pytest.raises(DataError, match="zoo: class 'okapi' is among the test rows of unseen classes and has training"):
        build(arrays, where="zoo")


def test_a_seen_test_row_of_a_class_without_training_rows_is_named(arrays):
    arrays["test_seen_idx"] = np.append(arrays["test_seen_idx"], 29)
    arrays["test_unseen_idx"] = np.setdiff1d(arrays["test_unseen_idx"], [29])
    with pytest.raises(DataError, match="class 'zebra' is among the test rows of seen classes but has no training row"):
        build(arrays)


def test_no_training_rows_are_refused(arrays):
    with pytest.raises(DataError, match="zoo: no training rows"):
        build(arrays | {"train_idx": []}, where="zoo")


@pytest.mark.parametrize(
    ("descriptors", "message"),
    [
        (np.ones((4, 3)), "4 descriptors for 5 class names"),
        (np.ones(5), "must be a numeric table"),
        (np.ones((5, 0)), "must be a numeric table"),
        (np.full((5, 2), "x"), "must be a numeric table"),
        (changed(np.ones((5, 2)), (3, 1), np.nan), "descriptor of class 'okapi' holds NaN or infinity"),
        (changed(np.ones((5, 2)), (3, 1), 1e300), "descriptor of class 'okapi' holds NaN or infinity"),
        (changed(np.ones((5, 2)), 4, 0), "descriptor of class 'zebra' is all zero"),
    ],
)
def test_descriptors_that_describe_nothing_are_refused(arrays, descriptors, message):
    with pytest.raises(DataError, match=f"zoo: .*{message}"):
        build(arrays | {"descriptors": descriptors}, where="zoo")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ant", "bee", "cow", "bee", "zebra"], "class name 'bee' occurs twice"),
        (["ant", "bee"], "5 descriptors for 2 class names"),
        (["ant"], "1 class names; at least 2 classes"),
        ([], "0 class names; at least 2 classes"),
    ],
)
def test_class_names_must_be_distinct_and_one_for_each_class(arrays, names, message):
    with pytest.raises(DataError, match=message):
        build(arrays | {"class_names": names})


@pytest.mark.parametrize("column", ["image_files", "is_train", "images"])
def test_a_column_that_lacks_a_row_is_refused(arrays, column):
    with pytest.raises(DataError, match=f"{column} has 29 entries for 30 rows"):
        build(arrays, **{column: np.ones(29)})


def test_a_class_without_any_row_is_legal_and_noticed(arrays):
    arrays["class_names"] = [*arrays["class_names"], "quagga"]
    arrays["descriptors"] = np.vstack([arrays["descriptors"], np.ones(4)])
    notices = build(arrays).notices
    assert len(notices) == 1
    assert "1 class has no training or test row (quagga)" in notices[0]


def test_a_dataset_without_unseen_test_rows_is_legal_and_noticed(arrays):
    notices = build(arrays | {"test_unseen_idx": []}).notices
    assert any("no test rows of unseen classes" in notice for notice in notices)


def test_a_complete_dataset_needs_no_notice(arrays):
    assert build(arrays).notices == []


def test_seen_classes_are_those_with_training_rows(arrays):
    assert build(arrays).seen.tolist() == [True, True, True, False, False]


def test_sizes_count_what_was_given(arrays):
    assert build(arrays).sizes == {
        "rows": 30,
        "train_rows": 12,
        "test_seen_rows": 6,
        "test_unseen_rows": 12,
        "classes": 5,
        "seen_classes": 3,
        "unseen_classes": 2,
        "feature_dim": 7,
        "descriptor_dim": 4,
    }


def test_positions_come_from_the_shape_of_the_maps_in_the_provenance(arrays):
    arrays["features"] = np.ones((30, 2 * 3 * 5), np.float32)
    assert build(arrays).positions == 1
    assert build(arrays, provenance={"maps": "2x3x5"}).positions == 6


@pytest.mark.parametrize("shape", ["2x2x2", "7", "1xx7", "-1x-1x7"])
def test_a_shape_of_maps_that_does_not_fit_is_named(arrays, shape):
    with pytest.raises(DataError, match=rf"maps={shape} .* does not fit features of 7 dimensions"):
        _ = build(arrays, provenance={"maps": shape}).positions


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, bool, ">f4"])
def test_other_types_of_features_become_float32(arrays, dtype):
    given_features = (arrays["features"] > 0.5).astype(dtype)
    features = build(arrays | {"features": given_features}).features
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, given_features)


def test_a_memory_map_is_kept_and_not_copied(arrays, tmp_path):
    np.save(tmp_path / "x.npy", arrays["features"])
    features = build(arrays | {"features": np.load(tmp_path / "x.npy", mmap_mode="r")}).features
    assert isinstance(features, np.memmap)


def test_the_checksum_does_not_depend_on_memory_layout(arrays):
    turned = build(arrays | {"features": np.asfortranarray(arrays["features"])})
    assert turned.checksum == build(arrays).checksum


@pytest.mark.parametrize(
    "change",
    [
        {"features": lambda a: changed(a, (29, 6), 0.5)},
        {"labels": lambda a: changed(a, [18, 24], [4, 3])},
        {"descriptors": lambda a: changed(a, (4, 3), 0.25)},
        {"class_names": lambda a: changed(a, 0, "aunt"[:5])},
        {"train_idx": lambda a: a[1:]},
        {"test_unseen_idx": lambda a: a[1:]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_checksum_sees_every_part(arrays, change):
    other = arrays | {key: edit(arrays[key]) for key, edit in change.items()}
    assert build(other).checksum != build(arrays).checksum


@given(st.permutations(range(8)))
def test_the_split_checksum_does_not_depend_on_the_order_of_rows(order):
    empty = np.zeros(0, dtype=np.int64)
    shuffled = Split(np.array(order), empty, empty)
    assert shuffled.checksum == Split(np.arange(8), empty, empty).checksum


def test_the_split_checksum_tells_the_parts_apart():
    one, two, empty = np.array([1]), np.array([2]), np.zeros(0, dtype=np.int64)
    checksums = {Split(*parts).checksum for parts in [(one, two, empty), (one, empty, two), (two, one, empty)]}
    assert len(checksums) == 3


def test_test_rows_are_the_seen_then_the_unseen(arrays):
    assert build(arrays).test_rows.tolist() == [*arrays["test_seen_idx"], *arrays["test_unseen_idx"]]


def test_classes_that_are_left_out_take_their_rows_along(arrays):
    whole = build(arrays)
    kept = np.array([4, 0, 2])
    rest = whole.restricted(kept)
    assert rest.class_names == ("zebra", "ant", "cow")
    for rows, all_rows in ((rest.test_rows, whole.test_rows), (rest.split.train, whole.split.train)):
        was = np.array(whole.class_names)[whole.labels[all_rows]]
        now = np.array(rest.class_names)[rest.labels[rows]]
        np.testing.assert_array_equal(now, was[np.isin(was, rest.class_names)])
    np.testing.assert_array_equal(rest.descriptors, whole.descriptors[kept])
