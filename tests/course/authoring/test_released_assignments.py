"""The releases of the reference notebooks in several variants: content of the two files, metadata for nbgrader."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from labkit.course.authoring.assign import read_reference
from labkit.course.authoring.release import release
from labkit.course.bundle import write_release
from labkit.course.variants import digest

REFERENCES = sorted((Path(__file__).parents[1] / "reference_notebooks").glob("*.ipynb"))
SEEDS = (None, "spring", "autumn", "7")
BLOCKS = {
    "### BEGIN SOLUTION": "### END SOLUTION",
    "### BEGIN HIDDEN TESTS": "### END HIDDEN TESTS",
}
# nbgrader's schema of a cell's metadata, version 3, as its documentation has it
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema_version", "grade", "locked", "solution", "grade_id"],
    "properties": {
        "schema_version": {"const": 3},
        **{name: {"type": "boolean"} for name in ("grade", "locked", "solution", "task")},
        "grade_id": {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$"},
        "points": {"type": "number", "minimum": 0},
        "cell_type": {"enum": ["code", "markdown"]},
        "checksum": {"type": "string", "minLength": 32, "maxLength": 32},
    },
}


def parted(notebook):
    """(lines that students may see, lines that they may not) of a reference notebook whose variant is drawn."""
    seen, kept = set(), set()
    for cell in notebook["cells"]:
        end = ""
        for line in "".join(cell["source"]).splitlines():
            word = line.strip()
            if word in BLOCKS:
                end = BLOCKS[word]
            elif word == end:
                end = ""
            elif cell["metadata"].get("labkit", {}).get("variant") or end:
                kept.add(word)
            else:
                seen.add(word)
    return seen, kept - seen


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_removed_lines_are_in_neither_file(path, tmp_path):
    for seed in SEEDS:
        reference = read_reference(path, seed)
        made = release(reference, digest(reference, seed))
        _, kept = parted(reference.notebook)
        assert kept
        for file in write_release(tmp_path, made, {}, {})[:2]:
            text = file.read_text()
            raw = json.loads(text)
            sources = ["".join(cell["source"]) for cell in raw.get("notebook", raw)["cells"]]
            assert not {line.strip() for source in sources for line in source.split("\n")} & kept - {""}, (file, seed)
            assert not re.search(r'"variants"|\bV\[|"variant": true|### (BEGIN|END)', text), (file, seed)
            assert seed is None or f'"{seed}"' not in text


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_metadata_is_valid_for_nbgrader(path):
    reference = read_reference(path, "spring")
    for raw in (reference.notebook, release(reference, "x")):
        cells = [(cell, cell["metadata"]["nbgrader"]) for cell in raw["cells"] if "nbgrader" in cell["metadata"]]
        for cell, metadata in cells:
            jsonschema.validate(metadata, SCHEMA)
            assert metadata["cell_type"] == cell["cell_type"]
            assert ("points" in metadata) == metadata["grade"]
            assert not (cell["cell_type"] == "markdown" and metadata["grade"] != metadata["solution"])
        ids = [metadata["grade_id"] for _, metadata in cells]
        assert len(ids) == len(set(ids))
