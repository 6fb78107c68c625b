"""The paper's continual table and curves from images, with an encoder that is trained jointly.

An encoder is trained jointly with each of the paper's methods; beside them stand learners on a frozen encoder, and one
whose encoder is adapted on the first task only. An arm is kept when it is done; arms that are not have dashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm import progress
from classnorm.continual import ContinualConfig, Grid
from classnorm.data import ZeroShotDataset
from classnorm.io.arrays import read_npy, write_npy
from classnorm.io.files import digest, replacing
from classnorm.report.stream_results import task_curve
from classnorm.report.summary import STREAM_COSTS, STREAM_SCORES
from classnorm.results.artifact import Plot, Table
from classnorm.results.numbers import mean, number_text
from classnorm.runs.streams import ContinualExperiment
from classnorm.runs.validation_sequence import VALIDATION_TASKS, Chosen, default_grid, validated
from classnorm_lab.paper.czsl import (
    ARM_COLORS,
    ARMS,
    CURVES,
    Arm,
    Streams,
    arm_experiments,
    curve_series,
    pair_verdicts,
    score_cells,
    score_change,
    stream_data,
)
from classnorm_lab.paper.datasets import PaperDataset
from classnorm_lab.paper.measured import SeedRuns, Setting
from classnorm_lab.paper.published import published_table
from classnorm_lab.paper.reproduction import Reproduction
from classnorm_lab.paper.verdicts import Finding

if TYPE_CHECKING:
    from torch import nn

    from classnorm.preparation import BlockOutputs, ImageInputs

_RATES = Grid({"lr": (1e-3, 1e-2, 0.1), "encoder_lr": (1e-3, 1e-2)})
_NORMS = Grid({"batch_norm": ("frozen", "trained")})
_MEMORY_BATCH = 32  # remembered images per step: as many as new ones
_LARGE = 224  # pixels, what the encoder was trained on
_TITLE = "Continual zero-shot learning from images"
_CONCLUSION = "Class normalization also improves continual methods whose encoder is trained jointly, mH by 30 to 50 %."


@dataclass(frozen=True)
class ImageArm(Arm):
    """An arm of the table; `inputs` says what becomes of the encoder."""

    inputs: str = "joint"
    """joint: trained jointly; frozen, frozen-224: not trained; adapted: trained on the first task, then frozen."""


def _joint(arm: Arm) -> ImageArm:
    return ImageArm(arm.label, arm.strategy, arm.class_norm, arm.published)


IMAGE_ARMS = (
    ImageArm("Frozen encoder, Analytic", "analytic", None, inputs="frozen"),
    ImageArm("Frozen encoder, Sequential + CN", "sequential", True, inputs="frozen"),
    *sorted((_joint(arm) for arm in ARMS if arm.published), key=lambda arm: arm.strategy != "sequential"),
    ImageArm("Adapted on the first task, then Analytic", "analytic", None, inputs="adapted"),
    ImageArm("Adapted on the first task, then RanPAC", "ranpac", None, inputs="adapted"),
    ImageArm("Frozen encoder at 224 px, Analytic", "analytic", None, inputs="frozen-224"),
    ImageArm("Frozen encoder at 224 px, Sequential + CN", "sequential", True, inputs="frozen-224"),
)
"""The paper's methods, trained with the encoder, and learners on an encoder that is frozen or adapted once; those that
are quick come first."""


def measure_czsl_images(reproduction: Reproduction) -> dict[str, Any]:
    """Run the arms that are not known, one after another, until the time is up."""
    runs: list[dict[str, Any]] = []
    settings = []
    for paper_dataset in reproduction.datasets:
        setting = _setting(reproduction, paper_dataset)
        settings.append(asdict(setting))
        if setting.missing:
            continue
        dataset = stream_data(reproduction, paper_dataset)
        keys = {arm.label: _key(reproduction, dataset, arm) for arm in IMAGE_ARMS}
        new = [arm for arm in IMAGE_ARMS if arm.inputs == "joint" and keys[arm.label] not in reproduction.known_streams]
        if new and not reproduction.time_is_up:
            progress.notice(_plan(reproduction, dataset, new))
        for arm in IMAGE_ARMS:
            key = keys[arm.label]
            if key in reproduction.known_streams:
                runs.append(dict(reproduction.known_streams[key]))
            elif not reproduction.time_is_up:
                streams = _run(reproduction, paper_dataset.name, dataset, arm)
                runs.append({"setting": paper_dataset.name, "arm": arm.label, "key": key, **_document(streams, arm)})
    return {"settings": settings, "runs": runs}


def _setting(reproduction: Reproduction, paper_dataset: PaperDataset) -> Setting:
    """The dataset as the table names it: encoder and size instead of features."""
    mode, setting = reproduction.images, paper_dataset.setting
    if setting.missing:
        return setting
    if mode is None or (paper_dataset.dataset.image_files is None and paper_dataset.dataset.images is None):
        return replace(setting, missing=f"{setting.name}: not measured from images; add `images=DIR` with its images.")
    frozen = f", first {mode.freeze_blocks} blocks frozen" if mode.freeze_blocks else ""
    return replace(setting, label=f"{setting.name}, {mode.encoder} at {mode.size} px{frozen}")


def _key(reproduction: Reproduction, dataset: ZeroShotDataset, arm: ImageArm) -> str:
    """Identifies everything that determines the numbers of an arm."""
    assert reproduction.images is not None
    grids = [dict(_RATES.values), dict(_NORMS.values), default_grid(arm.strategy).points()]
    names = [experiment.name for experiment in _experiments(reproduction, dataset, arm)]
    return digest([names, arm.inputs, reproduction.images.key(), grids])[:16]


def _plan(reproduction: Reproduction, dataset: ZeroShotDataset, arms: Sequence[ImageArm]) -> str:
    """How long the arms with an encoder that is trained jointly will take, by timing their batches."""
    import torch

    from classnorm.runs.image_plan import plan_images

    assert reproduction.images is not None
    with progress.stage("images"):
        encoder, inputs = reproduction.images.load(dataset, 0, torch.device("cpu"))
    trials = len(_RATES.points()) + len(_NORMS.points()) - 1  # one of the latter is among the former
    seconds = 0.0
    for arm in arms:
        for experiment in _experiments(reproduction, dataset, arm):
            assert isinstance(experiment.config, ContinualConfig)
            chosen_on = replace(experiment, part=(0, VALIDATION_TASKS))
            one, rest = (plan_images(e.stream, experiment.config, encoder, inputs) for e in (chosen_on, experiment))
            seconds += trials * one.seconds + rest.seconds
    return f"plan: {len(arms)} arms on images, about {seconds / 60:.0f} minutes of one core"


def _experiments(reproduction: Reproduction, dataset: ZeroShotDataset, arm: ImageArm) -> list[ContinualExperiment]:
    if arm.inputs != "joint":
        return arm_experiments(reproduction, dataset, arm)
    memory = {"memory_batch": _MEMORY_BATCH} if arm.strategy == "agem" else {}
    return arm_experiments(reproduction, dataset, arm, reproduction.images, augment=True, **memory)


def _run(reproduction: Reproduction, name: str, dataset: ZeroShotDataset, arm: ImageArm) -> Streams:
    """Choose the settings of an arm on the first tasks and run it on the others."""
    stage = f"{name}, {arm.label}"
    if arm.inputs == "joint":
        chosen = _choose_joint(reproduction, stage, _experiments(reproduction, dataset, arm))
        experiments = [choice.experiment for choice in chosen]
    elif arm.inputs == "adapted":
        chosen, experiments = _adapted(reproduction, stage, dataset, arm)
    else:
        size = _LARGE if arm.inputs == "frozen-224" else None
        seen = _with_features(dataset, _frozen_features(reproduction, dataset, size))
        chosen = _choose(reproduction, stage, _experiments(reproduction, seen, arm), default_grid(arm.strategy))
        experiments = [choice.experiment for choice in chosen]
    results = reproduction.run(stage, {arm.label: experiments})[arm.label]
    return Streams([result for result in results if result is not None], chosen)


def _choose(
    reproduction: Reproduction, stage: str, experiments: Sequence[ContinualExperiment], grid: Grid
) -> list[Chosen]:
    with progress.stage(stage):
        return validated(experiments, reproduction.runs, reproduction.engine, grid=grid)


def _choose_joint(reproduction: Reproduction, stage: str, experiments: Sequence[ContinualExperiment]) -> list[Chosen]:
    """Choose the learning rates, and with them how BatchNorm is handled."""
    rates = _choose(reproduction, stage, experiments, _RATES)
    norms = _choose(reproduction, f"{stage}, BatchNorm", [choice.experiment for choice in rates], _NORMS)
    return [
        replace(norm, settings={**rate.settings, **norm.settings}, edges=(*rate.edges, *norm.edges))
        for rate, norm in zip(rates, norms, strict=True)
    ]


def _adapted(
    reproduction: Reproduction, stage: str, dataset: ZeroShotDataset, arm: ImageArm
) -> tuple[list[Chosen], list[ContinualExperiment]]:
    """Settings chosen on features of an encoder adapted to the first validation task; the reported run has features of
    one adapted to the first task of its own. Both are trained with the settings that Sequential + CN chose."""
    base = next(a for a in IMAGE_ARMS if a.strategy == "sequential" and a.class_norm and a.inputs == "joint")
    joint = _choose_joint(reproduction, stage, _experiments(reproduction, dataset, base))
    chosen, experiments = [], []
    for trained in (choice.experiment for choice in joint):
        first, later = (
            _with_features(dataset, _adapted_features(reproduction, replace(trained, part=(start, start + 1))))
            for start in (0, VALIDATION_TASKS)
        )
        start = _experiments(reproduction, first, arm)[trained.seed]
        [choice] = _choose(reproduction, stage, [start], default_grid(arm.strategy))
        chosen.append(choice)
        experiments.append(replace(choice.experiment, dataset=later))
    return chosen, experiments


def _with_features(dataset: ZeroShotDataset, features: npt.NDArray[np.float32]) -> ZeroShotDataset:
    return replace(dataset, features=features, provenance=dataset.provenance | {"features": "of the images"})


def _frozen_features(reproduction: Reproduction, dataset: ZeroShotDataset, size: int | None) -> npt.NDArray[np.float32]:
    """Features of the encoder as it comes, at the size of the joint arms or another one."""
    import torch

    assert reproduction.images is not None
    mode = reproduction.images if size is None else replace(reproduction.images, size=size, freeze_blocks=0)

    def compute() -> npt.NDArray[np.float32]:
        with progress.stage("images"):
            encoder, inputs = mode.load(dataset, 0, torch.device("cpu"))
        return _features(encoder, inputs)

    return _kept(reproduction.folder / f"features-{digest([dataset.checksum, 'frozen', mode.key()])[:16]}.npy", compute)


def _adapted_features(reproduction: Reproduction, experiment: ContinualExperiment) -> npt.NDArray[np.float32]:
    """Features of all images after an encoder was trained by an experiment."""
    import torch

    from classnorm.continual import run_stream

    def compute() -> npt.NDArray[np.float32]:
        assert experiment.images is not None
        encoder, inputs = experiment.images.load(experiment.dataset, experiment.seed, torch.device("cpu"))
        with progress.stage("adapting the encoder"):
            outcome = run_stream(
                experiment.stream,
                experiment.strategy,
                experiment.config,
                experiment.seed,
                encoder=encoder,
                inputs=inputs,
            )
        return _features(outcome.learner.encoder, inputs)

    return _kept(reproduction.folder / f"features-{experiment.name}.npy", compute)


def _features(encoder: nn.Module, inputs: ImageInputs | BlockOutputs) -> npt.NDArray[np.float32]:
    """[n_rows, d_z]"""
    import torch

    encoder.eval()
    with torch.inference_mode():
        batches = [encoder(inputs.batch(rows)).float() for rows in torch.split(torch.arange(len(inputs)), 64)]
    features: npt.NDArray[np.float32] = torch.cat(batches).numpy()
    return features


def _kept(path: Path, compute: Any) -> npt.NDArray[np.float32]:
    """An array that is computed once."""
    if not path.is_file():
        with replacing(path) as temporary:
            write_npy(temporary, compute())
    return np.array(read_npy(path), dtype=np.float32)


def _document(streams: Streams, arm: ImageArm) -> dict[str, Any]:
    results = streams.results
    costs = {name: [result.document.get(name) for result in results] for name in STREAM_COSTS}
    curves = {}
    for score in CURVES:
        curve = task_curve(arm.label, arm.model, results, score)
        curves[score] = {"x": curve.x, "y": curve.y}
    chosen = [str(choice) for choice in streams.chosen]
    return {"numbers": streams.numbers() | costs, "chosen": chosen, "curves": curves}


def czsl_images(numbers: Mapping[str, Any]) -> Finding:
    settings = [Setting(**setting) for setting in numbers["settings"]]
    tables, plots, verdicts = [], [], []
    for setting in (setting for setting in settings if not setting.missing):
        documents = {run["arm"]: run for run in numbers["runs"] if run["setting"] == setting.name}
        tables += [_table(setting, documents), _budgets(setting, documents)]
        verdicts += pair_verdicts(setting, "chosen on the first 3 tasks", documents)
        plots += _plots(setting, documents)
    tables.append(published_table("czsl-table", "The paper's figures (ResNet-18, trained jointly)"))
    return Finding(
        "czsl-images",
        _TITLE,
        _CONCLUSION,
        tables=tables,
        plots=plots,
        verdicts=verdicts,
        notes=[*_NOTES, *(setting.missing for setting in settings if setting.missing)],
        data=dict(numbers),
    )


_NOTES = (
    "The encoder is trained jointly with each method, on images that are mirrored at random; frozen layers are "
    "the same for all arms. The first 3 tasks choose the learning rates of embedder and encoder and whether BatchNorm "
    "uses the statistics of batches, by mAUC; a fresh model learns the others, and only these are reported. Accuracies "
    "are averaged over classes; in parentheses the change due to CN. A dash: not measured.",
    "Frozen: features of the encoder as it comes. Adapted: the encoder is trained with CN on the first task, with the "
    "settings of Sequential + CN, and frozen. EWC and MAS have their released penalties; A-GEM compares with 32 "
    "remembered images a step. Budgets do not depend on the machine: what is kept for earlier tasks, and the rows that "
    "passed through the learner.",
)


def _table(setting: Setting, documents: Mapping[str, Mapping[str, Any]]) -> Table:
    body = []
    for arm in IMAGE_ARMS:
        if arm.label not in documents:
            body.append([arm.label, *["–"] * (len(STREAM_SCORES) + 2)])
            continue
        document = documents[arm.label]
        runs, plain = SeedRuns(document["numbers"]), documents.get(arm.model)
        cells = score_cells(runs)
        if arm.inputs == "joint" and arm.class_norm and plain:
            before = SeedRuns(plain["numbers"])
            cells = [cell + score_change(runs, before, s) for cell, s in zip(cells, STREAM_SCORES, strict=True)]
        body.append([arm.label, *cells, runs.cell("mH with bias"), "; ".join(document["chosen"])])
    return Table.of(setting.label, ["method", *STREAM_SCORES, "mH with bias", "chosen for each seed"], body)


def _budgets(setting: Setting, documents: Mapping[str, Mapping[str, Any]]) -> Table:
    body = []
    for arm in IMAGE_ARMS:
        if arm.label in documents:
            runs = documents[arm.label]["numbers"]
            stored, passed = (mean([value or 0.0 for value in runs[n]]) for n in ("stored_bytes", "rows_passed"))
            body.append([arm.label, number_text(stored / 1e6, 2), number_text(passed / 1e3)])
    return Table.of(f"{setting.label}: budgets", ["method", "stored, MB", "rows passed, thousands"], body)


def _plots(setting: Setting, documents: Mapping[str, Mapping[str, Any]]) -> list[Plot]:
    curves = [
        {"setting": setting.name, "arm": label, "score": score, **curve}
        for label, document in documents.items()
        for score, curve in document["curves"].items()
    ]
    return [
        Plot(
            f"czsl-images-{score}",
            "lines",
            f"{setting.label}: {label} after each task",
            "task",
            label,
            list(curve_series(curves, setting, score)),
            colors=ARM_COLORS,
        )
        for score, label in CURVES.items()
        if curves
    ]
