"""Sequential: fine-tuning on one task after another, with no measure against forgetting. The baseline."""

from classnorm.continual.strategies.strategy import GradientStrategy


class Sequential(GradientStrategy):
    """Plain SGD."""
