"""Classes one by one, counted by hand."""

import numpy as np
import pytest

from classnorm.errors import DataError
from classnorm.report import group_results
from classnorm.report.summary import ClassResults, worst_classes
from classnorm.results.run_folder import find_results


def test_the_worst_classes_come_first_with_what_they_are_taken_for():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    predictions = np.array([[0, 1, 1, 2, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 2, 0]])
    classes = ClassResults(["a", "b", "c", "untested"], np.array([True, True, False, False]), labels, predictions)
    first, second, third = worst_classes(classes, number=9)
    assert (first.name, first.accuracy, first.rows, first.seen) == ("a", 25.0, 4, True)
    assert first.taken_for == (("b", 62.5), ("c", 12.5))  # 5 and 1 of 2 runs × 4 rows
    assert (second.name, second.accuracy, second.taken_for) == ("c", 25.0, (("a", 75.0),))
    assert (third.name, third.taken_for) == ("b", ())
    assert len(worst_classes(classes, number=1)) == 1


def test_the_mean_over_classes_of_a_side_is_the_score_of_that_side(write_run, tmp_path):
    result = write_run(tmp_path, calibration="bias:0.3")
    (group,) = group_results([result])
    accuracies, seen = group.classes.accuracies, group.classes.seen
    assert accuracies[0, seen].mean() == pytest.approx(result.scores["seen"])
    assert accuracies[0, ~seen].mean() == pytest.approx(result.scores["unseen"])


def test_runs_with_other_test_rows_are_not_averaged(write_run, tmp_path):
    write_run(tmp_path / "0", seed=0)
    write_run(tmp_path / "1", seed=1, classes=12)
    (group,) = group_results(find_results([tmp_path]))
    with pytest.raises(DataError, match="differ in their test rows"):
        _ = group.classes
