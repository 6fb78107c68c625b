"""U, S and H against the scale of the seen scores, from one training that both curves share."""

import numpy as np
import pytest
import torch

from classnorm.data.validation import hold_out
from classnorm.methods import METHODS, FitContext
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.metrics import gzsl_scores
from classnorm.scoring import ClassTable, Scorer
from classnorm_lab.paper.seen_scales_figure import SCALES, seen_scale_curves

CONFIG = ClassNormConfig(hidden=32, epochs=8, lr=3e-3, batch_size=64)
PARTS = ("validation", "test")
HELD_OUT = 3  # a fifth of the 18 seen classes


@pytest.fixture(scope="module")
def curves(easy_data):
    return seen_scale_curves(easy_data, CONFIG, seed=1)


@pytest.fixture(scope="module")
def direct(easy_data):
    """Uncalibrated scores on both parts, by the slow way: all logits of a model trained on the same rows."""
    part = hold_out(easy_data, HELD_OUT, None, 1)
    model = METHODS["classnorm"].fit(part, CONFIG, 1, FitContext(torch.device("cpu"))).model
    held_out = [part.class_names[c] for c in np.flatnonzero(~part.seen)]

    def scores(data, left_out):
        classes = ClassTable(data.class_names, data.descriptors, data.seen)
        scorer = Scorer(model, "classnorm", CONFIG, data.d_z, classes)
        rows = data.test_rows
        logits = scorer.logits(data.features[rows]).copy()
        columns = np.isin(data.class_names, left_out)
        logits[:, columns] = -np.inf
        kept = ~columns[data.labels[rows]]
        return gzsl_scores(logits[kept], data.labels[rows][kept], data.seen)

    return {"validation": scores(part, []), "test": scores(easy_data, held_out)}


def test_there_is_a_curve_on_validation_and_one_on_test(curves):
    assert tuple(curves) == PARTS
    for part in PARTS:
        assert list(curves[part]) == ["value", "unseen", "seen", "harmonic"]
        assert curves[part]["value"] == list(SCALES)
        assert {len(values) for values in curves[part].values()} == {len(SCALES)}


@pytest.mark.parametrize("part", PARTS)
def test_a_scale_of_one_gives_the_uncalibrated_scores_without_the_held_out_classes(curves, direct, part):
    at = SCALES.index(1.0)
    measured = {name: curves[part][name][at] for name in ("unseen", "seen", "harmonic")}
    assert measured == pytest.approx({name: direct[part][name] for name in measured}, abs=1e-3)
    assert measured["seen"] > 20  # the model has learnt something


@pytest.mark.parametrize("part", PARTS)
def test_a_smaller_scale_never_helps_the_seen_classes(curves, part):
    seen, unseen = np.array(curves[part]["seen"]), np.array(curves[part]["unseen"])
    assert (np.diff(seen) >= 0).all() and seen[-1] > seen[0]
    assert (np.diff(unseen) <= 0).all() and unseen[0] > unseen[-1]
