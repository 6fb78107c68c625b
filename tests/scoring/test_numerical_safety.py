"""Extreme but valid data: scores and probabilities stay finite, whatever the order of the rows."""

import numpy as np
import pytest
import torch

from classnorm.data import ZeroShotDataset
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.scoring import fit_calibrated

METHODS = {"kernel": {}, "classnorm": {"hidden": 16, "epochs": 2}, "eszsl": {}, "sae": {}}
CPU = FitContext(torch.device("cpu"))


def _same(table):
    return np.concatenate([table[:1], table[:1], table[2:-1], table[:1]])


CASES = {
    "constant features": {"features": np.ones_like},
    "zero features": {"features": np.zeros_like},
    "some zero rows": {"features": lambda x: x * (np.arange(len(x)) % 3 > 0)[:, None]},
    "classes with the same descriptor": {"table": _same},
    "one descriptor for all": {"table": np.ones_like},
    "one row a class": {"n_rows": 1},
    "two seen classes": {"n_seen": 2},
    "one feature": {"d": 1},
    "one attribute": {"d_a": 1},
    "features of 1e30": {"features": lambda x: x * 1e30},
    "features of 1e-30": {"features": lambda x: x * 1e-30},
    "descriptors of 1e30": {"table": lambda a: a * 1e30},
    "descriptors of 1e-30": {"table": lambda a: a * 1e-30},
    "half precision near its limit": {"features": lambda x: (x * 9000).astype(np.float16)},
}


def make(n_seen=6, n_unseen=2, n_rows=6, d=12, d_a=5, features=lambda x: x, table=lambda a: a):
    generator = np.random.default_rng(0)
    n_classes = n_seen + n_unseen
    labels = np.repeat(np.arange(n_classes), n_rows)
    rows = np.abs(generator.normal(size=(len(labels), d))) + 2 * np.eye(n_classes, d)[labels]
    return ZeroShotDataset.from_arrays(
        features(rows),
        labels,
        table(generator.uniform(0.5, 2, (n_classes, d_a))),
        [f"c{i}" for i in range(n_classes)],
        train=np.flatnonzero(labels < n_seen),
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_scores_are_finite(case, method):
    data = make(**CASES[case])
    scorer = fit_calibrated(FitJob(data, *resolve(data, method, **METHODS[method])), CPU).scorer
    assert np.isfinite(scorer.scores(data.features)).all()
    probabilities = scorer.probabilities(data.features)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("method", ["eszsl", "sae"])
def test_a_closed_form_does_not_depend_on_the_order_of_rows(method):
    data = make()
    order = np.random.default_rng(1).permutation(data.n_rows)
    other = ZeroShotDataset.from_arrays(
        data.features[order],
        data.labels[order],
        data.descriptors,
        data.class_names,
        train=np.flatnonzero(data.seen[data.labels[order]]),
    )
    logits = [
        fit_calibrated(FitJob(d, *resolve(d, method, calibration="none")), CPU).scorer.logits(data.features)
        for d in (data, other)
    ]
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-4 * np.abs(logits[0]).max())
