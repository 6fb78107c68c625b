"""The continual table and curves on small data."""

import json

import pytest

from classnorm.runs.validation_sequence import paper_grid
from classnorm_lab.paper import czsl
from classnorm_lab.paper.published import published


@pytest.fixture(scope="module")
def few():
    """Two pairs of arms, and the analytic strategy; a small grid of the paper."""
    with pytest.MonkeyPatch.context() as patch:
        arms = [arm for arm in czsl.ARMS if arm.strategy in ("sequential", "replay", "analytic")]
        patch.setattr(czsl, "ARMS", arms)
        yield


@pytest.fixture(scope="module")
def reproduction(reproduce, tiny, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), tiny, seeds=2, stream_epochs=1)


@pytest.fixture(scope="module")
def numbers(reproduction, few):
    return json.loads(json.dumps(czsl.measure_czsl_table(reproduction), allow_nan=False))


@pytest.mark.slow
def test_the_continual_table_has_three_protocols_and_the_published_figures(numbers):
    artifact = czsl.czsl_table(numbers)
    of_paper, wider, fixed, selection, paper = artifact.tables
    labels = ["Sequential", "Sequential + CN", "Replay", "Replay + CN", "Analytic (ours)"]
    assert [row[0].text for row in wider.body] == labels
    assert [row[0].text for row in of_paper.body] == [row[0].text for row in fixed.body] == labels[:2]
    assert "momentum 0.9" in of_paper.body[0][-1].text and "grad_clip" in of_paper.body[0][-1].text
    assert "lr 0.0" in wider.body[0][-1].text and "bias" in wider.body[-1][-1].text
    assert wider.body[-1][3].text == wider.body[-1][-2].text  # the analytic strategy always has the bias
    assert [row[1].text for row in selection.body] == ["mAUC", "mH", "mJA"] * 2
    assert selection.body[0][2:8] == wider.body[0][1:7]
    edges = [choice for row in wider.body for choice in row[-1].text.split(";") if "edge" in choice]
    assert any("at an edge of our wider grid" in note for note in artifact.notes) == bool(edges)
    assert "%" in wider.body[1][3].text and "%" not in wider.body[0][3].text
    assert len(paper.body) == 10
    assert len(artifact.verdicts) == 3 * 2  # Sequential only: Replay is not in the paper
    assert {verdict.scoring for verdict in artifact.verdicts} == set(czsl.PROTOCOLS.values())
    assert any("averaged over 8 rows" in note for note in artifact.notes)


@pytest.mark.slow
def test_the_settings_of_the_paper_are_chosen_from_its_grid(numbers, reproduction):
    grid = paper_grid("sequential").values
    chosen = [run["chosen"] for run in numbers["runs"] if run["protocol"] == "paper"]
    assert all(len(group) == 2 for group in chosen)
    for text in (text for group in chosen for text in group):
        settings = dict(part.split(" ") for part in text.replace(" (edge)", "").split(", "))
        assert list(settings) == list(grid)
        assert float(settings["lr"]) in grid["lr"] and float(settings["momentum"]) in grid["momentum"]


@pytest.mark.slow
def test_the_continual_curves_end_when_no_class_is_unseen(reproduction, few):
    artifact = czsl.czsl_curves(json.loads(json.dumps(czsl.measure_czsl_curves(reproduction))))
    length = {plot.y_label: {len(series.x) for series in plot.series} for plot in artifact.plots}
    steps = 10 - 3  # tasks after the validation sequence
    assert length["GZSL-S (%)"] == {steps}
    assert length["GZSL-U (%)"] == length["AUSUC (%)"] == {steps - 1}


def test_arms_with_and_without_cn_differ_in_nothing_else(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny, seeds=1)
    arms = {arm.label: arm for arm in czsl.ARMS}
    for arm in arms.values():
        if arm.class_norm:
            [cn], [plain] = (czsl.arm_experiments(reproduction, tiny.dataset, a) for a in (arm, arms[arm.model]))
            assert cn.config.as_dict() | {"class_norm": False} == plain.config.as_dict()
            assert (cn.seed, cn.part, cn.stream.checksum) == (plain.seed, plain.part, plain.stream.checksum)


def test_published_continual_figures_are_as_printed():
    table = published("czsl-table")
    assert table["Sequential + ClassNorm"].cells["CUB mH"] == "23.0"
    assert table["Multi-task"].cells["SUN mJA"] == "14.9"
    assert table["MAS-online"].cells["CUB forgetting"] == "0.08"
    for arm in czsl.ARMS:
        assert not arm.published or arm.published in table
