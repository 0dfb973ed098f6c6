"""One notebook as it was handed in: the sources of its cells, and nothing else of it.

Its law: whatever the bytes are, the answer is either the sources or one sentence (BadInput) that says what the file is.
Outputs are dropped at once, however large they are; nothing in the file is believed but text and ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from .blocks import one_line_ends

__all__ = ["LARGEST_FILE", "Handed", "HandedCell", "read_handed", "too_large"]

LARGEST_FILE = 256 * 2**20  # bytes; a hundred megabytes of outputs are an accident, more is not a notebook
LARGEST_SOURCE = 2**20  # characters in one cell
LARGEST_SOURCES = 2**22  # bytes of UTF-8 in all cells
MOST_CELLS = 10_000


@dataclass(frozen=True)
class HandedCell:
    """One cell: its text, and what its metadata says of it (which need not be true)."""

    type: str
    source: str
    grade_id: str = ""
    key: str = ""
    live: bool = False
    ran: str = ""
    """When JupyterLab last ran it (ISO 8601), if it was told to note that."""


@dataclass(frozen=True)
class Handed:
    """A notebook without its outputs."""

    cells: tuple[HandedCell, ...]
    assignment: str = ""
    variant: str = ""

    def last_run(self) -> str:
        """The last time at which a cell ran (ISO 8601), empty if the file does not say."""
        return max((cell.ran for cell in self.cells), default="")


def read_handed(data: bytes) -> Handed:
    """The sources in a notebook file of format 3 or 4.

    Raises:
        BadInput: it is no notebook, not in Python, or larger than anybody writes.
    """
    if len(data) > LARGEST_FILE:
        raise BadInput(too_large(len(data)))
    raw = _json(data)
    if not isinstance(raw, dict) or not ("cells" in raw or "worksheets" in raw):
        raise BadInput("the file is JSON and not a notebook: it has no cells")
    metadata = _table(raw.get("metadata"))
    _check_language(metadata)
    about = _table(metadata.get("labkit"))
    given = _cells(raw)
    if len(given) > MOST_CELLS:
        raise BadInput(f"the notebook has {len(given):,} cells; allowed: {MOST_CELLS:,}")
    cells = [_cell(cell) for cell in given if isinstance(cell, dict)]
    if (size := sum(len(cell.source.encode("utf-8", "surrogatepass")) for cell in cells)) > LARGEST_SOURCES:
        raise BadInput(f"its cells have {size >> 10:,} KB of text; allowed: {LARGEST_SOURCES >> 10:,} KB")
    for number, cell in enumerate(cells, 1):
        if len(cell.source) > LARGEST_SOURCE:
            raise BadInput(f"cell {number} has {len(cell.source):,} characters; allowed: {LARGEST_SOURCE:,}")
    return Handed(tuple(cells), _word(about.get("assignment")), _word(about.get("variant")))


def too_large(size: int) -> str:
    """The sentence for a file of `size` bytes."""
    return f"the file has {size >> 20} MB; allowed: {LARGEST_FILE >> 20} MB. Clear its outputs and save it"


def _json(data: bytes) -> Any:
    """The JSON with every list of outputs dropped as soon as it is read."""
    if not data.strip():
        raise BadInput("the file is empty")
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_outputs)
    except UnicodeDecodeError:
        raise BadInput("the file is not a notebook: it is not text") from None
    except (ValueError, RecursionError):
        raise BadInput("the file is not a notebook: it is not JSON") from None


def _without_outputs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if key not in ("outputs", "attachments", "widgets")}


def _cells(raw: Mapping[str, Any]) -> list[Any]:
    """The list of cells; format 3 has it inside worksheets."""
    if isinstance(raw.get("cells"), list):
        return list(raw["cells"])
    sheets = raw.get("worksheets")
    found = [_table(sheet).get("cells") for sheet in sheets] if isinstance(sheets, list) else []
    if not any(isinstance(cells, list) for cells in found):
        raise BadInput("the file has no list of cells; open it in JupyterLab and save it again")
    return [cell for cells in found if isinstance(cells, list) for cell in cells]


def _check_language(metadata: Mapping[str, Any]) -> None:
    """Refuse a notebook whose kernel speaks another language."""
    kernel, language = _table(metadata.get("kernelspec")), _table(metadata.get("language_info"))
    said = _word(kernel.get("language")) or _word(language.get("name"))
    if said and said.lower() not in ("python", "ipython", "python3"):
        name = _word(kernel.get("display_name")) or said
        raise BadInput(f"its kernel is {name!r} ({said}); allowed: a Python kernel")


def _cell(raw: Mapping[str, Any]) -> HandedCell:
    kind = _word(raw.get("cell_type"))
    text = raw.get("input" if kind == "code" and "source" not in raw else "source", "")
    if isinstance(text, list):
        text = "".join(piece for piece in text if isinstance(piece, str))
    metadata = _table(raw.get("metadata"))
    times = _table(metadata.get("execution"))
    return HandedCell(
        type=kind,
        source=one_line_ends(text if isinstance(text, str) else "").replace("\0", ""),
        grade_id=_word(_table(metadata.get("nbgrader")).get("grade_id")),
        key=_word(raw.get("id")),
        live=_table(metadata.get("labkit")).get("live") is True,
        ran=max((_word(time) for time in times.values()), default=""),
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    """A short string, or nothing: an id of a megabyte is nobody's id."""
    return value if isinstance(value, str) and len(value) <= 200 else ""
