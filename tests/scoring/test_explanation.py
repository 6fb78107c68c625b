"""Explanations of scores: they add up, whatever the method, and are what a formula gives where there is one."""

import dataclasses

import numpy as np
import pytest
import torch

from classnorm.data import ZeroShotDataset
from classnorm.errors import ConfigError, DataError
from classnorm.metrics import Calibration
from classnorm.scoring import Scorer, fit

pytestmark = pytest.mark.filterwarnings("ignore::classnorm.errors.ModelWarning")  # trained for a moment only

CONTINUOUS = [
    *("classnorm", "kernel", "relationnet", "cvc", "dem", "devise", "ale", "sje"),
    *("eszsl", "sae", "conse", "sync", "dcn", "sgal", "sgma", "epgn"),
]


def total(explanation):
    return sum(entry["contribution"] for entry in explanation["attributes"])


@pytest.mark.parametrize("method", CONTINUOUS)
@pytest.mark.parametrize("calibration", ["none", "bias:0.4", "scale:0.8"])
def test_what_is_shown_adds_up_to_the_difference_of_the_two_best_scores(tiny_data, tiny_scorer, method, calibration):
    scorer = tiny_scorer(method).calibrated(Calibration.parse(calibration))
    rows = tiny_data.features[tiny_data.test_rows[::9]]
    scores = scorer.scores(rows)
    for row, explanation in enumerate(scorer.explain(rows, top=3)):
        first, second = np.argsort(-scores[row], kind="stable")[:2]
        assert [explanation[key] for key in ("class", "against")] == [tiny_data.class_names[c] for c in (first, second)]
        gap = scores[row, first] - scores[row, second]
        assert explanation["difference"] == pytest.approx(gap, abs=1e-4 * np.abs(scores[row]).max())
        assert total(explanation) == pytest.approx(
            explanation["difference"], abs=1e-9 * np.abs(scores[row]).max() + 1e-12
        )
        assert sum(entry["name"] in tiny_data.attribute_names for entry in explanation["attributes"]) <= 3


def test_contributions_of_a_linear_method_are_its_weights_times_the_difference_of_the_descriptors(tiny_data):
    scorer = fit(tiny_data, "eszsl", calibration="none", attribute_normalization="none", feature_normalization="none")
    rows = tiny_data.features[tiny_data.test_rows[:5]]
    matrix = scorer.model.matrix.detach().double().numpy()
    position = {name: i for i, name in enumerate(scorer.class_names)}
    for row, explanation in zip(rows, scorer.explain(rows), strict=True):
        difference = (
            scorer.descriptors[position[explanation["class"]]] - scorer.descriptors[position[explanation["against"]]]
        )
        expected = dict(zip(tiny_data.attribute_names, (row.astype(np.float64) @ matrix) * difference, strict=True))
        shown = {entry["name"]: entry["contribution"] for entry in explanation["attributes"]}
        assert explanation["by"] == "exact"
        assert shown == pytest.approx(expected, rel=1e-3, abs=1e-4 * abs(max(expected.values(), key=abs)))


def test_contributions_of_a_curved_score_are_the_integral_of_its_gradient(tiny_data, tiny_scorer):
    scorer = tiny_scorer("kernel")
    rows = tiny_data.features[tiny_data.test_rows[:3]]
    position = {name: i for i, name in enumerate(scorer.class_names)}
    for row, explanation in zip(torch.from_numpy(rows), scorer.explain(rows), strict=True):
        assert explanation["by"] == "integrated gradients"
        pair = [position[explanation["against"]], position[explanation["class"]]]
        start, end = torch.from_numpy(scorer.descriptors[pair])
        middles = (torch.arange(400) + 0.5) / 400  # the midpoint rule
        points = (start + middles[:, None] * (end - start)).requires_grad_()
        score = scorer.model.logits(row[None], scorer.model.prototypes(points)).sum()
        sums = torch.autograd.grad(score, points)[0].double().mean(dim=0)
        expected = dict(zip(tiny_data.attribute_names, ((end - start).double() * sums).tolist(), strict=True))
        shown = {entry["name"]: entry["contribution"] for entry in explanation["attributes"]}
        assert shown == pytest.approx(expected, abs=0.01 * max(map(abs, expected.values())))


