"""Datasets are found by name, in a folder or in a file."""

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, save_bundle, save_gbu, synthetic
from classnorm.errors import ConfigError, DataError
from classnorm_lab.paper.datasets import find_datasets


@pytest.fixture(scope="module")
def zoo():
    return synthetic(SyntheticConfig(classes=12, unseen=3, rows=120, features=8, attributes=6))


def test_a_dataset_without_a_data_root_names_the_missing_argument():
    (paper_dataset,) = find_datasets(["CUB"], None, None)
    assert paper_dataset.missing == "CUB: give `data_root=DIR` with DIR/CUB/{att_splits,res101}.mat"


def test_a_dataset_in_the_data_root_uses_the_features_it_finds(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    (paper_dataset,) = find_datasets(["CUB"], tmp_path, None)
    assert (paper_dataset.missing, paper_dataset.features, paper_dataset.folder) == ("", "hog", tmp_path / "CUB")
    assert paper_dataset.label == "CUB (hog)"


def test_requested_features_are_not_replaced_by_others(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    (paper_dataset,) = find_datasets(["CUB"], tmp_path, "res101")
    assert paper_dataset.missing == f"CUB: put res101.mat (features and labels in GBU's layout) into {tmp_path / 'CUB'}"


def test_a_setting_names_its_features_and_descriptors(zoo, tmp_path):
    for features in ("hog", "other"):
        save_gbu(zoo, tmp_path / "CUB", features)
    table = np.arange(24.0).reshape(12, 2)
    np.savez(tmp_path / "words.npz", class_names=np.array(zoo.class_names[::-1]), descriptors=table[::-1])
    names = ["CUB", "CUB:other", f"CUB:other:{tmp_path / 'words.npz'}"]
    plain, other, words = find_datasets(names, tmp_path, None)
    assert [b.name for b in (plain, other, words)] == ["CUB", "CUB:other", "CUB:other:words"]
    assert [b.label for b in (plain, other, words)] == ["CUB (hog)", "CUB (other)", "CUB (other, words)"]
    assert words.argument == "CUB:other:words.npz"
    np.testing.assert_array_equal(words.dataset.descriptors, table)  # joined by name
    assert words.dataset.checksum != other.dataset.checksum
    assert (other.setting.paper, words.setting.paper) == ("CUB", "")  # the paper has no such descriptors


def test_an_empty_folder_lists_every_missing_file(tmp_path):
    (paper_dataset,) = find_datasets(["SUN"], tmp_path, None)
    assert "put att_splits.mat and res101.mat" in paper_dataset.missing


def test_a_data_root_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such folder; `data_root` holds"):
        find_datasets(["SUN"], tmp_path / "nowhere", None)


def test_a_bundle_has_the_name_of_its_dataset(zoo, tmp_path):
    save_bundle(zoo, tmp_path / "file.npz")
    (paper_dataset,) = find_datasets([str(tmp_path / "file.npz")], None, None)
    assert paper_dataset.label == "synthetic (simulated)"
    assert paper_dataset.dataset.checksum == zoo.checksum
    assert paper_dataset.folder is None


@pytest.mark.parametrize(
    ("files", "requested", "selected"), [("a b", "b", "b"), ("hog", None, "hog"), ("a res101", None, "res101")]
)
def test_a_gbu_folder_can_be_given_by_its_path(zoo, tmp_path, files, requested, selected):
    for name in files.split():
        save_gbu(zoo, tmp_path / "zoo", name)
    (paper_dataset,) = find_datasets([str(tmp_path / "zoo")], None, requested)
    assert paper_dataset.label == f"zoo ({selected})"
    assert paper_dataset.dataset.n_classes == 12


def test_the_embedded_dataset_overrides_settings():
    (paper_dataset,) = find_datasets(["glyphs-light"], None, None)
    assert paper_dataset.changes == {"hidden": 512, "epochs": 25}


def test_other_datasets_have_light_mlps_on_demand_and_say_so(zoo, tmp_path):
    save_gbu(zoo, tmp_path / "CUB", "hog")
    full, light = find_datasets(["CUB", "CUB:hog"], tmp_path, None, ["CUB:hog"])
    assert (full.changes, full.label, full.is_light) == ({}, "CUB (hog)", False)
    assert (light.changes, light.label, light.is_light) == ({"hidden": 512, "epochs": 25}, "CUB (hog, light)", True)


@pytest.mark.parametrize("option", ["light", "one_seed"])
def test_light_datasets_and_those_with_one_seed_are_among_the_others(option):
    with pytest.raises(ConfigError, match=f"dataset 'CBU'.*`{option}` names some of `data`"):
        find_datasets(["CUB"], None, None, **{option: ["CBU"]})


def test_two_datasets_with_the_same_name_are_an_error(zoo, tmp_path):
    for name in ("a.npz", "b.npz"):
        save_bundle(zoo, tmp_path / name)
    with pytest.raises(ConfigError, match="two of the datasets are called 'synthetic'"):
        find_datasets([str(tmp_path / "a.npz"), str(tmp_path / "b.npz")], None, None)


def test_a_repeated_name_is_one_dataset():
    assert len(find_datasets(["CUB", "CUB"], None, None)) == 1


def test_an_unknown_dataset_is_an_error():
    with pytest.raises(DataError, match="no such dataset"):
        find_datasets(["nowhere.npz2"], None, None)
