"""LsrGAN: its losses against brute force, and what they do to generated features."""

import numpy as np
import pytest
import torch

from classnorm.methods import FitContext, resolve
from classnorm_lab.rivals.lsrgan import METHOD, LsrGANTraining, Relations, class_means
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows
from classnorm_lab.rivals.parts.generator import GenerativeModel

QUICK = {"hidden": 64, "epochs": 8, "lr": 1e-3, "critic_steps": 2, "classifier_epochs": 2, "synthesized": 20}
CPU = FitContext(torch.device("cpu"))


def quick_fit(dataset, **changes):
    return METHOD.fit(dataset, resolve(dataset, "lsrgan", **(QUICK | changes))[1], 0, CPU).model


def cosine(one, other):
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def real_means(model, dataset):
    """Means of the scaled training features of each seen class: [n_seen, d_z]."""
    train = dataset.split.train
    scaled = model.scale(torch.from_numpy(dataset.features[train])).numpy()
    return np.stack([scaled[dataset.labels[train] == c].mean(axis=0) for c in np.flatnonzero(dataset.seen)])


def generated_means(model, descriptors):
    return model.synthesize(torch.from_numpy(descriptors), 64, torch.Generator().manual_seed(9)).mean(dim=1).numpy()


def test_means_of_classes():
    features, labels = torch.arange(10.0).reshape(5, 2), torch.tensor([2, 0, 2, 1, 0])
    assert class_means(features, labels, 3).tolist() == [[5.0, 6.0], [6.0, 7.0], [2.0, 3.0]]


def test_the_relation_loss_equals_its_formula_pair_by_pair():
    draws = torch.Generator().manual_seed(0)
    descriptors, seen = (torch.rand(n, 5, generator=draws) for n in (4, 6))
    means, generated = (torch.rand(n, 8, generator=draws) for n in (6, 3))
    classes = torch.tensor([2, 0, 3])
    expected = []
    for k, row in zip(classes.tolist(), generated.numpy(), strict=True):
        wanted = np.array([cosine(descriptors[k].numpy(), a) for a in seen.numpy()])
        for j in np.argsort(-wanted)[:2]:
            similarity = cosine(row, means[j].numpy())
            expected.append(max(0, similarity - wanted[j] - 0.05) ** 2 + max(0, wanted[j] - 0.05 - similarity) ** 2)
    loss = Relations(descriptors, seen, means, neighbours=2).loss(classes, generated, slack=0.05)
    assert max(expected) > 0
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-4)


def test_the_relation_loss_has_a_gradient_for_seen_and_for_unseen_classes(tiny_data):
    config = resolve(tiny_data, "lsrgan", **QUICK, classification_weight=0.0, centroid_weight=0.0)[1]
    model = GenerativeModel(config, 6, 5, 8)
    draws = torch.Generator().manual_seed(0)
    features, descriptors = torch.rand(32, 5, generator=draws), torch.rand(8, 6, generator=draws)
    labels = torch.arange(32) % 4
    training = LsrGANTraining(model, ScaledRows(features, labels, descriptors[:4], descriptors[4:]), config, 0)
    batch = Batch(features, labels, descriptors[labels], draws)
    for relations, part in ((training.seen, descriptors[:4]), (training.unseen, descriptors[4:])):
        classes, means = training.generated_means(part, config.mean_rows, batch)
        [slope] = torch.autograd.grad(relations.loss(classes, means, 0.0), [model.generator.feature.weight])
        assert float(slope.abs().max()) > 0


def test_generated_means_of_unseen_classes_mirror_the_descriptors_better_with_the_relation_loss(tiny_data):
    unseen, seen = tiny_data.descriptors[~tiny_data.seen], tiny_data.descriptors[tiny_data.seen]
    wanted = np.array([[cosine(a, b) for b in seen] for a in unseen])
    errors = {}
    for weight in (0.0, 1000.0):
        model = quick_fit(tiny_data, relation_weight=weight, relation_slack=0.0, neighbours=6)
        real = real_means(model, tiny_data)
        found = np.array([[cosine(m, r) for r in real] for m in generated_means(model, unseen)])
        nearest = np.argsort(-wanted, axis=1)[:, :6]
        errors[weight] = np.abs(np.take_along_axis(found - wanted, nearest, axis=1)).mean()
    assert errors[1000.0] < 0.7 * errors[0.0]


def test_generated_means_of_seen_classes_are_nearer_to_the_real_ones_with_the_centroid_loss(tiny_data):
    distances = {}
    for weight in (0.0, 10.0):
        model = quick_fit(tiny_data, centroid_weight=weight, relation_weight=0.0)
        difference = generated_means(model, tiny_data.descriptors[tiny_data.seen])
        distances[weight] = np.linalg.norm(difference - real_means(model, tiny_data), axis=1).mean()
    assert distances[10.0] < 0.8 * distances[0.0]


def test_the_released_recipe_lacks_only_the_relation_loss(tiny_data):
    paper, released = (resolve(tiny_data, "lsrgan", recipe)[1] for recipe in ("paper", "released"))
    assert paper.relation_weight > 0
    assert released == paper.replace(relation_weight=0.0)


def test_it_trains_without_unseen_classes(seen_only):
    model = quick_fit(seen_only, epochs=1)
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
