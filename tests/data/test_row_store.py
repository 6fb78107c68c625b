"""Rows in files, compared with the same rows in memory."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from classnorm.data.row_store import RowStore, RowView, open_shard, read_ahead, row_blocks
from classnorm.errors import DataError

N, D = 300, 7


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).standard_normal((N, D)).astype(np.float16)


def write_npy(path, rows):
    np.save(path, rows)


def write_safetensors(path, rows):
    save_file({"features": rows, "other": np.zeros(3)}, path)


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])
    pyarrow.parquet.write_table(pyarrow.table({"features": column}), path, row_group_size=16)


def write_columns(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")

    names = [f"f{i}" for i in range(rows.shape[1])]
    pyarrow.parquet.write_table(pyarrow.table(list(map(pyarrow.array, rows.T)), names=names), path, row_group_size=30)


def write_arrow(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.ipc")

    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), rows.shape[1])
    table = pyarrow.table({"features": column})
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=20)


WRITERS = {
    "npy": (".npy", write_npy),
    "safetensors": (".safetensors", write_safetensors),
    "parquet": (".parquet", write_parquet),
    "parquet columns": (".parquet", write_columns),
    "arrow": (".arrow", write_arrow),
}


def store_of(folder, matrix, kind="npy", bounds=(0, 100, 230, N)):
    suffix, write = WRITERS[kind]
    paths = [folder / f"{number}{suffix}" for number in range(len(bounds) - 1)]
    for path, start, stop in zip(paths, bounds[:-1], bounds[1:], strict=True):
        write(path, matrix[start:stop])
    return RowStore("store", tuple(map(open_shard, paths)))


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_of_every_format_are_those_in_memory(tmp_path, matrix, kind):
    store = store_of(tmp_path, matrix, kind)
    assert (store.shape, store.dtype, len(store), store.size) == ((N, D), np.float16, N, N * D)
    np.testing.assert_array_equal(np.asarray(store), matrix)
    np.testing.assert_array_equal(store[::-7], matrix[::-7])
    np.testing.assert_array_equal(store[matrix[:, 0] > 0], matrix[matrix[:, 0] > 0])
    np.testing.assert_array_equal(store[-1], matrix[-1])
    rows = np.array([299, 0, 100, 99, 100, 230, 5])
    np.testing.assert_array_equal(store[rows], matrix[rows])
    view = RowView(store, rows)
    np.testing.assert_array_equal(view[2:5], matrix[rows[2:5]])
    assert view.shape == (7, D)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store))[rows], matrix[rows])  # noqa: S301 (own bytes)


@pytest.fixture(scope="module")
def npy_store(tmp_path_factory, matrix):
    return store_of(tmp_path_factory.mktemp("store"), matrix)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.integers(-N, N - 1), max_size=60), gap=st.integers(0, 40), span=st.integers(1, 400))
def test_any_rows_are_read_whatever_is_read_at_once(npy_store, matrix, rows, gap, span):
    from classnorm.data import row_store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "_GAP_BYTES", gap)
        patch.setattr(row_store, "_SPAN_BYTES", span)
        index = np.array(rows, dtype=np.int64)
        np.testing.assert_array_equal(npy_store[index], matrix[index])


def test_blocks_cover_all_rows_in_order(npy_store, matrix):
    blocks = list(row_blocks(npy_store, 64))
    assert [part.start for part, _ in blocks] == [0, 64, 128, 192, 256]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), matrix)
    assert list(row_blocks(RowView(npy_store, np.arange(0)), 10)) == []


def test_reading_is_one_item_ahead_and_raises_where_the_item_is_used():
    read = []

    def reader(item):
        read.append(item)
        if item == 3:
            raise ValueError("three")
        return item

    results = read_ahead(reader, range(10))
    assert next(results) == 0
    assert next(results) == 1
    assert set(read) <= {0, 1, 2}
    assert next(results) == 2
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert 9 not in read


def test_rows_beyond_the_store_are_an_error(npy_store):
    with pytest.raises(IndexError, match="there are 300 rows"):
        npy_store[[300]]


def test_loading_all_rows_respects_the_limit(tmp_path, matrix):
    store = store_of(tmp_path, matrix)
    small = RowStore("big data", store.shards, memory=1e-6)
    with pytest.raises(DataError, match=r"big data: 300 rows are needed in memory at once, 3\.91e-06 GiB.*`memory`"):
        np.asarray(small)
    np.testing.assert_array_equal(small[:10], matrix[:10])  # parts are not limited


def test_the_checksum_is_of_the_rows_and_not_of_the_format(tmp_path, matrix):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = store_of(tmp_path / "a", matrix), store_of(tmp_path / "b", matrix, "safetensors")
    assert one.checksum == other.checksum
    changed = matrix.copy()
    changed[200, 3] += 1
    assert store_of(tmp_path / "a", changed).checksum != other.checksum


def test_a_file_that_was_cut_off_is_an_error(tmp_path, matrix):
    store = store_of(tmp_path, matrix)
    path = store.shards[1].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"1\.npy: ends before its last row"):
        store[:]
    with pytest.raises(DataError, match=r"1\.npy: ends before its last row"):
        open_shard(path)


def write_text(path):
    path.write_text("rows")


BAD = {
    "missing.npy": (lambda path: None, "no such file"),
    f"{'long' * 100}.npy": (lambda path: None, "no such file"),
    "text.npy": (write_text, "not a readable"),
    "double.npy": (lambda path: np.save(path, np.zeros((2, 2))), "float16 or float32 matrix"),
    "flat.npy": (lambda path: np.save(path, np.zeros(4, np.float32)), "float16 or float32 matrix"),
    "fortran.npy": (lambda path: np.save(path, np.zeros((2, 3), np.float32, order="F")), "Fortran order"),
    "objects.npy": (lambda path: np.save(path, np.array([{}]), allow_pickle=True), "float16 or float32 matrix"),
    "text.safetensors": (write_text, "not a readable safetensors"),
    "two.safetensors": (lambda path: save_file({"a": np.zeros(1), "b": np.zeros(1)}, path), "tensor named features"),
    "text.parquet": (write_text, "not a readable"),
    "text.arrow": (write_text, "not a readable"),
    "rows.csv": (write_text, "cannot be read from it"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_clear_error(tmp_path, name):
    write, message = BAD[name]
    write(tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        open_shard(tmp_path / name)
    assert name in str(caught.value)
