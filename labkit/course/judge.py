"""The judge: in a rebuilt notebook, what gives the names of the student's cells their meaning.

The notebook's first cell is `judge = Judge.open("sources.json")`; where a student's cell was there is
`globals().update(judge.defined("q1"))`. Everything else in it is the instructor's. The student's text is read here as
data; it is run in other processes only (see `standin`, `sandbox`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import BadInput, LabkitError
from .sandbox.host import Nursery
from .standin import Code, make_function, make_strategy
from .trial import Failed

__all__ = ["Broken", "Judge"]


class Judge:
    """The student's cells, each with the names that the master's cell in its place defines.

    `cells`: {"id", "kind": "given", "helper" or "solution", "source", "defines": {name: "strategy", "function" or
    "value"}} in order. `confined`: True, or `ClusterError` where that cannot be had; None: if it can be had.
    """

    def __init__(self, cells: list[dict[str, Any]], tools: list[str], confined: bool | None = None):
        self._cells, self._tools, self._nursery = cells, tuple(tools), Nursery(confined)

    @classmethod
    def open(cls, path: str | Path) -> Judge:
        """From the file that stands beside a rebuilt notebook."""
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(said["cells"], said["tools"], said.get("confined"))

    def defined(self, grade_id: str) -> dict[str, Any]:
        """Stand-ins for what the cell `grade_id` defines, as it is with all cells of the notebook before and after it."""
        cell = next((c for c in self._cells if c["kind"] == "solution" and c["id"] == grade_id), None)
        if cell is None:
            raise BadInput(f"There is no solution cell {grade_id!r}.")
        plain = tuple({"id": c["id"], "source": c["source"]} for c in self._cells)
        code = Code(self._nursery, plain, self._tools)
        return {name: self._stand_in(code, name, what) for name, what in cell["defines"].items()}

    def _stand_in(self, code: Code, name: str, what: str) -> Any:
        try:
            if what == "strategy":
                return make_strategy(code, name)
            return make_function(code, name) if what == "function" else code.ask("value", name)
        except LabkitError as why:
            return Broken(name, str(why))
        except Exception as why:  # a submission that gets this far costs itself its marks, and nobody else
            return Broken(name, f"it cannot be used ({type(why).__name__}).")

    def close(self) -> None:
        """End all of the student's processes."""
        self._nursery.close()


class Broken:
    """What a name means whose cell could not be read: whatever is done with it says why."""

    def __init__(self, name: str, why: str):
        object.__setattr__(self, "_why", why if why.startswith(name) else f"{name}: {why}")

    def __call__(self, *args: Any, **more: Any) -> Any:
        raise Failed(self._why)

    def __repr__(self) -> str:
        return f"<{self._why}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Failed(self._why)
