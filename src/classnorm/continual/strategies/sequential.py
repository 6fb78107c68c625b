"""Sequential: fine-tuning on one task after another, nothing done against forgetting. What others are measured by."""

from classnorm.continual.strategies.strategy import GradientStrategy

__all__ = ["Sequential"]


class Sequential(GradientStrategy):
    """The common way, unchanged."""
