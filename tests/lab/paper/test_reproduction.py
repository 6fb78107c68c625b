"""The settings and runs of a reproduction."""

import json
from dataclasses import replace

import pytest

from classnorm.errors import ClassNormError
from classnorm.metrics import Calibration, calibrated_scores
from classnorm.results.run_folder import find_results
from classnorm.runs.engine import Engine
from classnorm_lab.paper.datasets import PaperDataset, find_datasets
from classnorm_lab.paper.measured import Measured
from classnorm_lab.paper.reproduction import Reproduction, measure
from classnorm_lab.paper.variants import CN, PROPER_VARIANCE, RELATIONNET, STANDARDIZED, THREE_LAYERS, Variant


def test_a_variant_overrides_the_effort_and_the_dataset(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny, changes={"epochs": 3, "init": "xavier"})
    variants = (THREE_LAYERS, STANDARDIZED, PROPER_VARIANCE, CN.derive("wide", hidden=32, init="proper"))
    configs = [reproduction.experiment(variant, tiny, 0).config for variant in variants]
    assert [config.hidden for config in configs] == [16, 16, 16, 32]
    assert {config.epochs for config in configs} == {3}
    kinds = [(config.normalization, config.init) for config in configs]
    assert kinds == [("none", "torch"), ("class", "torch"), ("none", "proper"), ("class", "proper")]


