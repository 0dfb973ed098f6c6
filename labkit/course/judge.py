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
from .session import Memory
from .standin import Code, make_function, make_strategy
from .trial import Failed

__all__ = ["Broken", "Judge"]


class Judge:
    """The student's cells, each with the names that the master's cell in its place defines.

    `cells`: {"id", "kind": "given", "helper", "solution" or "lent", "source", "defines": {name: "strategy", "function" or
    "value"}} in order. `reference`: cells of the master, for those that are lent: instead of the student's answer the
    reference's counts, and the student's processes can call its functions and see its values; the cells themselves are read in
    processes of their own only. A class is not lent. `confined`: True, or `ClusterError` where that cannot be had; None: if
    it can be had.
    """

    def __init__(
        self, cells: list[dict[str, Any]], tools: list[str], confined: bool | None = None, *,
        reference: list[dict[str, Any]] | None = None, nursery: Nursery | None = None,
    ):  # fmt: skip
        self._cells, self._nursery = cells, nursery or Nursery(confined)
        plain = tuple(
            {"id": c["id"], "lent": c["defines"]} if c["kind"] == "lent" else {"id": c["id"], "source": c["source"]}
            for c in cells
        )
        correct = tuple({"id": c["id"], "source": c["source"]} for c in reference or ())
        memory = Memory()
        self._reference = Code(self._nursery, correct, tuple(tools), secret=True, memory=memory)
        self._code = Code(self._nursery, plain, tuple(tools), reference=self._reference, memory=memory)

    @classmethod
    def open(cls, path: str | Path) -> Judge:
        """From the file that stands beside a rebuilt notebook."""
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(said["cells"], said["tools"], said.get("confined"), reference=said.get("reference"))

    def defined(self, grade_id: str) -> dict[str, Any]:
        """Stand-ins for what the cell `grade_id` defines, as it is with all cells of the notebook before and after it."""
        cell = next((c for c in self._cells if c["kind"] in ("solution", "lent") and c["id"] == grade_id), None)
        if cell is None:
            raise BadInput(f"There is no solution cell {grade_id!r}.")
        code = self._reference if cell["kind"] == "lent" else self._code
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
        self._code.close()
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