def test_a_root_of_attributes_that_a_class_lacks_has_an_infinite_slope_and_still_adds_up(tiny_data):
    table = np.where(tiny_data.descriptors > np.median(tiny_data.descriptors, axis=0), tiny_data.descriptors, 0.0)
    table = (table + np.eye(*table.shape, dtype=np.float32) * 0.1).astype(np.float32)
    data = dataclasses.replace(tiny_data, descriptors=table)
    for power in (0.5, 0.25):
        scorer = fit(data, "kernel", calibration="none", descriptor_power=power)
        for explanation in scorer.explain(data.features[data.test_rows[::10]], top=8):
            values = [entry["contribution"] for entry in explanation["attributes"]]
            assert np.isfinite(values).all() and sum(values) == pytest.approx(explanation["difference"])


def test_an_attribute_that_both_classes_share_says_nothing(tiny_data, tiny_scorer):
    scorer = tiny_scorer("kernel")
    shared = scorer.descriptors.copy()
    shared[:, 2] = 0.5
    changed = dataclasses.replace(scorer, classes=dataclasses.replace(scorer.classes, descriptors=shared))
    for explanation in changed.explain(tiny_data.features[:4]):
        assert "striped" not in {entry["name"] for entry in explanation["attributes"]}


def test_the_bias_of_seen_classes_is_an_entry_of_its_own(tiny_data, tiny_scorer):
    scorer = tiny_scorer("classnorm").calibrated(Calibration("bias", 0.7))
    seen = dict(zip(scorer.class_names, scorer.seen, strict=True))
    kinds = set()
    for explanation in scorer.explain(tiny_data.features[tiny_data.test_rows[::2]]):
        entries = {entry["name"]: entry["contribution"] for entry in explanation["attributes"]}
        first, second = seen[explanation["class"]], seen[explanation["against"]]
        kinds.add((first, second))
        expected = {(True, False): -0.7, (False, True): 0.7}.get((first, second))
        assert entries.get("calibration") == (None if expected is None else pytest.approx(expected, abs=1e-4))
    assert len(kinds) == 4


def test_examples_of_a_class_are_an_entry_of_their_own(tiny_data, tiny_scorer):
    unseen, seen = np.flatnonzero(~tiny_data.seen)[0], np.flatnonzero(tiny_data.seen)[0]
    two = tiny_scorer("kernel").only([tiny_data.class_names[unseen], tiny_data.class_names[seen]])
    plain = two.calibrated(Calibration("bias", 0.3))
    rows = tiny_data.features[tiny_data.labels == unseen]
    scorer = plain.add_examples(rows[:5], [tiny_data.class_names[unseen]] * 5)
    position = {name: i for i, name in enumerate(scorer.class_names)}
    effects = []
    for row, explanation in zip(rows[5:15], scorer.explain(rows[5:15]), strict=True):
        assert total(explanation) == pytest.approx(explanation["difference"])
        first, second = position[explanation["class"]], position[explanation["against"]]
        before, after = plain.scores(row[None])[0], scorer.scores(row[None])[0]
        effects.append(after[first] - after[second] - (before[first] - before[second]))
        entries = {entry["name"]: entry["contribution"] for entry in explanation["attributes"]}
        assert entries["examples"] == pytest.approx(effects[-1], abs=1e-4)
    assert max(map(abs, effects)) > 0.01


def named(scorer, names):
    return dataclasses.replace(scorer, origin=dataclasses.replace(scorer.origin, attribute_names=names))


def test_columns_of_the_same_name_are_one_attribute(tiny_data, tiny_scorer):
    scorer = named(tiny_scorer("kernel"), ("red", "blue", *("the text",) * 6))
    for one, each in zip(
        scorer.explain(tiny_data.features[:3]), tiny_scorer("kernel").explain(tiny_data.features[:3]), strict=True
    ):
        shown = {entry["name"]: entry["contribution"] for entry in one["attributes"]}
        single = {entry["name"]: entry["contribution"] for entry in each["attributes"]}
        assert shown["the text"] == pytest.approx(sum(v for name, v in single.items() if name not in ("red", "blue")))


