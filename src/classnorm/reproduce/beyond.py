"""Beyond the paper: what each part of kernel prototypes and of the recipe `best` contributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from classnorm.methods.kernel import KernelConfig
from classnorm.reproduce.benchmarks import Column
from classnorm.reproduce.reproduction import Measured, Workshop, measure
from classnorm.reproduce.variants import CN, Row
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, ranks
from classnorm.results.numbers import signed
from classnorm.results.verdicts import Verdict, judge_difference

__all__ = ["beyond"]

_KERNEL = Row("Kernel prototypes", method="kernel")
_CLOSED = replace(_KERNEL, label="… closed form, no refinement", recipe="closed-form")
_KERNEL_ROWS = (
    _KERNEL,
    _CLOSED,
    _KERNEL.but("… features without a power", power=1.0),
    _KERNEL.but("… no whitening", whitening=0.0),
    _KERNEL.but("… full whitening", whitening=0.5),
    _KERNEL.but("… covariance of all rows, not inside classes", within=0.0),
    _KERNEL.but("… hubs not held back", length=1.0, hubness=0.0),
    _KERNEL.but("… no map of the features", map_rate=0.0),
)
_BEST = Row("3-layer MLP + CN, recipe best", recipe="best")
_BEST_ROWS = (
    CN.but("3-layer MLP + CN, recipe reference", calibration="validation"),
    _BEST,
    _BEST.but("… without CN", normalization="none", init="torch"),
    _BEST.but("… without the geometry", geometry=False, final_relu=True, gamma=5.0),
    _BEST.but("… without made-up classes", virtual_classes=0),
    _BEST.but("… without noise on descriptors", descriptor_noise=0.0),
)
_WHITENING = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)
_SCORES = ("unseen", "seen", "harmonic", "zsl", "ausuc")


def beyond(workshop: Workshop) -> Artifact:
    """Both ablations, and H against the strength of whitening."""
    sweep = {value: _CLOSED.but(f"closed form, whitening {value:g}", whitening=value) for value in _WHITENING}
    sweep[KernelConfig.whitening] = _CLOSED
    measured = measure(
        workshop, "beyond", [*_KERNEL_ROWS, *_BEST_ROWS, *(r for r in sweep.values() if r is not _CLOSED)]
    )
    tables, plots, verdicts = [], [], []
    for number, column in enumerate(workshop.at_hand):
        tables += [_table(column, rows, measured) for rows in (_KERNEL_ROWS, _BEST_ROWS)]
        plots.append(_plot(number, column, sweep, measured))
        verdicts += _verdicts(column, measured)
    return Artifact(
        "beyond",
        "Beyond the paper: the geometry of features, part by part",
        "The same simple models, in features whose loud directions are quieted in part. Each row leaves out one part.",
        tables=tables,
        plots=plots,
        verdicts=verdicts,
        notes=[
            "All settings are those of the recipes, the same for all data, and were chosen on validation splits of the "
            "training rows; the calibration of the seen scores is chosen there in every run. Seconds are those of the "
            "final training with one thread.",
            *(column.missing for column in workshop.columns if column.missing),
        ],
        data={
            f"{row} | {column}": {score: group.values(score) for score in (*_SCORES, "train_seconds", "fit_seconds")}
            for (row, column), group in measured.items()
        },
    )


def _table(column: Column, rows: Sequence[Row], measured: Mapping[tuple[str, str], Measured]) -> Table:
    groups = [measured[row.label, column.name] for row in rows]
    places = ranks([float(np.mean(group.values("harmonic"))) for group in groups])
    body = []
    for row, group, place in zip(rows, groups, places, strict=True):
        scores = [Cell(group.cell(s, spread=s == "harmonic"), place if s == "harmonic" else None) for s in _SCORES]
        seconds = [Cell(f"{np.mean(group.values(name)):.1f}") for name in ("train_seconds", "fit_seconds")]
        body.append([Cell(row.label), *scores, *seconds])
    header = ["model", "U", "S", "H", "T1", "AUSUC", "training, s", "with calibration, s"]
    return Table(f"{column.label}: {rows[1].label if rows is _BEST_ROWS else rows[0].label}", header, body)


def _plot(
    number: int, column: Column, sweep: Mapping[float, Row], measured: Mapping[tuple[str, str], Measured]
) -> Plot:
    series = []
    for label, score in (("H", "harmonic"), ("T1", "zsl")):
        values = np.array([measured[row.label, column.name].values(score) for row in sweep.values()])
        series.append(Series(label, label, list(sweep), np.round(values.mean(axis=1), 2).tolist()))
    title = f"{column.label}: closed form against whitening"
    x_label = "whitening (0: none, 0.5: full)"
    return Plot(f"beyond-{number}", "lines", title, x_label, "percent", series)


def _verdicts(column: Column, measured: Mapping[tuple[str, str], Measured]) -> list[Verdict]:
    reference, best, plain = (_BEST_ROWS[i] for i in (0, 1, 2))
    claims = (
        ("Kernel prototypes beat the MLP with CN of the paper", _KERNEL, reference),
        ("The recipe best beats the recipe reference", best, reference),
        ("CN helps in the recipe best, too", best, plain),
        *(
            (f"The geometry matters more in the recipe best than {what}", _BEST_ROWS[other], _BEST_ROWS[3])
            for what, other in (("CN", 2), ("made-up classes", 4), ("noise on descriptors", 5))
        ),
        ("Partial whitening beats none", _KERNEL, _KERNEL_ROWS[3]),
        ("Partial whitening beats full whitening", _KERNEL, _KERNEL_ROWS[4]),
    )
    found = []
    for text, better, worse in claims:
        ours, others = (measured[row.label, column.name].values("harmonic") for row in (better, worse))
        means = float(np.mean(ours)), float(np.mean(others))
        difference = f"H {means[0]:.1f} against {means[1]:.1f}: {signed(means[0] - means[1])}"
        found.append(Verdict(f"{text} (by 0.5 H)", column.label, difference, judge_difference(ours, others, 0.5)))
    return found
