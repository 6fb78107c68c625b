"""`load`: which source a name means."""

import pytest

from classnorm.data import SyntheticConfig, load, load_bundle, load_gbu, synthetic
from classnorm.errors import DataError


def test_a_folder_is_read_as_a_gbu_folder(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays, features="vit")
    loaded = load(str(folder), features="vit", attributes="original_att")
    assert loaded.checksum == load_gbu(folder, "vit", "original_att").checksum


def test_an_npz_file_is_read_as_a_bundle(tmp_path, arrays, write_bundle):
    path = write_bundle(tmp_path / "zoo.npz", arrays)
    assert load(path).checksum == load_bundle(path).checksum


def test_the_same_data_is_the_same_dataset_from_either_source(tmp_path, arrays, write_gbu, write_bundle):
    folder, bundle = write_gbu(tmp_path / "zoo", arrays), write_bundle(tmp_path / "zoo.npz", arrays)
    assert load(folder, attributes="original_att").checksum == load(bundle).checksum


def test_synthetic_takes_its_settings_from_the_name():
    expected = synthetic(SyntheticConfig(classes=12, unseen=4, rows=60, features=5))
    assert load("synthetic:classes=12,unseen=4,rows=60,features=5").checksum == expected.checksum


def test_an_unknown_dataset_lists_the_choices(tmp_path):
    with pytest.raises(
        DataError,
        match=r"nothing: no such dataset; use glyphs, .*an \.npz bundle or a folder bundle",
    ):
        load(tmp_path / "nothing")


def test_a_file_of_another_kind_is_not_a_dataset(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes\.txt: not a dataset"):
        load(tmp_path / "notes.txt")


def test_a_folder_without_any_matlab_file_says_what_is_missing(tmp_path):
    with pytest.raises(DataError, match=r"res101\.mat: no such file"):
        load(tmp_path)


def test_a_folder_without_a_split_file_says_what_is_missing(tmp_path, arrays, write_gbu):
    (write_gbu(tmp_path / "zoo", arrays) / "att_splits.mat").unlink()
    with pytest.raises(DataError, match=r"att_splits\.mat: no such file"):
        load(tmp_path / "zoo")
