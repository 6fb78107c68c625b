"""Figures of the paper on small data: complete, cached, and consistent with their data."""

import json

import numpy as np
import pytest

from classnorm.data import save_gbu
from classnorm_lab.paper.datasets import PaperDataset, find_datasets
from classnorm_lab.paper.figures import FIGURES, samples
from classnorm_lab.paper.seen_scales_figure import SCALES

EFFORT = {
    "seeds": 2,
    "diagnosis_width": 8,
    "variance_iterations": 12,
    "smoothness_iterations": 6,
    "smoothness_every": 3,
    "formula_dimension": 1024,
}


@pytest.fixture(scope="module")
def reproduction(reproduce, tiny, tmp_path_factory):
    return reproduce(tmp_path_factory.mktemp("out"), tiny, **EFFORT)


def made(name, reproduction):
    """The figure, from numbers that have been through JSON."""
    numbers = json.loads(json.dumps(FIGURES[name].measure(reproduction), allow_nan=False))
    return FIGURES[name].present(numbers)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "variance-formula"])
def test_a_figure_has_plots_a_table_and_data(reproduction, name):
    artifact = made(name, reproduction)
    assert artifact.name == name
    assert artifact.plots and all(plot.series for plot in artifact.plots)
    assert len({plot.name for plot in artifact.plots}) == len(artifact.plots)
    assert artifact.tables[0].body
    json.dumps([artifact.data, [vars(s) for plot in artifact.plots for s in plot.series]], allow_nan=False)


@pytest.mark.parametrize(
    ("name", "count"), [("variance", 4 * 4), ("smoothness", 4 * 3), ("normality", 1), ("correlations", 1)]
)
def test_a_diagnosis_has_the_conclusion_of_the_paper_and_verdicts(reproduction, name, count):
    artifact = made(name, reproduction)
    assert (artifact.title, artifact.text) == (FIGURES[name].title, FIGURES[name].conclusion)
    assert len(artifact.verdicts) == count
    assert {verdict.dataset.split(",")[0].removesuffix(" (simulated)") for verdict in artifact.verdicts} == {"tiny"}


def test_a_figure_is_measured_once(reproduction):
    first = made("smoothness", reproduction)
    before = {path: path.stat().st_mtime_ns for path in reproduction.runs.glob("smoothness-*/*")}
    assert len(before) == len(first.data["runs"])
    assert first == made("smoothness", reproduction)
    assert {path: path.stat().st_mtime_ns for path in reproduction.runs.glob("smoothness-*/*")} == before


def test_the_best_seen_scale_is_at_the_peak_of_the_mean_curve(reproduction):
    artifact = made("seen-scales", reproduction)
    curves = {series.label: series.y for series in artifact.plots[0].series}
    assert len(curves) == 6
    row = [cell.text for cell in artifact.tables[0].body[0]]
    for text, part in ((row[1], "validation"), (row[2], "test")):
        assert float(text) == SCALES[int(np.argmax(curves[f"H, {part}"]))]
    assert float(row[3]) >= 0


def test_file_names_do_not_depend_on_the_name_of_the_dataset(reproduce, tiny, tmp_path):
    odd = PaperDataset("../my data", "", "own", loaded=tiny.dataset)
    for name in ("normality", "histograms"):
        for plot in made(name, reproduce(tmp_path, odd)).plots:
            assert not set("/ .") & set(plot.name)


def test_the_formula_is_tested_on_gaussians_and_on_the_data(reproduction):
    artifact = made("variance-formula", reproduction)
    assert artifact.verdicts[0].verdict == "holds"
    assert [verdict.dataset for verdict in artifact.verdicts[1:]] == ["tiny (simulated)"] * 2
    assert [plot.kind for plot in artifact.plots] == ["lines", "boxes"]


def test_attributes_suffice_for_attribute_figures(reproduce, tiny, tmp_path):
    save_gbu(tiny.dataset, tmp_path / "data" / "CUB", "hog")
    (tmp_path / "data" / "CUB" / "hog.mat").unlink()
    datasets = find_datasets(["CUB", "SUN"], tmp_path / "data", None)
    assert all(paper_dataset.missing for paper_dataset in datasets)
    reproduction = reproduce(tmp_path / "out", *datasets, **EFFORT)
    normality = made("normality", reproduction)
    assert [row[0].text for row in normality.tables[0].body] == ["CUB"]
    assert normality.notes[0].startswith("Raw attributes")
    assert any(note.startswith("SUN: not measured") for note in normality.notes)
    assert not any(note.startswith("CUB") for note in normality.notes)


def test_a_figure_without_data_is_empty(reproduce, tmp_path):
    reproduction = reproduce(tmp_path, *find_datasets(["CUB"], None, None))
    for name in ("variance", "seen-scales", "normality"):
        artifact = made(name, reproduction)
        assert artifact.tables[0].body == []
        assert any("CUB: not measured" in note for note in artifact.notes)


def test_attributes_that_two_datasets_share_are_counted_once(reproduce, tiny, tmp_path):
    for folder in ("AWA1", "AWA2"):
        save_gbu(tiny.dataset, tmp_path / "data" / folder, "hog")
        (tmp_path / "data" / folder / "hog.mat").unlink()
    datasets = find_datasets(["AWA1", "AWA2"], tmp_path / "data", None)
    reproduction = reproduce(tmp_path / "out", *datasets, **EFFORT)
    artifact, note = made("normality", reproduction), "AWA2 has the attributes of AWA1, so it is counted once."
    assert [verdict.dataset.split(",")[0] for verdict in artifact.verdicts] == ["AWA1"]
    assert note in artifact.notes
    [sample], notes = samples(reproduction)
    assert (sample.label, sample.seeds, notes) == ("AWA1 (simulated features)", 1, [note])


def test_a_variance_is_judged_at_four_points_by_two_definitions_and_norms(reproduction):
    verdicts = made("variance", reproduction).verdicts
    kinds = {verdict.scoring for verdict in verdicts}
    assert kinds == {
        f"{d}, {n}" for d in ("between classes", "of all logits") for n in ("unit norm", "unit norm · √d_a")
    }
    assert all("at steps 0, 10, 100 and the median" in verdict.measured for verdict in verdicts)
    for verdict in (verdict for verdict in verdicts if verdict.claim.startswith("Linear with NS")):
        values = [float(text) for text in verdict.measured.split(" at ")[0].split(", ")]
        inside = [1 / 3 <= value <= 3 for value in values]
        assert (verdict.verdict == "does not hold") == (not any(inside))
        assert verdict.verdict != "holds" or all(inside)
