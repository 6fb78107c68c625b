"""Smoothness of the loss surface during training: tasks, table and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classnorm.data import ZeroShotDataset
from classnorm.methods.settings.classnorm import reference
from classnorm.nn import Initialization
from classnorm.results.artifact import Artifact, Plot, Table
from classnorm.results.numbers import mean
from classnorm_lab.diagnoses.curves import MODEL_COLORS, mean_series, rounded
from classnorm_lab.diagnoses.diagnosis import Diagnosis

SmoothnessKey = tuple[str, str, str, int]
"""Label of the dataset, initialisation, model, seed."""
INITIALIZATIONS: dict[Initialization, str] = {"torch": "PyTorch", "xavier": "Xavier", "kaiming_fan_in": "Kaiming"}
"""Initialisations of all layers, with the name that tables give them; the first is that of the authors' release."""
_KEPT = 25  # points of a curve


def smoothness_tasks(
    label: str,
    dataset: ZeroShotDataset,
    *,
    seeds: int,
    iterations: int,
    every: int,
    width: int,
    inits: Sequence[Initialization] = ("torch",),
) -> dict[SmoothnessKey, Diagnosis]:
    """A task for each initialisation, each of `SMOOTHNESS_MODELS` and each seed."""
    from classnorm_lab.diagnoses.smoothness import SMOOTHNESS_MODELS  # PyTorch

    config = reference(dataset).replace(hidden=width)
    size = {"iterations": iterations, "every": every}
    return {
        (label, INITIALIZATIONS[init], model, seed): Diagnosis(
            dataset, "smoothness", config, {"model": model, "seed": seed, "init": init, **size}
        )
        for init in inits
        for model in SMOOTHNESS_MODELS
        for seed in range(seeds)
    }


def smoothness_summary(norms: Sequence[float], every: int) -> dict[str, Any]:
    """The mean gradient norm over a training, and some points of its curve."""
    stride = max(1, len(norms) // _KEPT)
    steps = list(range(0, every * len(norms), every * stride))
    return {"mean": rounded([mean(norms)])[0], "steps": steps, "norms": rounded(norms[::stride])}


Summaries = Mapping[SmoothnessKey, Mapping[str, Any]]


def mean_gradient_norms(summaries: Summaries) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(dataset, initialisation) → model → mean gradient norm over the training, for each seed."""
    norms: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (label, init, model, _), summary in summaries.items():
        norms.setdefault((label, init), {}).setdefault(model, []).append(summary["mean"])
    return norms


def smoothness_artifact(summaries: Summaries) -> Artifact:
    """Table and plots of the summaries of `smoothness_tasks`, for one or several datasets."""
    from classnorm_lab.diagnoses.smoothness import SMOOTHNESS_MODELS  # PyTorch

    norms = mean_gradient_norms(summaries)
    rows = [
        [
            label,
            init,
            str(len(group[SMOOTHNESS_MODELS[0]])),
            *(f"{mean(group[model]):.2e}" for model in SMOOTHNESS_MODELS),
        ]
        for (label, init), group in norms.items()
    ]
    return Artifact(
        "smoothness",
        "Smoothness of the loss surface",
        "",
        tables=[
            Table.of(
                "Mean over the training of the largest norm",
                ["data", "initialisation", "seeds", *SMOOTHNESS_MODELS],
                rows,
            )
        ],
        plots=[_plot(label, init, summaries, i) for i, (label, init) in enumerate(norms)],
        notes=[
            "The largest gradient norm over 10 batches of 256 rows with standard normal noise, divided by the number "
            "of parameters, at regular steps of the training; Adam 1e-4, batches of 256. All models of a row have the "
            "same initialisation, but for the last layer of models with CN: its variance is a part of CN.",
            "The paper says neither which initialisation its models have here nor whether they have normalize+scale, "
            "so all are shown. A cosine does not change with the length of a prototype, so its gradient grows as "
            "prototypes get shorter, and CN starts with short ones.",
        ],
        data={"smoothness": {" | ".join(map(str, key)): summary for key, summary in summaries.items()}},
    )


def _plot(label: str, init: str, summaries: Summaries, number: int) -> Plot:
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for (data, of, model, _), summary in summaries.items():
        if (data, of) == (label, init):
            curves.setdefault(model, []).append(summary)
    series = [
        mean_series(
            model,
            model.removesuffix(" −NS"),
            "−NS" * model.endswith("−NS"),
            [run["norms"] for run in runs],
            x=runs[0]["steps"],
        )
        for model, runs in curves.items()
    ]
    title = f"{label}: largest gradient norm, {init}'s initialisation"
    return Plot(
        f"smoothness-{number}",
        "lines",
        title,
        "iteration",
        "gradient norm / parameters",
        series,
        log_y=True,
        colors=MODEL_COLORS,
    )
