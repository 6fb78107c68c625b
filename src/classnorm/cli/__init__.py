"""The command line: one file per command, imported only when it runs."""

from __future__ import annotations

from classnorm.cli.dispatch import commands, main

__all__ = ["commands", "main"]
