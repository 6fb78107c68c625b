"""Scorers: predictions, new classes, save and load."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.errors import ClassNormError, ConfigError, DataError, ModelError
from classnorm.metrics import Calibration, softmax
from classnorm.scoring import Scorer, answers, fit


@pytest.fixture(scope="module")
def scorer(small_dataset):
    return fit(small_dataset, hidden=64, epochs=8, lr=3e-3, calibration="bias:0.5")


def test_a_saved_scorer_loads_with_the_same_scores(scorer, small_dataset, tmp_path):
    loaded = Scorer.load(scorer.save(tmp_path / "model"))
    assert np.array_equal(loaded.scores(small_dataset.features[:100]), scorer.scores(small_dataset.features[:100]))
    assert loaded.class_names == scorer.class_names
    assert loaded.config == scorer.config


def test_a_temperature_is_saved(scorer, tmp_path):
    assert Scorer.load(scorer.calibrated(scorer.calibration, 2.5).save(tmp_path)).temperature == 2.5


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
    two = scorer.only(["Class_05", "class 02"])
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
    elif what == "no temperature":
        document.write_text(json.dumps(changed | {"temperature": 0.0}))
    elif what == "another width":
        document.write_text(json.dumps(changed | {"config": changed["config"] | {"hidden": 32}}))


@pytest.mark.parametrize(
    "what",
    ["truncated tensors", "flipped byte", "missing tensors", "not JSON", "another kind", "newer format",
     "unknown method", "unknown setting", "fewer classes", "another width", "no temperature"],
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


def test_probabilities_are_the_softmax_of_calibrated_scores(scorer, small_dataset):
    warm = scorer.calibrated(scorer.calibration, 3.0)
    expected = softmax(warm.scores(small_dataset.features[:50]), 3.0)
    np.testing.assert_array_equal(warm.probabilities(small_dataset.features[:50]), expected)
    warm = replace(warm, block_bytes=4 * 64 * 7)  # 7 rows
    np.testing.assert_allclose(warm.probabilities(small_dataset.features[:50]), expected, atol=1e-6)


def test_a_temperature_changes_no_score_and_stays_with_the_scorer(scorer, small_dataset):
    warm = scorer.calibrated(scorer.calibration, 3.0)
    np.testing.assert_array_equal(warm.scores(small_dataset.features), scorer.scores(small_dataset.features))
    derived = warm.add_classes({"okapi": np.ones(30)}).only(["okapi", "class 03"]).calibrated(Calibration())
    assert derived.temperature == 3.0


def ranked(scorer, features, k):
    scores = scorer.scores(features)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1), np.take_along_axis(scorer.probabilities(features), order, 1)


@pytest.mark.parametrize("k", [1, 5, 38, 40, 99])
@pytest.mark.parametrize("calibration", ["none", "bias:0.5", "scale:0.8"])
def test_the_top_classes_are_those_that_sorting_all_scores_gives(scorer, small_dataset, k, calibration):
    chosen = scorer.calibrated(Calibration.parse(calibration), 0.7)
    top = chosen.top(small_dataset.features, k)
    indices, scores, probabilities = ranked(chosen, small_dataset.features, k)
    np.testing.assert_array_equal(top.indices, indices)
    np.testing.assert_array_equal(top.scores, scores)
    np.testing.assert_allclose(top.probabilities, probabilities, rtol=1e-4, atol=1e-7)


def test_top_does_the_same_in_small_blocks_of_rows_and_classes(scorer, small_dataset, monkeypatch):
    rows = small_dataset.features[:200]
    _, scores, probabilities = ranked(scorer, rows, 6)
    monkeypatch.setattr(answers, "_CHUNK", 50)
    top = replace(scorer, block_bytes=4 * 64 * 9).top(rows, 6)  # 9 rows, 36 of 40 classes
    np.testing.assert_allclose(top.scores, scores, atol=1e-4)
    np.testing.assert_allclose(top.probabilities, probabilities, atol=1e-5)
    again = np.take_along_axis(scorer.scores(rows), top.indices, 1)
    np.testing.assert_allclose(again, scores, atol=1e-4)


@pytest.mark.parametrize("calibration", ["none", "bias:0.5"])
def test_among_equal_classes_the_first_ones_are_the_top(scorer, small_dataset, calibration, monkeypatch):
    """Copies of one class: whatever the ranking in single precision picks, the lower position wins."""
    copies = scorer.only(["class 03"]).add_classes({f"copy {i:02d}": scorer.descriptors[3] for i in range(30)})
    copies = copies.calibrated(Calibration.parse(calibration))
    zeros = np.zeros((4, 64), np.float32)  # a zero feature has the same score for every class
    top = copies.top(zeros, 5)
    np.testing.assert_array_equal(top.indices, ranked(copies, zeros, 5)[0])
    start = 0 if calibration == "none" else 1
    assert top.indices[0].tolist() == [start, start + 1, start + 2, start + 3, start + 4]


def test_top_of_no_rows_is_empty_and_of_no_classes_an_error(scorer):
    assert [part.shape for part in scorer.top(np.zeros((0, 64), np.float32), 3)] == [(0, 3)] * 3
    with pytest.raises(ConfigError, match="at least 1"):
        scorer.top(np.zeros((2, 64), np.float32), 0)


@pytest.mark.parametrize("method", ["classnorm", "kernel", "relationnet"])
def test_top_never_holds_the_scores_of_all_rows_and_classes(small_dataset, monkeypatch, method):
    scorer = fit(small_dataset, method, epochs=1, calibration="none")
    generator = np.random.default_rng(0)
    many = scorer.add_classes({f"new {i}": row for i, row in enumerate(generator.random((500, 30)) + 0.1)})
    expected = many.top(small_dataset.features, 5)
    logits, classes = [], []

    best_classes = answers.best_classes

    def ranked_block(block, *arguments):
        logits.append(block.numel())
        return best_classes(block, *arguments)

    def prototypes(descriptors):
        classes.append(len(descriptors))
        return type(scorer.model).prototypes(scorer.model, descriptors)

    monkeypatch.setattr(answers, "best_classes", ranked_block)
    monkeypatch.setattr(scorer.model, "prototypes", prototypes)
    top = replace(many, block_bytes=4 * 64 * 100).top(small_dataset.features, 5)
    assert max(logits) <= 64 * 100
    assert max(classes) <= 100
    assert sum(classes) == 540
    np.testing.assert_allclose(top.scores, expected.scores, rtol=1e-4, atol=1e-4)


def test_of_thousands_of_classes_the_top_ones_are_those_that_sorting_gives(small_dataset):
    """Enough classes for groups, and a number of them that leaves some in no group."""
    scorer = fit(small_dataset, method="kernel", recipe="closed-form", calibration="bias:1")
    table = np.random.default_rng(0).lognormal(size=(2011, 30)).astype(np.float32)
    many = scorer.add_classes({f"new {i}": row for i, row in enumerate(table)}).calibrated(scorer.calibration, 0.5)
    rows = small_dataset.features[:64]
    for k in (1, 5, 40):
        top = many.top(rows, k)
        indices, scores, probabilities = ranked(many, rows, k)
        np.testing.assert_array_equal(top.indices, indices)
        np.testing.assert_array_equal(top.scores, scores)
        np.testing.assert_allclose(top.probabilities, probabilities, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("n_classes", [9, 64, 500, 4097])
def test_the_best_classes_of_any_number_are_found_even_where_many_are_equal(n_classes):
    generator = torch.Generator().manual_seed(n_classes)
    logits = torch.randint(-9, 9, (50, n_classes), generator=generator).float()  # hardly any score is unique
    seen = np.arange(n_classes) % 3 > 0
    for calibration in (Calibration(), Calibration("bias", 1.0), Calibration("scale", 0.5)):
        found = answers.best_classes(logits, seen, calibration, 2.0, 6)
        scores = calibration.apply(logits.numpy(), seen)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :6]
        np.testing.assert_array_equal(found.indices, order)
        np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, order, 1))
        sums = np.exp(scores / 2.0).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found.log_sums, np.log(sums), rtol=1e-5)
