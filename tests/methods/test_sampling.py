"""Training with a sample of the classes in each step."""

import json

import numpy as np
import pytest
import torch

from classnorm.data import SyntheticConfig, synthetic
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.methods.rows import ClassSampler
from classnorm.scoring import fit

METHODS = [("classnorm", "reference"), ("classnorm", "best"), ("kernel", "reference")]


@pytest.fixture(scope="module")
def dataset():
    return synthetic(SyntheticConfig(classes=120, unseen=30, rows=2400, features=48, attributes=30))


def settings(method):
    return {"calibration": "none"} | ({"hidden": 64, "lr": 2e-3} if method == "classnorm" else {})


def test_auto_samples_only_above_the_sizes_of_the_benchmarks():
    assert ClassSampler.of("auto", 2000, 0) is None
    assert ClassSampler.of("auto", 21_000, 0).size == 1024
    assert ClassSampler.of(0, 21_000, 0) is None
    assert ClassSampler.of(100, 100, 0) is None


def test_the_sample_of_a_step_depends_only_on_seed_and_step():
    def drawn(seed, step):
        sampler = ClassSampler(500, 20, seed)
        sampler.start(step)
        return sampler(torch.tensor([1, 2])).classes.tolist()

    assert drawn(0, 7) == drawn(0, 7)
    assert len({tuple(drawn(*at)) for at in [(0, 7), (0, 8), (1, 7)]}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("method", "recipe"), METHODS)
def test_a_third_of_the_classes_per_step_learns_as_well(dataset, method, recipe, accuracies):
    zsl = {}
    for size in (0, 20):
        options = settings(method) | ({"epochs": 15} if method == "classnorm" else {})
        scorer = fit(dataset, method, recipe, sampled_classes=size, batch_size=32, **options)
        zsl[size] = accuracies(scorer, dataset).zsl
    assert zsl[0] > 15
    assert zsl[20] > zsl[0] - 4


@pytest.mark.parametrize(("method", "recipe"), METHODS)
def test_a_sample_resumes_to_the_same_weights(dataset, method, recipe, tmp_path, watching):
    method_, config = resolve(dataset, method, recipe, sampled_classes=30, **settings(method) | {"epochs": 2})
    job, path = FitJob(dataset, method_, config), tmp_path / "checkpoint.safetensors"

    class Killed(Exception):
        pass

    def kill(stage, step):
        raise Killed

    device = torch.device("cpu")
    whole = job.fit(FitContext(device)).model.state_dict()
    with pytest.raises(Killed), watching(kill):
        job.fit(FitContext(device, path, 1))
    resumed = job.fit(FitContext(device, path, 1, True)).model.state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_sample_larger_than_the_number_of_classes_changes_nothing(dataset):
    plain = fit(dataset, epochs=1, **settings("classnorm"))
    same = fit(dataset, epochs=1, sampled_classes=1000, **settings("classnorm"))
    assert np.array_equal(plain.logits(dataset.features[:20]), same.logits(dataset.features[:20]))


@pytest.mark.parametrize("method", ["classnorm", "kernel"])
def test_new_settings_leave_keys_and_files_alone_unless_they_are_changed(dataset, method, tmp_path):
    def key(**changes):
        return FitJob(dataset, *resolve(dataset, method, **changes)).key

    assert not {"sampled_classes", "precision"} & set(resolve(dataset, method)[1].as_dict())
    assert len({key(), key(sampled_classes=7), key(precision="auto")}) == 3
    assert key() == key(sampled_classes="auto", precision="float32")
    folder = fit(dataset, method, sampled_classes=7, epochs=1, calibration="none").save(tmp_path)
    assert json.loads((folder / "model.json").read_text())["config"]["sampled_classes"] == 7
