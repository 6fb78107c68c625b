"""The ablations beyond the paper, on a tiny dataset."""

import pytest

from classnorm.results.run_folder import find_results
from classnorm_lab.paper.beyond import beyond, measure_beyond

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcome(reproduce, tiny, tmp_path_factory):
    reproduction = reproduce(tmp_path_factory.mktemp("beyond"), tiny, seeds=1, shorten=50)
    return beyond(measure_beyond(reproduction)), find_results([reproduction.runs])


def test_each_row_leaves_out_one_part_of_the_model(outcome):
    artifact, results = outcome
    kernel, best = artifact.tables
    models = {"Kernel prototypes": kernel, "3-layer MLP + CN, recipe best": best}
    configs = {result.document["recipe"]: result.document["config"] for result in results}
    for label, table in models.items():
        for row in table.body:
            name = row[0].text
            if name.startswith("…"):
                one, other = configs[name], configs[label]  # without added settings that have their default
                changed = {key for key in one | other if one.get(key) != other.get(key)}
                assert 1 <= len(changed) <= 3, (name, changed)


def test_the_table_shows_the_scores_of_the_runs(outcome):
    artifact, results = outcome
    scores = {result.document["recipe"]: result.scores["harmonic"] for result in results}
    for table in artifact.tables:
        for row in table.body:
            assert float(row[3].text) == pytest.approx(scores[row[0].text], abs=0.051)


def test_whitening_is_swept_from_none_to_beyond_full(outcome):
    [plot] = outcome[0].plots
    assert [series.label for series in plot.series] == ["H", "T1"]
    assert plot.series[0].x[0] == 0.0 and plot.series[0].x[-1] > 0.5
    assert len(outcome[0].verdicts) == 2 * 8  # calibrated and as released