def test_other_methods_and_the_recipe_best_are_only_shortened(reproduce, tiny, tmp_path):
    full, short = (reproduce(tmp_path, tiny, shorten=n, changes={"hidden": 8}) for n in (1, 10))
    for method, recipe in (("dem", "reference"), ("classnorm", "best")):
        epochs = full.recipe(tiny, method, recipe).epochs
        assert short.recipe(tiny, method, recipe) == full.recipe(tiny, method, recipe).replace(epochs=epochs // 10)


def test_the_share_of_a_published_schedule_counts_the_tasks_of_its_epochs(reproduce, tiny, tmp_path):
    variant = Variant("ZSML", {"epochs": 2, "tasks": 10, "hidden": 8, "classifier_epochs": 1}, "zsml")
    [runs] = measure(reproduce(tmp_path, tiny, seeds=1), "stage", [variant]).runs.values()
    assert runs.numbers["schedule"] == [2 * 10 / (100 * 100)]


def test_missing_datasets_are_skipped(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, *find_datasets(["CUB"], None, None), tiny)
    assert reproduction.available == [tiny]


def test_every_variant_is_measured_with_every_seed(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny, seeds=2)
    measured = measure(reproduction, "a table", [CN, THREE_LAYERS])
    assert list(measured.runs) == [(CN.label, "tiny"), (THREE_LAYERS.label, "tiny")]
    results = find_results([reproduction.runs])
    for (label, _), group in measured.runs.items():
        of_label = {r.document["seed"]: r for r in results if r.document["recipe"] == label}
        assert group.n == len(of_label) == 2
        for seed, result in of_label.items():
            assert group.values("harmonic")[seed] == pytest.approx(result.scores["harmonic"], abs=1e-4)
            assert group.values("train_seconds")[seed] == pytest.approx(result.document["train_seconds"], abs=1e-4)
    assert Measured.of(json.loads(json.dumps(measured.as_dict()))) == measured


def test_a_dataset_or_a_variant_may_have_a_single_seed(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny, seeds=3)
    once = replace(tiny, one_seed=True)
    counts = [len(reproduction.seeds(paper_dataset, most)) for paper_dataset in (tiny, once) for most in (None, 2, 5)]
    assert counts == [3, 2, 3, 1, 1, 1]
    measured = measure(reproduce(tmp_path, once, seeds=2), "a table", [CN])
    assert [runs.n for runs in measured.runs.values()] == [1]


def test_known_numbers_are_not_measured_again(reproduce, tiny, tmp_path):
    first = measure(reproduce(tmp_path / "first", tiny, seeds=1), "a table", [CN])
    known = {runs.key: runs for runs in first.runs.values()}
    again = replace(reproduce(tmp_path / "again", tiny, seeds=1), known=known)
    measured = measure(again, "a table", [THREE_LAYERS, CN])
    assert list(measured.runs) == [(THREE_LAYERS.label, "tiny"), (CN.label, "tiny")]
    assert measured.runs[CN.label, "tiny"] == first.runs[CN.label, "tiny"]
    [result] = find_results([again.runs])
    assert result.document["recipe"] == THREE_LAYERS.label


def test_rows_that_do_not_begin_in_time_are_left_to_the_next_command(reproduce, tiny, tmp_path, monkeypatch):
    variants, engine = [CN, THREE_LAYERS, STANDARDIZED], Engine(jobs=1)
    limited = replace(reproduce(tmp_path, tiny, seeds=1), engine=engine, until=0.0)
    answers = iter([False, False, True])
    monkeypatch.setattr(Reproduction, "time_is_up", property(lambda self: next(answers)))
    first = measure(limited, "a table", variants).runs
    assert [label for label, _ in first] == [CN.label, THREE_LAYERS.label]
    known = {runs.key: runs for runs in first.values()}
    rest = replace(reproduce(tmp_path / "rest", tiny, seeds=1), engine=engine, known=known)
    monkeypatch.setattr(Reproduction, "time_is_up", False)
    whole = measure(rest, "a table", variants).runs
    assert [label for label, _ in whole] == [variant.label for variant in variants]
    assert {row: whole[row] for row in first} == first
    assert [r.document["recipe"] for r in find_results([rest.runs])] == [STANDARDIZED.label]


def test_numbers_of_other_seeds_or_settings_are_not_taken_for_known(reproduce, tiny, tmp_path):
    groups = [
        measure(reproduce(tmp_path, tiny, **effort), "a table", [variant]).runs[variant.label, "tiny"]
        for effort, variant in (
            ({"seeds": 1}, CN),
            ({"seeds": 2}, CN),
            ({"seeds": 1, "changes": {"lr": 1e-3}}, CN),
            ({"seeds": 1}, THREE_LAYERS),
        )
    ]
    assert len({group.key for group in groups}) == 4


def test_the_same_fits_are_scored_calibrated_and_as_released(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny, seeds=1)
    [group] = measure(reproduction, "a table", [CN]).runs.values()
    [result] = find_results([reproduction.runs])
    assert result.document["config"]["calibration"] == "validation"
    assert result.document["config"]["validation_splits"] == 1
    assert group.values("harmonic", "calibrated") == pytest.approx([result.scores["harmonic"]], abs=1e-4)
    unchanged = calibrated_scores(result.best_scores, Calibration("scale", 1.0))
    assert group.values("harmonic", "released") == pytest.approx([unchanged[2]], abs=1e-4)
    for score in ("zsl", "ausuc"):  # they do not depend on a calibration
        assert group.values(score, "released") == group.values(score, "calibrated")


def test_data_of_the_authors_have_their_scale(tiny):
    for name, scale in (("AWA1", 0.95), ("SUN", 0.95), ("CUB", 1.0)):
        data = replace(tiny.dataset, provenance=tiny.dataset.provenance | {"benchmark": name})
        if data.benchmark == name:
            assert PaperDataset(name, name, "own", loaded=data).released == Calibration("scale", scale)


def test_a_share_of_a_schedule_keeps_the_steps_at_which_the_rate_drops(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny)
    short, full = (
        reproduction.experiment(replace(RELATIONNET, recipe="paper", share=share), tiny, 0).config
        for share in (0.2, 1.0)
    )
    assert short.epochs == pytest.approx(0.2 * full.epochs, abs=1)
    assert short.epochs * short.lr_drop_at == pytest.approx(full.epochs * full.lr_drop_at, rel=0.01)


def test_a_diverged_training_scores_zero(reproduce, tiny, tmp_path):
    wild = THREE_LAYERS.derive("wild", logits="dot", lr=1e30)
    [group] = measure(reproduce(tmp_path, tiny, seeds=2), "a table", [wild]).runs.values()
    assert (group.diverged, group.n) == (2, 2)
    assert (group.values("harmonic"), group.cell("harmonic")) == ([0.0, 0.0], "diverged")


def test_any_other_failure_is_an_error_with_its_message(reproduce, tiny, tmp_path):
    blocks = Variant("bad", method="kernel", changes={"blocks": "1,1"})  # which only the data can contradict
    with pytest.raises(ClassNormError, match=r"a table: a run failed: .*give sizes that add up"):
        measure(reproduce(tmp_path, tiny, seeds=1), "a table", [blocks])
