"""The figure of appendix D: U, S and H against the scale of the seen scores, on validation and on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from classnorm.data import ZeroShotDataset
from classnorm.data.validation import hold_out
from classnorm.methods import METHODS, FitContext
from classnorm.methods.settings.classnorm import ClassNormConfig, reference
from classnorm.metrics import BestScores, calibration_curves
from classnorm.results.artifact import Plot, Series, Table
from classnorm.results.numbers import mean, number_text
from classnorm.scoring import ClassTable, Scorer
from classnorm_lab.diagnoses.diagnosis import SCORE_COLORS, Diagnosis, rounded
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.figures import run_diagnoses
from classnorm_lab.paper.measured import Setting
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding, Verdict, judge_bounds

SCALES = tuple(round(float(s), 3) for s in np.linspace(0.7, 1.1, 41))
_PSEUDO_UNSEEN = {"SUN": 50, "CUB": 30, "AWA1": 5, "AWA2": 5}
_PAPER_SCALES = {"SUN": 0.95, "CUB": 1.0, "AWA1": 0.95, "AWA2": 0.95}
_SCORES = {"harmonic": "H", "unseen": "U", "seen": "S"}
_PARTS = ("validation", "test")
_NOTE = (
    "Both curves come from one training without the validation rows: 50, 30, 5 and 5 pseudo-unseen classes on SUN, "
    "CUB, AwA1 and AwA2 (elsewhere a fifth of the seen classes) and as many rows of the other classes are held out. "
    "The held-out classes do not compete on the test set."
)


def measure_seen_scales(reproduction: Reproduction) -> dict[str, Any]:
    """U, S and H against the scale s, on validation and test rows, for every seed."""
    datasets = [
        paper_dataset
        for paper_dataset in reproduction.available
        if len(paper_dataset.dataset.split.test_unseen) and len(paper_dataset.dataset.split.test_seen)
    ]
    seeds = range(reproduction.effort.seeds)
    tasks = {(b.name, seed): _task(reproduction, b, seed) for b in datasets for seed in seeds}
    curves = run_diagnoses(reproduction, "seen-scales", tasks)
    return {
        "settings": [asdict(paper_dataset.setting) for paper_dataset in reproduction.datasets],
        "scales": list(SCALES),
        "curves": {b.name: [curves[b.name, seed] for seed in seeds] for b in datasets},
    }


def seen_scale_curves(
    dataset: ZeroShotDataset, config: ClassNormConfig, seed: int = 0
) -> dict[str, dict[str, list[float]]]:
    """Curves on `validation` and `test` of one model, trained without the validation rows.

    Validation holds out the paper's number of pseudo-unseen classes (a fifth of the seen ones for other datasets) and
    as many rows of the other classes. The test set excludes the held-out classes.
    """
    n_unseen = _PSEUDO_UNSEEN.get(dataset.benchmark or "", max(1, int(dataset.seen.sum()) // 5))
    part = hold_out(dataset, n_unseen, None, seed)
    model = METHODS["classnorm"].fit(part, config, seed, FitContext(torch.device("cpu"))).model

    def best_scores(data: ZeroShotDataset) -> BestScores:
        classes = ClassTable(data.class_names, data.descriptors, data.seen)
        scorer = Scorer(model, "classnorm", config, data.d_z, classes)
        rows = data.test_rows
        return scorer.best_scores(data.view(rows), data.labels[rows])

    held_out = np.array(part.class_names)[~part.seen]
    test = dataset.restricted(np.flatnonzero(~np.isin(dataset.class_names, held_out)))
    return {
        name: calibration_curves([best_scores(data)], "scale", np.array(SCALES)).rounded()
        for name, data in (("validation", part), ("test", test))
    }


def seen_scales(numbers: Mapping[str, Any]) -> Finding:
    settings = [Setting(**setting) for setting in numbers["settings"]]
    plots, verdicts, rows = [], [], []
    for number, setting in enumerate(s for s in settings if s.name in numbers["curves"]):
        runs = numbers["curves"][setting.name]
        plots.append(_plot(number, setting, runs))
        validation, test = (SCALES[int(_mean_curve(runs, part, "harmonic").argmax())] for part in _PARTS)
        gains = [max(run["test"]["harmonic"]) - run["test"]["harmonic"][SCALES.index(1.0)] for run in runs]
        rows.append([setting.label, f"{validation:g}", f"{test:g}", number_text(mean(gains))])
        verdicts += _verdicts(setting, validation, test)
    header = ["data", "best s on validation", "best s on test", "gain in H on test by the best s"]
    title = "Best scales, mean curves over seeds (test curves are never used for selection)"
    notes = [_NOTE, *(setting.missing for setting in settings if setting.missing)]
    return Finding("seen-scales", "", "", [Table.of(title, header, rows)], plots, notes, verdicts=verdicts)


def _task(reproduction: Reproduction, paper_dataset: PaperDataset, seed: int) -> Diagnosis:
    config = reference(paper_dataset.dataset).replace(**reproduction.changes(paper_dataset, "classnorm", "reference"))
    return Diagnosis("seen-scales", seen_scale_curves, paper_dataset.dataset, config, {"seed": seed})


def _mean_curve(runs: Sequence[Any], part: str, score: str) -> Any:
    return np.mean([run[part][score] for run in runs], axis=0)


def _plot(number: int, setting: Setting, runs: Sequence[Any]) -> Plot:
    series = [
        Series(
            f"{name}, {part}",
            name,
            list(SCALES),
            rounded(_mean_curve(runs, part, score)),
            variant="" if part == "test" else part,
        )
        for part in _PARTS
        for score, name in _SCORES.items()
    ]
    title = f"{setting.label}: scores against the seen scale"
    return Plot(
        f"seen-scales-{number}", "lines", title, "scale s: seen scores × s", "accuracy (%)", series, colors=SCORE_COLORS
    )


def _verdicts(setting: Setting, validation: float, test: float) -> list[Verdict]:
    if setting.paper not in _PAPER_SCALES:
        return []
    scale = _PAPER_SCALES[setting.paper]
    claim = f"The best scale on validation is about {scale:g}, as in the paper (± 0.05)"
    measured = f"{validation:g} on validation, {test:g} on test"
    return [Verdict(claim, setting.label, measured, judge_bounds([validation], scale - 0.05, scale + 0.05))]
