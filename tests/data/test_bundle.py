"""Bundles: round trips, memory maps, optional keys, and files that are refused."""

from __future__ import annotations

import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classnorm.data import load_bundle, load_gbu, save_bundle, save_gbu
from classnorm.data.provenance import Provenance
from classnorm.errors import DataError
from classnorm.io.arrays import read_npz


@pytest.fixture
def bundle(tmp_path, arrays) -> Path:
    np.savez(tmp_path / "zoo.npz", **arrays)
    return tmp_path / "zoo.npz"


def test_a_bundle_gives_the_arrays_that_were_written(bundle, arrays, assert_holds):
    assert_holds(load_bundle(bundle), arrays)


def test_a_bundle_without_a_name_is_called_after_its_file(bundle):
    assert load_bundle(bundle).name == "zoo"


@pytest.mark.parametrize("name", [np.array("farm"), np.array(["farm"])])
def test_the_name_in_the_bundle_counts(tmp_path, arrays, name):
    np.savez(tmp_path / "x.npz", **arrays, name=name)
    assert load_bundle(tmp_path / "x.npz").name == "farm"


def test_image_files_and_is_train_are_kept(tmp_path, arrays):
    files, is_train = [f"{i}.jpg" for i in range(30)], np.arange(30) % 3 == 0
    np.savez(tmp_path / "x.npz", **arrays, image_files=files, is_train=is_train)
    data = load_bundle(tmp_path / "x.npz")
    assert data.image_files == tuple(files)
    assert data.is_train is not None and data.is_train.tolist() == is_train.tolist()


def test_class_names_stored_as_bytes_are_read_as_text(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays | {"class_names": np.array(arrays["class_names"], dtype="S")})
    assert load_bundle(tmp_path / "x.npz").class_names[3] == "okapi"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_round_trip_keeps_everything(tmp_path, bundle, dtype):
    data = load_bundle(bundle)
    data = replace(
        data,
        name="Zoo, größer",
        features=data.features.astype(dtype),
        provenance=Provenance({"features": "a=b", "split": ""}),
        image_files=tuple(f"{i}.jpg" for i in range(30)),
        is_train=np.arange(30) % 2 == 0,
    )
    save_bundle(data, tmp_path / "copy.npz")
    copy = load_bundle(tmp_path / "copy.npz")
    assert copy.checksum == data.checksum
    assert copy.features.dtype == dtype
    assert (copy.name, copy.provenance, copy.image_files) == (data.name, data.provenance, data.image_files)
    np.testing.assert_array_equal(copy.is_train, data.is_train)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_large_features_stay_memory_mapped_and_of_their_type(tmp_path, arrays, dtype):
    wide = np.random.default_rng(0).random((30, 20_000)).astype(dtype)
    np.savez(tmp_path / "x.npz", **arrays | {"features": wide})
    data = load_bundle(tmp_path / "x.npz")
    assert isinstance(data.features, np.memmap) and data.features.dtype == dtype
    np.testing.assert_array_equal(data.features, wide)


def test_column_major_features_are_mapped_in_their_own_order(tmp_path, arrays):
    wide = np.asfortranarray(np.random.default_rng(0).random((30, 20_000), dtype=np.float32))
    np.savez(tmp_path / "x.npz", **arrays | {"features": wide})
    np.testing.assert_array_equal(load_bundle(tmp_path / "x.npz").features, wide)


def test_a_compressed_bundle_loads_too(tmp_path, bundle, arrays):
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    assert load_bundle(tmp_path / "small.npz").checksum == load_bundle(bundle).checksum


def test_object_arrays_are_refused_and_never_unpickled(tmp_path, arrays):
    witness = tmp_path / "unpickled"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (witness,)

    np.savez(tmp_path / "x.npz", **arrays | {"class_names": np.array([Trap()] * 5, dtype=object)})
    with pytest.raises(DataError, match=r"x\.npz: .*holds Python objects, which are never loaded"):
        load_bundle(tmp_path / "x.npz")
    assert not witness.exists()


def test_a_large_object_array_is_refused_too(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays | {"features": np.array([["x" * 50_000]] * 30, dtype=object) + "y"})
    with pytest.raises(DataError, match="never loaded"):
        load_bundle(tmp_path / "x.npz")


@pytest.mark.parametrize("key", ["features", "labels", "descriptors", "class_names", "train_idx", "test_unseen_idx"])
def test_a_missing_array_is_named(tmp_path, arrays, key):
    del arrays[key]
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=rf"x\.npz: the array '{key}' is missing"):
        load_bundle(tmp_path / "x.npz")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no\.npz: no such file"):
        load_bundle(tmp_path / "no.npz")


def test_a_single_array_is_not_a_bundle(tmp_path):
    with (tmp_path / "x.npz").open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(DataError, match=r"x\.npz: a single array"):
        load_bundle(tmp_path / "x.npz")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_truncated_bundle_is_refused(tmp_path, arrays, save, share):
    path = tmp_path / "x.npz"
    save(path, **arrays)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(DataError, match=r"x\.npz: not a readable \.npz bundle"):
        load_bundle(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_byte_never_escapes_as_another_error(tmp_path, save):
    path = tmp_path / "x.npz"
    save(path, features=np.random.default_rng(0).random((6, 5)))
    raw = path.read_bytes()
    for position in range(0, len(raw), 3):
        damaged = bytearray(raw)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        with suppress(DataError):  # some flips are harmless
            read_npz(path, ("features",))


def test_provenance_that_is_not_key_and_value_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays, provenance=np.array(["nothing to split"]))
    with pytest.raises(DataError, match=r"x\.npz: provenance"):
        load_bundle(tmp_path / "x.npz")


def test_from_bundle_to_folder_and_back_keeps_everything_a_checksum_sees(tmp_path, bundle):
    data = load_bundle(bundle)
    save_gbu(data, tmp_path / "folder", "vit")
    save_bundle(load_gbu(tmp_path / "folder", "vit", "original_att"), tmp_path / "back.npz")
    assert load_bundle(tmp_path / "back.npz").checksum == data.checksum


def test_a_saved_bundle_is_stored_uncompressed_so_that_it_can_be_mapped(tmp_path, bundle):
    save_bundle(load_bundle(bundle), tmp_path / "copy.npz")
    with zipfile.ZipFile(tmp_path / "copy.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
