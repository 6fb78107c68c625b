"""Continual scores against direct transcriptions of their formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.metrics import continual_scores, gzsl_scores


def stream(seed, sizes, per_class=3):
    """Random logits that get better with the tasks, labels, and tasks over shuffled classes."""
    generator = np.random.default_rng(seed)
    classes = generator.permutation(sum(sizes))
    tasks = np.split(classes, np.cumsum(sizes)[:-1])
    labels = generator.permutation(np.repeat(np.arange(len(classes)), per_class))
    history = [generator.normal(size=(len(labels), len(classes))) for _ in sizes]
    for step, logits in enumerate(history):
        known = np.isin(labels, np.concatenate(tasks[: step + 1]))
        logits[known, labels[known]] += 1.5
    return history, labels, tasks


def transcribed(history, labels, tasks):
    """Every formula, word by word, with loops."""
    T = len(tasks)

    def class_average(logits, rows):
        values = []
        for c in sorted(set(labels[rows])):
            mine = [i for i in rows if labels[i] == c]
            values.append(sum(logits[i].argmax() == c for i in mine) / len(mine))
        return 100 * sum(values) / len(values)

    def rows_of(groups):
        wanted = {c for group in groups for c in group}
        return [i for i in range(len(labels)) if labels[i] in wanted]

    S = [class_average(history[t], rows_of(tasks[: t + 1])) for t in range(T)]
    U = [class_average(history[t], rows_of(tasks[t + 1 :])) for t in range(T - 1)]
    H = [0.0 if s + u == 0 else 2 * s * u / (s + u) for s, u in zip(S[:-1], U, strict=True)]
    J = [class_average(history[t], list(range(len(labels)))) for t in range(T)]
    a = [[class_average(history[t], rows_of([task])) / 100 for task in tasks] for t in range(T)]
    forgetting = sum(max(a[k][j] for k in range(j, T - 1)) - a[T - 1][j] for j in range(T - 1)) / (T - 1)
    return {
        "mSA": sum(S) / T,
        "mUA": sum(U) / (T - 1),
        "mH": sum(H) / (T - 1),
        "mJA": sum(J) / T,
        "forgetting": forgetting,
    }


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_each_score_is_its_formula(seed, sizes):
    history, labels, tasks = stream(seed, sizes)
    scores = continual_scores(history, labels, tasks)
    for name, value in transcribed(history, labels, tasks).items():
        assert getattr(scores, name) == pytest.approx(value, abs=1e-9), name


def test_mauc_is_the_mean_of_the_areas_up_to_the_last_task_but_one():
    history, labels, tasks = stream(3, [2, 3, 2, 4])
    areas = []
    for t in range(3):
        seen = np.isin(np.arange(11), np.concatenate(tasks[: t + 1]))
        areas.append(gzsl_scores(history[t], labels, seen).ausuc)
    assert continual_scores(history, labels, tasks).mAUC == pytest.approx(np.mean(areas))


@pytest.mark.parametrize("average", ["class", "sample"])
def test_two_tasks_give_exactly_the_gzsl_scores_after_the_first(average):
    history, labels, tasks = stream(5, [4, 3])
    seen = np.isin(np.arange(7), tasks[0])
    expected = gzsl_scores(history[0], labels, seen, average)
    scores = continual_scores(history, labels, tasks, average)
    assert (scores.mUA, scores.mH, scores.mAUC) == (expected.unseen, expected.harmonic, expected.ausuc)
    assert scores.per_task[0]["seen"] == expected.seen


def test_a_record_from_before_the_first_task_changes_nothing():
    history, labels, tasks = stream(1, [2, 2, 2])
    before = [np.zeros_like(history[0]), *history]
    assert continual_scores(before, labels, tasks).summary() == continual_scores(history, labels, tasks).summary()


def test_a_single_task_has_no_unseen_scores():
    history, labels, tasks = stream(2, [4])
    scores = continual_scores(history, labels, tasks)
    assert np.isnan([scores.mUA, scores.mH, scores.mAUC, scores.forgetting]).all()
    assert scores.mSA == scores.mJA


def test_perfect_memory_forgets_nothing_and_loss_of_all_forgets_everything():
    labels, tasks = np.array([0, 1, 2]), [[0], [1], [2]]
    right = np.eye(3)
    assert continual_scores([right] * 3, labels, tasks).forgetting == 0
    shifted = np.roll(np.eye(3), 1, axis=1)
    assert continual_scores([right, right, shifted], labels, tasks).forgetting == 1


@pytest.mark.parametrize(
    ("tasks", "steps", "message"),
    [([[0], [1, 2]], 1, "as many logits"), ([[0], [1]], 2, "each of the 3 classes once"), ([], 0, "as many logits")],
)
def test_arguments_that_do_not_fit_are_refused(tasks, steps, message):
    with pytest.raises(ValueError, match=message):
        continual_scores([np.eye(3)] * steps, [0, 1, 2], tasks)
