"""Inspections find planted duplicates, leaks and oddities, and nothing in a clean dataset."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.spatial.distance
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from classnorm.data import SyntheticConfig, ZeroShotDataset, duplicates, load_bundle, save_bundle, synthetic
from classnorm.data.duplicates import nearest_rows
from classnorm.data.inspection import Inspection, inspect_dataset
from classnorm.progress import Progress

NAMES = ("ant", "bee", "cow", "okapi", "zebra")
LABELS = np.repeat(np.arange(5), 6)  # rows 0–5 are ants, and so on; okapi and zebra are unseen
ROWS = np.arange(30)
TRAIN = ROWS[(LABELS < 3) & (ROWS % 6 < 4)]


def arrays() -> dict[str, Any]:
    """A dataset with nothing wrong."""
    generator = np.random.default_rng(5)
    return {
        "features": generator.random((30, 8), dtype=np.float32),
        "labels": LABELS.copy(),
        "descriptors": generator.uniform(0.5, 2.0, (5, 4)).astype(np.float32),
        "class_names": NAMES,
        "train": TRAIN,
        "test_seen": ROWS[(LABELS < 3) & (ROWS % 6 >= 4)],
        "test_unseen": ROWS[LABELS >= 3],
    }


def inspect(content: dict[str, Any], **options: Any) -> Inspection:
    return inspect_dataset(ZeroShotDataset.from_arrays(**content), **options)


def the_warning(inspection: Inspection) -> str:
    assert inspection.verdict == "usable, with warnings"
    (warning,) = inspection.warnings
    return warning


def test_a_dataset_with_nothing_wrong_is_ready_to_train():
    inspection = inspect(arrays())
    assert (inspection.warnings, inspection.verdict) == ((), "ready to train")


def test_the_record_is_plain_json_and_identifies_the_dataset():
    data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=8))
    document = json.loads(json.dumps(inspect_dataset(data).as_dict(), allow_nan=False))
    assert document["sizes"] == data.sizes
    assert (document["checksum"], document["split_checksum"]) == (data.checksum, data.split.checksum)


# ---- Features ----------------------------------------------------------------------------------------------


def test_feature_statistics_are_those_of_the_whole_matrix():
    content = arrays()
    content["features"][:, 3] = 7.0
    content["features"][::4, 0] = 0.0
    features, facts = content["features"], inspect(content).features
    assert (facts.min, facts.max) == (features.min(), np.float32(7.0))
    assert facts.constant_columns == 1
    assert facts.zero_share == pytest.approx(8 / 240)
    assert facts.mean_norm == pytest.approx(scipy.linalg.norm(features.astype(float), axis=1).mean())


def test_features_of_either_sign_come_with_the_flag_to_use():
    content = arrays()
    content["features"][2, 2] = -0.25
    assert "either sign (down to -0.25): train with `final_relu=False`" in the_warning(inspect(content))


def test_all_zero_rows_are_counted_and_the_first_is_named():
    content = arrays()
    content["features"][[9, 6]] = 0.0  # both bees
    inspection = inspect(content)
    assert (inspection.features.zero_rows, inspection.features.first_zero_rows) == (2, (6, 9))
    assert the_warning(inspection).startswith("2 rows of features are all zero (first: row 6)")


def test_many_constant_columns_are_a_warning():
    content = arrays()
    content["features"][:, :2] = 1.0
    assert the_warning(inspect(content)).startswith("2 of 8 feature columns are constant")


@pytest.mark.filterwarnings("error")
def test_huge_and_tiny_values_neither_overflow_nor_vanish():
    content = arrays()
    content["features"][TRAIN] *= 3e38
    content["features"][[4, 5]] *= 1e-38
    inspection = inspect(content)
    assert (
        inspection.features.mean_norm > 1e38 and inspection.duplicates.near == 0 and inspection.features.zero_rows == 0
    )


# ---- Classes -----------------------------------------------------------------------------------------------


def imbalanced(*train_rows: int) -> dict[str, Any]:
    """Seen classes with so many training rows, and a test row each."""
    labels = np.repeat(np.arange(len(train_rows)), np.array(train_rows) + 1)
    test = np.cumsum(np.array(train_rows) + 1) - 1
    generator = np.random.default_rng(1)
    return {
        "features": generator.random((len(labels), 16)),
        "labels": labels,
        "descriptors": generator.uniform(0.5, 2.0, (len(train_rows), 4)),
        "class_names": [f"c{i}" for i in range(len(train_rows))],
        "train": np.setdiff1d(np.arange(len(labels)), test),
        "test_seen": test,
    }


def test_the_smallest_classes_are_named_in_order():
    facts = inspect(imbalanced(9, 3, 40, 2, 8, 11)).classes
    assert list(facts.smallest.items()) == [("c3", 2), ("c1", 3), ("c4", 8), ("c0", 9), ("c5", 11)]
    assert (facts.train_rows.min, facts.train_rows.median, facts.train_rows.max) == (2, 8.5, 40)
    assert facts.imbalance == 20


def test_a_strong_imbalance_is_a_warning_that_names_the_smallest_class():
    warnings = inspect(imbalanced(60, 3, 30)).warnings
    assert any("20 times the training rows of the smallest ('c1', 3)" in text for text in warnings)
    assert not any("times the training rows" in text for text in inspect(imbalanced(59, 3, 30)).warnings)


def test_classes_with_a_single_training_row_are_a_warning():
    warnings = inspect(imbalanced(5, 1, 6, 1)).warnings
    assert any(text.startswith("2 seen classes have a single training row (c1, c3)") for text in warnings)


def test_test_rows_are_counted_per_class_of_each_side():
    content = arrays()
    content["test_seen"], content["test_unseen"] = [4, 5, 10], [18, 19, 20, 24]
    inspection = inspect(content)
    seen, unseen = inspection.classes.test_seen_rows, inspection.classes.test_unseen_rows
    assert seen is not None and (seen.min, seen.max) == (1, 2)
    assert unseen is not None and (unseen.min, unseen.max) == (1, 3)
    assert inspection.leaks.unused_rows == 30 - 12 - 7
    assert the_warning(inspection) == "1 seen class has no test row: left out of the seen accuracy"


def test_notices_of_the_dataset_are_warnings():
    content = arrays()
    content["test_unseen"] = ROWS[LABELS == 3]
    inspection = inspect(content)
    assert inspection.classes.without_rows == ("zebra",)
    assert inspection.warnings == inspection.notices == tuple(ZeroShotDataset.from_arrays(**content).notices)


# ---- Attributes --------------------------------------------------------------------------------------------


def test_equal_descriptors_of_a_seen_and_an_unseen_class_are_named():
    content = arrays()
    content["descriptors"][4] = 3 * content["descriptors"][1]  # the length does not count
    inspection = inspect(content)
    (pair,) = inspection.attributes.first_equal_pairs
    assert (pair.one, pair.one_seen, pair.other, pair.other_seen) == ("bee", True, "zebra", False)
    assert the_warning(inspection).startswith(
        "1 pair of classes has the same descriptor, 1 with an unseen class (first: 'bee' and 'zebra')"
    )


def test_pairs_with_an_unseen_class_come_before_pairs_of_seen_ones():
    content = arrays()
    content["descriptors"][2] = content["descriptors"][0]
    content["descriptors"][4] = content["descriptors"][3]
    facts = inspect(content).attributes
    assert [(pair.one, pair.other) for pair in facts.first_equal_pairs] == [("okapi", "zebra"), ("ant", "cow")]
    assert (facts.equal_pairs, facts.equal_pairs_with_unseen) == (2, 1)


def test_pairs_are_found_among_more_classes_than_fit_a_block():
    generator = np.random.default_rng(0)
    table = generator.random((2500, 12))
    table[2400], table[1100], table[1030] = table[3], table[1050], table[1050]
    n = len(table)
    inspection = inspect(
        {
            "features": generator.random((n, 4)),
            "labels": np.arange(n),
            "descriptors": table,
            "class_names": [f"c{i}" for i in range(n)],
            "train": np.arange(n),
        }
    )
    pairs = {(pair.one, pair.other) for pair in inspection.attributes.first_equal_pairs}
    assert pairs == {("c3", "c2400"), ("c1030", "c1050"), ("c1030", "c1100"), ("c1050", "c1100")}


def test_attributes_that_only_unseen_classes_vary_are_not_constant():
    content = arrays()
    content["descriptors"][:, 2] = 1.5
    content["descriptors"][:3, 0] = 0.75
    inspection = inspect(content)
    assert (inspection.attributes.constant_columns, inspection.attributes.constant_among_seen) == ((2,), (0,))
    assert any("the same for all classes (column 2)" in text for text in inspection.warnings)
    assert any("all seen classes but not for unseen ones (column 0)" in text for text in inspection.warnings)


def test_correlation_and_skewness_are_those_of_scipy():
    content = arrays()
    content["descriptors"] = np.random.default_rng(2).exponential(size=(5, 6))
    facts = inspect(content).attributes
    table = content["descriptors"].astype(np.float32).astype(float)
    pairs = [abs(scipy.stats.pearsonr(table[:, i], table[:, j])[0]) for i in range(6) for j in range(i)]
    assert facts.mean_absolute_correlation == pytest.approx(np.mean(pairs))
    assert facts.median_skewness == pytest.approx(np.median(scipy.stats.skew(table)))


def test_a_table_of_constants_has_no_correlation():
    content = arrays()
    content["descriptors"] = np.ones((5, 3))
    facts = inspect(content).attributes
    assert (facts.mean_absolute_correlation, facts.median_skewness, facts.equal_pairs) == (None, None, 10)


@pytest.mark.parametrize("scaled", [False, True])
def test_minus_one_in_a_non_negative_table_stands_for_missing(scaled):
    content = arrays()
    content["descriptors"] = np.random.default_rng(0).integers(1, 100, (5, 10)).astype(float)
    content["descriptors"][[1, 1, 4], [0, 3, 2]] = -1.0
    if scaled:
        content["descriptors"] /= np.linalg.norm(content["descriptors"], axis=1, keepdims=True)
    inspection = inspect(content)
    assert inspection.attributes.unit_norm is scaled
    assert (inspection.attributes.missing_values, inspection.attributes.missing_classes) == (3, ("bee", "zebra"))
    assert the_warning(inspection).startswith("3 attribute values are negative")


@pytest.mark.parametrize("table", [np.random.default_rng(0).standard_normal((5, 20)), 1.0 - 2 * np.eye(5)])
def test_negative_values_that_are_values_are_not_missing(table):
    assert inspect(arrays() | {"descriptors": table}).attributes.missing_values == 0


@pytest.mark.parametrize("key", ["att", "original_att"])
def test_the_missing_values_of_the_real_awa_are_found(real_data, key):
    content = scipy.io.loadmat(real_data / "xlsa17" / "data" / "AWA2" / "att_splits.mat")
    where = content["original_att"].T == -1
    inspection = inspect(
        {
            "features": np.eye(50) + 0.1,
            "labels": np.arange(50),
            "descriptors": content[key].T,
            "class_names": [str(name[0][0]) for name in content["allclasses_names"]],
            "train": np.arange(50),
        }
    )
    assert inspection.benchmark == "AWA2"
    assert inspection.attributes.missing_values == where.sum() == 4
    assert len(inspection.attributes.missing_classes) == where.any(axis=1).sum()


# ---- Duplicates --------------------------------------------------------------------------------------------


def test_planted_duplicates_are_counted_and_named():
    content = arrays()
    features = content["features"]
    features[4] = features[1]  # an ant of the test part, the same picture
    features[20] = features[7]  # an okapi that was trained as a bee
    features[11] = 2 * features[8] + 1e-3  # a bee, brighter
    content["image_files"] = [f"{NAMES[label]}/{row}.jpg" for row, label in enumerate(LABELS)]
    inspection = inspect(content)
    facts = inspection.duplicates
    assert (facts.near, facts.exact, facts.other_label) == (3, 2, 1)
    assert (facts.in_test_seen, facts.in_test_unseen) == (2, 1)
    assert [(p.row, p.train_row, p.exact, p.other_label) for p in facts.first] == [
        (4, 1, True, False),
        (20, 7, True, True),
        (11, 8, False, False),
    ]
    assert (facts.first[1].file, facts.first[1].train_file) == ("okapi/20.jpg", "bee/7.jpg")
    assert (facts.first[1].class_name, facts.first[1].train_class) == ("okapi", "bee")
    assert the_warning(inspection).startswith(
        "3 test rows (nearly) equal a training row, 2 exactly, 1 of another class"
    )


def test_the_threshold_of_near_is_a_cosine_distance():
    content = arrays()
    content["features"][4] = content["features"][1] + np.float32(0.01) * content["features"][2]
    distance = float(scipy.spatial.distance.cosine(*content["features"][[4, 1]].astype(float)))
    assert inspect(content, near=1.01 * distance).duplicates.near == 1
    inspection = inspect(content, near=0.99 * distance).duplicates
    assert inspection.near == 0 and inspection.closest == pytest.approx(distance, rel=1e-9)


def test_all_zero_rows_equal_each_other_and_minus_zero_is_zero():
    content = arrays()
    content["features"][1], content["features"][4] = 0.0, -0.0
    facts = inspect(content).duplicates
    assert (facts.near, facts.exact, facts.first[0].row) == (1, 1, 4)


def test_of_equal_training_rows_the_one_of_the_same_class_is_named():
    content = arrays()
    content["features"][[7, 10]] = content["features"][0]  # a bee for training and one to test
    facts = inspect(content).duplicates
    assert [(p.row, p.train_row, p.other_label) for p in facts.first] == [(10, 7, False)]


def test_equal_training_rows_of_different_classes_contradict_each_other():
    content = arrays()
    content["features"][[3, 13]] = content["features"][0]  # ants 0 and 3, cow 13
    content["features"][7] = content["features"][6]  # two bees: repeated, but no contradiction
    inspection = inspect(content)
    facts = inspection.duplicates
    assert (facts.train_repeats, facts.contradictions) == (3, 3)
    assert [(p.row, p.train_row) for p in facts.first_contradictions] == [(13, 0)]
    assert the_warning(inspection).startswith(
        "3 training rows equal one of another class (first: rows 0 'ant' and 13 'cow')"
    )


def test_a_dataset_too_large_to_compare_is_sampled_but_exact_duplicates_are_all_found():
    content = arrays()
    content["features"][content["test_unseen"]] = content["features"][0]
    inspection = inspect(content, most_operations=2 * 12 * 8 * 5).duplicates  # five test rows' worth
    assert (inspection.compared_rows, inspection.test_rows, inspection.exact) == (5, 18, 12)


def test_a_dataset_without_test_rows_has_no_duplicates():
    facts = inspect(arrays() | {"test_seen": [], "test_unseen": []}).duplicates
    assert (facts.near, facts.closest) == (0, None)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60), st.integers(1, 9), st.booleans())
def test_the_blocked_search_finds_what_brute_force_finds(seed, n_queries, n_references, d, signed):
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((n_queries + n_references, d)).astype(np.float32)
    if not signed:
        features = np.abs(features)
    rows = generator.permutation(len(features))
    queries, references = rows[:n_queries], rows[n_queries:]
    expected = 1 - scipy.spatial.distance.cdist(features[queries], features[references], "cosine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_QUERY_BLOCK", 7)
        patch.setattr(duplicates, "_REFERENCE_BLOCK", 11)
        nearest, cosine = nearest_rows(features, queries, references)
    assert set(nearest) <= set(references)
    np.testing.assert_allclose(cosine, expected.max(axis=1), atol=1e-6)
    direct = [
        1 - scipy.spatial.distance.cosine(features[a], features[b]) for a, b in zip(queries, nearest, strict=True)
    ]
    np.testing.assert_allclose(cosine, direct, atol=1e-6)


def test_the_search_tells_its_progress_up_to_the_end(watching):
    steps: list[Progress] = []
    with watching(lambda _, step: steps.append(step)):
        inspect(arrays())
    assert steps[-1].done == steps[-1].total > 0


def test_float16_and_memory_mapped_features_are_inspected_as_they_are(tmp_path):
    data = synthetic(SyntheticConfig(classes=20, unseen=5, rows=2000, features=300))
    half = ZeroShotDataset.from_arrays(
        data.features.astype(np.float16), data.labels, data.descriptors, data.class_names,
        train=data.split.train, test_seen=data.split.test_seen, test_unseen=data.split.test_unseen,
    )  # fmt: skip
    save_bundle(half, tmp_path / "x.npz")
    mapped = load_bundle(tmp_path / "x.npz")
    assert isinstance(mapped.features, np.memmap)
    inspection = inspect_dataset(mapped)
    assert inspection.features.dtype == "float16"
    assert inspection.duplicates.closest == pytest.approx(inspect_dataset(data).duplicates.closest, rel=1e-2)


# ---- Leaks -------------------------------------------------------------------------------------------------


def test_image_files_on_both_sides_of_the_split_are_named():
    content = arrays()
    files = [f"{row}.jpg" for row in ROWS]
    files[4], files[5], files[29] = "1.jpg", "", "28.jpg"  # row 5 has no file; rows 28 and 29 are both test
    files[0] = ""
    inspection = inspect(content | {"image_files": files})
    assert (inspection.leaks.files_in_both, inspection.leaks.first_files_in_both) == (1, ("1.jpg",))
    assert the_warning(inspection).startswith("1 image file has rows in train and in test (first: 1.jpg)")


def test_rows_on_the_other_side_of_the_official_split_are_counted():
    official = np.isin(ROWS, TRAIN)
    assert inspect(arrays() | {"is_train": official}).verdict == "ready to train"
    official[[TRAIN[0], TRAIN[5], 4]] ^= True
    official[29] = True  # all rows of an unseen class are test rows, whatever the official split says
    inspection = inspect(arrays() | {"is_train": official})
    assert (inspection.leaks.train_rows_held_out, inspection.leaks.test_rows_given_out) == (2, 1)
    assert len(inspection.warnings) == 2


def test_without_files_and_an_official_split_nothing_is_claimed_of_them():
    leaks = inspect(arrays()).leaks
    assert (leaks.files_in_both, leaks.train_rows_held_out, leaks.test_rows_given_out) == (None, None, None)
