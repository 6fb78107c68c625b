"""Models against a reference: which one it is, and by how much they differ."""

import pytest

from classnorm.errors import ConfigError
from classnorm.report import group_results
from classnorm.report.differences import compare, reference_label
from classnorm.results.run_folder import find_results


@pytest.fixture(scope="module")
def folder(write_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for recipe, skill in {"weak": 1.0, "middling": 2.0, "strong": 3.5}.items():
        for seed in (0, 1):
            write_run(folder / recipe / str(seed), recipe, seed, skill=skill)
    return folder


@pytest.fixture(scope="module")
def groups(folder):
    return group_results(find_results([folder]))


def test_the_reference_is_the_best_model_unless_another_is_named(groups):
    assert compare(groups).reference.label == "classnorm · strong"
    assert compare(groups, "classnorm · weak").reference.label == "classnorm · weak"
    assert compare(groups, "not on this dataset").reference.label == "classnorm · strong"


def test_differences_are_those_of_the_table(groups):
    comparison = compare(groups, "classnorm · middling")
    assert set(comparison.differences) == {"classnorm · weak", "classnorm · strong"}
    mean = {group.label: group.mean for group in groups}
    for label, differences in comparison.differences.items():
        for name, difference in differences.items():
            expected = mean[label](name) - mean["classnorm · middling"](name)
            assert difference.value == pytest.approx(expected)
            assert difference.low <= difference.value <= difference.high


@pytest.mark.parametrize("name", ["classnorm · weak", "weak", "folder", "run"])
def test_a_reference_is_named_by_its_label_a_part_of_it_or_its_folder(groups, folder, name):
    against = {"folder": str(folder / "weak"), "run": str(folder / "weak" / "1")}.get(name, name)
    assert reference_label(groups, against) == "classnorm · weak"


def test_an_unknown_reference_is_refused_with_the_known_ones(groups):
    with pytest.raises(ConfigError, match=r"'wek'.*classnorm · weak"):
        reference_label(groups, "wek")


def test_an_ambiguous_reference_is_refused(groups, folder):
    for against in ("classnorm", str(folder)):
        with pytest.raises(ConfigError, match="could be any of"):
            reference_label(groups, against)
