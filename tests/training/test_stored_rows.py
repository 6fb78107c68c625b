"""Training on rows that stay in files, compared with rows in memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import SyntheticConfig, load, synthesize
from classnorm.data.row_store import RowStore, open_shard
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.scoring import fit, fit_calibrated
from classnorm.training import Processes, StoredRows, TrainingConfig, stored_rows, train
from classnorm.training.stored_rows import ShuffledPools

CPU = torch.device("cpu")
N, D = 1000, 8
SMALL_POOL = 1 << 11


@pytest.fixture
def rows(tmp_path):
    """Row i holds the number i; every third row trains."""
    np.save(tmp_path / "rows.npy", np.repeat(np.arange(N, dtype=np.float16)[:, None], D, axis=1))
    store = RowStore("store", (open_shard(tmp_path / "rows.npy"),))
    return StoredRows(store, np.random.default_rng(0).permutation(np.arange(0, N, 3)), CPU)


def epoch(rows, number, seed=0, size=32):
    labels = torch.from_numpy(rows.rows)
    return [(x, y) for x, y, _ in ShuffledPools(rows, labels, size, seed).epoch(number)]


@pytest.mark.parametrize("pool", [1, SMALL_POOL, 1 << 28])
def test_every_row_is_read_once_per_epoch_with_its_label(rows, monkeypatch, pool):
    monkeypatch.setattr(stored_rows, "_POOL_BYTES", pool)
    monkeypatch.setattr("classnorm.data.row_store._BLOCK_BYTES", 7 * 2 * D)
    orders = []
    for number in range(2):
        batches = epoch(rows, number)
        assert [len(labels) for _, labels in batches] == [32] * 10 + [14]
        order = torch.cat([labels for _, labels in batches])
        torch.testing.assert_close(torch.cat([features for features, _ in batches])[:, 0], order.float())
        assert sorted(order.tolist()) == sorted(rows.rows.tolist())
        orders.append(order.tolist())
    assert orders[0] != orders[1]
    assert orders[1] == torch.cat([labels for _, labels in epoch(rows, 1)]).tolist()  # whatever came before
    assert orders[1] != torch.cat([labels for _, labels in epoch(rows, 1, seed=1)]).tolist()


@pytest.mark.parametrize("count", [2, 3, 40])
@pytest.mark.parametrize("pool", [1, SMALL_POOL, 1 << 28])
def test_processes_divide_the_batches_and_the_reading(rows, monkeypatch, pool, count):
    monkeypatch.setattr(stored_rows, "_POOL_BYTES", pool)
    whole = epoch(rows, 0)
    parts, counts, read = [[] for _ in whole], [], ShuffledPools._read
    monkeypatch.setattr(ShuffledPools, "_read", lambda self, pool: counts.append(len(pool[0])) or read(self, pool))
    for rank in range(count):
        pools = ShuffledPools(rows, torch.from_numpy(rows.rows), 32, 0, Processes(rank, count))
        for i, (features, labels, share) in enumerate(pools.epoch(0)):
            torch.testing.assert_close(features[:, 0], labels.float())
            assert len(labels) == max(1, round(share * len(whole[i][1])))
            parts[i] += labels.tolist() if share else []
    assert [sorted(part) for part in parts] == [sorted(labels.tolist()) for _, labels in whole]
    assert sum(counts) - len(rows) <= counts.count(1)  # nothing twice, except a row for processes without any


def test_rows_of_one_pool_train_in_the_order_of_rows_in_memory(rows):
    in_memory = []
    features = torch.from_numpy(rows.rows.astype(np.float32))[:, None]
    model = torch.nn.Linear(1, 1)

    def loss(batch, labels):
        in_memory.append(labels)
        return model(batch * 0).square().mean()

    train(model, loss, features, torch.from_numpy(rows.rows), TrainingConfig(epochs=2, batch_size=32), seed=5)
    stored = [labels for number in range(2) for _, labels in epoch(rows, number, seed=5)]
    assert all(torch.equal(one, other) for one, other in zip(in_memory, stored, strict=True))


def test_pools_mix_rows_from_all_over_a_sorted_store(rows, monkeypatch):
    monkeypatch.setattr(stored_rows, "_POOL_BYTES", 64 * 2 * D)
    monkeypatch.setattr("classnorm.data.row_store._BLOCK_BYTES", 4 * 2 * D)
    for _, labels in epoch(rows, 0)[:-1]:
        assert labels.float().std() > 0.5 * np.std(rows.rows)  # 0.1 if batches were consecutive rows


def test_a_map_is_applied_to_rows_on_their_way(rows):
    double = rows.mapped(lambda batch: 2 * batch)
    features, labels = epoch(double, 0)[0]
    torch.testing.assert_close(features[:, 0], 2 * labels.float())
    torch.testing.assert_close(double[torch.tensor([3, 1])][:, 0], 2 * torch.from_numpy(rows.rows[[3, 1]]).float())
    assert sum(len(block) for block in rows.blocks(100)) == len(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "folder"
    synthesize(SyntheticConfig(classes=24, unseen=6, rows=3000, features=48, attributes=20), path, "float32", 512)
    return load(path)


def loaded(data):
    return replace(data, features=np.asarray(data.features))


METHODS = [
    ("classnorm", {"epochs": 3, "hidden": 64}),
    ("classnorm", {"recipe": "best", "epochs": 2, "hidden": 64}),
    ("kernel", {}),
    ("kernel", {"recipe": "closed-form"}),
]


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_a_folder_trains_like_the_same_rows_in_memory(folder, method, settings):
    """One pool: the same batches, hence the same model up to rounding, and the same calibration by validation."""
    stored, memory = fit(folder, method, **settings), fit(loaded(folder), method, **settings)
    rows = folder.test_rows
    logits = memory.logits(folder.features[rows])
    np.testing.assert_allclose(stored.logits(folder.view(rows)), logits, atol=2e-3 * np.abs(logits).max())
    assert stored.calibration.kind == memory.calibration.kind
    assert stored.calibration.value == pytest.approx(memory.calibration.value, rel=0.05, abs=0.05)


@pytest.mark.parametrize(("method", "settings"), [("classnorm", {"epochs": 10, "lr": 5e-3}), ("kernel", {})])
def test_small_pools_learn_as_well(folder, monkeypatch, method, settings):
    monkeypatch.setattr(stored_rows, "_POOL_BYTES", 1 << 16)
    monkeypatch.setattr("classnorm.data.row_store._BLOCK_BYTES", 1 << 11)
    rows, labels = folder.split.test_seen, folder.labels[folder.split.test_seen]

    def accuracy(data):
        scorer = fit(data, method, **settings, calibration="none")
        return (scorer.logits(data.features[rows]).argmax(axis=1) == labels).mean()

    assert accuracy(folder) > accuracy(loaded(folder)) - 0.05 > 0.5


def test_a_resumed_training_is_bit_identical(folder, tmp_path, monkeypatch, watching):
    monkeypatch.setattr(stored_rows, "_POOL_BYTES", 1 << 16)
    method, config = resolve(folder, "classnorm", "reference", epochs=4, hidden=32, calibration="none")
    job = FitJob(folder, method, config)

    class Killed(Exception):
        pass

    def kill(_, step):
        if step.done == 3:
            raise Killed

    context = FitContext(CPU, tmp_path / "checkpoint.safetensors", 1, True)
    with pytest.raises(Killed), watching(kill):
        job.fit(context)
    resumed = job.fit(context).model.state_dict()
    whole = job.fit(FitContext(CPU)).model.state_dict()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_validation_splits_share_the_rows_of_the_folder(folder):
    part = FitJob(folder, *resolve(folder, "kernel", "reference")).validation(0)
    assert part.dataset.features is folder.features
    assert fit_calibrated(FitJob(folder, *resolve(folder, "kernel", "reference")), FitContext(CPU)).validation


def test_methods_that_need_all_rows_load_them_or_say_why_not(folder):
    from classnorm.errors import DataError

    assert fit(folder, "eszsl", calibration="none").logits(folder.view(folder.test_rows[:3])).shape == (3, 24)
    limited = replace(folder, features=replace(folder.features, memory=1e-5))
    with pytest.raises(DataError, match=r"1800 rows are needed in memory at once, 0\.000322 GiB, .* or raise `memory`"):
        fit(limited, "eszsl", calibration="none")
    assert fit(limited, "kernel", calibration="none")


def test_normalized_batches_have_unit_length(folder):
    rows = StoredRows(folder.features, folder.split.train, CPU).mapped(F.normalize)
    for features, *_ in ShuffledPools(rows, torch.zeros(len(rows), dtype=torch.int64), 100, 0).epoch(0):
        torch.testing.assert_close(features.norm(dim=1), torch.ones(len(features)))
