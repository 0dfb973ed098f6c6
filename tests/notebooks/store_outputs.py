"""Run notebooks and store the outputs that nbval compares: `python -m tests.notebooks.store_outputs notebooks/04*.ipynb`.

Outputs of cells with the tag nbval-ignore-output are not stored, nor is metadata of the execution.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run_notebook(notebook, folder):
    """Return an executed copy of a notebook."""
    executed = copy.deepcopy(notebook)
    NotebookClient(executed, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return executed


def keep_compared_outputs(notebook, executed):
    """Copy the outputs of compared cells from an executed copy, and remove all other outputs."""
    for cell, ran in zip(notebook.cells, executed.cells):
        if cell.cell_type == "code":
            ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
            cell.outputs = [] if ignored else ran.outputs
            cell.execution_count = ran.execution_count if cell.outputs else None


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        given = nbformat.read(path, as_version=4)
        keep_compared_outputs(given, run_notebook(given, path.parent))
        nbformat.write(given, path)
