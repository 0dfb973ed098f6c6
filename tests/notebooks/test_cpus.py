"""Cells that nbval compares give equal outputs on other processors: they are run again with other kernels of OpenBLAS and
NumPy than this machine would choose, and in simulation-only mode (no processes). With LABKIT_TESTS=whole only: it executes the
lessons a second time.

Only cells that a compared cell depends on are run: those that bind a name that it uses, recursively.
"""

import ast
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
OTHER = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F"}


def names(source):
    """(names that a cell binds, names that it uses and does not get as a parameter)."""
    bound, used, own = set(), set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            own.add(node.arg)  # a parameter
    return bound, used - own


def needed(cells):
    """The compared cells, and those before them that bind what they use."""
    kept, wanted = [], set()
    for cell in reversed(cells):
        bound, used = names("".join(cell["source"]))
        if cell["outputs"] or bound & wanted:
            kept.append(cell)
            wanted |= used
    return kept[::-1]


def test_only_what_a_compared_cell_needs_is_kept():
    sources = ["import a", "b = a.x", "c = 1", "print(b)", "d = b"]
    cells = [{"source": source, "outputs": [1] if "print" in source else []} for source in sources]
    assert [cell["source"] for cell in needed(cells)] == ["import a", "b = a.x", "print(b)"]


@pytest.mark.sample(0, slow=0)
def test_compared_outputs_are_those_of_other_processors_too(tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("the kernels named here are those of x86-64")
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        notebook["cells"] = needed([cell for cell in notebook["cells"] if cell["cell_type"] == "code"])
        (tmp_path / path.name).write_text(json.dumps(notebook))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider"]
    command += ["-c", str(tmp_path / "pytest.ini"), f"--rootdir={tmp_path}", "--nbval-cell-timeout=300", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | OTHER | {"LABKIT_LIGHT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
