"""Results as tables, plots and one self-contained HTML page."""

from classnorm.report.differences import Comparison, comparisons
from classnorm.report.files import csv_documents, latex_document, markdown_document, write_report
from classnorm.report.stream_results import STEPS, mean_matrix, step_table, task_values
from classnorm.report.summary import (
    SCORES,
    STREAM_COSTS,
    STREAM_SCORES,
    Group,
    by_dataset,
    group_results,
    stream_options_text,
)
from classnorm.report.tables import difference_table, rich_table, terminal_table

__all__ = [
    "SCORES",
    "STEPS",
    "STREAM_COSTS",
    "STREAM_SCORES",
    "Comparison",
    "Group",
    "by_dataset",
    "comparisons",
    "csv_documents",
    "difference_table",
    "group_results",
    "latex_document",
    "markdown_document",
    "mean_matrix",
    "rich_table",
    "step_table",
    "stream_options_text",
    "task_values",
    "terminal_table",
    "write_report",
]
