"""Results as plain data: runs, tables and plots. Never imports PyTorch."""

from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts, ranks
from classnorm.results.run_folder import Result, find_results

__all__ = [
    "Artifact",
    "Cell",
    "Plot",
    "Result",
    "Series",
    "Table",
    "find_artifacts",
    "find_results",
    "ranks",
]
