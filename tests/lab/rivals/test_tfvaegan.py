"""TF-VAEGAN: the semantic decoder, its feedback into the generator, and what the final classifier sees."""

import pytest
import torch
import torch.nn.functional as F

from classnorm.methods import FitContext, resolve
from classnorm.training import gradient_step
from classnorm_lab.rivals.parts.adversarial import Batch, ScaledRows
from classnorm_lab.rivals.tfvaegan import METHOD, TFVAEGANConfig, TFVAEGANModel, TFVAEGANTraining

QUICK = {
    "hidden": 128, "epochs": 10, "lr": 2e-3, "decoder_lr": 2e-3, "critic_steps": 2, "classifier_lr": 1e-2,
    "classifier_epochs": 10, "calibration": "none",
}  # fmt: skip
TINY = QUICK | {"hidden": 16, "epochs": 3, "classifier_epochs": 2, "synthesized": 20}
CPU = torch.device("cpu")


def quick_fit(dataset, context=None, **changes):
    config = resolve(dataset, "tfvaegan", **(TINY | changes))[1]
    return METHOD.fit(dataset, config, 0, context or FitContext(CPU))


@pytest.fixture(scope="module")
def trained():
    """A short training, and the batch of all rows."""
    draws = torch.Generator().manual_seed(0)
    descriptors = F.normalize(torch.randn(12, 6, generator=draws)) * 6**0.5
    labels = torch.randint(12, (800,), generator=draws)
    of_class = 0.7 * descriptors[labels] @ torch.randn(6, 24, generator=draws)
    features = (of_class + 0.5 * torch.randn(800, 24, generator=draws)).sigmoid()
    config = TFVAEGANConfig(
        hidden=64, batch_size=32, epochs=4, lr=3e-4, decoder_lr=3e-3, critic_steps=1, semantic_weight=10.0
    )
    rows = ScaledRows(features, labels, descriptors, descriptors[:0])
    training = TFVAEGANTraining(TFVAEGANModel(config, 6, 24, 12), rows, config, 0)
    training.run(FitContext(CPU))
    return training, Batch(features, labels, descriptors[labels], draws)


def test_feedback_alone_improves_the_descriptors_of_generated_rows(trained):
    training, batch = trained
    model, noise = training.model, batch.noise()

    def error(feedback):
        with torch.no_grad():
            return float(training.semantic_loss(model.generate(noise, batch.descriptors, feedback), batch.descriptors))

    before, without = error(True), error(False)
    training.networks.requires_grad_(False)
    model.feedback.requires_grad_(True)
    optimizer = torch.optim.Adam(model.feedback.parameters(), 3e-3)
    training.feedback = True
    for _ in range(200):
        gradient_step(optimizer, training.generator_loss(batch))
    assert error(False) == without
    assert error(True) < 0.85 * min(before, without)  # we see 0.6; with other seeds 0.5 to 0.7


@torch.no_grad()
def test_the_second_pass_adds_the_feedback_to_the_hidden_layer_of_the_generator(trained):
    training, batch = trained
    model, noise = training.model, batch.noise()
    inputs = torch.cat([noise, batch.descriptors], dim=1)
    hidden = F.leaky_relu(inputs @ model.generator.hidden.weight.T + model.generator.hidden.bias, 0.2)
    first = model.generator.feature(hidden).sigmoid()
    inner = F.leaky_relu(model.feedback.first(F.leaky_relu(model.decoder.hidden(first), 0.2)), 0.2)
    feedback = F.leaky_relu(model.feedback.second(inner), 0.2)
    second = model.generator.feature(hidden + feedback).sigmoid()
    torch.testing.assert_close(model.generate(noise, batch.descriptors, feedback=False), first)
    torch.testing.assert_close(model.generate(noise, batch.descriptors), second)


@torch.no_grad()
def test_the_semantic_loss_is_the_distance_of_directions(trained):
    training, batch = trained
    decoded = training.model.decoder(batch.real)
    expected = [
        sum(abs(p / float(row.norm()) - q / float(a.norm())) for p, q in zip(row.tolist(), a.tolist(), strict=True))
        for row, a in zip(decoded[:50], batch.descriptors[:50], strict=True)
    ]
    ours = training.semantic_loss(batch.real[:50], batch.descriptors[:50])
    assert float(ours) == pytest.approx(sum(expected) / 50, rel=1e-4)


def test_the_classifier_sees_features_joined_with_hidden_layer_and_descriptor(small_dataset):
    model = quick_fit(small_dataset).model.requires_grad_(False)
    rows = torch.from_numpy(small_dataset.features[:9])
    scaled = (rows - model.low) / model.span
    hidden = F.leaky_relu(model.decoder.hidden(scaled), 0.2)
    decoded = model.decoder.descriptor(hidden)
    joined = torch.cat([scaled, hidden, decoded / decoded.norm(dim=1, keepdim=True)], dim=1)
    assert joined.shape[1] == model.classifier.in_features
    logits = model.logits(rows, model.prototypes(torch.from_numpy(small_dataset.descriptors)))
    torch.testing.assert_close(logits, model.classifier(joined), rtol=1e-4, atol=1e-4)


def test_decoder_and_feedback_have_their_own_learning_rates(small_dataset):
    """Adam moves no weight by more than its rate in the first step."""
    config = TFVAEGANConfig(hidden=16, batch_size=64, lr=1e-3, decoder_lr=1e-4, feedback_lr=1e-5)
    draws = torch.Generator().manual_seed(0)
    features, table = torch.rand(64, 10, generator=draws), torch.randn(4, 6, generator=draws)
    labels = torch.arange(64) % 4
    training = TFVAEGANTraining(
        TFVAEGANModel(config, 6, 10, 4), ScaledRows(features, labels, table, table[:0]), config, 0
    )
    before = {name: value.clone() for name, value in training.networks.state_dict().items()}
    training.feedback = True
    gradient_step(
        torch.optim.Adam(training.parameter_groups(), config.lr),
        training.generator_loss(Batch(features, labels, table[labels], draws)),
    )
    moved = {name: float((value - before[name]).abs().max()) for name, value in training.networks.state_dict().items()}
    for network, rate in {"generator": 1e-3, "encoder": 1e-3, "decoder": 1e-4, "feedback": 1e-5}.items():
        largest = max(value for name, value in moved.items() if name.startswith(network))
        assert largest == pytest.approx(rate, rel=0.1)
