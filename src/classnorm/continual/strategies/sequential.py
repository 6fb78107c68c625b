"""Sequential: fine-tuning on one task after another, nothing done against forgetting. What others are measured by."""

from classnorm.continual.strategies.strategy import Strategy

__all__ = ["Sequential"]


class Sequential(Strategy):
    """The common way, unchanged."""
