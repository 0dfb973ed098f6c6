"""Reads each submission in a separate process (`reader_process`), and validates what the process returns.

Code that parses a student's file (zip, JSON, notebook formats, IPython syntax) runs in that process. The process has
limits on processor time, memory, output and wall time, and is confined if the host supports it. A file that exceeds the
limits is a problem of that submission only. The process returns plain data, and every field of the data is validated here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...errors import BadInput
from ..sandbox import launch
from ..sandbox.confine import confinement_problem
from ..schema import Assignment, public_data
from .answers import Answers
from .nbval_run import Interrupted

T = TypeVar("T")
LAUNCH = Path(launch.__file__)
PROCESSOR_S = 60  # seconds of processor time for one submission
MEMORY = 1536 << 20  # bytes of address space beyond those in use when the process is confined
MAX_LINE_BYTES = 24 << 20  # bytes of one line: texts have at most 4 MB, which JSON may write with six times as many
MAX_OUTPUT_BYTES = 64 << 20  # bytes of all lines of one process
WALL_S = 600.0  # wall time, for a process that hangs; the limit on processor time is lower
POLL_MS = 50
MAX_PROCESSES = 3  # for one submission; if a notebook ends the process, another process reads the remaining notebooks
MAX_NOTEBOOKS = 20  # notebooks of one submission that are read


@dataclass(frozen=True)
class Member:
    """A notebook or zip in a platform's zip: its index in the directory, its path, and its time as YYYYMMDDHHMMSS."""

    index: int
    path: str
    time: int


@dataclass(frozen=True)
class NotebookMetadata:
    """Metadata of a notebook. `ran`: when a cell last ran (ISO 8601); "" if that is not recorded."""

    assignment: str
    variant: str
    ran: str


@dataclass(frozen=True)
class ReadNotebook:
    """One notebook of a submission: its answers, or a problem. `path`: its path inside the zip; "" if it is not in a zip."""

    path: str
    answers: Answers | None = None
    variant: str = ""
    problem: str = ""
    broken: bool = False
    """Whether the machine may be the cause (a limit of wall time), so that reading it again may succeed."""


class _ReaderEnded(Exception):
    """The process ended before it answered; the text is the reason. `broken`: see `ReadNotebook`."""

    def __init__(self, why: str, broken: bool = False) -> None:
        super().__init__(why)
        self.broken = broken


