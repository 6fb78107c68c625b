"""What to label next: the choice by its formula, its worth, and what is said about classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from classnorm import fit
from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ConfigError, DataError
from classnorm.scoring import suggest
from classnorm.scoring.classes import Origin


@pytest.fixture(scope="module")
def data():
    return synthetic(SyntheticConfig(classes=40, unseen=12, rows=2400, features=64, attributes=30, noise=1.2))


@pytest.fixture(scope="module")
def scorer(data):
    return fit(data, method="kernel")


def test_the_first_picture_has_the_largest_gain_of_the_formula(data, scorer):
    ten = scorer.only(scorer.class_names[-10:])  # no more classes than candidates of a picture
    features = data.features[data.test_rows[:80]]
    picture = suggest(ten, features, count=1)["pictures"][0]
    p = softmax(ten.scores(features) / ten.temperature, axis=1)
    space = ten.model.example_space()
    variance = space.variance(torch.from_numpy(ten.descriptors)).detach().numpy().astype(float)
    worth = np.maximum(ten.description_weight.in_pictures(variance, ten.seen), 1.0)
    at_stake = (p * (1 - p)).sum(axis=0)
    transformed = space.place(torch.from_numpy(features)).detach().numpy()
    transformed /= np.linalg.norm(transformed, axis=1, keepdims=True)
    density = np.array([np.sort(np.delete(transformed @ row, i))[-10:].mean() for i, row in enumerate(transformed)])
    density /= density.mean()
    removed = [sum(p[i, c] * at_stake[c] * (1 / worth[c] - 1 / (worth[c] + 1)) for c in range(10)) for i in range(80)]
    gains = 100 * density * removed / (at_stake / worth).sum()
    assert picture["row"] == gains.argmax()
    assert picture["gain"] == pytest.approx(gains.max(), rel=1e-3)
    assert picture["class"] == ten.class_names[p[picture["row"]].argmax()]


def test_labels_of_suggested_pictures_are_worth_more_than_labels_of_random_ones(data, scorer):
    names = np.array(data.class_names)
    accuracies = {"suggested": [], "random": []}
    for draw in range(4):
        generator = np.random.default_rng(draw)
        rows = generator.permutation(data.test_rows)
        pool, rest = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        chosen = [picture["row"] for picture in suggest(scorer, data.features[pool], count=20)["pictures"]]
        assert len(set(chosen)) == 20
        for kind, some in (("suggested", pool[chosen]), ("random", generator.permutation(pool)[:20])):
            taught = scorer.add_examples(data.features[some], names[data.labels[some]].tolist())
            accuracies[kind].append(np.mean(np.array(taught.predict(data.features[rest])) == names[data.labels[rest]]))
    assert np.mean(accuracies["suggested"]) > np.mean(accuracies["random"])


def test_gains_fall_and_labelled_classes_come_later(data, scorer):
    features = data.features[data.test_rows]
    pictures = suggest(scorer, features, count=15)["pictures"]
    gains = [picture["gain"] for picture in pictures]
    assert gains == sorted(gains, reverse=True)
    first = pictures[0]
    taught = scorer.add_examples(np.repeat(features[[first["row"]]], 30, axis=0), [first["class"]] * 30)
    assert suggest(taught, features, count=1)["pictures"][0]["class"] != first["class"]


def test_the_same_picture_is_not_suggested_twice(data, scorer):
    copies = np.repeat(data.features[data.test_rows[:6]], 5, axis=0)
    pictures = suggest(scorer, copies, count=30)["pictures"]
    assert len(pictures) == 6
    assert len({picture["row"] // 5 for picture in pictures}) == 6


def test_a_class_is_compared_with_the_one_that_it_is_confused_with(data, scorer):
    named = replace(scorer, origin=Origin(attribute_names=tuple(f"trait {i}" for i in range(scorer.d_a))))
    entry = suggest(named, data.features[data.test_rows], count=1, classes=3)["classes"][0]
    pair = [named.class_names.index(entry[key]) for key in ("class", "confused_with")]
    assert pair[0] != pair[1]

    def cosine(vector):
        table = np.stack([vector, named.descriptors[pair[1]]]).astype(np.float32)
        a, b = named.model.prototypes(torch.from_numpy(table)).detach().numpy()
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    own, spread = named.descriptors[pair[0]], named.descriptors.std(axis=0)
    effects = {}
    for j in range(named.d_a):
        step = spread[j] * np.eye(named.d_a)[j]
        effects[f"trait {j}"] = min(cosine(own + step), cosine(own - step)) - cosine(own)
    best = min(effects, key=effects.get)
    assert entry["attributes"][0]["name"] == best
    assert entry["attributes"][0]["effect"] == pytest.approx(effects[best], abs=1e-5)
    assert best in entry["reason"] and entry["confused_with"] in entry["reason"]


def test_methods_without_a_space_for_examples_get_suggestions_too(data):
    found = suggest(fit(data, method="eszsl"), data.features[data.test_rows[:50]], count=3)
    assert len(found["pictures"]) == 3 and found["classes"]


def test_an_impossible_request_is_refused(scorer, data):
    with pytest.raises(ConfigError, match="`count`"):
        suggest(scorer, data.features[:5], count=0)
    with pytest.raises(DataError, match="no unlabelled pictures"):
        suggest(scorer, data.features[:0])
    with pytest.raises(DataError, match="NaN"):
        suggest(scorer, np.full((2, scorer.d_z), np.nan))
    single = suggest(scorer, data.features[:1])
    assert [picture["row"] for picture in single["pictures"]] == [0]
