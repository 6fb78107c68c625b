"""Damaged and hostile files of arrays: one clear error, no crash, and no more memory than the file deserves."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
import scipy.io

from classnorm.data import load
from classnorm.errors import DataError
from classnorm.io.arrays import Archive, read_npy
from classnorm.io.matlab import read_mat


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header_only(shape, dtype="<f4"):
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_a_zip_bomb_is_refused_before_it_is_unpacked(arrays, tmp_path, monkeypatch):
    monkeypatch.setattr("classnorm.io.arrays._FREE", 1 << 25)
    members = [(f"{name}.npy", npy(array)) for name, array in arrays.items() if name != "features"]
    path = write_zip(tmp_path / "x.npz", members)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as file:
        file.write(header_only((30, 1_000_000)))
        for _ in range(30):
            file.write(bytes(4_000_000))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"unpacks to 0.112 GiB from .* MB, more than is allowed; .*`max_bytes=\d+`"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    with pytest.raises(DataError, match="max_bytes"):
        load(path, max_bytes=10**6)


def test_a_header_that_declares_more_than_is_there_allocates_nothing(arrays, tmp_path):
    members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
    members["features.npy"] = header_only((10**6, 10**6)) + bytes(100)
    with pytest.raises(DataError, match="not a readable"):
        load(write_zip(tmp_path / "x.npz", members.items(), zipfile.ZIP_DEFLATED))
    (tmp_path / "x.npy").write_bytes(members["features.npy"])
    with pytest.raises(DataError, match="not a readable"):
        read_npy(tmp_path / "x.npy")


def test_an_array_that_is_there_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        write_zip(tmp_path / "x.npz", [("a.npy", npy(np.eye(2))), ("a.npy", npy(np.eye(3)))])
    with pytest.raises(DataError, match="contains an array twice"):
        Archive(tmp_path / "x.npz")


@pytest.mark.parametrize("names", [[b"\xff\xfe", b"b", b"c", b"d", b"e"], ["\ud800", "b", "c", "d", "e"]])
def test_names_that_are_no_text_are_refused(arrays, write_bundle, tmp_path, names):
    path = write_bundle(tmp_path / "x.npz", arrays | {"class_names": np.array(names)})
    with pytest.raises(DataError, match="class_names: holds names that are no text"):
        load(path)


def test_every_flipped_bit_of_a_memory_mapped_array_is_noticed(arrays, write_bundle, tmp_path):
    large = np.random.default_rng(0).random((30, 10_000), dtype=np.float32)
    path = write_bundle(tmp_path / "x.npz", arrays | {"features": large})
    assert isinstance(load(path).features, np.memmap)
    content = bytearray(path.read_bytes())
    start = content.index(large[0].tobytes())
    for place in np.random.default_rng(1).integers(start, start + large.nbytes, 20):
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(DataError, match="checksum"):
            load(path)
        content[place] ^= 1


def mutated(content, seed):
    """The bytes with a few changed, cut off or repeated."""
    generator = np.random.default_rng(seed)
    changed = bytearray(content)
    for place in generator.integers(0, len(changed), generator.integers(1, 5)):
        changed[place] = generator.choice([0, 1, 0x7F, 0x80, 0xFF, int(generator.integers(256))])
    return bytes(changed[: generator.integers(1, len(changed))] if seed % 5 == 0 else changed)


@pytest.mark.parametrize("kind", ["npy", "npz", "v5", "v5 compressed", "v7.3"])
def test_no_mutation_of_a_file_ends_in_anything_but_a_data_error(arrays, gbu_variables, write_mat, tmp_path, kind):
    splits, table = gbu_variables(arrays)
    path = tmp_path / f"x.{kind[:3] if kind.startswith('n') else 'mat'}"
    if kind == "npy":
        np.save(path, arrays["features"])
    elif kind == "npz":
        np.savez_compressed(path, **arrays)
    elif kind == "v5 compressed":
        scipy.io.savemat(path, splits | table, do_compression=True)
    else:
        write_mat(path, splits | table, kind)
    whole, readable = path.read_bytes(), 0
    for seed in range(150):
        path.write_bytes(mutated(whole, seed))
        try:
            if kind == "npy":
                read_npy(path)
            elif kind == "npz":
                load(path)
            else:
                read_mat(path, ["features", "allclasses_names", "att"])
            readable += 1
        except DataError:
            pass
    assert readable < 150


@pytest.mark.parametrize("compressed", [False, True])
def test_version_5_is_read_as_scipy_reads_it(tmp_path, compressed):
    generator = np.random.default_rng(0)
    cells = np.empty((3, 1), dtype=object)
    cells[:, 0] = ["Häher", "b", ""]
    content = {
        **{kind: generator.integers(0, 100, (3, 4)).astype(kind) for kind in ("f8", "f4", "i4", "u2", "u1", "i8")},
        "row": np.arange(5.0)[None],
        "none": np.zeros((0, 3)),
        "flags": np.array([[True, False]]),
        "cells": cells,
    }
    scipy.io.savemat(tmp_path / "x.mat", content, do_compression=compressed)
    theirs, ours = scipy.io.loadmat(tmp_path / "x.mat"), read_mat(tmp_path / "x.mat", list(content))
    for name in set(content) - {"cells"}:
        np.testing.assert_array_equal(ours[name], theirs[name])
        assert ours[name].dtype == theirs[name].dtype
    assert ours["cells"] == ["Häher", "b", ""]


def test_the_files_of_cub_are_read_as_scipy_reads_them(real_data):
    path = real_data / "xlsa17" / "data" / "CUB" / "att_splits.mat"
    keys = ["att", "original_att", "trainval_loc", "test_seen_loc", "test_unseen_loc"]
    theirs, ours = scipy.io.loadmat(path), read_mat(path, [*keys, "allclasses_names"])
    for key in keys:
        np.testing.assert_array_equal(ours[key], theirs[key])
    assert ours["allclasses_names"] == [str(cell[0][0]) for cell in theirs["allclasses_names"]]


def test_a_matlab_array_that_declares_more_than_the_file_holds_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.mat", "w") as file:
        file.create_dataset("features", (40_000, 40_000), dtype="f4", chunks=(100, 100))
    with pytest.raises(DataError, match=r"unpacks to 5\.96 GiB"):
        read_mat(tmp_path / "x.mat", ["features"])


def test_a_matlab_file_that_points_into_another_file_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(80))
    with h5py.File(tmp_path / "x.mat", "w") as file:
        file["a"] = h5py.ExternalLink(tmp_path / "other.h5", "/a")
        file.create_dataset("b", (10,), dtype="f8", external=[(str(tmp_path / "secret"), 0, 80)])
    for key in ("a", "b"):
        with pytest.raises(DataError, match="not a readable MATLAB file"):
            read_mat(tmp_path / "x.mat", [key])