class Reader:
    """Starts a reader process for each file. `stop`: an event that ends all reader processes.

    Each process may use `processor_s` seconds of processor time, and `memory` bytes in addition to those in use when it
    is confined.
    """

    def __init__(
        self, stop: threading.Event | None = None, processor_s: int = PROCESSOR_S, memory: int = MEMORY
    ) -> None:
        self._stop, self._processor_s, self._memory = stop or threading.Event(), processor_s, memory

    def members(self, descriptor: int) -> tuple[list[Member], dict[str, list[str]]]:
        """Return the notebooks and zips in a platform's zip, and {first name: paths of some files} of first names without any.
        Raises `BadInput` if the zip cannot be read.
        """
        try:
            (answer,) = [*self._run(descriptor, {"do": "list"})] or [{}]
            if "problem" in answer:
                raise BadInput(_text(answer["problem"], 1000))
            found = [Member(_count(index), _text(path, 1000), _count(at)) for index, path, at in answer["members"]]
            return found, {_text(name, 1000): _texts(paths, 1000) for name, paths in answer["others"].items()}
        except _ReaderEnded as why:
            raise BadInput(f"the zip cannot be read: {why}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            if isinstance(why, BadInput):
                raise
            raise BadInput("the zip cannot be read: its list is malformed") from None

    def about(self, descriptor: int) -> NotebookMetadata:
        """Return the metadata of one notebook. Raises `BadInput` if it cannot be read."""
        try:
            (answer,) = [*self._run(descriptor, {"do": "about"})] or [{}]
            if "problem" in answer:
                raise BadInput(_text(answer["problem"], 1000))
            return NotebookMetadata(*(_text(answer[name], 200) for name in ("assignment", "variant", "ran")))
        except _ReaderEnded as why:
            raise BadInput(str(why)) from None
        except (KeyError, TypeError, ValueError) as why:
            if isinstance(why, BadInput):
                raise
            raise BadInput(f"the answer of the reader process is malformed ({type(why).__name__})") from None

    def read(
        self, descriptor: int, base: Assignment, indices: Sequence[int] | None = None, is_zip: bool = False
    ) -> tuple[list[ReadNotebook], int]:
        """Return (the notebooks of one submission, the number of notebooks that were not read because of the limit).

        `descriptor`: the file of the submission, or the platform's zip that contains the submission at `indices`. `is_zip`:
        whether the submission is a student's zip.
        """
        request = {"do": "read", "base": public_data(base), "zip": is_zip, "most": MAX_NOTEBOOKS}
        request["indices"] = None if indices is None else list(indices)
        found: list[ReadNotebook] = []
        left = 0
        for _ in range(MAX_PROCESSES):
            path: str | None = None
            try:
                with contextlib.closing(self._run(descriptor, {**request, "skip": len(found)})) as lines:
                    for answer in lines:
                        if "begin" in answer:
                            path = _text(answer["begin"], 2000)
                        elif "left" in answer:
                            left = _count(answer["left"])
                        elif path is None:
                            raise _ReaderEnded(
                                _text(answer["problem"], 1000) if "problem" in answer else "it is malformed"
                            )
                        elif len(found) >= MAX_NOTEBOOKS:
                            raise _ReaderEnded("it sent too many answers")
                        else:
                            found.append(_notebook_of(path, answer, base))
                            path = None
                return found, left
            except _ReaderEnded as why:
                found.append(ReadNotebook(path or "", problem=str(why), broken=why.broken))
                if path is None or (indices is None and not is_zip):
                    break  # there are no other notebooks, or the zip itself cannot be read
            except (KeyError, TypeError, ValueError) as why:
                found.append(ReadNotebook(path or "", problem=f"its answers are malformed ({type(why).__name__})"))
                break
        return found, left

    # one process ------------------------------------------------------------------------------------------------------

    def _run(self, descriptor: int, request: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Start a process and yield the objects that it writes."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        limits = ["0" if confinement_problem() else "1", str(self._processor_s), str(self._memory)]
        module = "labkit.course.grading.reader_process"
        command = [sys.executable, "-I", "-S", "-B", str(LAUNCH), module, str(os.getpid()), str(descriptor), *limits]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=os.path.abspath(os.sep),
            env={"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}, pass_fds=(descriptor,), start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode())
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            for line in self._lines(process):
                try:
                    answer = json.loads(line.decode("utf-8", "surrogatepass"))
                except (ValueError, RecursionError):
                    raise _ReaderEnded("the answer of the reader process is malformed") from None
                if not isinstance(answer, dict):
                    raise _ReaderEnded("the answer of the reader process is malformed")
                yield answer
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()
            process.wait()

    def _lines(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """Yield the lines that the process writes. Raises `_ReaderEnded` if it was ended or failed, and `Interrupted` if `stop`
        was set.
        """
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        parts: list[bytes] = []
        line = total = 0
        end = time.monotonic() + WALL_S
        while True:
            if self._stop.is_set():
                raise Interrupted("Interrupted.")
            if time.monotonic() > end:
                raise _ReaderEnded(f"reading it was ended after {WALL_S:g} s", broken=True)
            if not _readable(descriptor):
                continue
            data = os.read(descriptor, 1 << 20)
            total, line = total + len(data), line + len(data)
            if total > MAX_OUTPUT_BYTES or line > MAX_LINE_BYTES:
                raise _ReaderEnded(f"it has more than {MAX_LINE_BYTES >> 20} MB of text")
            if not data:
                break
            *whole, rest = data.split(b"\n")
            for each in whole:
                yield b"".join([*parts, each])
                parts, line = [], len(rest)
            parts.append(rest)
        if status := process.wait():
            raise _ReaderEnded(self._why(status))

    def _why(self, status: int) -> str:
        if hasattr(signal, "SIGXCPU") and status in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"reading it takes more than {self._processor_s} s of processor time"
        if status < 0:
            return f"the process that read it crashed (signal {-status}); its memory limit is {self._memory >> 20} MB"
        return f"the process that read it ended with status {status}"


def _readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return True  # Windows: the read itself waits
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(POLL_MS))


# validation of the returned data -------------------------------------------------------------------------------------


def _notebook_of(path: str, answer: Mapping[str, Any], base: Assignment) -> ReadNotebook:
    """Make the result for one notebook, and validate that every field has the right type and only ids of the assignment."""
    if "problem" in answer:
        return ReadNotebook(path, problem=_text(answer["problem"], 1000))
    data = answer["answers"]
    ids = [cell.id for cell in base.of_kind("solution")]
    explain_ids = [cell.id for cell in base.of_kind("explain")]
    answers = Answers(
        solutions=_table(data["solutions"], ids, _text),
        before=_table(data["before"], ids, _texts),
        after=_texts(data["after"]),
        explained=_table(data["explained"], explain_ids, _text),
        notes=tuple(_texts(data["notes"], 1000))[:50],
        untouched=frozenset(name for name in _texts(data["untouched"]) if name in ids),
    )
    return ReadNotebook(path, answers, _text(answer["variant"], 200))


def _text(value: Any, longest: int = MAX_LINE_BYTES) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value[:longest]


def _texts(value: Any, longest: int = MAX_LINE_BYTES) -> list[str]:
    if type(value) is not list:
        raise TypeError("no list")
    return [_text(each, longest) for each in value]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError("no count")
    return value


def _table(value: Any, names: Sequence[str], parse: Callable[[Any], T]) -> dict[str, T]:
    if type(value) is not dict or not set(value) <= set(names):
        raise TypeError("no table of known names")
    return {name: parse(each) for name, each in value.items()}
