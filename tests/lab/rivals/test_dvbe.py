"""DVBE: its two heads against formulas, the gate between them, and the adaptive margin."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import SyntheticConfig, ZeroShotDataset, load, save_folder, synthetic, validation_dataset
from classnorm.data.provenance import Provenance
from classnorm.errors import ConfigError
from classnorm.methods import FitContext, resolve
from classnorm.metrics import seen_unseen_curve
from classnorm.scoring import fit
from classnorm_lab.rivals.dvbe import METHOD, SecondOrderClassifier, margin_cross_entropy

SMALL = {"hidden": 64, "channels": 16, "epochs": 20, "lr": 5e-3, "calibration": "none"}
TINY = SMALL | {"hidden": 16, "channels": 4, "epochs": 3}


@pytest.fixture(scope="module")
def scorer(small_dataset):
    return fit(small_dataset, "dvbe", **SMALL)


@pytest.fixture(scope="module")
def split(small_dataset):
    """A validation split: rows of seen classes, and of classes held out of training."""
    return validation_dataset(small_dataset, "matched", 0)


def quick_fit(dataset, context=None, seed=0, **changes):
    config = resolve(dataset, "dvbe", **(TINY | changes))[1]
    return METHOD.fit(dataset, config, seed, context or FitContext(torch.device("cpu"))).model


def entropies(scorer, features):
    """Entropy of the seen posterior of each row, by NumPy."""
    with torch.no_grad():
        logits = scorer.model.visual_logits(torch.from_numpy(np.array(features, np.float32))).double().numpy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)


def auroc(scores, positive):
    """Share of pairs of a positive and another row that the score orders correctly."""
    pairs = scores[positive][:, None] - scores[~positive][None]
    return float((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def test_the_entropy_tells_rows_of_held_out_classes_from_those_of_seen_ones(split):
    rows = split.test_rows
    unseen = ~split.seen[split.labels[rows]]
    scorer = fit(split, "dvbe", **SMALL)
    assert auroc(entropies(scorer, split.features[rows]), unseen) > 0.8  # chance is 0.5


def test_the_gate_raises_the_area_under_the_curve(split):
    """With the gate alone in charge of the decision, as published, against unseen scores that ignore the row."""
    rows = split.test_rows
    features, labels = split.features[rows], split.labels[rows]
    gated = fit(split, "dvbe", **SMALL | {"gate_weight": 100.0})
    scores = gated.logits(features)
    ungated = scores - np.where(split.seen, 0.0, 100.0 * entropies(gated, features)[:, None])
    ungated[:, ~split.seen] -= ungated[:, ~split.seen].max(axis=1, keepdims=True)
    ungated[:, split.seen] -= ungated[:, split.seen].max(axis=1, keepdims=True)
    areas = [seen_unseen_curve(s, labels, split.seen).area for s in (scores, ungated)]
    assert areas[0] > areas[1] + 3


def test_the_adaptive_margin_makes_seen_posteriors_sharper(small_dataset):
    train = small_dataset.features[small_dataset.split.train]
    plain, sharp = (
        entropies(fit(small_dataset, "dvbe", **SMALL | {"margin_width": width}), train).mean() for width in (0.0, 1.0)
    )
    assert sharp < 0.9 * plain


def test_the_margin_counts_the_lead_over_the_mean_logit_less_the_lower_the_probability():
    logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    losses = []
    for row, label in zip(logits, labels, strict=True):
        p = row.exp() / row.exp().sum()
        changed = row.clone()
        changed[label] = row.mean() + torch.exp(-((p[label] - 1) ** 2) / 0.7) * (row[label] - row.mean())
        losses.append(changed.exp().sum().log() - changed[label])
    torch.testing.assert_close(margin_cross_entropy(logits, labels, 0.7), torch.stack(losses).mean())
    torch.testing.assert_close(margin_cross_entropy(logits, labels, 0.0), F.cross_entropy(logits, labels))


@pytest.mark.parametrize("positions", [1, 9])
def test_second_order_features_are_signed_roots_of_sums_of_products_scaled_to_one_length(positions):
    classifier = SecondOrderClassifier(d_z=6, channels=4, n_classes=3, seed=0).double()
    maps = torch.randn(5, positions, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    products = torch.einsum("nzi,nzj->nij", classifier.left(maps), classifier.right(maps)).flatten(1)
    roots = products.sign() * products.abs().sqrt()
    unit = roots / roots.norm(dim=1, keepdim=True)
    expected = classifier.output(2 * unit)
    torch.testing.assert_close(classifier(maps), expected, rtol=1e-3, atol=1e-3)  # up to the smoothing at 0
    with torch.no_grad():
        torch.testing.assert_close(classifier(maps), expected, rtol=1e-3, atol=1e-3)


def pairs_of_channels(rows=60, seed=0):
    """Maps of 2 × 2 positions and 4 channels, each at work in two positions.

    The mean over positions is the same for all classes; they differ in which channels work together.
    """
    generator = np.random.default_rng(seed)
    together = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    labels = np.repeat(np.arange(3), rows)
    maps = np.zeros((len(labels), 4, 4))
    for row, label in zip(maps, labels, strict=True):
        for position, pair in zip(generator.permutation(4), together[label] * 2, strict=True):
            row[position, list(pair)] = 1.0
    maps += 0.1 * generator.standard_normal(maps.shape)
    is_test = np.arange(len(labels)) % 5 == 0
    return ZeroShotDataset.from_arrays(
        maps.reshape(len(labels), -1),
        labels,
        np.eye(4)[:3] + 0.1,
        ["a", "b", "c"],
        train=np.flatnonzero(~is_test & (labels < 2)),
        test_seen=np.flatnonzero(is_test & (labels < 2)),
        test_unseen=np.flatnonzero(labels == 2),
        provenance={"maps": "2x2x4"},
    )


def seen_accuracy(scorer, dataset):
    """Of seen test rows among seen classes, by the visual classifier."""
    rows = dataset.split.test_seen
    with torch.no_grad():
        logits = scorer.model.visual_logits(torch.from_numpy(dataset.features[rows]))
    return float((logits.argmax(dim=1).numpy() == dataset.labels[rows]).mean())


def test_on_feature_maps_products_tell_classes_apart_that_have_the_same_mean_over_positions():
    dataset = pairs_of_channels()
    scorer = fit(dataset, "dvbe", **SMALL)
    assert scorer.config.positions == 4
    assert seen_accuracy(scorer, dataset) > 0.95
    means = dataset.features.reshape(-1, 4, 4).mean(axis=1)
    pooled = dataclasses.replace(dataset, features=means, provenance=Provenance())
    assert seen_accuracy(fit(pooled, "dvbe", **SMALL), pooled) < 0.8  # chance is 0.5


def test_on_feature_maps_unseen_classes_are_compared_with_the_mean_over_positions():
    dataset = pairs_of_channels()
    scorer = fit(dataset, "dvbe", **SMALL | {"gate_weight": 0.0})
    means = torch.from_numpy(dataset.features).view(-1, 4, 4).mean(dim=1)
    prototypes = torch.from_numpy(scorer.prototypes()[:, :-1])
    aligned = scorer.config.gamma**2 * F.cosine_similarity(means[:, None], prototypes[None], dim=2)
    expected = aligned[:, 2] - aligned[:, :2].logsumexp(dim=1)
    np.testing.assert_allclose(scorer.logits(dataset.features)[:, 2], expected.numpy(), rtol=1e-3, atol=1e-3)


def test_positions_other_than_those_of_the_maps_are_refused():
    with pytest.raises(ConfigError, match=r"positions is 2, but rows of .* are maps of 2x2x4; leave it out"):
        quick_fit(pairs_of_channels(), positions=2)


def test_channels_are_standardized_over_training_rows_and_positions():
    dataset = pairs_of_channels()
    normalization = quick_fit(dataset).feature_normalization
    values = dataset.features[dataset.split.train].astype(np.float64).reshape(-1, 4)
    np.testing.assert_allclose(normalization.mean, values.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(normalization.std, values.std(axis=0), rtol=1e-5)


def test_maps_in_files_train_the_same_model(tmp_path):
    dataset = pairs_of_channels()
    save_folder(dataset, tmp_path / "maps")
    one, other = (quick_fit(rows).state_dict() for rows in (dataset, load(tmp_path / "maps")))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_logits_are_log_posteriors_of_seen_and_gated_alignments_of_unseen_classes(small_dataset, scorer):
    features, seen = small_dataset.features[:9], small_dataset.seen
    model, config = scorer.model, scorer.config
    x = torch.from_numpy(features)
    with torch.no_grad():
        p = model.visual_logits(x).softmax(dim=1).double().numpy()
        cosines = F.cosine_similarity(x[:, None], torch.from_numpy(scorer.prototypes()[:, :-1])[None], dim=2)
    aligned = config.gamma**2 * cosines.double().numpy()
    gate = config.gate_weight * entropies(scorer, features)[:, None]
    reference = np.log(np.exp(aligned[:, seen]).sum(axis=1, keepdims=True))
    logits = scorer.logits(features)
    np.testing.assert_allclose(logits[:, seen], np.log(p), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(logits[:, ~seen], (aligned - reference + gate)[:, ~seen], rtol=1e-3, atol=1e-3)


def test_a_class_added_later_counts_as_unseen_and_a_seen_one_is_seen_again(small_dataset, scorer):
    names = small_dataset.class_names
    seen, unseen = (int(np.flatnonzero(mask)[0]) for mask in (small_dataset.seen, ~small_dataset.seen))
    rest = scorer.only([name for c, name in enumerate(names) if c not in (seen, unseen)])
    rounded = {names[c]: [float(f"{value:.6g}") for value in small_dataset.descriptors[c]] for c in (seen, unseen)}
    again = rest.add_classes(rounded).logits(small_dataset.features[:20])
    expected = scorer.logits(small_dataset.features[:20])
    np.testing.assert_allclose(again[:, -2], expected[:, seen], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(again[:, -1], expected[:, unseen], rtol=1e-3, atol=1e-3)


def test_the_paper_recipe_trains():
    dataset = synthetic(SyntheticConfig(classes=8, unseen=2, rows=160, features=12, attributes=6))
    scorer = fit(dataset, "dvbe", recipe="paper", epochs=3, channels=8, validation_splits=1)
    assert np.isfinite(scorer.scores(dataset.features)).all()
    assert scorer.calibration.kind in ("bias", "none")
