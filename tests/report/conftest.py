"""Run folders written by hand: predictions with a known answer, no training."""

from __future__ import annotations

import json

import pytest

from classnorm.report import group_results, write_report
from classnorm.results.run_folder import find_results


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
