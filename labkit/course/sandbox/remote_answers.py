"""The answers of a submission in a rebuilt notebook.

The first cell of the rebuilt notebook is `answers = RemoteAnswers.open("sources.json")`. In place of each answer it has
a cell such as `globals().update(answers.defined("q1"))`. All other cells are the instructor's. The submitted source is
data here; it runs in student processes only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import BadInput, LabkitError
from ...models import NumpyModel
from ...strategies import Strategy
from ..testing import SubmissionFailed
from .processes import ForkServer
from .remote import MAX_ITEMS, malformed, remote_function, remote_strategy
from .remote_model import remote_model
from .request_validation import python_number
from .session import MemoryBudget, SubmittedCode


class RemoteAnswers:
    """The cells of a submission. Each cell defines the names that the corresponding cell of the reference notebook defines.

    `cells`: in order, {"id", "kind", "source", "defines"}. The kind is "given", "helper", "solution" or "reference". "defines"
    is {name: "class", "function" or "value"}. `tools`: the names of labkit that answers may use. `confined`: True raises
    `ClusterError` on a host without confinement; None confines if the host supports it. `reference`: the reference notebook's
    cells, up to the last cell of kind "reference". In a cell of this kind the reference's answer replaces the student's.
    Student processes can call the reference's functions and read its values, but not use its classes. These cells run in
    separate processes. `server`: a fork server to use, which `close` leaves open; None starts a new fork server, which `close`
    closes.
    """

    def __init__(
        self, cells: list[dict[str, Any]], tools: list[str], confined: bool | None = None, *,
        reference: list[dict[str, Any]] | None = None, server: ForkServer | None = None,
    ):  # fmt: skip
        self._cells, self.server, self._own_server = cells, server or ForkServer(confined), server is None
        keys = {"reference": ("id", "defines")}
        submitted = tuple({key: c[key] for key in keys.get(c["kind"], ("id", "source"))} for c in cells)
        correct = tuple({"id": c["id"], "source": c["source"]} for c in reference or ())
        memory = MemoryBudget()
        self._reference = SubmittedCode(self.server, correct, tuple(tools), secret=True, memory=memory)
        self._code = SubmittedCode(self.server, submitted, tuple(tools), reference=self._reference, memory=memory)

    @classmethod
    def open(cls, path: str | Path) -> RemoteAnswers:
        """Read the JSON file of sources beside a rebuilt notebook."""
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(data["cells"], data["tools"], data.get("confined"), reference=data.get("reference"))

    def defined(self, grade_id: str) -> dict[str, Any]:
        """Return the names that the cell `grade_id` defines, after all cells have run: remote strategies, models and
        functions, and values.

        The value of a name that cannot be used is a `Broken`. Raises `BadInput` if there is no such solution cell.
        """
        cell = next((c for c in self._cells if c["kind"] in ("solution", "reference") and c["id"] == grade_id), None)
        if cell is None:
            raise BadInput(f"There is no solution cell {grade_id!r}.")
        code = self._reference if cell["kind"] == "reference" else self._code
        return {name: self._resolve(code, name, kind) for name, kind in cell["defines"].items()}

    def _resolve(self, code: SubmittedCode, name: str, kind: str) -> Any:
        try:
            if kind == "class":
                return remote_class(code, name)
            return remote_function(code, name) if kind == "function" else code.request("value", name)
        except LabkitError as why:
            return Broken(name, str(why))
        except Exception as why:  # the submission earns nothing for it; the other cells are graded
            return Broken(name, f"it cannot be used ({type(why).__name__}).")

    def close(self) -> None:
        """End all student processes. Returning from a `with` block does this, too."""
        self._code.close()
        if self._own_server:
            self.server.close()

    def __enter__(self) -> RemoteAnswers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def remote_class(code: SubmittedCode, name: str) -> type[Strategy] | type[NumpyModel]:
    """Return a class with the options of the submission's strategy or model `name`, whose methods run in student processes.

    Raises `BadInput` if the class is missing, is neither, or has options or messages that are not allowed.
    """
    about = code.request("describe", name)
    try:
        if len(about["options"]) > MAX_ITEMS:
            raise ValueError(f"more than {MAX_ITEMS} options")
        options = {k: python_number(v) for k, v in about["options"].items()}
        options = {k: v for k, v in options.items() if isinstance(v, (int, float, str, bool, type(None)))}
    except (TypeError, ValueError, KeyError, AttributeError) as why:
        raise malformed(name, why) from None
    if "methods" in about:
        return remote_model(code, name, options, about)
    return remote_strategy(code, name, options, about)


class Broken:
    """The value of a name that could not be resolved: every use raises `SubmissionFailed` with the reason."""

    def __init__(self, name: str, why: str):
        object.__setattr__(self, "_why", why if why.startswith(name) else f"{name}: {why}")

    def __call__(self, *args: Any, **more: Any) -> Any:
        raise SubmissionFailed(self._why)

    def __repr__(self) -> str:
        return f"<{self._why}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise SubmissionFailed(self._why)
