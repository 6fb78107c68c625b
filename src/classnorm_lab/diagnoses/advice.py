"""Diagnoses in plain words: what the numbers mean and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from classnorm.data import ZeroShotDataset
from classnorm.methods.settings.classnorm import baseline, reference
from classnorm.nn import gamma_for_variance
from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.attributes import AttributeStatistics
from classnorm_lab.diagnoses.variance import initial_variance


def variance_advice(dataset: ZeroShotDataset, seeds: int = 3) -> tuple[list[str], dict[str, float]]:
    """Advice on the logit variance at the start of training, and the variance of each model."""
    configs = {"without class normalization": baseline(dataset), "with class normalization": reference(dataset)}
    variances = {
        name: mean([initial_variance(dataset, config, seed) for seed in range(seeds)])
        for name, config in configs.items()
    }
    gamma = float(reference(dataset).gamma)
    lines = []
    for name, variance in variances.items():
        model = f"The MLP that `classnorm train` builds {name}:"
        if variance <= 0:
            lines.append(f"{model} all classes have the same logits; it cannot learn.")
            continue
        best = f"{gamma * variance**-0.25:.1f}"
        verdict = (
            "close to 1, as it should be."
            if 0.5 <= variance <= 2
            else f"γ = {best} would bring it to 1 (`gamma={best}`)."
        )
        lines.append(f"{model} its initial logits have a variance of {variance:.2g} (γ {gamma:g}): {verdict}")
    lines.append(
        f"For zero-mean features of {dataset.d_z} dimensions the paper's formula gives γ = "
        f"{gamma_for_variance(1.0, dataset.d_z):.1f}; prefer the measured one."
    )
    ratio = variances["with class normalization"] / max(variances["without class normalization"], 1e-12)
    lines.append(
        f"Class normalization raises the variance {ratio:.1f} times: classes differ from the first step."
        if ratio >= 1.5
        else "Class normalization hardly changes the variance here: expect little from it on this data."
    )
    return lines, variances


def smoothness_advice(norms: Mapping[str, Sequence[float]]) -> list[str]:
    """Advice on mean gradient norms: model → one per seed."""
    classifier, plain, cn = (mean(norms[model]) for model in ("MLP classifier", "3-layer MLP", "3-layer MLP + CN"))
    return [
        f"The plain zero-shot MLP has {plain / classifier:.2g} times the gradient norm of an MLP classifier: "
        f"its loss surface is {'rougher' if plain > classifier else 'smoother'}.",
        f"Class normalization lowers the norm to {cn / plain:.2g} of that: larger learning rates are safe."
        if cn < plain
        else f"Class normalization raises the norm to {cn / plain:.2g} times that: do not raise the learning rate.",
    ]


def attribute_advice(statistics: AttributeStatistics) -> list[str]:
    n, percent = len(statistics.chi2), 100 * statistics.share_not_normal
    if percent > 50:
        normal = f"Attributes are far from normal (rejected for {percent:.0f} % of {n}); prefer unit norm."
    elif percent > 10:
        normal = f"Some attributes are not normal ({percent:.0f} % of {n}); unit norm is the safe choice."
    else:
        normal = f"Attributes look normal (rejected for {percent:.0f} % of {n}); standardizing them is safe, too."
    correlation, chance = float(statistics.correlation.mean()), statistics.chance_correlation
    independent = (
        f"They are not independent: mean absolute correlation {correlation:.2f}, {chance:.2f} is expected by chance."
        if correlation > 1.2 * chance
        else f"They are nearly independent: mean absolute correlation {correlation:.2f}, {chance:.2f} is chance."
    )
    n_constant = statistics.constant
    constant = f"{n_constant} attributes are the same for all classes and carry no information; drop them."
    return [normal, independent, *([constant] if n_constant else [])]
