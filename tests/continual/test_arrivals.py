"""Hard streams: when rows and attributes arrive, and what the strategies make of it."""

import dataclasses

import numpy as np
import pytest
import torch

from classnorm.continual import StreamOptions, TaskStream, run_stream
from classnorm.continual.strategies import STRATEGIES
from classnorm.errors import ConfigError
from classnorm.metrics import continual_scores


def hard(dataset, **options):
    return TaskStream.make(dataset, 4, seed=1, arrivals=StreamOptions(**options))


def task_of(stream, label):
    return next(t for t, task in enumerate(stream.tasks) if label in task)


def arrivals(stream, label):
    """The tasks in which the training rows of a class arrive, in ascending order."""
    return sorted(t for t in range(stream.n_tasks) for row in stream.train(t) if stream.labels[row] == label)


def test_a_plain_stream_is_what_it_was(dataset):
    plain, explicit = TaskStream.make(dataset, 4, seed=1), hard(dataset)
    assert plain.checksum == explicit.checksum
    assert np.array_equal(plain.known_descriptors(0), plain.descriptors)


def test_the_share_of_a_blurry_class_arrives_later_and_nothing_earlier(dataset):
    stream, plain = hard(dataset, blurry=0.4), TaskStream.make(dataset, 4, seed=1)
    assert np.array_equal(stream.train_rows, plain.train_rows) and np.array_equal(stream.test_rows, plain.test_rows)
    assert sorted(np.concatenate([stream.train(t) for t in range(4)])) == list(stream.train_rows)
    for label in range(12):
        own, when = task_of(stream, label), arrivals(stream, label)
        late = 0 if own == 3 else 6  # 40 % of 15 rows
        assert when.count(own) == 15 - late and min(when) == own
    assert len({t for label in stream.tasks[0] for t in arrivals(stream, label)}) == 4  # stragglers come in any task


def test_a_returning_class_comes_back_once_with_half_of_its_rows(dataset):
    stream = hard(dataset, returning=0.67)  # 2 of the 3 classes of a task
    for task in range(3):
        visits = [sorted({t: arrivals(stream, label).count(t) for t in arrivals(stream, label)}.values())
                  for label in stream.tasks[task]]  # fmt: skip
        assert sorted(visits) == [[7, 8], [7, 8], [15]]


def test_the_richest_task_has_so_many_times_the_rows_of_the_poorest(dataset):
    stream = hard(dataset, imbalance=5.0)
    per_class = sorted({len(stream.train(t)) / 3 for t in range(4)})
    assert per_class == [3, 5, 9, 15]  # 15 rows times 5 to the power −1, −2/3, −1/3 and 0, rounded
    assert np.array_equal(stream.test_rows, TaskStream.make(dataset, 4, seed=1).test_rows)


def test_late_attributes_are_zero_until_their_task(dataset):
    stream = hard(dataset, late_attributes=0.6)
    unknown = [int((stream.known_descriptors(t) == 0).all(axis=0).sum()) for t in range(4)]
    assert unknown == [6, 4, 2, 0]  # 6 of 10 attributes, 2 of them with each later task
    assert np.array_equal(stream.known_descriptors(3), dataset.descriptors)
    part = stream.part(2)
    assert np.array_equal(part.known_descriptors(0), stream.known_descriptors(2)[part.classes])


@pytest.mark.parametrize(
    "options",
    [{"blurry": 0.3}, {"returning": 0.5}, {"imbalance": 3.0}, {"late_attributes": 0.5}, {"rows_at_once": 4}],
)
def test_each_option_changes_the_checksum_and_the_seed_decides_the_rest(dataset, options):
    stream = hard(dataset, **options)
    assert stream.checksum == hard(dataset, **options).checksum != hard(dataset).checksum
    assert stream.arrivals.changed() == options


