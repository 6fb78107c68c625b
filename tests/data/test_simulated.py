"""Real attributes with simulated features."""

import sys

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, read_splits, save_gbu, simulate, synthetic
from classnorm.data.dataset import recognise
from classnorm.errors import DataError


@pytest.fixture(scope="module")
def zoo():
    return synthetic(SyntheticConfig(classes=24, unseen=9, rows=240, features=8, attributes=10))


@pytest.fixture
def folder(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "zoo", "hog")
    (tmp_path / "zoo" / "hog.mat").unlink()  # only the attributes are at hand
    return tmp_path / "zoo"


@pytest.mark.parametrize("attributes", ["att", "original_att"])
def test_the_attributes_are_the_real_ones(folder, attributes):
    names, table, _ = read_splits(folder, attributes)
    simulated = simulate(folder, features=12, rows=200, attributes=attributes)
    assert simulated.class_names == tuple(names)
    np.testing.assert_allclose(simulated.descriptors, table, rtol=1e-6)
    assert simulated.provenance["attributes"] == attributes


def test_its_name_and_provenance_say_that_it_is_simulated(folder):
    simulated = simulate(folder, features=12, rows=200)
    assert simulated.name == "zoo (simulated features)"
    assert simulated.provenance["features"] == "simulated"


def test_features_are_nonnegative_and_as_many_as_asked_for(folder):
    simulated = simulate(folder, features=12, rows=200)
    assert simulated.features.shape == (200, 12)
    assert simulated.nonnegative


def test_a_quarter_of_unknown_classes_is_unseen_and_every_class_has_rows(folder):
    simulated = simulate(folder, features=12, rows=1)  # fewer rows than a split needs: raised to 4 a class
    assert simulated.sizes["unseen_classes"] == 6
    assert np.bincount(simulated.labels, minlength=24).tolist() == [4] * 24
    assert len(simulated.split.train) == 3 * len(simulated.split.test_seen) == 54


def test_the_same_seed_draws_the_same_data(folder):
    first, again, other = (simulate(folder, features=12, rows=200, seed=seed) for seed in (0, 0, 1))
    assert first.checksum == again.checksum != other.checksum


def test_rows_of_a_class_lie_closer_to_their_class_than_to_others(folder):
    simulated = simulate(folder, features=64, rows=2400)
    means = np.stack([simulated.features[simulated.labels == c].mean(axis=0) for c in range(24)])
    distances = ((simulated.features[:, None] - means) ** 2).sum(axis=-1)
    assert (distances.argmin(axis=1) == simulated.labels).mean() > 0.5


def test_a_recognised_benchmark_keeps_its_number_of_unseen_classes(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["classnorm.data.synthetic"], "recognise", lambda *_: "AWA2")
    save_gbu(zoo, tmp_path / "renamed")
    simulated = simulate(tmp_path / "renamed", features=12, rows=200)
    assert simulated.sizes["unseen_classes"] == 10
    assert simulated.name == "AWA2 (simulated features)"


def test_other_classes_in_a_folder_of_a_benchmarks_name_are_not_taken_for_it(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB")  # 24 classes, of which CUB's 50 cannot be unseen
    simulated = simulate(tmp_path / "CUB", features=12, rows=200)
    assert simulated.sizes["unseen_classes"] == 6
    assert simulated.name == "CUB (simulated features)"


def test_a_folder_without_attributes_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"att_splits\.mat: no such file"):
        simulate(tmp_path)


@pytest.mark.parametrize(("name", "unseen"), [("AWA1", 10), ("AWA2", 10), ("CUB", 50), ("SUN", 72), ("APY", 12)])
def test_real_benchmarks_keep_their_number_of_unseen_classes(real_data, name, unseen):
    folder = real_data / "xlsa17" / "data" / name
    if not (folder / "att_splits.mat").is_file():
        pytest.skip("skipped: real data not found")
    simulated = simulate(folder, features=8, rows=1)
    names, _, split = read_splits(folder)
    assert recognise(names, sum(map(len, (split.train, split.test_seen, split.test_unseen)))) == name
    assert simulated.sizes["unseen_classes"] == unseen
    assert simulated.name == f"{name} (simulated features)"
