"""Metrics of zero-shot learning, as pure functions of arrays. Accuracies are percentages."""

from classnorm.metrics.accuracy import (
    Average,
    BestScores,
    GZSLScores,
    SeenUnseenCurve,
    accuracy,
    ausuc,
    best_seen_and_unseen,
    class_accuracies,
    curve_of,
    gzsl_scores,
    harmonic_mean,
    row_weights,
    seen_unseen_curve,
)
from classnorm.metrics.bootstrap import Difference, class_bootstrap
from classnorm.metrics.calibration import (
    PAPER_SCALES,
    Calibration,
    CalibrationCurves,
    calibrated_gzsl_scores,
    calibrated_predictions,
    calibrated_scores,
    calibration_curves,
    choose_calibration,
)
from classnorm.metrics.continual import ContinualScores, continual_scores
from classnorm.metrics.novelty import auroc, fpr_at_tpr, novelty_statistics
from classnorm.metrics.probability import (
    class_quantiles,
    expected_calibration_error,
    fit_temperature,
    nonconformity,
    softmax,
)

__all__ = [
    "PAPER_SCALES",
    "Average",
    "BestScores",
    "Calibration",
    "CalibrationCurves",
    "ContinualScores",
    "Difference",
    "GZSLScores",
    "SeenUnseenCurve",
    "accuracy",
    "auroc",
    "ausuc",
    "best_seen_and_unseen",
    "calibrated_gzsl_scores",
    "calibrated_predictions",
    "calibrated_scores",
    "calibration_curves",
    "choose_calibration",
    "class_accuracies",
    "class_bootstrap",
    "class_quantiles",
    "continual_scores",
    "curve_of",
    "expected_calibration_error",
    "fit_temperature",
    "fpr_at_tpr",
    "gzsl_scores",
    "harmonic_mean",
    "nonconformity",
    "novelty_statistics",
    "row_weights",
    "seen_unseen_curve",
    "softmax",
]
