"""Parses one submitted notebook file: the sources and ids of its cells.

For any bytes the result is either the sources, ids and a few metadata, or a `BadInput` with one sentence. Outputs of
any size are dropped while parsing. Nothing else in the file is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput
from ..regions import normalize_newlines

MAX_FILE_BYTES = 256 * 2**20  # bytes; a hundred megabytes of outputs can happen by accident
MAX_CELL_CHARS = 2**20  # characters in one cell
MAX_SOURCE_BYTES = 2**22  # bytes of UTF-8 in all cells
MAX_CELLS = 10_000


@dataclass(frozen=True)
class SubmittedCell:
    type: str
    source: str
    grade_id: str = ""
    key: str = ""
    live: bool = False
    ran: str = ""
    """When JupyterLab last ran the cell (ISO 8601), if it records that."""


@dataclass(frozen=True)
class SubmittedNotebook:
    cells: tuple[SubmittedCell, ...]
    assignment: str = ""
    variant: str = ""

    def last_run(self) -> str:
        """Return the last time at which a cell ran (ISO 8601); empty if that is not recorded."""
        return max((cell.ran for cell in self.cells), default="")


def parse_submitted(data: bytes) -> SubmittedNotebook:
    """Parse a notebook file of format 3 or 4. Raises `BadInput` if it is not a notebook in Python, or exceeds a limit."""
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(too_large(len(data)))
    raw = _json(data)
    if not isinstance(raw, dict) or not ("cells" in raw or "worksheets" in raw):
        raise BadInput("the file is JSON and not a notebook: it has no cells")
    metadata = _table(raw.get("metadata"))
    _check_language(metadata)
    about = _table(metadata.get("labkit"))
    raw_cells = _cells(raw)
    if len(raw_cells) > MAX_CELLS:
        raise BadInput(f"the notebook has {len(raw_cells):,} cells; allowed: {MAX_CELLS:,}")
    cells = [_cell(cell) for cell in raw_cells if isinstance(cell, dict)]
    if (size := sum(len(cell.source.encode("utf-8", "surrogatepass")) for cell in cells)) > MAX_SOURCE_BYTES:
        raise BadInput(f"its cells have {size >> 10:,} KB of text; allowed: {MAX_SOURCE_BYTES >> 10:,} KB")
    for number, cell in enumerate(cells, 1):
        if len(cell.source) > MAX_CELL_CHARS:
            raise BadInput(f"cell {number} has {len(cell.source):,} characters; allowed: {MAX_CELL_CHARS:,}")
    return SubmittedNotebook(tuple(cells), _short_text(about.get("assignment")), _short_text(about.get("variant")))


def too_large(size: int) -> str:
    """Return the error text for a file of `size` bytes."""
    return f"the file has {size >> 20} MB; allowed: {MAX_FILE_BYTES >> 20} MB. Clear its outputs and save it"


def _json(data: bytes) -> Any:
    """Parse the JSON without outputs, which are dropped while parsing."""
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
    """Return the list of cells. In format 3 the cells are in worksheets."""
    if isinstance(raw.get("cells"), list):
        return list(raw["cells"])
    sheets = raw.get("worksheets")
    found = [_table(sheet).get("cells") for sheet in sheets] if isinstance(sheets, list) else []
    if not any(isinstance(cells, list) for cells in found):
        raise BadInput("the file has no list of cells; open it in JupyterLab and save it again")
    return [cell for cells in found if isinstance(cells, list) for cell in cells]


def _check_language(metadata: Mapping[str, Any]) -> None:
    """Raise `BadInput` if the kernel has another language than Python."""
    kernel, language = _table(metadata.get("kernelspec")), _table(metadata.get("language_info"))
    found = _short_text(kernel.get("language")) or _short_text(language.get("name"))
    if found and found.lower() not in ("python", "ipython", "python3"):
        name = _short_text(kernel.get("display_name")) or found
        raise BadInput(f"its kernel is {name!r} ({found}); allowed: a Python kernel")


def _cell(raw: Mapping[str, Any]) -> SubmittedCell:
    kind = _short_text(raw.get("cell_type"))
    text = raw.get("input" if kind == "code" and "source" not in raw else "source", "")
    if isinstance(text, list):
        text = "".join(piece for piece in text if isinstance(piece, str))
    metadata = _table(raw.get("metadata"))
    times = _table(metadata.get("execution"))
    return SubmittedCell(
        type=kind,
        source=normalize_newlines(text if isinstance(text, str) else "").replace("\0", ""),
        grade_id=_short_text(_table(metadata.get("nbgrader")).get("grade_id")),
        key=_short_text(raw.get("id")),
        live=_table(metadata.get("labkit")).get("live") is True,
        ran=max((_short_text(time) for time in times.values()), default=""),
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _short_text(value: Any) -> str:
    """ "" if the value is not a string of at most 200 characters."""
    return value if isinstance(value, str) and len(value) <= 200 else ""
