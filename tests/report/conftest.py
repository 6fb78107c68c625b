"""Run folders written by hand: predictions with a known answer, no training."""

from __future__ import annotations

import pytest

from classnorm.report import group_results, write_report
from classnorm.results.run_folder import find_results


@pytest.fixture(scope="session")
def report_on_two_datasets(write_run, tmp_path_factory):
    """The folder of a report on two datasets, and models with names as long as they get."""
    folder = tmp_path_factory.mktemp("report")
    for number, dataset in enumerate(("one", "two/three_with_a_rather_long_name_and_no_spaces_in_it_to_break_at")):
        runs = folder / "runs" / str(number)
        write_run(runs / "a", dataset=dataset, skill=1.0 + number, validated=True, calibration="scale:0.9")
        write_run(runs / "b", "a_recipe_with_a_very_long_name_" * 2, dataset=dataset, skill=3.0, device="cuda:3")
    write_report(group_results(find_results([folder / "runs"])), folder, "A page with some quite long title or other")
    return folder
