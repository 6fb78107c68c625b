r"""How much a row looks like none of the classes, from its scores, and how well such a number tells novel rows apart.

Higher is more novel. With calibrated scores s of a row over all classes, T their temperature and
:math:`z_c = (s_c - \mathrm{mean}(s)) / \mathrm{std}(s)`:

- ``probability``: :math:`-\log \max_c p_c`, the maximum softmax probability;
- ``entropy`` of the softmax; ``energy``: :math:`-\log \sum_c e^{s_c / T}`;
- ``standardised``: :math:`-\max_c z_c`; ``seen`` and ``unseen``: the same over one side only;
- ``balance``: :math:`-|\max_{seen} z - \max_{unseen} z|`. An image of an undescribed class is often about as close to a
  seen as to an unseen class, while others prefer their side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from classnorm.metrics.probability import softmax

Floats = npt.NDArray[np.float64]


def auroc(known: npt.ArrayLike, novel: npt.ArrayLike) -> float:
    """Area under the ROC curve in percent: how often a novel row has a higher value than a known one; ties count half.

    >>> auroc(known=[1.0, 2.0], novel=[2.0, 3.0])
    87.5
    """
    low, high = np.asarray(known, dtype=np.float64), np.asarray(novel, dtype=np.float64)
    if not (low.size and high.size):
        return float("nan")
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, side="left") + np.searchsorted(ordered, high, side="right")
    return 100.0 * float(below.mean()) / (2 * low.size)


def fpr_at_tpr(known: npt.ArrayLike, novel: npt.ArrayLike, tpr: float = 0.95) -> float:
    """The percentage of novel rows taken for known ones at the threshold that accepts the share `tpr` of known rows.

    >>> fpr_at_tpr(known=[1.0, 2.0, 3.0, 4.0], novel=[2.0, 3.5, 5.0], tpr=0.75)
    33.33333333333333
    """
    low, high = np.sort(np.asarray(known, dtype=np.float64)), np.asarray(novel, dtype=np.float64)
    if not (low.size and high.size):
        return float("nan")
    threshold = low[max(0, int(np.ceil(tpr * low.size - 1e-9)) - 1)]
    return 100.0 * float((high <= threshold).mean())


def novelty_statistics(scores: npt.ArrayLike, seen: npt.ArrayLike, temperature: float = 1.0) -> dict[str, Floats]:
    """The numbers above, [n] each; those of the sides only if there are seen and unseen classes.

    Args:
        scores: [n, n_classes], calibrated.
        seen: [n_classes]

    >>> statistics = novelty_statistics([[2.0, 0.0, -2.0]], seen=[True, False, False])
    >>> {name: round(float(values[0]), 3) for name, values in statistics.items()}
    {'probability': 0.143, 'entropy': 0.441, 'energy': -2.143, 'standardised': -1.225, 'seen': -1.225,
     'unseen': 0.0, 'balance': -1.225}
    """
    table, mask = np.asarray(scores, dtype=np.float64), np.asarray(seen, dtype=bool)
    probabilities = softmax(table, temperature)
    best = table.max(axis=1)
    log_best = np.log(probabilities.max(axis=1))
    deviation = table.std(axis=1)
    spread = np.where(deviation > 0, deviation, 1.0)
    mean = table.mean(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(probabilities), -700.0)  # 0 · log 0 is 0
    statistics = {
        "probability": -log_best,
        "entropy": -(probabilities * logs).sum(axis=1),
        "energy": log_best - best / temperature,
        "standardised": (mean - best) / spread,
    }
    if mask.any() and not mask.all():
        statistics["seen"] = (mean - table[:, mask].max(axis=1)) / spread
        statistics["unseen"] = (mean - table[:, ~mask].max(axis=1)) / spread
        statistics["balance"] = -np.abs(statistics["seen"] - statistics["unseen"])
    return statistics
