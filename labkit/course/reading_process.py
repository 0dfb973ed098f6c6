"""The process that reads one submission (started by `sandbox.isolated`): `main(PARENT, DESCRIPTOR, CONFINED, SECONDS,
BYTES)`, with the request as JSON on standard input.

It loads what it needs, confines itself (seccomp where the host has it, else limits of processor time and memory), and only
then reads the first byte of the submission from the descriptor. Its answers are lines of JSON on standard output; what may
be in them is checked by `reading`. Requests:

    {"do": "list"}                                        -> {"members": [[place, path, time], ...]} or {"problem": ...}
    {"do": "about"}                                       -> {"assignment", "variant", "ran"} or {"problem": ...}
    {"do": "read", "base", "places", "zip", "most", "skip"} -> {"begin": path} and {"answers": ...} or {"problem": ...}, for
                                                             each notebook; {"left": n} for those beyond `most`
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, BinaryIO

PRELOADED = ("ast", "bz2", "encodings.cp437", "encodings.utf_8_sig", "json", "lzma", "re", "stat", "zipfile", "zlib")


def main(parent: str, descriptor: str, confined: str, processor_s: str, memory: str) -> None:
    """Load, confine, read, answer; end with the process `parent`."""
    importlib.import_module("labkit.course.sandbox.parent").end_with_parent(int(parent))
    for name in PRELOADED:
        importlib.import_module(name)
    modules = {
        name: importlib.import_module(f"labkit.course.{name}") for name in ("archive", "handed", "taken", "schema")
    }
    errors = importlib.import_module("labkit.errors")
    request = json.loads(sys.stdin.buffer.read())
    most = int(memory)
    with os.fdopen(int(descriptor), "rb") as stream:
        limit(confined == "1", int(processor_s), most)
        try:
            getattr(Reader(modules, errors.BadInput, most), request.pop("do"))(stream, **request)
        except MemoryError:
            say({"problem": f"reading it needs more than {most >> 20} MB of memory"})


def limit(confined: bool, processor_s: int, memory: int) -> None:
    """Confine this process, or limit it as far as the system can."""
    if confined:
        importlib.import_module("labkit.course.sandbox.confine").confine(processor_s, memory)
        return
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_CPU, processor_s), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):
            continue  # the system has a lower limit, or none of this kind


def say(answer: dict[str, Any]) -> None:
    """One line of the answer, at once: what is read so far is not lost if the process ends."""
    data = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


class Reader:
    """The three requests."""

    def __init__(self, modules: dict[str, Any], bad_input: type[Exception], memory: int) -> None:
        self.archive, self.handed = modules["archive"], modules["handed"]
        self.taken, self.schema = modules["taken"], modules["schema"]
        self.bad_input, self.memory = bad_input, memory

    def list(self, stream: BinaryIO) -> None:
        """What is in a platform's zip."""
        try:
            say({"members": self.archive.listing(stream)})
        except self.bad_input as why:
            say({"problem": str(why)})

    def about(self, stream: BinaryIO) -> None:
        """What a notebook says of itself."""
        try:
            handed = self.handed.read_handed(self._whole(stream))
        except self.bad_input as why:
            say({"problem": str(why)})
        else:
            say({"assignment": handed.assignment, "variant": handed.variant, "ran": handed.last_run()})

    def read(
        self, stream: BinaryIO, base: dict[str, Any], places: Any, zip: bool, most: int, skip: int
    ) -> None:  # fmt: skip
        """The answers in each notebook of one submission. `skip`: how many were read by a process before this one."""
        known = self.schema.from_data(base)
        notebooks = self.archive.Notebooks(known.name)
        if places is not None:
            found = notebooks.of_places(stream, places)
        elif zip:
            found = notebooks.of_zip(stream)
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
            say({"begin": path})
            if places is None and not zip:
                data = self._whole(stream)
            say({"problem": data} if isinstance(data, str) else self._answers(known, data))
            del data
        if left:
            say({"left": left})

    def _whole(self, stream: BinaryIO) -> bytes:
        """The file, or one byte more of it than is allowed; no more memory is asked for than it has bytes."""
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        return stream.read(min(size, self.handed.LARGEST_FILE) + 1)

    def _answers(self, base: Any, data: bytes) -> dict[str, Any]:
        try:
            handed = self.handed.read_handed(data)
            taken = self.taken.take(base, handed)
        except self.bad_input as why:
            return {"problem": str(why)}
        except MemoryError:
            return {
                "problem": f"reading it needs more than {self.memory >> 20} MB of memory: clear its outputs and save it"
            }
        return {
            "answers": {
                "solutions": dict(taken.solutions), "before": {k: list(v) for k, v in taken.before.items()},
                "after": list(taken.after), "explained": dict(taken.explained), "notes": list(taken.notes),
                "untouched": [cell.id for cell in base.of_kind("solution") if taken.is_untouched(base, cell.id)],
            },
            "variant": handed.variant,
        }  # fmt: skip
