"""The generative engine: synthesis in one pass, networks a method adds, and what its classifier sees."""

import numpy as np
import torch
from torch import nn

from classnorm.methods import FitContext
from classnorm_lab.rivals.parts import generator
from classnorm_lab.rivals.parts.adversarial import AdversarialTraining, Batch, ScaledRows, generative_fit
from classnorm_lab.rivals.parts.generator import GenerativeConfig, GenerativeModel

CONFIG = GenerativeConfig(hidden=16, epochs=2, critic_steps=2, synthesized=20, classifier_epochs=2, calibration="none")
CPU = FitContext(torch.device("cpu"))


class Doubled(GenerativeModel):
    """The classifier sees each feature and its square."""

    def __init__(self, config, d_a, d_z, n_known):
        super().__init__(config, d_a, d_z, n_known)
        self.classifier = nn.Linear(2 * d_z, n_known)

    def transform(self, features):
        return torch.cat([features, features.square()], dim=-1)


class WithDecoder(AdversarialTraining):
    """A network that maps generated features back to descriptors learns together with the generator."""

    def generators(self):
        self.decoder = nn.Linear(self.rows.features.shape[1], self.rows.seen.shape[1])
        return super().generators() | {"decoder": self.decoder}

    def generator_loss(self, batch):
        fake = self.model.generate(batch.noise(), batch.descriptors)
        loss = (self.decoder(fake) - batch.descriptors).square().mean()
        self.losses = [*getattr(self, "losses", []), float(loss.detach())]
        return loss


def test_synthesis_in_one_pass_equals_that_of_each_class_alone(tiny_data, monkeypatch):
    model = generative_fit(GenerativeModel, AdversarialTraining)(tiny_data, CONFIG, 0, CPU).model
    table = torch.from_numpy(tiny_data.descriptors)
    together = model.synthesize(table, 7, torch.Generator().manual_seed(5))
    alone = [model.synthesize(a[None], 7, torch.Generator().manual_seed(5))[0] for a in table]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(generator, "_BLOCK_ROWS", 16)  # two classes at a time
    in_blocks = model.synthesize(table, 7, torch.Generator().manual_seed(5))
    torch.testing.assert_close(in_blocks, together, rtol=1e-4, atol=1e-5)


def test_synthesis_calls_the_generator_once_however_many_classes_there_are(tiny_data, monkeypatch):
    model = GenerativeModel(CONFIG, tiny_data.d_a, tiny_data.d_z, tiny_data.n_classes)
    calls = []
    monkeypatch.setattr(model, "generate", lambda noise, a: calls.append(a.shape) or model.generator(noise, a))
    for classes in (1, 2, 500):
        model.synthesize(torch.ones(classes, tiny_data.d_a), 20, torch.Generator())
    assert calls == [(1, 20, tiny_data.d_a), (2, 20, tiny_data.d_a), (500, 20, tiny_data.d_a)]


def test_the_generator_step_leaves_the_critic_alone_and_the_critic_step_the_generator(tiny_data):
    model = GenerativeModel(CONFIG, tiny_data.d_a, tiny_data.d_z, tiny_data.n_classes)
    draws = torch.Generator().manual_seed(0)
    features, seen = torch.rand(40, tiny_data.d_z, generator=draws), torch.randn(8, tiny_data.d_a, generator=draws)
    training = AdversarialTraining(model, ScaledRows(features, torch.arange(40) % 8, seen, seen[:0]), CONFIG, 0)
    batch = Batch(features, torch.arange(40) % 8, seen[torch.arange(40) % 8], draws)
    training.critic_loss(batch).backward()
    assert all(parameter.grad is None for parameter in model.generator.parameters())
    before = {name: value.clone() for name, value in training.critic.state_dict().items()}
    optimizer = torch.optim.SGD(training.networks.parameters(), 0.0)
    training.train_round(optimizer, [batch])
    assert all(parameter.grad is None for parameter in training.critic.parameters())
    assert all(parameter.requires_grad for parameter in training.networks.parameters())
    assert all(torch.equal(value, before[name]) for name, value in training.critic.state_dict().items())


def test_a_network_that_a_method_adds_is_trained(tiny_data):
    trainings = []

    def training(*arguments):
        trainings.append(WithDecoder(*arguments))
        return trainings[-1]

    generative_fit(GenerativeModel, training)(tiny_data, CONFIG, 0, CPU)
    assert np.mean(trainings[0].losses[-5:]) < np.mean(trainings[0].losses[:5])


def test_the_classifier_sees_transformed_features_of_known_and_new_classes(tiny_data):
    model = generative_fit(Doubled, AdversarialTraining)(tiny_data, CONFIG, 0, CPU).model
    rows = torch.from_numpy(tiny_data.features[:9])
    descriptors = torch.from_numpy(tiny_data.descriptors)
    prototypes = model.prototypes(torch.cat([descriptors, 1.3 * descriptors[:1]]))
    assert prototypes.shape == (tiny_data.n_classes + 1, 2 * tiny_data.d_z + 1)
    scaled = (rows - model.low) / model.span
    known = model.classifier(torch.cat([scaled, scaled**2], dim=1))
    torch.testing.assert_close(model.logits(rows, prototypes)[:, :-1], known)
