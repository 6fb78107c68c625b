"""Run folders written by hand: predictions with a known answer, no training."""

from __future__ import annotations

import json

import numpy as np
import pytest

from classnorm.metrics import Calibration, gzsl_scores, side_scores
from classnorm.metrics.calibration import calibration_curves, calibration_values
from classnorm.report import group_results, write_report
from classnorm.results.run_folder import find_results, write_arrays, write_result


@pytest.fixture(scope="session")
def write_run():
    """Writes a run of random logits; the higher the skill, the better they are."""

    def write(
        folder,
        recipe="reference",
        seed=0,
        *,
        dataset="toy",
        skill=2.0,
        classes=24,
        calibration="none",
        features="hog",
        validated=False,
        **changes,
    ):
        generator = np.random.default_rng([seed, classes, round(100 * skill)])
        seen = np.arange(classes) % 3 > 0
        labels = np.repeat(np.arange(classes), 5)
        logits = 5 + generator.normal(size=(len(labels), classes)) + 0.4 * seen
        logits[np.arange(len(labels)), labels] += skill
        chosen = Calibration.parse(calibration)
        calibrated = chosen.apply(logits, seen)
        sides = side_scores(logits, labels, seen)
        write_arrays(
            folder / "predictions.npz",
            {
                "row": np.arange(len(labels)),
                "label": labels.astype(np.int32),
                "top1": calibrated.argmax(axis=1).astype(np.int32),
                "best_seen": sides.seen_class.astype(np.int32),
                "best_unseen": sides.unseen_class.astype(np.int32),
                "best_seen_score": sides.best_seen.astype(np.float32),
                "best_unseen_score": sides.best_unseen.astype(np.float32),
                "seen": seen,
                "class_names": np.array([f"class_{i} & <co>" for i in range(classes)]),
            },
        )
        validation = {"harmonic": 50.0, "splits": 1, "kind": "matched"} if validated else None
        if validation is not None:
            validation["curves"] = {
                kind: calibration_curves([sides], kind, calibration_values([sides], kind, chosen)).rounded()
                for kind in ("scale", "bias")
            }
        sizes = {"seen_classes": int(seen.sum()), "unseen_classes": int((~seen).sum()), "train_rows": 10}
        sizes |= {"test_seen_rows": 1, "test_unseen_rows": 1, "feature_dim": 7}
        document = {
            "dataset": {
                "name": dataset,
                "checksum": f"{dataset} {features}",
                "split_checksum": "5p117",
                "sizes": sizes,
                "provenance": {"features": features, "split": "toy split v2"},
            },
            "method": "classnorm",
            "recipe": recipe,
            "config": {"hidden": 8},
            "seed": seed,
            "scores": dict(gzsl_scores(calibrated, labels, seen)),
            "calibration": calibration,
            "validation": validation,
            "train_seconds": 1.5,
            "fit_seconds": 2.5,
            "device": "cpu",
            "threads": 1,
            "versions": {"python": "3.11", "torch": "2.99"},
            "command": f"classnorm train {dataset} --recipe {recipe}",
        } | changes
        history = [{"epoch": epoch, "loss": 3.0 / epoch} for epoch in (1, 2, 3)]
        return write_result(folder, document, history)

    return write


@pytest.fixture(scope="session")
def report_on_two_datasets(write_run, tmp_path_factory):
    """The folder of a report on two datasets, and models with names as long as they get."""
    folder = tmp_path_factory.mktemp("report")
    for number, dataset in enumerate(("one", "two/three_with_a_rather_long_name_and_no_spaces_in_it_to_break_at")):
        runs = folder / "runs" / str(number)
        write_run(runs / "a", dataset=dataset, skill=1.0 + number, validated=True, calibration="scale:0.9")
        write_run(runs / "b", "a_recipe_with_a_very_long_name_" * 2, dataset=dataset, skill=3.0, device="cuda:3")
    write_report(group_results(find_results([folder / "runs"])), folder, "A page with some quite long title or other")
    return folder


@pytest.fixture(scope="session")
def write_stream():
    """Writes a stream whose scores after each task, and on each task, are given."""

    def write(folder, matrix, *, seed=0, dataset="toy", strategy="ewc", class_norm=True, part=(0, None), **changes):
        tasks = len(matrix)
        known = {name: [10.0 * (t + 1) + seed for t in range(tasks)] for name in ("seen", "joint")}
        open_ = {name: [5.0 * (t + 1) + seed for t in range(tasks - 1)] + [None] for name in ("unseen", "harmonic")}
        steps = known | open_ | {"ausuc": open_["unseen"], "forgetting": [None, *(0.1 * t for t in range(1, tasks))]}
        document = {
            "kind": "stream",
            "dataset": {
                "name": dataset,
                "checksum": f"{dataset} hog",
                "split_checksum": "5p117",
                "sizes": {"classes": 2 * tasks},
                "provenance": {"features": "hog"},
            },
            "stream": {
                "tasks": [2] * tasks,
                "checksum": f"order {seed}",
                "image_split": "stratified",
                "part": list(part),
            },
            "encoder": None,
            "image_size": None,
            "strategy": strategy,
            "config": {"class_norm": class_norm, "lr": 0.1},
            "chosen": None,
            "seed": seed,
            "scores": {"mSA": 40.0, "mUA": 20.0, "mH": 25.0, "mAUC": 15.0, "mJA": 30.0, "forgetting": 0.1},
            "per_task": [dict(zip(steps, values, strict=True)) for values in zip(*steps.values(), strict=True)],
            "matrix": matrix,
            "train_seconds": 1.5,
            "device": "cpu",
            "threads": 1,
            "versions": {"python": "3.11", "torch": "2.99"},
            "command": f"classnorm continual {dataset} --strategy {strategy}",
        } | changes
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(document))
        return document

    return write
