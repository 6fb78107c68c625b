"""Benchmarks are found by name, in a folder or in a file."""

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, save_bundle, save_gbu, synthetic
from classnorm.errors import ConfigError, DataError
from classnorm_lab.paper.benchmarks import find_benchmarks


@pytest.fixture(scope="module")
def zoo():
    return synthetic(SyntheticConfig(classes=12, unseen=3, rows=120, features=8, attributes=6))


def test_a_benchmark_without_a_data_root_names_the_missing_argument():
    (benchmark,) = find_benchmarks(["CUB"], None, None)
    assert benchmark.missing == "CUB: give `data_root=DIR` with DIR/CUB/{att_splits,res101}.mat"


def test_a_benchmark_in_the_data_root_uses_the_features_it_finds(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    (benchmark,) = find_benchmarks(["CUB"], tmp_path, None)
    assert (benchmark.missing, benchmark.features, benchmark.folder) == ("", "hog", tmp_path / "CUB")
    assert benchmark.label == "CUB (hog)"


def test_requested_features_are_not_replaced_by_others(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    (benchmark,) = find_benchmarks(["CUB"], tmp_path, "res101")
    assert benchmark.missing == f"CUB: put res101.mat (features and labels in GBU's layout) into {tmp_path / 'CUB'}"


def test_a_setting_names_its_features_and_descriptors(zoo, tmp_path):
    for features in ("hog", "other"):
        save_gbu(zoo, tmp_path / "CUB", features)
    table = np.arange(24.0).reshape(12, 2)
    np.savez(tmp_path / "words.npz", class_names=np.array(zoo.class_names[::-1]), descriptors=table[::-1])
    names = ["CUB", "CUB:other", f"CUB:other:{tmp_path / 'words.npz'}"]
    plain, other, words = find_benchmarks(names, tmp_path, None)
    assert [b.name for b in (plain, other, words)] == ["CUB", "CUB:other", "CUB:other:words"]
    assert [b.label for b in (plain, other, words)] == ["CUB (hog)", "CUB (other)", "CUB (other, words)"]
    assert words.argument == "CUB:other:words.npz"
    np.testing.assert_array_equal(words.dataset.descriptors, table)  # joined by name
    assert words.dataset.checksum != other.dataset.checksum
    assert (other.setting.paper, words.setting.paper) == ("CUB", "")  # the paper has no such descriptors


def test_an_empty_folder_lists_every_missing_file(tmp_path):
    (benchmark,) = find_benchmarks(["SUN"], tmp_path, None)
    assert "put att_splits.mat and res101.mat" in benchmark.missing


def test_a_data_root_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such folder; `data_root` holds"):
        find_benchmarks(["SUN"], tmp_path / "nowhere", None)


def test_a_bundle_has_the_name_of_its_dataset(zoo, tmp_path):
    save_bundle(zoo, tmp_path / "file.npz")
    (benchmark,) = find_benchmarks([str(tmp_path / "file.npz")], None, None)
    assert benchmark.label == "synthetic (simulated)"
    assert benchmark.dataset.checksum == zoo.checksum
    assert benchmark.folder is None


@pytest.mark.parametrize(
    ("files", "requested", "selected"), [("a b", "b", "b"), ("hog", None, "hog"), ("a res101", None, "res101")]
)
def test_a_gbu_folder_can_be_given_by_its_path(zoo, tmp_path, files, requested, selected):
    for name in files.split():
        save_gbu(zoo, tmp_path / "zoo", name)
    (benchmark,) = find_benchmarks([str(tmp_path / "zoo")], None, requested)
    assert benchmark.label == f"zoo ({selected})"
    assert benchmark.dataset.n_classes == 12


def test_the_embedded_dataset_overrides_settings():
    (benchmark,) = find_benchmarks(["glyphs-light"], None, None)
    assert benchmark.changes == {"hidden": 512, "epochs": 25}


def test_other_datasets_have_light_mlps_on_demand_and_say_so(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    full, light = find_benchmarks(["CUB", "CUB:hog"], tmp_path, None, ["CUB:hog"])
    assert (full.changes, full.label, full.is_light) == ({}, "CUB (hog)", False)
    assert (light.changes, light.label, light.is_light) == ({"hidden": 512, "epochs": 25}, "CUB (hog, light)", True)


@pytest.mark.parametrize("option", ["light", "one_seed"])
def test_light_datasets_and_those_with_one_seed_are_among_the_others(option):
    with pytest.raises(ConfigError, match=f"dataset 'CBU'.*`{option}` names some of `data`"):
        find_benchmarks(["CUB"], None, None, **{option: ["CBU"]})


def test_two_datasets_with_the_same_name_are_an_error(zoo, tmp_path):
    for name in ("a.npz", "b.npz"):
        save_bundle(zoo, tmp_path / name)
    with pytest.raises(ConfigError, match="two of the datasets are called 'synthetic'"):
        find_benchmarks([str(tmp_path / "a.npz"), str(tmp_path / "b.npz")], None, None)


def test_a_repeated_name_is_one_benchmark():
    assert len(find_benchmarks(["CUB", "CUB"], None, None)) == 1


def test_an_unknown_dataset_is_an_error():
    with pytest.raises(DataError, match="no such dataset"):
        find_benchmarks(["nowhere.npz2"], None, None)
