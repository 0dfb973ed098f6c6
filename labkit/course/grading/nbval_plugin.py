"""A pytest plugin that writes nbval's verdict on each cell as JSON (`-p labkit.course.grading.nbval_plugin`).

nbval alone decides whether a cell passes. The plugin changes four properties of nbval that make results depend on the
load of the machine. Outputs may arrive within 120 seconds (nbval: 5). A dead kernel is detected. The standard error is
not compared. Kernels use sockets in a folder, because two kernels that start at the same time may choose the same port.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

OUTPUT_SECONDS = 120.0
POLL_S = 1.0  # between two checks of the kernel
MAX_TEXT_LENGTH = 20_000  # characters of a message
TRACEBACK_HEADER = re.compile(r"\w+ +Traceback \(most recent call last\)")
CELL_LINE = re.compile(r"Cell In\[\d+\], line (\d+)")
ANSI_COLOR = re.compile("\x1b\\[[0-9;]*m")


def pytest_addoption(parser: Any) -> None:
    """Add the options `--labkit-report FILE` and `--labkit-sockets DIR`."""
    parser.addoption("--labkit-report", required=False, help="The file for the result of each cell.")
    parser.addoption("--labkit-sockets", required=False, help="The folder of the kernel's sockets.")


def pytest_configure(config: Any) -> None:
    """Start the report, and make nbval check whether the kernel is alive while it waits for messages."""
    import nbval.kernel
    from nbval.kernel import RunningKernel

    config._labkit_cells = {}
    folder = config.getoption("--labkit-sockets")
    if folder:
        nbval.kernel.KernelManager = partial(nbval.kernel.KernelManager, transport="ipc", ip=f"{folder}/k")
    plain = RunningKernel.get_message

    def get_message(self: Any, stream: str, timeout: float | None = None) -> Any:
        end = time.monotonic() + (3600 if timeout is None else timeout)
        while True:
            left = end - time.monotonic()
            try:
                return plain(self, stream, timeout=max(min(POLL_S, left), 0.01))
            except Empty:
                if left <= POLL_S:
                    raise
                if not self.is_alive():
                    raise RuntimeError("Kernel died") from None

    RunningKernel.get_message = get_message


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Wait longer for outputs, and do not compare the standard error."""
    for item in items:
        item.output_timeout = OUTPUT_SECONDS
        if "stderr" not in item.parent.skip_compare:
            item.parent.skip_compare = (*item.parent.skip_compare, "stderr")


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    """Record the result of one phase (set-up, call or tear-down) of one cell."""
    cells = item.config._labkit_cells
    name = item.cell.metadata["labkit"]["cell"]
    record = cells.setdefault(name, {"passed": False, "error": "", "message": "", "detail": "", "outputs": []})
    if call.when == "call":
        record["outputs"] = [_stored_output(output) for output in item.test_outputs or ()]
        record["passed"] = call.excinfo is None
    if call.excinfo is not None:
        record["passed"] = False
        _record_error(record, item, call.excinfo.value)


def _record_error(record: dict[str, Any], item: Any, error: BaseException) -> None:
    """Record the exception that the cell raised, else nbval's error."""
    raised = [output for output in item.test_outputs or () if output.get("output_type") == "error"]
    timed_out = bool(item.parent.timed_out)
    if raised and not timed_out:
        record["error"], record["message"] = raised[-1]["ename"], str(raised[-1]["evalue"])[:MAX_TEXT_LENGTH]
        lines = [ANSI_COLOR.sub("", line) for line in raised[-1]["traceback"]]
        record["detail"], record["line"] = _truncated("\n".join(lines)), _line_of(lines)
        return
    record["error"] = type(error).__name__
    record["message"] = str(error)[:MAX_TEXT_LENGTH]
    record["detail"] = str(getattr(error, "inner_traceback", None) or "")[:MAX_TEXT_LENGTH]
    if timed_out or not isinstance(error, _cell_error()):
        record["error"] = "Broken"  # a time limit or a dead kernel, which is no result for the answer


def _truncated(text: str) -> str:
    """Return the text; of a text longer than `MAX_TEXT_LENGTH` only the beginning and the end."""
    return (
        text
        if len(text) <= MAX_TEXT_LENGTH
        else f"{text[: MAX_TEXT_LENGTH // 2]}\n...\n{text[-MAX_TEXT_LENGTH // 2 :]}"
    )


def _line_of(parts: list[str]) -> int:
    """Return the line of the cell that raised its error, from the parts of IPython's traceback; 0 if it is not known.

    If errors were raised while other errors were handled, the last error is used. A part with a message begins with the
    name of the error and a colon, so a message cannot be mistaken for the beginning of a traceback.
    """
    begins = [i for i, part in enumerate(parts) if TRACEBACK_HEADER.fullmatch(part)]
    found = CELL_LINE.match(parts[begins[-1] + 1]) if begins and begins[-1] + 1 < len(parts) else None
    return int(found[1]) if found else 0


def _cell_error() -> type[BaseException]:
    from nbval.plugin import NbCellError

    return NbCellError


def _stored_output(output: Any) -> dict[str, Any]:
    """Return an output as a notebook stores it, without data that differ between runs."""
    kept = {key: value for key, value in output.items() if key != "traceback"}
    if kept.get("output_type") == "execute_result":
        kept["execution_count"] = 1
    return json.loads(json.dumps(kept))


def pytest_sessionfinish(session: Any) -> None:
    path = session.config.getoption("--labkit-report")
    if path:
        Path(path).write_text(json.dumps(session.config._labkit_cells), encoding="utf-8")
