"""The notebook runs, and the outputs that are stored in it are small and of the same kind."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "tour.ipynb"


def kinds(notebook):
    """For each code cell: text or images."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[sorted(output.get("data", {"text": ""})) for output in cell.outputs] for cell in cells]


def test_every_cell_has_its_output_stored():
    assert all(kinds(nbformat.read(NOTEBOOK, as_version=4)))
    assert NOTEBOOK.stat().st_size < 100_000


@pytest.mark.long
def test_the_notebook_runs(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = kinds(notebook)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=1800, resources=place, coalesce_streams=True).execute()
    assert kinds(notebook) == stored
    [*_, last] = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "340 seen and 86 unseen classes" in last.outputs[0].text
