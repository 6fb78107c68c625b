"""Tables as data."""

from classnorm.results.artifact import ranks


def test_ranks_are_shared_by_ties_and_none_for_what_was_not_measured():
    assert ranks([50.0, 60.0, 60.04, 40.0]) == [None, 1, 1, None]
    assert ranks([50.0, 60.0, 40.0]) == [2, 1, None]
    assert ranks([float("nan"), 60.0]) == [None, 1]
