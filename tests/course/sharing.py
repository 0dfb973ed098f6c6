"""What the tests of the judge share: cells, a judge that uses a nursery of somebody else's, and what is left of processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from labkit.course.intake import Submission
from labkit.course.judge import Judge
from labkit.course.lms import Student
from labkit.course.reading import Reader

GIVEN = {
    "id": "given",
    "kind": "given",
    "source": "import numpy as np\nimport labkit as lk\nfrom dataclasses import dataclass",
}
TOOLS = ("Push", "Pull", "Weights", "Ack", "Chunk", "Left", "Joined", "pull", "push", "push_pull", "post", "all_reduce")


class Guest(Judge):
    """A judge in a nursery that is not its own."""

    def __init__(self, cells, nursery, tools=TOOLS):
        self._cells, self._tools, self._nursery = [GIVEN, *cells], tuple(tools), nursery


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
    return set(os.listdir("/proc/self/fd"))


def read_bytes(data, base, folder):
    """One notebook's answers, read as `grade` reads it."""
    path = Path(folder) / "handed-in.ipynb"
    path.write_bytes(data)
    with path.open("rb") as stream:
        (answers,), _ = Reader().answers(stream.fileno(), base)
    path.unlink()
    return answers


def submission(raw, base, folder, name="ada"):
    """A submission of a notebook (JSON or bytes) as `grade` makes it."""
    found = read_bytes(raw if isinstance(raw, bytes) else json.dumps(raw).encode(), base, folder)
    return Submission(name, Student(name), found.taken, found.problem, variant=found.variant)
