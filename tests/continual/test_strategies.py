"""What each strategy does to a step, by formulas of its own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from classnorm.continual import STRATEGIES, ContinualConfig
from classnorm.continual.strategies.agem import project_
from classnorm.continual.strategies.importance import mean_over_gradients

each_strategy = pytest.mark.parametrize(
    "name", [n for n in STRATEGIES if issubclass(STRATEGIES[n].Config, ContinualConfig)]
)


def linear_problem():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 5, generator=generator), torch.randint(3, (40,), generator=generator)
    torch.manual_seed(0)
    return nn.Linear(5, 3), x, y, torch.randperm(40, generator=generator)


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors])


# Importances.


def test_the_fisher_information_of_a_linear_softmax_model_is_the_analytic_one():
    """(p_k − [y = k])² x_j², the mean over the rows."""
    model, x, y, rows = linear_problem()
    fisher = mean_over_gradients(
        list(model.parameters()), lambda r: F.cross_entropy(model(x[r]), y[r]), torch.square, rows, batch_size=1
    )
    error = (model(x).softmax(dim=1) - F.one_hot(y, 3)).detach().square()
    torch.testing.assert_close(fisher[0], error.T @ x.square() / 40)
    torch.testing.assert_close(fisher[1], error.mean(dim=0))


def test_the_sensitivity_of_a_linear_model_has_its_closed_form():
    """|∂‖f‖²/∂W_kj| = |2 f_k x_j|, the mean over the rows."""
    model, x, _, rows = linear_problem()
    omega = mean_over_gradients(
        list(model.parameters()), lambda r: model(x[r]).square().sum(dim=1).mean(), torch.abs, rows, batch_size=1
    )
    outputs = model(x).detach().abs()
    torch.testing.assert_close(omega[0], 2 * outputs.T @ x.abs() / 40)
    torch.testing.assert_close(omega[1], 2 * outputs.mean(dim=0))


@pytest.mark.parametrize("name", ["ewc", "mas"])
@pytest.mark.parametrize("class_norm", [True, False])
def test_exact_importances_are_those_of_batches_of_one_row(before, name, class_norm, monkeypatch):
    monkeypatch.setattr("classnorm.continual.strategies.importance._GRADIENTS", 20_000)  # several parts
    exact = before(name, importance="exact", class_norm=class_norm)
    by_row = before(name, importance_batch=1, class_norm=class_norm)
    by_eight = before(name, class_norm=class_norm)
    for strategy in (exact, by_row, by_eight):
        strategy.problem.learner.eval()
    importance = exact.task_importance(1)
    # Sums of float32 in another order; EWC's are scaled to [0, 1].
    torch.testing.assert_close(importance, by_row.task_importance(1), rtol=1e-3, atol=1e-5)
    assert (flat(importance) - flat(by_eight.task_importance(1))).abs().max() > 0.01


def test_exact_importances_of_an_encoder_are_those_of_batches_of_one_row(stream, fast):
    from classnorm.continual.learner import FeatureInputs
    from classnorm.continual.strategies import StreamProblem

    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU())
    importances = []
    for changes in ({"importance": "exact"}, {"importance_batch": 1}):
        config = fast("ewc", **changes)
        learner = STRATEGIES["ewc"].new_learner(config, stream.dataset.d_a, 6, 0, encoder).eval()
        device = torch.device("cpu")
        problem = StreamProblem.of(stream, learner, FeatureInputs.of(stream.dataset, device), 0, device)
        importances.append(STRATEGIES["ewc"](problem, config).task_importance(0))
    torch.testing.assert_close(*importances, rtol=1e-3, atol=1e-5)


def test_a_last_batch_that_is_smaller_counts_by_its_rows():
    model, x, _, rows = linear_problem()
    value = lambda r: model(x[r]).sum(dim=1).mean()  # noqa: E731 (its gradient is linear in the rows, so batches do not matter)
    whole, in_parts = (
        mean_over_gradients(list(model.parameters()), value, lambda g: g, rows, size) for size in (40, 7)
    )
    torch.testing.assert_close(whole, in_parts)


def test_the_importances_of_EWC_are_scaled_to_one_and_the_earlier_ones_decay(before):
    strategy = before("ewc", decay=0.5)
    strategy.problem.learner.eval()
    first = flat(strategy.task_importance(0))
    assert (first.min(), first.max()) == (0.0, 1.0)
    strategy.after_task(0)
    second = flat(strategy.task_importance(1))
    strategy.after_task(1)
    torch.testing.assert_close(flat(strategy.importance.values()), 0.5 * first + second)


@pytest.mark.parametrize("name", ["ewc", "mas"])
def test_the_penalty_pulls_each_weight_back_by_its_importance(before, name):
    strategy = before(name, penalty=3.0)
    strategy.problem.learner.eval()
    strategy.after_task(0)
    parameters = list(strategy.parameters.values())
    for parameter in parameters:
        parameter.data += torch.randn_like(parameter)
        parameter.grad = torch.zeros_like(parameter)
    strategy.after_backward(1)
    penalty = 3.0 * sum(
        (strategy.importance[key] * (parameter - strategy.anchor[key]).square()).sum()
        for key, parameter in strategy.parameters.items()
    )
    torch.testing.assert_close([p.grad for p in parameters], list(torch.autograd.grad(penalty, parameters)))


def test_importances_leave_the_running_statistics_alone(before):
    strategy = before("ewc")
    strategy.problem.learner.eval()
    buffers = {name: value.clone() for name, value in strategy.problem.learner.named_buffers()}
    strategy.after_task(0)
    assert all(torch.equal(buffers[name], value) for name, value in strategy.problem.learner.named_buffers())


# A-GEM.


@pytest.mark.parametrize("seed", range(5))
def test_a_projected_gradient_does_not_point_against_the_reference(seed):
    generator = torch.Generator().manual_seed(seed)
    reference = [torch.randn(shape, generator=generator) for shape in ((4, 3), (7,))]
    noise = [torch.randn(part.shape, generator=generator) for part in reference]
    against = [n - 2 * r for n, r in zip(noise, reference, strict=True)]
    along = [n + 2 * r for n, r in zip(noise, reference, strict=True)]
    g, r = flat(against), flat(reference)
    assert g @ r < 0 < flat(along) @ r
    project_(against, reference)
    torch.testing.assert_close(flat(against), g - (g @ r) / (r @ r) * r)
    assert flat(against) @ r > -1e-5 * g.norm() * r.norm()
    kept = flat(along).clone()
    project_(along, reference)
    assert torch.equal(flat(along), kept)


def test_without_a_reference_a_gradient_stays():
    gradient = [torch.ones(3)]
    project_(gradient, [torch.zeros(3)])
    assert torch.equal(gradient[0], torch.ones(3))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_of_AGEM_is_projected_on_the_loss_of_the_memory(before, sign):
    strategy = before("agem", memory_batch=1000, memory_per_class=1000)  # all of it, so the reference is exact
    strategy.reseed(0, 0)
    strategy.after_task(0)
    parameters = list(strategy.parameters.values())
    loss = strategy.cross_entropy(1, strategy.problem.rows[0], strategy.classes(0))
    reference = torch.autograd.grad(loss, parameters)
    generator = torch.Generator().manual_seed(0)
    for parameter, part in zip(parameters, reference, strict=True):
        parameter.grad = sign * part + part.std() * torch.randn(part.shape, generator=generator)
    g, r = flat(p.grad for p in parameters), flat(reference)
    assert sign * (g @ r) > 0
    strategy.after_backward(1)
    expected = g if sign > 0 else g - (g @ r) / (r @ r) * r
    torch.testing.assert_close(flat(p.grad for p in parameters), expected)


@pytest.mark.parametrize("name", ["agem", "replay"])
def test_the_memory_holds_so_many_rows_of_every_class(before, name):
    strategy = before(name, memory_per_class=4)
    problem = strategy.problem
    for task in range(2):
        strategy.reseed(task, 0)
        strategy.after_task(task)
    n_seen = problem.bounds[2]
    assert problem.labels[strategy.memory].bincount().tolist() == [4] * n_seen
    assert len(strategy.memory.unique()) == 4 * n_seen
    assert set(strategy.memory.tolist()) <= set(torch.cat(problem.rows[:2]).tolist())
    assert len(strategy.remembered()) == min(20, 4 * n_seen)
    assert len(set(strategy.remembered().tolist())) == len(strategy.remembered())


# Label spaces.


@pytest.mark.parametrize(
    ("name", "start"),
    [("sequential", 4), ("ewc", 4), ("mas", 4), ("agem", 4), ("lwf", 4), ("multitask", 0), ("replay", 0)],
)
def test_the_softmax_is_over_the_classes_of_the_task_or_of_all_so_far(before, name, start):
    """By hand: embed all classes seen so far, keep the columns of the softmax."""
    strategy = before(name)
    problem, rows = strategy.problem, strategy.problem.rows[1][:7]
    assert strategy.classes(1) == range(start, 8)
    loss = strategy.loss(1, rows)
    prototypes = problem.learner.prototypes(problem.descriptors[:8])  # of 12
    features = problem.inputs.batch(rows)
    logits = 25 * F.cosine_similarity(features[:, None], prototypes[None], dim=2)
    log_p = logits[:, start:].log_softmax(dim=1)
    torch.testing.assert_close(loss, -log_p[torch.arange(7), problem.labels[rows] - start].mean())


def test_classes_in_the_order_of_learning_are_those_of_the_stream(before, stream):
    problem = before("sequential").problem
    for t, task in enumerate(stream.tasks):
        rows = problem.rows[t]
        order = torch.from_numpy(task)[problem.labels[rows] - problem.bounds[t]]
        assert torch.equal(order, torch.from_numpy(stream.labels)[rows])
        assert torch.equal(
            problem.descriptors[problem.bounds[t] : problem.bounds[t + 1]], torch.from_numpy(stream.descriptors[task])
        )


def test_rows_of_a_later_task_of_multitask_come_from_all_tasks_in_the_number_of_one(before):
    strategy = before("multitask")
    rows = strategy.rows(2, 0)
    assert len(rows) == len(rows.unique()) == len(strategy.problem.rows[2])
    assert {int(label) // 4 for label in strategy.problem.labels[rows]} == {0, 1, 2}


@each_strategy
def test_the_order_of_rows_depends_on_task_and_epoch_alone(before, name):
    strategy, other = before(name), before(name)
    other.rows(0, 0)
    other.shuffled(other.problem.rows[1])
    assert torch.equal(strategy.rows(1, 2), other.rows(1, 2))
    assert not torch.equal(strategy.rows(1, 2), strategy.rows(1, 3))


def test_replay_learns_from_the_batch_and_the_memory_together(before):
    strategy = before("replay", memory_per_class=100, memory_batch=1000, class_norm=False)
    rows = strategy.problem.rows[1][:6]
    strategy.reseed(0, 0)
    strategy.after_task(0)
    both = torch.cat([rows, strategy.problem.rows[0]])
    torch.testing.assert_close(strategy.loss(1, rows), strategy.cross_entropy(1, both, range(8)))


def test_distillation_is_nothing_as_long_as_the_learner_is_the_earlier_one(before):
    strategy = before("lwf", class_norm=False, distillation=5.0)
    rows = strategy.problem.rows[1]
    strategy.after_task(0)
    plain = strategy.cross_entropy(1, rows, strategy.classes(1))
    torch.testing.assert_close(strategy.loss(1, rows), plain)
    with torch.no_grad():
        strategy.problem.learner.embedder.output.weight.add_(torch.randn(16, 32))
    assert strategy.loss(1, rows) > strategy.cross_entropy(1, rows, strategy.classes(1)) + 0.01


def test_distillation_is_the_divergence_of_softened_scores(before):
    strategy = before("lwf", class_norm=False, distillation=0.7, temperature=3.0)
    problem, rows = strategy.problem, strategy.problem.rows[1]
    strategy.after_task(0)
    earlier = (strategy.logits(1, rows, range(4)).detach() / 3).softmax(dim=1)
    with torch.no_grad():
        problem.learner.embedder.output.weight.add_(torch.randn(16, 32))
    current = (strategy.logits(1, rows, range(4)) / 3).softmax(dim=1)
    divergence = (earlier * (earlier / current).log()).sum(dim=1).mean()
    expected = strategy.cross_entropy(1, rows, range(4, 8)) + 0.7 * 9 * divergence
    torch.testing.assert_close(strategy.loss(1, rows), expected)


# State.


@each_strategy
@pytest.mark.parametrize("tasks", [0, 2])
def test_the_state_goes_from_one_strategy_to_another(before, name, tasks):
    strategy, other = before(name), before(name)
    strategy.problem.learner.eval()
    for task in range(tasks):
        strategy.reseed(task, 0)
        strategy.after_task(task)
    state = strategy.state()
    other.load_state({key: value.clone() for key, value in state.items()})
    again = other.state()
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], value) for key, value in state.items())
