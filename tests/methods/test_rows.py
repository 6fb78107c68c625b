"""Moments of overlapping sets of rows, and rows mapped block by block."""

import numpy as np
import pytest
import torch

from classnorm.data import validation_dataset
from classnorm.methods import TrainingRows
from classnorm.methods import rows as training_rows
from classnorm.nn import FeatureGeometry, FeatureMoments
from classnorm.training import SharedWork


def own_moments(dataset):
    rows = TrainingRows.of(dataset, torch.device("cpu"))
    return FeatureMoments(dataset.d_z, 0.5, len(rows.descriptors)).update(rows.features, rows.labels), rows


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_fits_that_share_their_work_have_the_moments_of_their_rows(small_dataset, monkeypatch, order):
    parts = [validation_dataset(small_dataset, seed=0), validation_dataset(small_dataset, seed=1), small_dataset]
    cells = np.zeros(small_dataset.n_rows, dtype=np.int64)
    for bit, part in enumerate(parts):
        cells[part.split.train] += 2**bit
    expected = [own_moments(part) for part in parts]
    added = []
    update = FeatureMoments.update_blocks
    monkeypatch.setattr(FeatureMoments, "update_blocks", lambda self, x, y: added.append(len(y)) or update(self, x, y))
    shared = SharedWork(cells)
    for i in order:
        moments, rows = expected[i]
        found = training_rows.row_moments(parts[i], rows, 0.5, shared)
        assert torch.equal(found.counts, moments.counts)
        assert torch.allclose(found.sums, moments.sums, atol=1e-4)
        assert torch.allclose(found.products, moments.products, atol=1e-2)  # up to 1,000
    assert sum(added) == len(small_dataset.split.train)  # every row once


def test_another_power_is_other_work(small_dataset):
    shared = SharedWork(np.zeros(small_dataset.n_rows, dtype=np.int64))
    rows = TrainingRows.of(small_dataset, torch.device("cpu"))
    one, other = (training_rows.row_moments(small_dataset, rows, power, shared) for power in (0.5, 1.0))
    assert not torch.allclose(one.sums, other.sums)


def test_rows_are_transformed_block_by_block(small_dataset, monkeypatch):
    features = torch.from_numpy(small_dataset.features)
    geometry = FeatureGeometry(features.shape[1], 10).fit(features)
    monkeypatch.setattr(training_rows, "_BLOCK", 7)
    assert torch.allclose(training_rows.transformed_rows(geometry, features), geometry(features), atol=1e-6)
