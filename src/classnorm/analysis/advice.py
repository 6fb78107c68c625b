"""Diagnoses in plain words: what the numbers mean and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from classnorm.analysis.attributes import AttributeStatistics
from classnorm.analysis.variance import initial_variance
from classnorm.data import ZeroShotDataset
from classnorm.methods.classnorm import baseline, reference
from classnorm.nn import gamma_for_variance

__all__ = ["attribute_advice", "smoothness_advice", "variance_advice"]


def variance_advice(dataset: ZeroShotDataset, seeds: int = 3) -> tuple[list[str], dict[str, float]]:
    """Of the models as `train` would start them; with the variances themselves."""
    configs = {"without class normalization": baseline(dataset), "with class normalization": reference(dataset)}
    found = {
        name: float(np.mean([initial_variance(dataset, config, seed) for seed in range(seeds)]))
        for name, config in configs.items()
    }
    gamma = float(reference(dataset).gamma)
    lines = []
    for name, variance in found.items():
        if variance <= 0:
            lines.append(f"The MLP {name}, as training starts it: all classes have the same logits; it cannot learn.")
            continue
        wanted = gamma * variance**-0.25
        lines.append(
            f"The MLP {name}, as training starts it: logit variance at initialisation is {variance:.2g} (γ {gamma:g}): "
            + (
                "close to 1, as it should be."
                if 0.5 <= variance <= 2
                else f"γ = {wanted:.1f} would bring it to 1 (`gamma={wanted:.1f}`)."
            )
        )
    lines.append(
        f"For zero-mean features of {dataset.d_z} dimensions the paper's formula would say γ = "
        f"{gamma_for_variance(1.0, dataset.d_z):.1f}; prefer the measured one."
    )
    ratio = found["with class normalization"] / max(found["without class normalization"], 1e-12)
    if ratio >= 1.5:
        lines.append(
            f"Class normalization raises the variance {ratio:.1f} times: classes differ from the first step on."
        )
    else:
        lines.append("Class normalization hardly changes the variance here: expect little from it on this data.")
    return lines, found


def smoothness_advice(norms: Mapping[str, Sequence[float]]) -> list[str]:
    """Of mean gradient norms, model → one per seed."""
    classifier, plain, cn = (float(np.mean(norms[m])) for m in ("MLP classifier", "3-layer MLP", "3-layer MLP + CN"))
    rougher = "rougher" if plain > classifier else "smoother"
    lines = [
        f"The plain zero-shot MLP has {plain / classifier:.2g} times the gradient norm of an MLP classifier: "
        f"its loss surface is {rougher}.",
    ]
    if cn < plain:
        lines.append(
            f"Class normalization lowers the norm to {cn / plain:.2g} of that: larger learning rates are safe."
        )
    else:
        lines.append(
            f"Class normalization raises the norm to {cn / plain:.2g} times that: do not raise the learning rate."
        )
    return lines


def attribute_advice(statistics: AttributeStatistics) -> list[str]:
    n, rejected = len(statistics.chi2), statistics.share_not_normal
    if rejected > 0.5:
        first = f"Attributes are far from normal (rejected for {100 * rejected:.0f} % of {n}); prefer unit norm."
    elif rejected > 0.1:
        first = f"Some attributes are not normal ({100 * rejected:.0f} % of {n}); unit norm is the safe choice."
    else:
        first = f"Attributes look normal (rejected for {100 * rejected:.0f} % of {n}); standardizing them is safe, too."
    mean, chance = float(statistics.correlation.mean()), statistics.chance_correlation
    second = (
        f"They are not independent: mean absolute correlation {mean:.2f}, {chance:.2f} would be chance."
        if mean > 1.2 * chance
        else f"They are nearly independent: mean absolute correlation {mean:.2f}, {chance:.2f} is chance."
    )
    lines = [first, second]
    if statistics.constant:
        lines.append(f"{statistics.constant} attributes are the same for all classes and tell nothing; drop them.")
    return lines
