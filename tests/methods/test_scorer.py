"""Scorers: predictions, new classes, save and load."""

import json

import numpy as np
import pytest

from classnorm.errors import ClassNormError, ConfigError, DataError, ModelError
from classnorm.methods import Scorer, fit
from classnorm.metrics import Calibration


@pytest.fixture(scope="module")
def scorer(small_dataset):
    return fit(small_dataset, hidden=64, epochs=8, lr=3e-3, calibration="bias:0.5")


def test_a_saved_scorer_loads_with_the_same_scores(scorer, small_dataset, tmp_path):
    loaded = Scorer.load(scorer.save(tmp_path / "model"))
    assert np.array_equal(loaded.scores(small_dataset.features[:100]), scorer.scores(small_dataset.features[:100]))
    assert loaded.class_names == scorer.class_names
    assert loaded.config == scorer.config


@pytest.mark.parametrize(
    "change",
    [{"gamma": "auto"}, {"init": "data_dependent"}, {"attribute_normalization": "standardize"}, {"learn_gamma": True}],
)
def test_models_with_fitted_parts_survive_saving(small_dataset, tmp_path, change):
    scorer = fit(small_dataset, hidden=16, epochs=1, calibration="none", **change)
    loaded = Scorer.load(scorer.save(tmp_path))
    assert np.array_equal(loaded.logits(small_dataset.features[:20]), scorer.logits(small_dataset.features[:20]))


def test_predictions_name_the_best_calibrated_class(scorer, small_dataset):
    logits = scorer.logits(small_dataset.features[:30]).astype(np.float64)
    logits[:, scorer.seen] -= 0.5
    expected = [scorer.class_names[c] for c in logits.argmax(axis=1)]
    assert scorer.predict(small_dataset.features[:30]) == expected


def test_scores_do_not_depend_on_how_rows_are_batched(scorer, small_dataset):
    whole = scorer.logits(small_dataset.features[:64])
    pieces = np.concatenate([scorer.logits(small_dataset.features[i : i + 1]) for i in range(64)])
    np.testing.assert_allclose(whole, pieces, rtol=1e-4, atol=1e-5)


def test_classes_left_out_and_added_again_score_as_before(scorer, small_dataset):
    """A class unknown to the scorer comes with its descriptor alone."""
    unseen = [name for name, seen in zip(scorer.class_names, scorer.seen, strict=True) if not seen]
    without = scorer.only([name for name in scorer.class_names if name not in unseen])
    table = dict(zip(small_dataset.class_names, small_dataset.descriptors, strict=True))
    again = without.add_classes({name: table[name] for name in unseen})
    expected = scorer.only(again.class_names).scores(small_dataset.features[:40])
    np.testing.assert_allclose(again.scores(small_dataset.features[:40]), expected, rtol=1e-5, atol=1e-5)


def test_new_classes_are_unseen_ones(scorer):
    more = scorer.add_classes({"okapi": np.ones(30)})
    assert more.class_names[-1] == "okapi"
    assert not more.seen[-1]


def test_a_known_class_with_the_same_descriptor_is_not_added_twice(scorer):
    assert scorer.add_classes({scorer.class_names[3]: scorer.descriptors[3]}).class_names == scorer.class_names


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"okapi": np.ones(29)}, "'okapi' has 29 dimensions; the model was trained on 30"),
        ({"okapi": np.zeros(30)}, "'okapi' is all zero"),
        ({"okapi": np.full(30, np.nan)}, "'okapi' holds NaN"),
        ({"class 03": np.full(30, 7.0)}, "known to the model with another descriptor"),
    ],
)
def test_bad_new_classes_are_refused_by_name(scorer, table, message):
    with pytest.raises(DataError, match=message):
        scorer.add_classes(table)


def test_features_of_another_dimension_are_refused(scorer):
    with pytest.raises(DataError, match=r"trained on \[n, 64\]"):
        scorer.logits(np.ones((3, 63), np.float32))


def test_restricting_to_an_unknown_class_is_refused(scorer):
    with pytest.raises(ConfigError, match="unknown class 'class 3x'"):
        scorer.only(["class 3x"])


def test_restricting_leaves_only_those_classes(scorer, small_dataset):
    two = scorer.only(["class 05", "class 02"])
    assert set(two.predict(small_dataset.features[:50])) <= {"class 05", "class 02"}


def damage(folder, what):
    document, tensors = folder / "model.json", folder / "model.safetensors"
    content = tensors.read_bytes()
    changed = json.loads(document.read_text())
    if what == "truncated tensors":
        tensors.write_bytes(content[: len(content) // 2])
    elif what == "flipped byte":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif what == "missing tensors":
        tensors.unlink()
    elif what == "not JSON":
        document.write_text("{")
    elif what == "another kind":
        document.write_text('{"some": "settings"}')
    elif what == "newer format":
        document.write_text(json.dumps(changed | {"version": 99}))
    elif what == "unknown method":
        document.write_text(json.dumps(changed | {"method": "clasnorm"}))
    elif what == "unknown setting":
        document.write_text(json.dumps(changed | {"config": changed["config"] | {"colour": "red"}}))
    elif what == "fewer classes":
        document.write_text(json.dumps(changed | {"class_names": changed["class_names"][1:]}))
    elif what == "another width":
        document.write_text(json.dumps(changed | {"config": changed["config"] | {"hidden": 32}}))


@pytest.mark.parametrize(
    "what",
    ["truncated tensors", "flipped byte", "missing tensors", "not JSON", "another kind", "newer format",
     "unknown method", "unknown setting", "fewer classes", "another width"],
)  # fmt: skip
def test_a_damaged_model_is_refused_in_one_line(scorer, tmp_path, what):
    folder = scorer.save(tmp_path / "model")
    damage(folder, what)
    with pytest.raises(ClassNormError) as caught:
        Scorer.load(folder)
    assert "\n" not in str(caught.value)


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        Scorer.load(tmp_path / "nowhere" / "model.json")


def test_calibration_changes_seen_scores_only(scorer, small_dataset):
    raw = scorer.calibrated(Calibration()).scores(small_dataset.features[:20])
    scaled = scorer.calibrated(Calibration("scale", 0.5)).scores(small_dataset.features[:20])
    np.testing.assert_allclose(scaled[:, scorer.seen], 0.5 * raw[:, scorer.seen])
    np.testing.assert_array_equal(scaled[:, ~scorer.seen], raw[:, ~scorer.seen])
