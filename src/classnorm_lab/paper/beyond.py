"""Beyond the paper: ablations of kernel prototypes and of the recipe `best`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from classnorm.methods.settings.kernel import KernelConfig
from classnorm.report.summary import SCORES
from classnorm.results.artifact import Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import number_text
from classnorm_lab.diagnoses.diagnosis import SCORE_COLORS
from classnorm_lab.paper.measured import Measured, Setting
from classnorm_lab.paper.reproduction import Reproduction, measure
from classnorm_lab.paper.variants import CN, Variant
from classnorm_lab.paper.verdicts import Claim, Finding

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
    _KERNEL.derive("… total instead of within-class covariance", within=0.0, error_share=0.0),
    _KERNEL.derive("… no errors of classes left out in the covariance", within=0.75, error_share=0.0),
    _KERNEL.derive("… no power of the descriptors", descriptor_power=1.0),
    _KERNEL.derive("… no average with the closed form", closed_share=0.0),
    _KERNEL.derive("… no hubness correction", length=1.0, hubness=0.0),
    _KERNEL.derive("… no linear map of the features", map_rate=0.0),
)
_REFERENCE = CN.named("3-layer MLP + CN, recipe reference")
_BEST = Variant("3-layer MLP + CN, recipe best", recipe="best")
_NO_CN = _BEST.derive("… without CN", normalization="none", init="torch")
_NO_GEOMETRY = _BEST.derive(
    "… without the feature geometry, final ReLU, γ = 5", geometry=False, final_relu=True, gamma=5.0
)
_NO_VIRTUAL_CLASSES = _BEST.derive("… without virtual classes", virtual_classes=0)
_NO_NOISE = _BEST.derive("… without descriptor noise", descriptor_noise=0.0)
_BEST_VARIANTS = (_REFERENCE, _BEST, _NO_CN, _NO_GEOMETRY, _NO_VIRTUAL_CLASSES, _NO_NOISE)
ABLATIONS = ((_KERNEL, _KERNEL_VARIANTS), (_BEST, _BEST_VARIANTS))
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


SWEEP = {value: _CLOSED.derive(f"closed form, whitening {value:g}", whitening=value) for value in _WHITENING}
SWEEP[KernelConfig.whitening] = _CLOSED


def measure_beyond(reproduction: Reproduction) -> dict[str, Any]:
    """Run both ablations, and the closed form at several strengths of whitening."""
    swept = [variant for variant in SWEEP.values() if variant is not _CLOSED]
    return measure(reproduction, "beyond", [*_KERNEL_VARIANTS, *_BEST_VARIANTS, *swept]).as_dict()


def beyond(data: Mapping[str, Any]) -> Finding:
    """Both ablations, and H against the strength of whitening."""
    measured = Measured.of(data)
    tables, plots = [], []
    for number, setting in enumerate(measured.available):
        tables += [_table(setting, model, variants, measured) for model, variants in ABLATIONS]
        if all((variant.label, setting.name) in measured.runs for variant in SWEEP.values()):
            plots.append(_plot(number, setting, measured))
    return Finding(
        "beyond",
        "Beyond the paper: ablation of the feature geometry",
        "The same simple models on partially whitened features. Each row leaves out one part.",
        tables=tables,
        plots=plots,
        verdicts=[verdict for claim in _CLAIMS for verdict in claim.verdicts(measured)],
        notes=[
            "All settings come from the recipes, which are the same for all data and were chosen on validation splits "
            "of the training rows. Each run chooses the calibration of the seen scores on such splits. Training times "
            "are those of the final training with one thread.",
            *measured.missing,
        ],
        data=dict(data),
    )


def _table(setting: Setting, model: Variant, variants: Sequence[Variant], measured: Measured) -> Table:
    variants = [variant for variant in variants if (variant.label, setting.name) in measured.runs]
    groups = [measured.runs[variant.label, setting.name] for variant in variants]
    places = ranks([group.mean("harmonic") for group in groups])
    body = []
    for variant, group, place in zip(variants, groups, places, strict=True):
        scores = [Cell(group.cell(s, spread=s == "harmonic"), place if s == "harmonic" else None) for s in SCORES]
        body.append([Cell(variant.label), *scores, *(Cell(number_text(group.mean(name))) for name in _TIMES)])
    header = ["model", *(short for short, _ in SCORES.values()), *_TIMES.values()]
    return Table(f"{setting.label}: {model.label}", header, body)


def _plot(number: int, setting: Setting, measured: Measured) -> Plot:
    groups = [measured.runs[variant.label, setting.name] for variant in SWEEP.values()]
    series = [
        Series(label, label, list(SWEEP), [round(group.mean(score), 2) for group in groups])
        for label, score in (("H", "harmonic"), ("T1", "zsl"))
    ]
    title = f"{setting.label}: closed form against whitening"
    x_label = "whitening (0: none, 0.5: full)"
    return Plot(f"beyond-{number}", "lines", title, x_label, "percent", series, colors=SCORE_COLORS)
