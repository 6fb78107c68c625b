"""Beyond the paper: ablations of kernel prototypes and of the recipe `best`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from classnorm.methods.settings.kernel import KernelConfig
from classnorm.report.summary import SCORES
from classnorm.reproduce.benchmarks import Benchmark
from classnorm.reproduce.claims import Claim
from classnorm.reproduce.reproduction import Measurements, Reproduction, measure
from classnorm.reproduce.variants import CN, Variant
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import number_text

__all__ = ["beyond"]

_KERNEL = Variant("Kernel prototypes", method="kernel")
_CLOSED = replace(_KERNEL, label="… closed form, no refinement", recipe="closed-form")
_NO_WHITENING = _KERNEL.derive("… no whitening", whitening=0.0)
_FULL_WHITENING = _KERNEL.derive("… full whitening", whitening=0.5)
_KERNEL_VARIANTS = (
    _KERNEL,
    _CLOSED,
    _KERNEL.derive("… no square root of the features", power=1.0),
    _NO_WHITENING,
    _FULL_WHITENING,
    _KERNEL.derive("… total instead of within-class covariance", within=0.0),
    _KERNEL.derive("… no hubness correction", length=1.0, hubness=0.0),
    _KERNEL.derive("… no linear map of the features", map_rate=0.0),
)
_REFERENCE = CN.derive("3-layer MLP + CN, recipe reference", calibration="validation")
_BEST = Variant("3-layer MLP + CN, recipe best", recipe="best")
_NO_CN = _BEST.derive("… without CN", normalization="none", init="torch")
_NO_GEOMETRY = _BEST.derive("… without the feature geometry", geometry=False, final_relu=True, gamma=5.0)
_NO_VIRTUAL_CLASSES = _BEST.derive("… without virtual classes", virtual_classes=0)
_NO_NOISE = _BEST.derive("… without descriptor noise", descriptor_noise=0.0)
_BEST_VARIANTS = (_REFERENCE, _BEST, _NO_CN, _NO_GEOMETRY, _NO_VIRTUAL_CLASSES, _NO_NOISE)
_ABLATIONS = ((_KERNEL, _KERNEL_VARIANTS), (_BEST, _BEST_VARIANTS))
_CLAIMS = (
    Claim("Kernel prototypes beat the paper's MLP with CN", _KERNEL, _REFERENCE, 0.5),
    Claim("The recipe best beats the recipe reference", _BEST, _REFERENCE, 0.5),
    Claim("CN also helps in the recipe best", _BEST, _NO_CN, 0.5),
    *(
        Claim(f"In the recipe best, the feature geometry matters more than {part}", variant, _NO_GEOMETRY, 0.5)
        for part, variant in (
            ("CN", _NO_CN),
            ("virtual classes", _NO_VIRTUAL_CLASSES),
            ("descriptor noise", _NO_NOISE),
        )
    ),
    Claim("Partial whitening beats none", _KERNEL, _NO_WHITENING, 0.5),
    Claim("Partial whitening beats full whitening", _KERNEL, _FULL_WHITENING, 0.5),
)
_WHITENING = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)
_TIMES = {"train_seconds": "training, s", "fit_seconds": "with calibration, s"}


def beyond(reproduction: Reproduction) -> Artifact:
    """Both ablations, and H against the strength of whitening."""
    sweep = {value: _CLOSED.derive(f"closed form, whitening {value:g}", whitening=value) for value in _WHITENING}
    sweep[KernelConfig.whitening] = _CLOSED
    swept = [variant for variant in sweep.values() if variant is not _CLOSED]
    runs = measure(reproduction, "beyond", [*_KERNEL_VARIANTS, *_BEST_VARIANTS, *swept])
    tables, plots, verdicts = [], [], []
    for number, benchmark in enumerate(reproduction.available):
        tables += [_table(benchmark, model, variants, runs) for model, variants in _ABLATIONS]
        plots.append(_plot(number, benchmark, sweep, runs))
        verdicts += [claim.verdict(benchmark, runs) for claim in _CLAIMS]
    return Artifact(
        "beyond",
        "Beyond the paper: ablation of the feature geometry",
        "The same simple models on partially whitened features. Each row leaves out one part.",
        tables=tables,
        plots=plots,
        verdicts=verdicts,
        notes=[
            "All settings come from the recipes, which are the same for all data and were chosen on validation splits "
            "of the training rows. Each run chooses the calibration of the seen scores on such splits. Training times "
            "are those of the final training with one thread.",
            *reproduction.missing,
        ],
        data={
            " | ".join(key): {score: group.values(score) for score in (*SCORES, *_TIMES)} for key, group in runs.items()
        },
    )


def _table(benchmark: Benchmark, model: Variant, variants: Sequence[Variant], runs: Measurements) -> Table:
    groups = [runs[variant.label, benchmark.name] for variant in variants]
    places = ranks([group.mean("harmonic") for group in groups])
    body = []
    for variant, group, place in zip(variants, groups, places, strict=True):
        scores = [Cell(group.cell(s, spread=s == "harmonic"), place if s == "harmonic" else None) for s in SCORES]
        body.append([Cell(variant.label), *scores, *(Cell(number_text(group.mean(name))) for name in _TIMES)])
    header = ["model", *(short for short, _ in SCORES.values()), *_TIMES.values()]
    return Table(f"{benchmark.label}: {model.label}", header, body)


def _plot(number: int, benchmark: Benchmark, sweep: Mapping[float, Variant], runs: Measurements) -> Plot:
    groups = [runs[variant.label, benchmark.name] for variant in sweep.values()]
    series = [
        Series(label, label, list(sweep), [round(group.mean(score), 2) for group in groups])
        for label, score in (("H", "harmonic"), ("T1", "zsl"))
    ]
    title = f"{benchmark.label}: closed form against whitening"
    x_label = "whitening (0: none, 0.5: full)"
    return Plot(f"beyond-{number}", "lines", title, x_label, "percent", series)
