"""SGMA: where it looks, its losses against brute force, and rows that hold feature maps."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import ZeroShotDataset, load, save_folder
from classnorm.errors import ConfigError
from classnorm.methods import FitContext, resolve
from classnorm.scoring import Scorer, fit
from classnorm_lab.rivals.sgma import METHOD, center_triplet, compactness, diversity

CLASSES, UNSEEN, POSITIONS, ATTRIBUTES = 24, 6, 9, 8
SMALL = {
    "sharpness": 2.0,
    "hidden": 16,
    "epochs": 25,
    "lr": 5e-3,
    "batch_size": 64,
    "attribute_normalization": "standardize",
    "calibration": "none",
}
TINY = SMALL | {"epochs": 3}


def hidden_objects(rows=50, seed=0):
    """Maps of 3 × 3 positions. One holds the object, its attributes and a marker; the others show those of any class.

    Returns the dataset, and the position of the object in each row.
    """
    generator = np.random.default_rng(seed)
    descriptors = generator.uniform(0.1, 1.0, (CLASSES, ATTRIBUTES))
    labels = np.repeat(np.arange(CLASSES), rows)
    n = len(labels)
    shown = generator.integers(0, CLASSES, (n, POSITIONS))
    places = generator.integers(0, POSITIONS, n)
    shown[np.arange(n), places] = labels
    marker = (np.arange(POSITIONS) == places[:, None])[:, :, None]  # [n, positions, 1]
    maps = np.concatenate([descriptors[shown], marker], axis=2) + generator.uniform(0, 0.2, (n, POSITIONS, 9))
    is_seen = labels >= UNSEEN
    is_test = np.arange(n) % 5 == 0
    dataset = ZeroShotDataset.from_arrays(
        maps.reshape(n, -1),
        labels,
        descriptors,
        [f"c{i}" for i in range(CLASSES)],
        train=np.flatnonzero(is_seen & ~is_test),
        test_seen=np.flatnonzero(is_seen & is_test),
        test_unseen=np.flatnonzero(~is_seen),
        provenance={"maps": "3x3x9"},
    )
    return dataset, places


@pytest.fixture(scope="module")
def world():
    return hidden_objects()


@pytest.fixture(scope="module")
def scorer(world):
    return fit(world[0], "sgma", **SMALL)


def quick_fit(dataset, context=None, **changes):
    config = resolve(dataset, "sgma", **(TINY | changes))[1]
    return METHOD.fit(dataset, config, 0, context or FitContext(torch.device("cpu")))


def test_attention_finds_objects_that_the_mean_over_positions_drowns(world, scorer, accuracies):
    dataset, places = world
    with torch.no_grad():
        _, attention = scorer.model.attend(torch.from_numpy(dataset.features[dataset.test_rows]))
    found = attention.argmax(dim=2).numpy() == places[dataset.test_rows][:, None]  # [n, parts]
    assert found.mean(axis=0).max() > 0.9  # chance is 1 / 9
    without = fit(dataset, "sgma", **SMALL, parts=0)
    assert accuracies(scorer, dataset).zsl > accuracies(without, dataset).zsl + 30


def test_the_recipes_take_the_positions_from_the_dataset(world, small_dataset):
    for recipe in ("reference", "paper"):
        assert resolve(world[0], "sgma", recipe)[1].positions == POSITIONS
        assert resolve(small_dataset, "sgma", recipe)[1].positions == 1


def test_rows_that_are_no_maps_of_the_given_positions_are_refused(small_dataset):
    with pytest.raises(ConfigError, match=r"positions is 9, which does not divide the .* extract with `maps`"):
        quick_fit(small_dataset, positions=9)


def test_pooled_features_have_no_parts(small_dataset):
    model = quick_fit(small_dataset).model
    assert len(model.parts) == 0
    _, attention = model.attend(torch.from_numpy(small_dataset.features[:3]))
    assert attention.shape == (3, 0, 1)


def test_attention_maps_peak_at_one_and_weigh_the_positions(world, scorer):
    model = scorer.model
    features = torch.from_numpy(world[0].features[:5])
    maps = features.view(5, POSITIONS, 9)
    with torch.no_grad():
        vectors, attention = model.attend(features)
        pooled = maps.mean(dim=1)
        streams = [pooled]
        for part, module in enumerate(model.parts):
            hidden = (pooled @ module.first.weight.T + module.first.bias).clamp_min(0)
            weights = torch.sigmoid(hidden @ module.second.weight.T + module.second.bias)
            responses = torch.stack([(weights * maps[:, z]).sum(dim=1) for z in range(POSITIONS)], dim=1)
            standard = (responses - responses.mean(dim=1, keepdim=True)) / responses.std(
                dim=1, correction=0, keepdim=True
            )
            torch.testing.assert_close(
                attention[:, part] / attention[:, part].sum(dim=1, keepdim=True),
                (scorer.config.sharpness * standard).softmax(dim=1),
                rtol=0.02,  # the smoothing of the variance
                atol=1e-3,
            )
            streams.append(
                sum(attention[:, part, z, None] * maps[:, z] for z in range(POSITIONS))
                / attention[:, part].sum(dim=1, keepdim=True)
            )
        joined = torch.cat([3.0 * stream / stream.norm(dim=1, keepdim=True) for stream in streams], dim=1)
        torch.testing.assert_close(vectors, model.embedding(joined), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(attention.amax(dim=2), torch.ones(5, 2), rtol=0, atol=0)


def test_the_triplet_loss_compares_with_the_nearest_other_center():
    generator = torch.Generator().manual_seed(0)
    vectors, centers = torch.randn(6, 4, generator=generator), torch.randn(5, 4, generator=generator)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    losses = []
    for vector, label in zip(F.normalize(vectors, dim=1), labels.tolist(), strict=True):
        distances = [float((vector - center).square().sum()) for center in F.normalize(centers, dim=1)]
        nearest = min(distance for k, distance in enumerate(distances) if k != label)
        losses.append(max(0.0, 0.8 + distances[label] - nearest))
    assert float(center_triplet(vectors, centers, labels)) == pytest.approx(np.mean(losses), rel=1e-4)


def test_compactness_is_the_distance_from_a_gaussian_at_the_peak():
    attention = torch.rand(2, 3, 16, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for one in attention.reshape(6, 4, 4):
        peak = divmod(int(one.argmax()), 4)
        for y in range(4):
            for x in range(4):
                blob = math.exp(-((y - peak[0]) ** 2 + (x - peak[1]) ** 2) / 2)
                total += (float(one[y, x]) - blob) ** 2
    assert float(compactness(attention)) == pytest.approx(total / (6 * 16), rel=1e-5)


def test_diversity_is_the_overlap_with_the_largest_of_the_other_maps_beyond_a_margin():
    attention = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for image in attention.tolist():
        for i, one in enumerate(image):
            for z in range(4):
                other = max(image[k][z] for k in range(3) if k != i)
                total += one[z] * max(0.0, other - 0.2)
    assert float(diversity(attention)) == pytest.approx(total / 24, rel=1e-5)
    assert float(diversity(attention[:, :1])) == 0.0


def test_logits_are_products_with_normalized_descriptors(world, scorer):
    dataset, model = world[0], scorer.model
    with torch.no_grad():
        vectors, _ = model.attend(torch.from_numpy(dataset.features[:7]))
    x = vectors.double().numpy()
    table = dataset.descriptors.astype(np.float64)
    seen = table[dataset.seen]
    expected = x @ ((table - seen.mean(axis=0)) / seen.std(axis=0)).T
    np.testing.assert_allclose(scorer.logits(dataset.features[:7]), expected, rtol=1e-3, atol=1e-3)


def test_rows_in_files_train_the_same_model(world, tmp_path):
    """They fit into one pool, and are then read in the order of rows in memory."""
    dataset = world[0]
    save_folder(dataset, tmp_path / "maps")
    stored = load(tmp_path / "maps")
    assert stored.positions == POSITIONS
    one, other = quick_fit(dataset).model.state_dict(), quick_fit(stored).model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_saved_model_scores_the_same(world, scorer, tmp_path):
    loaded = Scorer.load(scorer.save(tmp_path))
    assert np.array_equal(loaded.scores(world[0].features[:50]), scorer.scores(world[0].features[:50]))


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (3, "positions is 3; it must be a square number"),
        (4, "positions is 4, but rows of .* are maps of 3x3x9; leave it out"),
    ],
)
def test_positions_other_than_those_of_the_maps_are_refused(world, positions, message):
    with pytest.raises(ConfigError, match=message):
        quick_fit(world[0], positions=positions)
