"""Results as plain data: runs, tables, plots and verdicts. Never imports PyTorch."""

from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts, ranks
from classnorm.results.run_folder import Result, find_results
from classnorm.results.verdicts import Verdict

__all__ = [
    "Artifact",
    "Cell",
    "Plot",
    "Result",
    "Series",
    "Table",
    "Verdict",
    "find_artifacts",
    "find_results",
    "ranks",
]
