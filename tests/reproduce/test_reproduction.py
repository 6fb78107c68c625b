"""The settings and runs of a reproduction."""

import pytest

from classnorm.errors import ClassNormError
from classnorm.reproduce.benchmarks import find_benchmarks
from classnorm.reproduce.reproduction import measure
from classnorm.reproduce.variants import CN, PROPER_VARIANCE, STANDARDIZED, THREE_LAYERS


def test_a_variant_overrides_the_effort_and_the_benchmark(reproduce, tiny, tmp_path):
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


def test_missing_benchmarks_are_skipped_with_a_note_on_how_to_get_them(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, *find_benchmarks(["CUB"], None, None), tiny)
    assert reproduction.available == [tiny]
    assert [note.split(":")[0] for note in reproduction.missing] == ["CUB"]


def test_every_variant_is_measured_with_every_seed(reproduce, tiny, tmp_path):
    runs = measure(reproduce(tmp_path, tiny, seeds=2), "a table", [CN, THREE_LAYERS])
    assert list(runs) == [(CN.label, "tiny"), (THREE_LAYERS.label, "tiny")]
    for group in runs.values():
        assert [result.document["seed"] for result in group.results] == [0, 1]
        assert group.values("harmonic") == [result.scores["harmonic"] for result in group.results]
        assert group.values("train_seconds") == [result.document["train_seconds"] for result in group.results]


def test_a_diverged_training_scores_zero(reproduce, tiny, tmp_path):
    wild = THREE_LAYERS.derive("wild", logits="dot", lr=1e30)
    [group] = measure(reproduce(tmp_path, tiny, seeds=2), "a table", [wild]).values()
    assert group.results == (None, None)
    assert (group.values("harmonic"), group.cell("harmonic")) == ([0.0, 0.0], "diverged")


def test_any_other_failure_is_an_error_with_its_message(reproduce, tiny, tmp_path):
    with pytest.raises(ClassNormError, match="a table: a run failed: gamma is -1"):
        measure(reproduce(tmp_path, tiny, seeds=1), "a table", [CN.derive("bad", gamma=-1.0)])
