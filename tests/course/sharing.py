"""Shared by the tests of course work: cells, answers on a shared fork server, submissions, and checks for left-over processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

import psutil

from labkit.course.grading.lms import Student
from labkit.course.grading.nbval_run import CellResult, RunResult
from labkit.course.grading.reader import Reader
from labkit.course.grading.submissions import Submission
from labkit.course.sandbox.remote_answers import RemoteAnswers

GIVEN = {
    "id": "given",
    "kind": "given",
    "source": "import numpy as np\nimport labkit as lk\nfrom dataclasses import dataclass",
}
TOOLS = ("Push", "Pull", "Weights", "Ack", "Chunk", "Left", "Joined", "pull", "push", "push_pull", "post", "all_reduce")


class SharedAnswers(RemoteAnswers):
    """Answers on a fork server that `close` does not end."""

    def __init__(self, cells, server, tools=TOOLS):
        super().__init__([GIVEN, *cells], list(tools), server=server)

    def close(self):
        self._code.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def solution(source, **defines):
    return {"id": "q", "kind": "solution", "source": source, "defines": defines}


def helper(source, name="h"):
    return {"id": name, "kind": "helper", "source": source}


def below(pid):
    """The processes that `pid` has started and that have not been waited for."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def descriptors():
    """The pipes and local sockets that this process has open. Connections over TCP are those of clusters of other tests."""
    process = psutil.Process()
    tcp = {str(connection.fd) for connection in process.net_connections("inet")}
    found = set()
    for number in set(os.listdir("/proc/self/fd")) - tcp:
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {name for name in found if name.startswith(("pipe:", "socket:"))}


def read_bytes(data, base, folder):
    """One notebook, read as `grade` reads it."""
    path = Path(folder) / "submitted.ipynb"
    path.write_bytes(data)
    with path.open("rb") as stream:
        (notebook,), _ = Reader().read(stream.fileno(), base)
    path.unlink()
    return notebook


def submission(raw, base, folder, name="ada"):
    """A submission of a notebook (JSON or bytes) as `grade` makes it."""
    found = read_bytes(raw if isinstance(raw, bytes) else json.dumps(raw).encode(), base, folder)
    return Submission(name, Student(name), found.answers, found.problem, variant=found.variant)


def run_here(rebuilt):
    """The results of a rebuilt notebook's cells, run in this process."""
    names, found = {}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("sources.json").write_text(json.dumps(rebuilt.sources))
        try:
            for cell in rebuilt.notebook["cells"]:
                found[cell["metadata"]["labkit"]["cell"]] = run_cell(cell, names)
        finally:
            names["answers"].close()
    return RunResult(found)


def run_cell(cell, names):
    stdout = io.StringIO()
    try:
        with contextlib.redirect_stdout(stdout):
            exec(compile(cell["source"], cell["id"], "exec"), names)
    except Exception as error:
        return CellResult(False, type(error).__name__, str(error))
    expected = "".join(output["text"] for output in cell["outputs"])
    if expected and stdout.getvalue() != expected:
        return CellResult(False, "NbCellError", stdout.getvalue())
    outputs = [{"output_type": "stream", "name": "stdout", "text": stdout.getvalue()}] if stdout.getvalue() else []
    return CellResult(True, outputs=outputs)
