"""The paper's diagnostics as tasks of the engine, and as tables and plots of any dataset."""

from classnorm.experiments.diagnoses.attribute_distribution import correlations, histograms, normality
from classnorm.experiments.diagnoses.curves import rounded
from classnorm.experiments.diagnoses.diagnosis import Diagnosis, diagnose
from classnorm.experiments.diagnoses.logit_variance import variance_artifact, variance_curves, variance_tasks
from classnorm.experiments.diagnoses.loss_smoothness import mean_gradient_norms, smoothness_artifact, smoothness_tasks

__all__ = [
    "Diagnosis",
    "correlations",
    "diagnose",
    "histograms",
    "mean_gradient_norms",
    "normality",
    "rounded",
    "smoothness_artifact",
    "smoothness_tasks",
    "variance_artifact",
    "variance_curves",
    "variance_tasks",
]
