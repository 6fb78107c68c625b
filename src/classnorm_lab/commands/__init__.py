"""The laboratory's commands, as the entry point `classnorm.commands` announces them: without PyTorch."""

from __future__ import annotations

COMMANDS = {
    "reproduce": ("classnorm_lab.commands.reproduce:Reproduce", "regenerate tables and figures of the paper"),
    "analyze variance": ("classnorm_lab.commands.analyze:Variance", "measure the variance of the logits"),
    "analyze smoothness": ("classnorm_lab.commands.analyze:Smoothness", "measure the smoothness of the loss surface"),
    "analyze attributes": (
        "classnorm_lab.commands.analyze:Attributes",
        "test if class descriptors are normal and independent",
    ),
    "bench": ("classnorm_lab.commands.bench:Bench", "measure the speed on this machine"),
}
"""Name → "module:class" and what it does."""
