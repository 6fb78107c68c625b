"""The continual table and curves on small data."""

from dataclasses import replace

import pytest

from classnorm.reproduce import czsl
from classnorm.reproduce.published import published

pytestmark = pytest.mark.slow


@pytest.fixture
def reproduction(reproduce, tiny, tmp_path):
    return reproduce(tmp_path, tiny, seeds=2, stream_epochs=1)


@pytest.fixture
def few(monkeypatch):
    """Two pairs of arms, and the analytic strategy."""
    arms = [arm for arm in czsl.ARMS if arm.strategy in ("sequential", "replay", "analytic")]
    monkeypatch.setattr(czsl, "ARMS", arms)


def test_the_continual_table_has_both_protocols_and_the_published_figures(reproduction, few):
    artifact = czsl.czsl_table(reproduction)
    tuned, untuned, selection, paper = artifact.tables
    labels = ["Sequential", "Sequential + CN", "Replay", "Replay + CN", "Analytic (ours)"]
    assert [row[0].text for row in tuned.body] == [row[0].text for row in untuned.body] == labels
    assert "lr 0.0" in tuned.body[0][-1].text and "bias" in tuned.body[-1][-1].text
    assert tuned.body[-1][3].text == tuned.body[-1][-2].text  # the analytic strategy always has the bias
    assert [row[1].text for row in selection.body] == ["mAUC", "mH", "mJA"] * 2
    assert selection.body[0][2:8] == [replace(cell) for cell in tuned.body[0][1:7]]
    edges = [choice for row in tuned.body for choice in row[-1].text.split(";") if "edge" in choice]
    assert any("at an edge of the grid" in note for note in artifact.notes) == bool(edges)
    assert "%" in tuned.body[1][3].text and "%" not in tuned.body[0][3].text
    assert len(paper.body) == 10
    assert {verdict.verdict for verdict in artifact.verdicts} <= {"holds", "holds weakly", "does not hold"}
    assert len(artifact.verdicts) == 2 * 2  # Sequential only: Replay is not in the paper


def test_the_continual_curves_end_when_no_class_is_unseen(reproduction, few):
    artifact = czsl.czsl_curves(reproduction)
    length = {plot.y_label: {len(series.x) for series in plot.series} for plot in artifact.plots}
    steps = 10 - 3  # tasks after the validation sequence
    assert length["GZSL-S (%)"] == {steps}
    assert length["GZSL-U (%)"] == length["AUSUC (%)"] == {steps - 1}


def test_published_continual_figures_are_as_printed():
    table = published("czsl-table")
    assert table["Sequential + ClassNorm"].cells["CUB mH"] == "23.0"
    assert table["Multi-task"].cells["SUN mJA"] == "14.9"
    assert table["MAS-online"].cells["CUB forgetting"] == "0.08"
    for arm in czsl.ARMS:
        assert not arm.published or arm.published in table
