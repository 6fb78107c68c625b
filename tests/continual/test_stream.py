"""Streams: which class is in which task, which row is learnt from, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from classnorm.continual import TaskStream
from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.errors import ConfigError, DataError


def sizes(stream):
    return [len(task) for task in stream.tasks]


def test_every_class_is_in_one_task_and_every_row_in_one_part(dataset):
    stream = TaskStream.make(dataset, 5, seed=3)
    assert sorted(np.concatenate(stream.tasks)) == list(range(12))
    assert sorted([*stream.train_rows, *stream.test_rows]) == list(range(dataset.n_rows))
    assert np.array_equal(stream.test_labels, dataset.labels[stream.test_rows])
    assert stream.class_names == dataset.class_names
    for t, task in enumerate(stream.tasks):
        assert set(dataset.labels[stream.train(t)]) == set(dataset.labels[stream.test(t)]) == set(task)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [(1, [12]), (5, [2, 2, 2, 3, 3]), (6, [2] * 6), ([5, 3, 4], [5, 3, 4]), (None, [2] * 6)],
)
def test_tasks_have_the_sizes_asked_for_or_nearly_equal_ones(dataset, tasks, expected):
    assert sizes(TaskStream.make(dataset, tasks)) == expected


@pytest.mark.parametrize(
    ("benchmark", "classes", "expected"),
    [("CUB", 200, [20] * 10), ("SUN", 717, [47] * 3 + [48] * 12), (None, 50, [5] * 10)],
)
def test_a_benchmark_has_its_own_tasks(monkeypatch, benchmark, classes, expected):
    monkeypatch.setattr("classnorm.data.dataset.recognise", lambda *_: benchmark)
    data = synthetic(SyntheticConfig(classes=classes, unseen=2, rows=2 * classes, features=2, attributes=2))
    assert sizes(TaskStream.make(data)) == expected


def test_without_an_official_split_each_class_is_split_by_the_share(dataset):
    stream = TaskStream.make(dataset, 3, test_share=0.2)
    assert stream.split == "stratified"
    assert np.bincount(stream.test_labels).tolist() == [6] * 12  # of 30 rows
    assert not np.array_equal(stream.test_rows, TaskStream.make(dataset, 3, seed=1, test_share=0.2).test_rows)


def test_a_class_of_one_row_is_learnt_and_one_of_two_is_also_tested(arrays):
    labels = np.array([0] * 10 + [1] * 2 + [2] * 8 + [3] * 9 + [4])
    data = dataset_of(arrays, labels)
    stream = TaskStream.make(data, [2, 3], test_share=0.99)
    assert np.bincount(data.labels[stream.train_rows], minlength=5).tolist() == [1, 1, 1, 1, 1]
    assert np.bincount(stream.test_labels, minlength=5).tolist() == [9, 1, 7, 8, 0]


def dataset_of(arrays, labels):
    return ZeroShotDataset.from_arrays(
        arrays["features"], labels, arrays["descriptors"], arrays["class_names"].tolist(), train=np.arange(len(labels))
    )


def test_the_official_split_is_used_and_an_argument_replaces_it(dataset):
    own = np.arange(dataset.n_rows) // 12 % 3 > 0  # 20 of the 30 rows of each class
    official = replace(dataset, is_train=own)
    stream = TaskStream.make(official, 3)
    assert stream.split == "official"
    assert np.array_equal(stream.train_rows, np.flatnonzero(own))
    other = TaskStream.make(official, 3, is_train=~own)
    assert np.array_equal(other.train_rows, np.flatnonzero(~own))


def test_the_checksum_tells_tasks_and_rows_apart(dataset):
    one = TaskStream.make(dataset, 3, seed=0)
    assert one.checksum == TaskStream.make(dataset, 3, seed=0).checksum
    others = [
        TaskStream.make(dataset, 3, seed=1),
        TaskStream.make(dataset, 4, seed=0),
        TaskStream.make(dataset, 3, seed=0, test_share=0.3),
        one.part(0, 2),
    ]
    assert len({one.checksum, *(other.checksum for other in others)}) == 5


def test_a_part_has_only_its_classes_and_rows(dataset):
    stream = TaskStream.make(dataset, 4, seed=2)
    part = stream.part(1, 3)
    kept = np.concatenate(stream.tasks[1:3])
    assert part.n_tasks == 2
    assert sorted(np.concatenate(part.tasks)) == list(range(len(kept)))
    assert set(part.classes) == set(kept)
    assert np.array_equal(part.descriptors, dataset.descriptors[part.classes])
    for t in range(2):
        assert set(part.classes[part.tasks[t]]) == set(stream.tasks[t + 1])
        assert np.array_equal(part.train(t), stream.train(t + 1))
        assert np.array_equal(part.test(t), stream.test(t + 1))
    assert np.array_equal(part.classes[part.test_labels], dataset.labels[part.test_rows])


def test_a_part_of_a_part_is_the_part(dataset):
    stream = TaskStream.make(dataset, 4, seed=2)
    assert stream.part(1).part(1).checksum == stream.part(2).checksum
    assert np.array_equal(stream.part(1).part(1).test_labels, stream.part(2).test_labels)


def test_the_parts_of_a_stream_share_no_class_and_no_row(stream):
    first, rest = stream.part(0, 1), stream.part(1)
    assert not set(first.class_names) & set(rest.class_names)
    assert len(first.train_rows) + len(rest.train_rows) == len(stream.train_rows)


def test_a_task_as_tensors_has_its_rows_in_the_joint_label_space(stream, dataset):
    part = stream.part(1)
    train_x, train_y, test_x, test_y = part.tensors(1)
    assert train_x.shape == (len(train_y), dataset.d_z) and test_x.shape == (len(test_y), dataset.d_z)
    assert set(train_y.tolist()) == set(test_y.tolist()) == set(part.tasks[1].tolist())
    assert np.array_equal(train_x.numpy(), dataset.features[part.train(1)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tasks": 0}, "set `tasks` to 1 to 6"),
        ({"tasks": 7}, "set `tasks` to 1 to 6"),
        ({"tasks": [6, 5]}, "add up to the 12 classes, not 11"),
        ({"tasks": [11, 1]}, "at least 2 each"),
        ({"tasks": []}, "not 0"),
        ({"seed": -1}, "at least 0"),
        ({"test_share": 1.0}, "between 0 and 1"),
    ],
)
def test_tasks_that_cannot_be_made_are_refused(dataset, arguments, says):
    with pytest.raises(ConfigError, match=says):
        TaskStream.make(dataset, **arguments)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (2, 1), (0, 4), (-1, 2)])
def test_a_part_that_is_not_there_is_refused(stream, start, stop):
    with pytest.raises(ConfigError, match="3 tasks has no part"):
        stream.part(start, stop)


def test_image_splits_that_do_not_fit_are_refused(dataset):
    with pytest.raises(DataError, match="is_train has shape"):
        TaskStream.make(dataset, 3, is_train=[True, False])
    with pytest.raises(DataError, match="no training row"):
        TaskStream.make(dataset, 3, is_train=dataset.labels != 4)
    with pytest.raises(DataError, match="no test rows"):
        TaskStream.make(dataset, 3, is_train=np.ones(dataset.n_rows))
