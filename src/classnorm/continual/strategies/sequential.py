"""Sequential: fine-tuning on one task after another, with no measure against forgetting. The baseline."""

from classnorm.continual.strategies.strategy import GradientStrategy

__all__ = ["Sequential"]


class Sequential(GradientStrategy):
    """Plain SGD."""
