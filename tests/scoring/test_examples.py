"""A few labelled pictures: prototypes between description and pictures, undone and saved."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.errors import ConfigError, DataError, ModelError, ModelWarning
from classnorm.metrics import Calibration
from classnorm.scoring import Scorer, fit
from classnorm.scoring.validation import DescriptionWeight

METHODS = {
    "kernel": {},
    "classnorm": {"hidden": 16, "epochs": 2},
    "dem": {"hidden": 16, "epochs": 2},
    "cvc": {"hidden": 16, "epochs": 2, "ways": 4, "batch_size": 32},
    "sae": {},
    "epgn": {"hidden": 16, "critic_hidden": 16, "epochs": 3},
}


@pytest.fixture(scope="module")
def scorers(tiny_data):
    """A scorer of each method, in which a description is worth 3 pictures."""
    made: dict[str, Scorer] = {}

    def get(method):
        if method not in made:
            scorer = fit(tiny_data, method, calibration="bias:0.5", **METHODS[method])
            made[method] = weighted(scorer, DescriptionWeight(description=3.0, penalty=0.7, training_rows=20.0))
        return made[method]

    return get


def weighted(scorer, weight):
    return replace(scorer, validation=replace(scorer.validation, description_weight=weight))


@pytest.fixture
def kernel(scorers):
    return scorers("kernel")


@pytest.fixture(scope="module")
def pictures(tiny_data):
    """Test rows of two unseen and one seen class, three of each."""
    classes = [*np.flatnonzero(~tiny_data.seen)[:2], np.flatnonzero(tiny_data.seen)[0]]
    rows = np.concatenate(
        [np.intersect1d(np.flatnonzero(tiny_data.labels == c), tiny_data.test_rows)[:3] for c in classes]
    )
    return tiny_data.features[rows], [tiny_data.class_names[c] for c in tiny_data.labels[rows]]


def unit(table):
    return table / np.linalg.norm(table, axis=-1, keepdims=True)


@pytest.mark.parametrize("method", ["classnorm", "cvc"])
def test_the_direction_of_a_prototype_is_the_weighted_mean_of_description_and_pictures(scorers, pictures, method):
    scorer, (features, labels) = scorers(method), pictures
    adapted = scorer.add_examples(features, labels).prototypes()
    for name in set(labels):
        c = scorer.class_names.index(name)
        described, own = scorer.prototypes()[c], unit(features[[label == name for label in labels]])
        weight = 23.0 if scorer.seen[c] else 3.0
        mean = (weight * unit(described) + own.sum(axis=0)) / (weight + 3)
        np.testing.assert_allclose(adapted[c], np.linalg.norm(described) * unit(mean), rtol=1e-4, atol=1e-6)


def test_where_distances_count_the_prototype_itself_is_the_weighted_mean(scorers, pictures):
    scorer, (features, labels) = scorers("dem"), pictures
    adapted, name = scorer.add_examples(features, labels).prototypes(), labels[0]
    c = scorer.class_names.index(name)
    expected = (3.0 * scorer.prototypes()[c] + features[:3].sum(axis=0)) / 6.0
    np.testing.assert_allclose(adapted[c], expected, rtol=1e-4, atol=1e-6)


def test_the_variance_of_a_kernel_prototype_is_that_of_a_gaussian_process(kernel, tiny_data):
    model, descriptors = kernel.model, torch.from_numpy(tiny_data.descriptors)
    transformed = model.kernel.transformed(descriptors).double().numpy()
    distances = ((transformed[:, None] - transformed[None]) ** 2).sum(axis=2)
    gram = np.exp(-distances / float(model.kernel.bandwidths[0]))
    seen = gram[np.ix_(tiny_data.seen, tiny_data.seen)] + model.ridge * np.eye(tiny_data.seen.sum())
    across = gram[:, tiny_data.seen]
    expected = 1.0 - (across @ np.linalg.inv(seen) * across).sum(axis=1)
    np.testing.assert_allclose(model.variance(descriptors).numpy(), expected, rtol=1e-3, atol=1e-4)


def test_an_uncertain_description_gives_way_to_pictures_sooner(kernel, tiny_data, pictures):
    weights = {entry["name"]: entry["weight"] for entry in kernel.add_examples(*pictures).vectors.evidence()}
    first, second = dict.fromkeys(pictures[1][:6])
    index = [kernel.class_names.index(name) for name in (first, second)]
    variances = kernel.model.variance(torch.from_numpy(tiny_data.descriptors[index])).numpy()
    for name, variance in zip((first, second), variances, strict=True):
        worth = 3.0 / variance
        assert weights[name] == pytest.approx(worth / (worth + 3), abs=1e-4)


def test_classes_without_pictures_keep_their_scores_to_the_bit(kernel, tiny_data, pictures):
    others = [i for i, name in enumerate(kernel.class_names) if name not in pictures[1]]
    rows = tiny_data.features[:50]
    assert np.array_equal(kernel.add_examples(*pictures).logits(rows)[:, others], kernel.logits(rows)[:, others])


@pytest.mark.parametrize("method", METHODS)
def test_neither_order_nor_batches_of_the_pictures_matter(scorers, pictures, method):
    scorer, (features, labels) = scorers(method), pictures
    whole = scorer.add_examples(features, labels)
    piecewise = scorer
    for i in np.random.default_rng(0).permutation(len(labels)):
        piecewise = piecewise.add_examples(features[[i]], [labels[i]])
    np.testing.assert_allclose(piecewise.prototypes(), whole.prototypes(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(piecewise.scores(features), whole.scores(features), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_many_pictures_of_a_class_make_it_the_answer_for_them(scorers, tiny_data, method):
    scorer, c = scorers(method), int(np.flatnonzero(~tiny_data.seen)[0])
    scorer = weighted(scorer, replace(scorer.description_weight, penalty=0.0))
    rows = tiny_data.features[tiny_data.labels == c]
    adapted = scorer.add_examples(np.tile(rows, (20, 1)), [tiny_data.class_names[c]] * 20 * len(rows))
    assert adapted.logits(rows)[:, c].mean() > scorer.logits(rows)[:, c].mean()
    found = [np.mean(np.array(s.predict(rows)) == tiny_data.class_names[c]) for s in (scorer, adapted)]
    assert found[1] > found[0] or found[1] > 0.95


def test_a_class_with_pictures_is_favoured_less_over_seen_classes(kernel, tiny_data, pictures):
    features, labels = pictures
    lenient = weighted(kernel, replace(kernel.description_weight, penalty=0.0)).add_examples(features, labels)
    strict = kernel.add_examples(features, labels)
    difference = lenient.logits(tiny_data.features[:5]) - strict.logits(tiny_data.features[:5])
    weights = {entry["name"]: entry["weight"] for entry in strict.vectors.evidence()}
    for c, name in enumerate(kernel.class_names):
        expected = 0.7 * (1.0 - weights[name]) if name in weights and not kernel.seen[c] else 0.0
        np.testing.assert_allclose(difference[:, c], expected, atol=1e-3)


def test_examples_can_be_forgotten_for_one_class_or_for_all(kernel, tiny_data, pictures):
    features, labels = pictures
    adapted, rows = kernel.add_examples(features, labels), tiny_data.features[:20]
    assert np.array_equal(adapted.without_examples().scores(rows), kernel.scores(rows))
    one = adapted.without_examples([labels[0]])
    others = [name != labels[0] for name in labels]
    expected = kernel.add_examples(features[others], [name for name in labels if name != labels[0]])
    np.testing.assert_allclose(one.scores(rows), expected.scores(rows), rtol=1e-6, atol=1e-6)
    with pytest.raises(ConfigError, match="unicorn"):
        adapted.without_examples(["unicorn"])


def test_a_new_class_may_come_with_description_and_pictures_or_with_pictures_alone(kernel, tiny_data):
    c = int(np.flatnonzero(~tiny_data.seen)[0])
    name, rows = tiny_data.class_names[c], tiny_data.features[tiny_data.labels == c]
    known = kernel.only([other for other in kernel.class_names if other != name])
    both = known.add_classes({name: tiny_data.descriptors[c]}, examples={name: rows[:3]})
    expected = kernel.add_examples(rows[:3], [name] * 3).only(both.class_names)
    np.testing.assert_allclose(both.scores(rows), expected.scores(rows), rtol=1e-6, atol=1e-6)
    alone = known.add_classes({}, examples={"okapi": rows[:3]})
    assert alone.classes.undescribed == {"okapi"}
    assert alone.vectors.evidence() == [{"name": "okapi", "examples": 3, "weight": 0.0}]
    center = unit(alone.prototypes()[-1, :-1].astype(np.float64))
    transformed = known.model.example_space().place(torch.from_numpy(rows[:3])).detach().double().numpy()
    np.testing.assert_allclose(center, unit(transformed.mean(axis=0)), atol=1e-5)
    assert alone.without_examples().class_names == known.class_names
    described = alone.add_classes({"okapi": tiny_data.descriptors[c]})
    np.testing.assert_allclose(described.scores(rows), both.scores(rows), rtol=1e-6, atol=1e-6)


def test_a_class_known_by_pictures_does_not_depend_on_how_they_arrive(kernel, tiny_data):
    rows = tiny_data.features[np.flatnonzero(tiny_data.labels == int(np.flatnonzero(~tiny_data.seen)[1]))[:4]]
    whole = kernel.add_examples(rows, ["okapi"] * 4)
    parts = kernel.add_examples(rows[2:], ["okapi"] * 2).add_examples(rows[:2], ["okapi"] * 2)
    np.testing.assert_allclose(parts.scores(rows), whole.scores(rows), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(parts.descriptors, whole.descriptors)


def test_a_restricted_scorer_keeps_the_pictures_of_its_classes(kernel, tiny_data, pictures):
    adapted = kernel.add_examples(*pictures)
    names = [pictures[1][3], *(name for name in kernel.class_names if name not in pictures[1])]
    columns = [kernel.class_names.index(name) for name in names]
    rows = tiny_data.features[:10]
    np.testing.assert_allclose(adapted.only(names).scores(rows), adapted.scores(rows)[:, columns], atol=1e-5)


def test_small_blocks_of_classes_and_rows_give_the_same_answers(kernel, tiny_data, pictures):
    adapted = kernel.add_examples(*pictures)
    small = replace(adapted, block_bytes=256)
    rows = tiny_data.features[:30]
    np.testing.assert_allclose(small.logits(rows), adapted.logits(rows), atol=1e-4)
    np.testing.assert_allclose(small.top(rows, 3).scores, adapted.top(rows, 3).scores, atol=1e-4)


def test_a_saved_scorer_loads_with_its_examples(kernel, tiny_data, pictures, tmp_path):
    adapted = kernel.add_examples(*pictures).add_examples(pictures[0][:2], ["okapi"] * 2)
    loaded = Scorer.load(adapted.save(tmp_path))
    assert np.array_equal(loaded.scores(tiny_data.features[:50]), adapted.scores(tiny_data.features[:50]))
    assert (loaded.description_weight, loaded.classes.undescribed) == (adapted.description_weight, {"okapi"})
    assert loaded.vectors.evidence() == adapted.vectors.evidence()
    assert np.array_equal(loaded.without_examples().prototypes(), kernel.prototypes())


@pytest.mark.parametrize(
    "change", [{"examples": ["no such class"]}, {"examples": []}, {"undescribed": "okapi"}, {"trust": {"tau": 1}}]
)
def test_files_whose_examples_do_not_fit_are_refused(kernel, pictures, tmp_path, change, rewrite_model):
    folder = kernel.add_examples(*pictures).save(tmp_path)
    rewrite_model(folder, lambda document: document.update(change))
    with pytest.raises(ModelError, match=r"do not fit together|must be"):
        Scorer.load(folder)


def test_models_without_a_validated_weight_of_descriptions_have_a_documented_default(kernel, scorers, pictures):
    plain = weighted(kernel, None)
    assert plain.description_weight == DescriptionWeight(description=0.28, penalty=0.5, training_rows=50.0)
    scaled = weighted(scorers("dem"), None).calibrated(Calibration("scale", 0.9))
    assert scaled.description_weight == DescriptionWeight(description=4.0, penalty=0.0, training_rows=50.0)
    assert plain.add_examples(*pictures).classes.pictures.names


@pytest.mark.parametrize("method", ["eszsl", "ale", "conse"])
def test_methods_without_prototypes_among_the_features_refuse_pictures(tiny_data, pictures, method):
    changes = {} if method == "eszsl" else {"epochs": 1}
    scorer = fit(tiny_data, method, calibration="none", **changes)
    with pytest.raises(ConfigError, match=f"{method} .*cannot learn from single pictures"):
        scorer.add_examples(*pictures)


def test_dot_products_with_classifiers_refuse_pictures(tiny_data, pictures):
    scorer = fit(tiny_data, "classnorm", calibration="none", logits="dot", hidden=16, epochs=1)
    with pytest.raises(ConfigError, match="classnorm with these settings"):
        scorer.add_examples(*pictures)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.ones((2, 16)), ["ant"], "2 rows of features, but 1 label"),
        (np.ones((1, 3)), ["ant"], "shape"),
        (np.full((1, 16), np.nan), ["ant"], "NaN|nan|finite"),
        (np.ones((1, 16)), [3], "class names, not 3"),
        (np.ones((1, 16)), [""], "class names"),
    ],
)
def test_wrong_examples_are_reported(kernel, features, labels, message):
    with pytest.raises(DataError, match=message):
        kernel.add_examples(features, labels)


def test_a_label_in_another_spelling_is_the_same_class(kernel, tiny_data):
    name, rows = kernel.class_names[-1], tiny_data.features[:3]
    other = kernel.add_examples(rows, [f"012.{name.upper().replace(' ', '_')}"] * 3)
    assert other.classes.examples.names == (name,)


def test_a_label_that_looks_like_a_known_class_is_added_with_a_warning(kernel, tiny_data):
    name, rows = kernel.class_names[-1], tiny_data.features[:2]
    with pytest.warns(ModelWarning, match=rf"examples: '{name}x' is a new class; did you mean '{name}'\?"):
        assert kernel.add_examples(rows, [f"{name}x"] * 2).class_names[-1] == f"{name}x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.add_examples(rows, ["okapi", name.upper()])
        kernel.add_classes({}, examples={f"{name}x": rows})


def test_one_name_may_stand_for_all_rows_and_for_a_list_of_names(kernel, tiny_data):
    name, rows = kernel.class_names[-1], tiny_data.features[:3]
    adapted = kernel.add_examples(rows, name)
    assert (adapted.classes.examples.names, adapted.classes.examples.counts.tolist()) == ((name,), [3.0])
    assert not adapted.without_examples(name).classes.pictures.names
    assert kernel.only(name).class_names == (name,)


def test_no_pictures_change_nothing(kernel):
    assert kernel.add_examples(np.empty((0, 16)), []) is kernel
