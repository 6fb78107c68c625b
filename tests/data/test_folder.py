"""Folder bundles."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, load, save_bundle, save_folder, synthesize, synthetic
from classnorm.data.row_store import RowStore
from classnorm.errors import DataError, OutputError

CONFIG = SyntheticConfig(classes=12, unseen=3, rows=400, features=9, attributes=5)


@pytest.fixture
def folder(tmp_path):
    save_folder(synthetic(CONFIG), tmp_path / "data", rows_per_shard=150)
    return tmp_path / "data"


def test_a_folder_holds_the_dataset_and_reads_features_lazily(folder, tmp_path):
    data, loaded = synthetic(CONFIG), load(folder)
    assert isinstance(loaded.features, RowStore)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    names = ["dataset.json", *(f"features-0000{i}.npy" for i in range(3)), "table.npz"]
    assert sorted(path.name for path in folder.iterdir()) == names
    np.testing.assert_array_equal(np.asarray(loaded.features), data.features)
    np.testing.assert_array_equal(loaded.labels, data.labels)
    np.testing.assert_array_equal(loaded.descriptors, data.descriptors)
    assert loaded.sizes == data.sizes
    assert (loaded.class_names, loaded.name, loaded.provenance) == (data.class_names, data.name, data.provenance)
    assert loaded.split.checksum == data.split.checksum
    assert loaded.nonnegative


def test_a_folder_and_a_bundle_convert_into_each_other(folder, tmp_path):
    save_bundle(load(folder), tmp_path / "back.npz")
    assert load(tmp_path / "back.npz").checksum == synthetic(CONFIG).checksum


def test_half_precision_on_request(tmp_path):
    data = synthetic(CONFIG)
    save_folder(data, tmp_path / "half", "float16")
    np.testing.assert_array_equal(np.asarray(load(tmp_path / "half").features), data.features.astype(np.float16))
    large = replace(data, features=data.features * 1e6)
    with pytest.raises(DataError, match=r"features up to .* cannot be stored in float16; use float32"):
        save_folder(large, tmp_path / "half", "float16")
    assert load(tmp_path / "half").n_rows == 400  # the old one is still there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half"]


def test_the_checksum_sees_every_change(folder, tmp_path):
    before = load(folder)
    save_folder(synthetic(CONFIG), tmp_path / "again", rows_per_shard=150)
    assert load(tmp_path / "again").checksum == before.checksum
    assert replace(before, labels=before.labels[::-1].copy()).checksum != before.checksum
    save_folder(synthetic(replace(CONFIG, noise=2.0)), tmp_path / "again", rows_per_shard=150)
    assert load(tmp_path / "again").checksum != before.checksum


def test_a_folder_travels_as_its_path(folder):
    data = load(folder)
    assert len(pickle.dumps(data.features)) < 2000 < data.features.size
    again = pickle.loads(pickle.dumps(data))  # noqa: S301 (own bytes)
    np.testing.assert_array_equal(again.features[[0, 399]], data.features[[0, 399]])


def test_a_folder_made_by_hand_is_checked(folder):
    document = json.loads((folder / "dataset.json").read_text())
    document["shards"] = [{"file": shard["file"]} for shard in document["shards"]]
    (folder / "dataset.json").write_text(json.dumps(document))
    data = load(folder)
    assert data.nonnegative
    recorded = json.loads((folder / "dataset.json").read_text())
    assert recorded == document
    rows = np.load(folder / "features-00001.npy")
    rows[7, 0] = np.nan
    np.save(folder / "features-00001.npy", rows)
    with pytest.raises(DataError, match=r"features of row 157 \(0-based\) hold NaN"):
        load(folder)


def test_negative_features_are_recognised(tmp_path):
    data = synthetic(CONFIG)
    features = data.features.copy()
    features[data.split.test_seen[0]] = -1.0
    save_folder(replace(data, features=features), tmp_path / "data")
    assert load(tmp_path / "data").nonnegative  # only a test row is negative
    features[data.split.train[0]] = -1.0
    save_folder(replace(data, features=features), tmp_path / "data")
    assert not load(tmp_path / "data").nonnegative


def edit(**changes):
    def change(folder):
        path = folder / "dataset.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def other_width(folder):
    np.save(folder / "features-00002.npy", np.zeros((100, 4), np.float32))


def fewer_rows(folder):
    np.save(folder / "features-00002.npy", np.zeros((99, 9), np.float32))


BAD = {
    "text": (lambda folder: (folder / "dataset.json").write_text("{"), r"dataset\.json: not readable"),
    "another format": (edit(format="x"), "not a folder bundle"),
    "newer": (edit(version=2), "version 2 is not understood; update"),
    "no shards": (edit(shards=[]), '"shards" must be a list'),
    "nameless shard": (edit(shards=[{"rows": 3}]), r"shards\[0\]\.file is missing"),
    "lost shard": (lambda folder: (folder / "features-00001.npy").unlink(), r"features-00001\.npy: no such file"),
    "lost table": (lambda folder: (folder / "table.npz").unlink(), r"table\.npz: no such file"),
    "another width": (other_width, "4 dimensions in float32, but 9 in float32 in the first shard"),
    "fewer rows": (fewer_rows, r"features-00002\.npy: has 99 rows, but 100 in dataset\.json"),
    "too few shards": (
        lambda folder: edit(shards=json.loads((folder / "dataset.json").read_text())["shards"][:2])(folder),
        "400 labels for 300 rows",
    ),
    "a part": (edit(part={"number": 3, "of": 16}), "is part 3 of 16 of a dataset; join all parts"),
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_folders_are_one_clear_error(folder, kind):
    damage, message = BAD[kind]
    damage(folder)
    with pytest.raises(DataError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def test_other_files_are_never_overwritten(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(OutputError, match="notes: exists and is not a folder bundle"):
        save_folder(synthetic(CONFIG), tmp_path / "notes")
    assert [path.name for path in tmp_path.rglob("*")] == ["notes", "a.txt"]


def test_synthesis_is_resumed_and_gives_the_same_dataset(tmp_path, watching):
    class Stopped(Exception):
        pass

    def stop(_, step):
        if step.done > 150:
            raise Stopped

    synthesize(CONFIG, tmp_path / "whole", rows_per_shard=100)
    with pytest.raises(Stopped), watching(stop):
        synthesize(CONFIG, tmp_path / "data", rows_per_shard=100)
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["data.parts"]
    with pytest.raises(DataError, match="data: is not complete; run the command that writes it again"):
        load(tmp_path / "data")
    first = tmp_path / "data.parts" / "features-00000.npy"
    written = first.stat().st_mtime_ns
    synthesize(CONFIG, tmp_path / "data", rows_per_shard=100)
    assert (tmp_path / "data" / first.name).stat().st_mtime_ns == written
    assert load(tmp_path / "data").checksum == load(tmp_path / "whole").checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "whole"]


def test_shards_of_other_settings_are_not_resumed_from(tmp_path, watching):
    with pytest.raises(ZeroDivisionError), watching(lambda *_: 1 // 0):
        synthesize(CONFIG, tmp_path / "data", rows_per_shard=100)
    other = replace(CONFIG, seed=1)
    synthesize(other, tmp_path / "data", rows_per_shard=100)
    synthesize(other, tmp_path / "fresh", rows_per_shard=100)
    assert load(tmp_path / "data").checksum == load(tmp_path / "fresh").checksum


def test_synthesized_rows_are_near_the_mean_of_their_class(tmp_path):
    synthesize(replace(CONFIG, rows=2000, features=64), tmp_path / "data")
    data = load(tmp_path / "data")
    features = np.asarray(data.features, dtype=np.float32)
    seen = np.flatnonzero(data.seen)
    train, test = data.split.train, data.split.test_seen
    means = np.stack([features[train[data.labels[train] == c]].mean(axis=0) for c in seen])
    distances = ((features[test][:, None] - means) ** 2).sum(axis=2)
    assert (seen[distances.argmin(axis=1)] == data.labels[test]).mean() > 0.9
    assert data.sizes["unseen_classes"] == 3
    assert len(test) == pytest.approx(len(train) / 4, abs=12)


def test_a_path_is_never_the_name_of_an_embedded_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_folder(synthetic(CONFIG), tmp_path / "glyphs-light")
    assert load("./glyphs-light").sizes == load(Path("glyphs-light")).sizes == synthetic(CONFIG).sizes
    assert load("glyphs-light").sizes != synthetic(CONFIG).sizes


def test_a_folder_is_not_named_like_a_bundle(tmp_path):
    with pytest.raises(OutputError, match=r"data\.npz: a folder is written here; choose a name without \.npz"):
        save_folder(synthetic(CONFIG), tmp_path / "data.npz")