def test_a_part_of_a_blurry_stream_has_only_rows_that_arrive_in_it(dataset):
    stream = hard(dataset, blurry=0.4)
    first, rest = stream.part(0, 2), stream.part(2)
    assert np.array_equal(first.train(0), stream.train(0))
    kept = [row for row in stream.train(2) if dataset.labels[row] in {*stream.tasks[2], *stream.tasks[3]}]
    assert rest.train(0).tolist() == kept
    assert not set(first.train_rows) & set(rest.train_rows)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"blurry": 1.5}, "blurry is 1.5; it must lie between 0 and 1"),
        ({"imbalance": 0.5}, "imbalance is 0.5; it must be at least 1"),
        ({"rows_at_once": -1}, "rows_at_once is -1; it must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused(dataset, options, says):
    with pytest.raises(ConfigError, match=says):
        hard(dataset, **options)


# Strategies.


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_learns_the_hardest_stream(dataset, fast, name):
    everything = {"blurry": 0.3, "returning": 0.3, "imbalance": 2.0, "late_attributes": 0.5, "rows_at_once": 5}
    stream = hard(dataset, **everything)
    result = run_stream(stream, name, fast(name))
    scores = continual_scores(result.history, stream.test_labels, stream.tasks).summary()
    assert scores["mJA"] > 100 / 12 * 1.5  # chance is a twelfth


def test_analytic_ends_with_the_same_model_however_the_rows_arrived(dataset, fast):
    plain, blurry = TaskStream.make(dataset, 4, seed=1), hard(dataset, blurry=0.5, returning=0.5, rows_at_once=1)
    one, other = (run_stream(stream, "analytic", fast("analytic")) for stream in (plain, blurry))
    np.testing.assert_allclose(one.history[-1], other.history[-1], atol=2e-3)  # logits up to 30, sums in another order
    assert np.abs(one.history[1] - other.history[1]).max() > 0.1


def test_a_task_with_earlier_classes_has_a_softmax_over_all_so_far(dataset, fast, strategy_of):
    strategy = strategy_of(hard(dataset, blurry=0.4), "sequential")
    assert [strategy.classes(t) for t in range(4)] == [range(3), range(6), range(9), range(12)]
    strategy = strategy_of(hard(dataset), "sequential")
    assert [strategy.classes(t) for t in range(4)] == [range(3), range(3, 6), range(6, 9), range(9, 12)]


def test_a_returning_class_does_not_take_more_memory(dataset, strategy_of):
    strategy = strategy_of(hard(dataset, returning=1.0), "replay", memory_per_class=4)
    for task in range(4):
        strategy.reseed(task, 0)
        strategy.after_task(task)
    assert strategy.problem.labels[strategy.memory].bincount().tolist() == [4] * 12


def test_rows_that_arrive_apart_get_all_their_steps_before_the_next(dataset, strategy_of):
    strategy = strategy_of(hard(dataset, rows_at_once=10), "sequential", epochs=3, batch_size=8)
    batches = list(strategy.batches(0, 0))
    assert [len(batch) for batch in batches] == [8, 2] * 3 * 4 + [5] * 3  # 45 rows of 3 classes
    order = strategy.rows(0, 0)
    for arrival in range(4):
        steps = batches[6 * arrival : 6 * arrival + 6]
        assert torch.equal(torch.cat(steps), order[10 * arrival : 10 * arrival + 10].repeat(3))


def test_a_hard_run_resumes_to_the_same_logits(dataset, fast, tmp_path, monkeypatch):
    stream = hard(dataset, blurry=0.3, late_attributes=0.5, rows_at_once=5)
    whole = run_stream(stream, "agem", fast("agem"))
    learn = STRATEGIES["agem"].learn

    def killed(self, task):
        if task == 2:
            raise KeyboardInterrupt
        return learn(self, task)

    monkeypatch.setattr(STRATEGIES["agem"], "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        run_stream(stream, "agem", fast("agem"), folder=tmp_path)
    monkeypatch.undo()
    resumed = run_stream(stream, "agem", fast("agem"), folder=tmp_path, resume=True)
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert np.array_equal(one, other)


def test_unknown_attributes_do_not_reach_the_learner(dataset, fast):
    """Noise in attributes that are unknown until the last task changes no logits before it."""
    stream = hard(dataset, late_attributes=0.6)
    late = stream.attribute_tasks == 3
    noisy = dataset.descriptors.copy()
    noisy[:, late] = np.random.default_rng(0).random((12, late.sum()))
    other = dataclasses.replace(stream, dataset=dataclasses.replace(dataset, descriptors=noisy))
    for name in ("sequential", "analytic"):
        one, two = (run_stream(s, name, fast(name)).history for s in (stream, other))
        assert all(np.array_equal(a, b) for a, b in zip(one[:4], two[:4], strict=True))
        assert not np.array_equal(one[4], two[4])
