"""nbval's comparison is effective: every compared cell of every notebook, once correct and once with a wrong number.

Running the notebooks themselves is nbval's part of `pytest`. Here each compared cell only reproduces its stored output, so
that the comparison itself is tested: tags, execution counts and output types are those of the notebook.
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def is_compared(cell):
    return cell["cell_type"] == "code" and bool(cell["outputs"])


def text_of(output):
    """{mime type: text} of an output; the key of printed text is None."""
    data = output["data"] if "data" in output else {None: output["text"]}
    return {mime: "".join(text) for mime, text in data.items()}


def parrots(cells, corrupt):
    """Code cells that print or display what is stored in them; in `corrupt` (their numbers) something else than that."""
    for number, cell in enumerate(cells):
        outputs = [text_of(output) for output in cell["outputs"]]
        if number in corrupt:
            outputs[-1] = {mime: changed(text) for mime, text in outputs[-1].items()}
        lines = [
            f"print({texts[None]!r}, end='')" if None in texts else f"display({texts!r}, raw=True)" for texts in outputs
        ]
        yield cell | {"source": "\n".join(lines or ["pass"]), "id": None}


def changed(text):
    """Another digit, or one letter, in the last line."""
    for at in range(len(text) - 1, -1, -1):
        if text[at].isdigit():
            return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
    return text.rstrip("\n") + "x\n"


def outcomes(folder, notebook):
    """For each cell of a notebook, whether it passed."""
    (folder / "parrots.ipynb").write_text(json.dumps(notebook))
    (folder / "pytest.ini").write_text("[pytest]\n")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider"]
    command += ["-c", str(folder / "pytest.ini"), f"--rootdir={folder}", f"--junitxml={report}", "parrots.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # some cells have failed, without other errors
    return [case.find("failure") is None for case in ET.parse(report).iter("testcase")]


def test_the_notebooks_have_compared_cells():
    assert all(any(map(is_compared, json.loads(path.read_text())["cells"])) for path in NOTEBOOKS)


@pytest.mark.slow
def test_each_compared_cell_fails_alone_when_it_prints_something_else(tmp_path):
    """In one copy of a notebook's cells every second compared one is changed, in another copy the others: these fail, no other."""
    cells, expected = [], []
    for path in NOTEBOOKS:
        own = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        compared = [number for number, cell in enumerate(own) if is_compared(cell)]
        for corrupt in ((), compared[::2], compared[1::2]):
            cells += parrots(own, corrupt)
            expected += [number not in corrupt for number in range(len(own))]
    whole = json.loads(NOTEBOOKS[0].read_text())
    whole["cells"] = [cell | {"id": f"c{number}"} for number, cell in enumerate(cells)]
    assert outcomes(tmp_path, whole) == expected
