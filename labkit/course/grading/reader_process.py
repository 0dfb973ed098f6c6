"""The process that reads one submission.

`sandbox.launch` calls `main(PARENT, DESCRIPTOR, CONFINED, PROCESSOR_S, MEMORY)`; the request is JSON on standard input.
The process confines itself (with seccomp if the host supports it, else with limits of processor time and memory), and
only then reads the submission from DESCRIPTOR. It writes lines of JSON to standard output, which `reader` validates.
The requests and their answers are:

    {"do": "list"}                                           -> {"members": [[index, path, time], ...], "others": {...}}
                                                                or {"problem": ...}
    {"do": "about"}                                          -> {"assignment", "variant", "ran"} or {"problem": ...}
    {"do": "read", "base", "indices", "zip", "most", "skip"} -> {"begin": path} and {"answers": ...} or {"problem": ...}, for
                                                                each notebook; {"left": n} if n more were not read
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

from ...errors import BadInput
from ..sandbox.parent_death import end_with_parent
from ..schema import Assignment, from_data
from . import archive
from .answers import find_answers
from .submitted_notebook import MAX_FILE_BYTES, parse_submitted


def main(parent: str, descriptor: str, confined: str, processor_s: str, memory: str) -> None:
    """Confine this process, read the submission, and answer. The process ends if the process `parent` ends."""
    end_with_parent(int(parent))
    request = json.loads(sys.stdin.buffer.read())
    most = int(memory)
    # It was opened by the parent, because a confined process cannot open files.
    with os.fdopen(int(descriptor), "rb") as stream:
        limit(confined == "1", int(processor_s), most)
        try:
            getattr(RequestHandler(most), request.pop("do"))(stream, **request)
        except MemoryError:
            write({"problem": f"reading it needs more than {most >> 20} MB of memory"})


def limit(confined: bool, processor_s: int, memory: int) -> None:
    """Confine this process, or only set the limits that the system supports."""
    if confined:
        from ..sandbox.confine import confine

        confine(processor_s, memory)
        return
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_CPU, processor_s), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):
            continue  # the system has a lower limit, or does not support this one


def write(answer: dict[str, Any]) -> None:
    """Write one line and flush it, so that it is not lost if the process ends."""
    data = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


class RequestHandler:
    """Answers the three requests. `memory`: the limit in bytes, for error texts."""

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def list(self, stream: BinaryIO) -> None:
        """Write the members of a platform's zip, and the first names without a notebook."""
        try:
            members, others = archive.members(stream)
            write({"members": members, "others": others})
        except BadInput as why:
            write({"problem": str(why)})

    def about(self, stream: BinaryIO) -> None:
        try:
            notebook = parse_submitted(_content(stream))
        except BadInput as why:
            write({"problem": str(why)})
        else:
            write({"assignment": notebook.assignment, "variant": notebook.variant, "ran": notebook.last_run()})

    def read(self, stream: BinaryIO, base: dict[str, Any], indices: Any, zip: bool, most: int, skip: int) -> None:
        """Write the answers in each notebook of a submission. `skip`: the number of notebooks read by an earlier process."""
        assignment = from_data(base)
        zips = archive.ZipReader(assignment.name)
        if indices is not None:
            found = zips.at_indices(stream, indices)
        elif zip:
            found = zips.all(stream)
        else:
            found = iter([("", b"")])
        left = 0
        for number, (path, data) in enumerate(found):
            if number >= most:
                left += 1
                if left > 1000:
                    break
                continue
            if number < skip:
                continue
            write({"begin": path})
            if indices is None and not zip:
                data = _content(stream)
            write({"problem": data} if isinstance(data, str) else self._answers(assignment, data))
            del data
        if left:
            write({"left": left})

    def _answers(self, base: Assignment, data: bytes) -> dict[str, Any]:
        try:
            notebook = parse_submitted(data)
            answers = find_answers(base, notebook)
        except BadInput as why:
            return {"problem": str(why)}
        except MemoryError:
            return {
                "problem": f"reading it needs more than {self.memory >> 20} MB of memory: clear its outputs and save it"
            }
        return {
            "answers": {
                "solutions": dict(answers.solutions), "before": {k: [*v] for k, v in answers.before.items()},
                "after": [*answers.after], "explained": dict(answers.explained), "notes": [*answers.notes],
                "untouched": [cell.id for cell in base.of_kind("solution") if answers.is_untouched(base, cell.id)],
            },
            "variant": notebook.variant,
        }  # fmt: skip


def _content(stream: BinaryIO) -> bytes:
    """Read the content of a file, at most one byte more than is allowed. Allocates no more than the size of the file."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return stream.read(min(size, MAX_FILE_BYTES) + 1)
