"""Shared by the tests of course work: cells, answers on a shared fork server, submissions, and waiting for ends of processes."""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import select
import traceback
from pathlib import Path

import psutil

from labkit.course.grading.lms import Student
from labkit.course.grading.nbval_run import CellResult, RunResult
from labkit.course.grading.reader import Reader
from labkit.course.grading.rebuild import SETUP_CELL
from labkit.course.grading.submissions import Submission
from labkit.course.sandbox.remote_answers import RemoteAnswers

GIVEN = {
    "id": "given",
    "kind": "given",
    "source": "import numpy as np\nimport labkit as lk\nfrom dataclasses import dataclass",
}
TOOLS = ("Push", "Pull", "Weights", "Ack", "Chunk", "Left", "Joined", "pull", "push", "push_pull", "post", "all_reduce")


def shared_answers(cells, server):
    """The answers in these cells, run in processes of a fork server, which stays open."""
    return RemoteAnswers([GIVEN, *cells], list(TOOLS), server=server)


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


def wait_for_ends(pids):
    """Wait until these processes have ended, which need not be children of this one."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                select.select([descriptor], [], [])
            finally:
                os.close(descriptor)


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


def run_here(rebuilt, server):
    """The results of a rebuilt notebook's cells, run in this process; the answers run in processes of the fork server."""
    data, found = rebuilt.sources, {SETUP_CELL: CellResult(True)}
    with RemoteAnswers(data["cells"], data["tools"], reference=data.get("reference"), server=server) as answers:
        names = {"answers": answers}
        for cell in rebuilt.notebook["cells"][1:]:
            found[cell["metadata"]["labkit"]["cell"]] = run_cell(cell, names)
    return RunResult(found)


class PlainAnswers:
    """Answers that run in this process, as in a student's notebook; `RemoteAnswers` without processes."""

    def __init__(self, sources):
        self.cells, self.reference = list(sources["cells"]), list(sources.get("reference", ()))
        self.names, self.correct = {"__name__": "__main__"}, {"__name__": "__main__"}

    def defined(self, grade_id):
        """Run the cells up to this one, and return what it defines."""
        while self.cells:
            cell = self.cells.pop(0)
            names, own = (self.correct, self.reference) if cell["kind"] == "reference" else (self.names, None)
            sources = [cell["source"]]
            if own is not None:
                last = [each["id"] for each in own].index(cell["id"]) + 1
                sources, self.reference = [each["source"] for each in own[:last]], own[last:]
            for source in sources:
                exec(compile(source, cell["id"], "exec"), names)
            if cell["id"] == grade_id:
                found = {name: names[name] for name in cell["defines"]}
                self.names.update(found)
                return found


def run_plainly(rebuilt):
    """The results of a rebuilt notebook's cells, run in this process, with the answers in it, too."""
    found, names = {SETUP_CELL: CellResult(True)}, {"__name__": "__main__", "answers": PlainAnswers(rebuilt.sources)}
    for cell in rebuilt.notebook["cells"][1:]:
        found[cell["metadata"]["labkit"]["cell"]] = run_cell(cell, names)
    return RunResult(found)


def run_cell(cell, names):
    stdout, lines = io.StringIO(), cell["source"].splitlines(keepends=True)
    linecache.cache[cell["id"]] = (len(cell["source"]), None, lines, cell["id"])  # as IPython does
    try:
        with contextlib.redirect_stdout(stdout):
            exec(compile(cell["source"], cell["id"], "exec"), names)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = max((frame.lineno for frame in frames[1:2] if frame.filename == cell["id"]), default=0)
        return CellResult(False, type(error).__name__, str(error), line=line)
    expected = "".join(output["text"] for output in cell["outputs"])
    if expected and stdout.getvalue() != expected:
        return CellResult(False, "NbCellError", stdout.getvalue())
    outputs = [{"output_type": "stream", "name": "stdout", "text": stdout.getvalue()}] if stdout.getvalue() else []
    return CellResult(True, outputs=outputs)
