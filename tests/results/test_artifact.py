"""Tables as data."""

from classnorm.results.artifact import ranks


def test_ties_share_a_rank_and_nan_has_none():
    assert ranks([50.0, 60.0, 60.04, 40.0]) == [None, 1, 1, None]
    assert ranks([50.0, 60.0, 40.0]) == [2, 1, None]
    assert ranks([float("nan"), 60.0]) == [None, 1]
