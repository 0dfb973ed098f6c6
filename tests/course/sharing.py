"""What the tests of the judge share: cells, a judge that uses a nursery of somebody else's, and what is left of processes."""

from __future__ import annotations

import os
from pathlib import Path

from labkit.course.judge import Judge

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
