"""An experiment: a dataset, a method, its settings and a seed. Fit, calibrate, score the test set once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from classnorm.data import ZeroShotDataset
from classnorm.io.arrays import Array
from classnorm.io.files import write_text
from classnorm.methods import FitContext, FitJob, MethodConfig, check_parallel, method_named
from classnorm.metrics import BestScores, GZSLScores, calibrated_gzsl_scores, calibrated_predictions
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import HISTORY, key_of, write_arrays
from classnorm.runs.job import Execution, Job, Outcome
from classnorm.training import SINGLE_PROCESS, Processes, pick_device

if TYPE_CHECKING:
    from classnorm.scoring import CalibratedFit, Scorer


@dataclass(frozen=True)
class Experiment(Job):
    """One run of a method. Equal experiments give equal results."""

    dataset: ZeroShotDataset
    method: str
    recipe: str
    config: MethodConfig
    seed: int = 0

    @cached_property
    def key(self) -> str:
        """Identifies everything that determines the result, which the name of the recipe does not."""
        facts = [self.dataset.checksum, self.method, self.config.as_dict(), self.seed]
        return key_of(facts, f"method {self.method}", "validation", "calibration", "scores")

    def compute(self, checkpoint: Path, execution: Execution) -> Outcome:
        from classnorm.scoring import fit_calibrated  # PyTorch

        processes, dataset = execution.processes, self.dataset
        check_parallel(self.method, processes.count)
        context = FitContext(
            pick_device(execution.device),
            checkpoint=checkpoint / "training.safetensors",
            checkpoint_every=execution.checkpoint_every,
            resume=execution.resume,
            processes=processes,
        )
        job = FitJob(dataset, method_named(self.method), self.config, self.seed)
        fitted = fit_calibrated(job, context)
        best_scores, scores = score(fitted.scorer, dataset, processes)

        def write(folder: Path) -> None:
            fitted.scorer.save(folder)
            write_arrays(folder / "predictions.npz", _predictions(fitted.scorer, dataset, best_scores))
            if examples := execution.examples() if execution.examples else _examples(dataset):
                write_arrays(folder / "examples.npz", examples)
            write_text(folder / HISTORY, "".join(json.dumps(record) + "\n" for record in fitted.history))

        document = self._document(fitted, scores) | {"device": str(context.device), "processes": processes.count}
        return Outcome(document, write)

    def _document(self, fitted: CalibratedFit, scores: GZSLScores) -> dict[str, Any]:
        return {
            "method": self.method,
            "recipe": self.recipe,
            "config": self.config.as_dict(),
            "scores": {name: json_number(scores[name]) for name in scores},
            "calibration": str(fitted.scorer.calibration),
            "validation": fitted.validation,
            **({"choices": choices} if (choices := fitted.scorer.model.choices()) else {}),
            "training_accuracy": round(fitted.training_accuracy, 2),
            "notices": list(fitted.notices),
            "train_seconds": round(fitted.train_seconds, 3),
            "cpu_seconds": round(fitted.cpu_seconds, 3),
            "fit_seconds": round(fitted.fit_seconds, 3),
            "parameters": sum(p.numel() for p in fitted.scorer.model.parameters()),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def score(
    scorer: Scorer, dataset: ZeroShotDataset, processes: Processes = SINGLE_PROCESS
) -> tuple[BestScores, GZSLScores]:
    """The best seen and unseen scores of the test rows, uncalibrated, and the scores under the scorer's calibration."""
    from classnorm.scoring.fitting import of_all

    rows = dataset.test_rows
    own = rows[processes.part(len(rows))]
    best_scores = of_all(scorer.best_scores(dataset.view(own), dataset.labels[own]), processes)
    return best_scores, calibrated_gzsl_scores(best_scores, scorer.calibration)


def _predictions(scorer: Scorer, dataset: ZeroShotDataset, best_scores: BestScores) -> dict[str, Array]:
    """The arrays of `predictions.npz`."""
    return {
        "row": dataset.test_rows,
        "label": best_scores.labels.astype(np.int32),
        "top1": calibrated_predictions(best_scores, scorer.calibration).astype(np.int32),
        "best_seen": best_scores.seen_class.astype(np.int32),
        "best_unseen": best_scores.unseen_class.astype(np.int32),
        "best_seen_score": best_scores.best_seen.astype(np.float32),
        "best_unseen_score": best_scores.best_unseen.astype(np.float32),
        "seen": scorer.seen,
        "class_names": np.array(dataset.class_names),
    }


def _examples(dataset: ZeroShotDataset) -> dict[str, Array]:
    """The arrays of `examples.npz`; none if the dataset has no images."""
    if dataset.images is None:
        return {}
    position = dataset.example_positions()
    return {"position": position, "image": np.asarray(dataset.images[dataset.test_rows[position]])}
