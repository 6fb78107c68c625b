"""The learner: its two arms, and what it does to an encoder."""

import torch
from torch import nn

from classnorm.continual import ContinualConfig, Learner
from classnorm.nn import ClassStandardization


def learner(**changes):
    return Learner(ContinualConfig(**changes), d_a=40, d_z=300, seed=0)


def variance(layer):
    return float(layer.weight.detach().var())


def test_with_class_norm_the_last_layer_has_standardized_inputs_and_proper_variance():
    embedder = learner().embedder
    assert isinstance(embedder.body[-1], ClassStandardization)
    assert abs(variance(embedder.output) * 300 * 256 - 1) < 0.05
    assert embedder.output.in_features == 256


def test_without_it_both_layers_start_with_the_variance_of_kaiming():
    embedder = learner(class_norm=False).embedder
    assert not any(isinstance(module, ClassStandardization) for module in embedder.modules())
    assert abs(variance(embedder.output) * 256 / 2 - 1) < 0.05
    assert abs(variance(embedder.body[0]) * 40 / 2 - 1) < 0.05


def test_the_final_relu_and_the_distribution_are_choices():
    descriptors = torch.rand(10, 40)
    assert learner().prototypes(descriptors).min() == 0
    assert learner(final_relu=False).prototypes(descriptors).min() < 0
    uniform, normal = (learner(init_distribution=d).embedder.output.weight for d in ("uniform", "normal"))
    assert uniform.abs().max() / uniform.std() < 1.8 < normal.abs().max() / normal.std()


def test_prototypes_of_some_classes_are_those_among_all():
    model, descriptors = learner(), torch.rand(10, 40)
    some = model.prototypes(descriptors, torch.arange(3, 6))
    torch.testing.assert_close(some, model.prototypes(descriptors)[3:6])


def test_a_class_not_seen_yet_is_embedded_the_same_whatever_stands_beside_it():
    model, descriptors = learner(), torch.rand(10, 40)
    model.prototypes(descriptors[:5])
    model.eval()
    torch.testing.assert_close(model.prototypes(descriptors)[7:], model.prototypes(descriptors[7:]))


def test_the_encoder_keeps_its_batch_statistics():
    encoder = nn.Sequential(nn.Linear(4, 300), nn.BatchNorm1d(300), nn.Dropout(0.5))
    model = Learner(ContinualConfig(), d_a=40, d_z=300, seed=0, encoder=encoder).train()
    assert not encoder[1].training and encoder[2].training and model.embedder.training
    model.logits(torch.rand(8, 4) + 9, model.prototypes(torch.rand(10, 40)))
    assert torch.equal(encoder[1].running_mean, torch.zeros(300))
