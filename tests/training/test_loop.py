"""The training loop on a problem whose solution is known."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from classnorm.errors import ConfigError, DivergedError, ModelError
from classnorm.training import FitContext, TrainingConfig, train

N, D, K = 300, 6, 3


class Killed(Exception):
    """Simulates a process killed during training."""


def problem():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(N, D, generator=generator)
    labels = (features @ torch.randn(D, K, generator=generator)).argmax(dim=1)
    return features, labels


def linear():
    torch.manual_seed(0)
    return nn.Linear(D, K)


def run(model, config, **options):
    features, labels = problem()
    return train(model, lambda x, y: F.cross_entropy(model(x), y), features, labels, config, **options)


def context(path, key, every=0, resume=False):
    return FitContext(torch.device("cpu"), path, every, resume, key)


def test_training_learns_a_linearly_separable_problem():
    model = linear()
    history = run(model, TrainingConfig(epochs=60, batch_size=32, lr=0.05, weight_decay=0.0))
    features, labels = problem()
    assert (model(features).argmax(dim=1) == labels).float().mean() > 0.97
    assert [record["epoch"] for record in history] == list(range(1, 61))
    assert history[-1]["loss"] < 0.3 * history[0]["loss"]


def test_full_batch_sgd_takes_the_steps_of_gradient_descent():
    model, expected = linear(), linear()
    run(
        model,
        TrainingConfig(
            epochs=5, batch_size=N, optimizer="sgd", lr=0.1, weight_decay=0.0, momentum=0.0, schedule="constant"
        ),
    )
    features, labels = problem()
    for _ in range(5):
        gradients = torch.autograd.grad(F.cross_entropy(expected(features), labels), list(expected.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(expected.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    torch.testing.assert_close(model.weight, expected.weight, rtol=1e-4, atol=1e-6)


def test_every_row_is_seen_once_in_every_epoch():
    seen = []
    model = nn.Linear(1, 1)
    features = torch.arange(10.0).unsqueeze(1)

    def loss(batch, labels):
        seen.append(labels.tolist())
        return model(batch).square().mean()

    train(model, loss, features, torch.arange(10), TrainingConfig(epochs=2, batch_size=4), seed=3)
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = sum(seen[:3], []), sum(seen[3:], [])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


class Pairs:
    """Two fixed rows per step, different in every epoch."""

    def __len__(self):
        return 2

    def epoch(self, number):
        yield torch.tensor([number, 9])
        yield torch.tensor([8, number])


def test_custom_batches_determine_the_rows_and_the_steps_of_an_epoch():
    seen, model = [], nn.Linear(1, 1)

    def loss(batch, labels):
        seen.append(labels.tolist())
        return model(batch).square().mean()

    features = torch.arange(10.0).unsqueeze(1)
    train(model, loss, features, torch.arange(10), TrainingConfig(epochs=2, batch_size=4), batches=Pairs())
    assert seen == [[0, 9], [8, 0], [1, 9], [8, 1]]


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_the_gradient_is_clipped_to_the_configured_norm(clip):
    model, before = linear(), linear()
    config = TrainingConfig(
        epochs=1, batch_size=N, optimizer="sgd", lr=1.0, weight_decay=0.0, momentum=0.0, grad_clip=clip
    )
    run(model, config)
    features, labels = problem()
    gradients = torch.autograd.grad(F.cross_entropy(before(features), labels), list(before.parameters()))
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    factor = min(1.0, clip / float(norm)) if clip else 1.0
    for ours, start, gradient in zip(model.parameters(), before.parameters(), gradients, strict=True):
        torch.testing.assert_close(ours, start - factor * gradient, rtol=1e-4, atol=1e-6)


def test_parameters_can_be_exempt_from_weight_decay():
    model = linear()
    config = TrainingConfig(epochs=1, batch_size=N, optimizer="sgd", lr=0.1, weight_decay=0.5, momentum=0.0)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    features, labels = problem()
    zero = lambda x, y: 0.0 * model(x).sum()  # noqa: E731 (no gradient: only the decay moves a weight)
    train(model, zero, features, labels, config, no_decay=[model.bias])
    torch.testing.assert_close(model.weight.detach(), 0.95 * start[0])
    assert torch.equal(model.bias.detach(), start[1])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    weights = []
    for seed in (0, 0, 1):
        model = linear()
        run(model, TrainingConfig(epochs=3, batch_size=32), seed=seed)
        weights.append(model.weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_killed_training_resumes_to_bit_identical_weights(tmp_path, optimizer, watching):
    config = TrainingConfig(epochs=9, batch_size=32, optimizer=optimizer, lr=0.01, schedule="cosine")
    whole = linear()
    run(whole, config)

    def kill(_, epoch):
        if epoch.done == 7:
            raise Killed

    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed), watching(kill):
        run(linear(), config, context=context(path, "key", every=3))
    epochs = []
    resumed = linear()
    with watching(lambda _, epoch: epochs.append(epoch.done)):
        history = run(resumed, config, context=context(path, "key", every=3, resume=True))
    assert epochs == [7, 8, 9]  # the checkpoint of epoch 6 was the last one
    assert len(history) == 9
    for ours, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_finished_training_resumes_without_a_step(tmp_path, watching):
    config = TrainingConfig(epochs=4, batch_size=32)
    path = tmp_path / "state.safetensors"
    whole, resumed = linear(), linear()
    run(whole, config, context=context(path, "key", every=3))
    epochs = []
    with watching(lambda _, epoch: epochs.append(epoch.done)):
        run(resumed, config, context=context(path, "key", resume=True))
    assert epochs == []
    assert torch.equal(whole.weight, resumed.weight)


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "state.safetensors"
    config = TrainingConfig(epochs=2, batch_size=32)
    run(linear(), config, context=context(path, "one", every=1))
    with pytest.raises(ConfigError, match="other data, settings or seed"):
        run(linear(), config, context=context(path, "two", resume=True))


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path):
    path = tmp_path / "state.safetensors"
    run(linear(), TrainingConfig(epochs=2, batch_size=32), context=context(path, "key", every=1))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"state\.safetensors"):
        run(linear(), TrainingConfig(epochs=2, batch_size=32), context=context(path, "key", resume=True))


def test_a_loss_that_is_not_finite_stops_with_step_rate_and_hint():
    model = nn.Linear(1, 1)
    calls = []

    def loss(batch, labels):
        calls.append(1)
        value = model(batch).square().mean()
        return value * float("nan") if len(calls) == 7 else value

    features, labels = torch.ones(16, 1), torch.zeros(16, dtype=torch.long)
    with pytest.raises(DivergedError, match=r"step 7 \(epoch 2, learning rate 0\.0005\); try less"):
        train(
            model, loss, features, labels, TrainingConfig(epochs=3, batch_size=4, schedule="constant"), hint="try less"
        )


def test_a_loss_that_grows_a_hundredfold_stops_the_training():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    # Gradient descent on w² with step 1.05 multiplies w by −1.1: the loss passes 100 after 25 epochs of one step.
    config = TrainingConfig(
        epochs=40, batch_size=4, optimizer="sgd", lr=1.05, momentum=0.0, weight_decay=0.0, schedule="constant"
    )
    with pytest.raises(DivergedError, match=r"rose from 1 to .* \(epoch 26,"):
        train(model, lambda x, _: model(x).square().mean(), torch.ones(4, 1), torch.zeros(4, dtype=torch.long), config)


def test_long_epochs_report_their_steps(monkeypatch, watching):
    reports = []
    config = TrainingConfig(epochs=1, batch_size=150)
    with watching(lambda _, step: reports.append(step)):
        run(linear(), config, context=context(None, ""))
    assert [(step.done, step.total) for step in reports] == [(1, 1)]
    monkeypatch.setattr("classnorm.training.loop._SECONDS_BETWEEN_REPORTS", -1.0)
    with watching(lambda _, step: reports.append(step)):
        run(linear(), config, context=context(None, ""))
    assert [step.note for step in reports[1:3]] == ["step 1 of 2", "step 2 of 2"]
    assert [step.done for step in reports[1:]] == [0, 0, 1]
