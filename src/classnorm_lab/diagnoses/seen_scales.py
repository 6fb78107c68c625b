"""U, S and H against the scale of the seen scores, on validation and on test (figure of appendix D)."""

from __future__ import annotations

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.data.validation import hold_out
from classnorm.methods import METHODS, FitContext
from classnorm.methods.settings.classnorm import ClassNormConfig
from classnorm.metrics import SideScores, calibration_curves

SCALES = tuple(round(float(s), 3) for s in np.linspace(0.7, 1.1, 41))
_PSEUDO_UNSEEN = {"SUN": 50, "CUB": 30, "AWA1": 5, "AWA2": 5}


def seen_scale_curves(
    dataset: ZeroShotDataset, config: ClassNormConfig, seed: int = 0
) -> dict[str, dict[str, list[float]]]:
    """Curves on `validation` and `test` of one model, trained without the validation rows.

    Validation holds out the paper's number of pseudo-unseen classes (a fifth of the seen ones for other datasets) and
    as many rows of the other classes. The test set excludes the held-out classes.
    """
    import torch

    from classnorm.scoring import Scorer

    n_unseen = _PSEUDO_UNSEEN.get(dataset.benchmark or "", max(1, int(dataset.seen.sum()) // 5))
    part = hold_out(dataset, n_unseen, None, seed)
    model = METHODS["classnorm"].fit(part, config, seed, FitContext(torch.device("cpu"))).model

    def sides(data: ZeroShotDataset) -> SideScores:
        scorer = Scorer(model, "classnorm", config, data.class_names, data.descriptors, data.seen, data.d_z)
        rows = data.test_rows
        return scorer.sides(data.view(rows), data.labels[rows])

    held_out = np.array(part.class_names)[~part.seen]
    test = dataset.restricted(np.flatnonzero(~np.isin(dataset.class_names, held_out)))
    return {
        name: calibration_curves([sides(data)], "scale", np.array(SCALES)).rounded()
        for name, data in (("validation", part), ("test", test))
    }