def test_the_neighbours_of_a_kernel_prototype_reproduce_its_closed_form(tiny_data):
    scorer = fit(tiny_data, "kernel", calibration="none", closed_form=True)
    unseen = np.flatnonzero(~scorer.seen)
    model = scorer.model
    descriptors, seen = (torch.from_numpy(scorer.descriptors[index]) for index in (unseen, scorer.seen))
    with torch.inference_mode():
        weights = model.class_weights(descriptors, seen)
        expected = model.kernel(descriptors) @ model.coefficients
        torch.testing.assert_close(weights @ model.means, expected, rtol=1e-3, atol=1e-4)
    rows = tiny_data.features[np.array(scorer.predict(tiny_data.features)) == scorer.class_names[unseen[0]]]
    (explanation,) = scorer.explain(rows[:1])
    strongest = np.flatnonzero(scorer.seen)[int(weights[0].abs().argmax())]
    assert explanation["neighbours"][0] == {
        "class": scorer.class_names[strongest],
        "weight": pytest.approx(float(weights[0].abs().max() * torch.sign(weights[0][weights[0].abs().argmax()]))),
    }


def test_neighbours_of_other_methods_have_similar_prototypes_and_are_training_classes(tiny_data, tiny_scorer):
    scorer = tiny_scorer("classnorm")
    prototypes = scorer.prototypes().astype(np.float64)
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    position = {name: i for i, name in enumerate(scorer.class_names)}
    for explanation in scorer.explain(tiny_data.features[:5]):
        own = position[explanation["class"]]
        for neighbour in explanation["neighbours"]:
            other = position[neighbour["class"]]
            assert scorer.seen[other] and other != own
            assert neighbour["weight"] == pytest.approx(prototypes[own] @ prototypes[other], abs=1e-5)


@pytest.mark.parametrize("method", ["fclswgan", "dvbe"])
def test_a_method_whose_scores_do_not_follow_the_descriptors_is_refused_in_one_line(tiny_data, method):
    shared = {"epochs": 1, "hidden": 16, "batch_size": 64}
    own = {"synthesized": 5, "classifier_epochs": 1, "critic_steps": 1} if method == "fclswgan" else {}
    scorer = fit(tiny_data, method, calibration="none", **shared, **own)
    with pytest.raises(ConfigError, match="another method, such as kernel"):
        scorer.explain(tiny_data.features[tiny_data.test_rows])


def test_invalid_requests_are_refused(tiny_data, tiny_scorer):
    scorer = tiny_scorer("kernel")
    with pytest.raises(ConfigError, match="at least 1"):
        scorer.explain(tiny_data.features[:1], top=0)
    with pytest.raises(ConfigError, match="two classes"):
        scorer.only(scorer.class_names[:1]).explain(tiny_data.features[:1])
    with pytest.raises(DataError, match="NaN"):
        scorer.explain(np.full((1, 16), np.nan))
    assert scorer.explain(tiny_data.features[:0]) == []


def test_names_of_attributes_are_saved_with_the_model_and_optional(tiny_data, tiny_scorer, tmp_path):
    scorer = tiny_scorer("kernel")
    assert Scorer.load(scorer.save(tmp_path / "named")).attribute_names == tiny_data.attribute_names
    plain = named(scorer, None)
    loaded = Scorer.load(plain.save(tmp_path / "plain"))
    assert loaded.attribute_names is None
    names = {e["name"] for explanation in loaded.explain(tiny_data.features[:3]) for e in explanation["attributes"]}
    assert names <= {f"attribute {i}" for i in range(8)}


def test_names_do_not_change_the_checksum_of_a_dataset(tiny_data):
    arrays = (tiny_data.features, tiny_data.labels, tiny_data.descriptors, tiny_data.class_names)
    plain = ZeroShotDataset.from_arrays(*arrays, **tiny_data.split.parts)
    named = ZeroShotDataset.from_arrays(*arrays, **tiny_data.split.parts, attribute_names=tiny_data.attribute_names)
    assert named.checksum == plain.checksum
    with pytest.raises(DataError, match="2 names of attributes for descriptors of 8 dimensions"):
        ZeroShotDataset.from_arrays(*arrays, **tiny_data.split.parts, attribute_names=["red", "blue"])


def test_a_power_of_descriptors_with_zeros_is_explained(tiny_data):
    """The slope of x ** 0.75 at 0 is infinite; attributes that are 0 in both classes must not spoil the others."""
    table = np.where(tiny_data.descriptors > np.median(tiny_data.descriptors), 1.0, 0.0).astype(np.float32)
    table[:, 0] = 1.0  # no class without any attribute
    binary = dataclasses.replace(tiny_data, descriptors=table)
    scorer = fit(binary, method="kernel", calibration="none", descriptor_power=0.75)
    for explanation in scorer.explain(binary.features[:4]):
        total = sum(entry["contribution"] for entry in explanation["attributes"])
        assert total == pytest.approx(explanation["difference"], rel=1e-3, abs=1e-4)
