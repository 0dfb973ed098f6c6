"""The judge's end: starts a student's processes, talks to them, and ends them whatever they do.

What comes from there is data and never more. A process that says nothing and uses no processor time, that says too much,
or that is gone, ends its role with a reason; nothing here waits for ever. What ends a loop without an end is a budget of
frames, or the kernel's limit on processor time, never the wall clock, so marks are the same on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import ClusterError, RoleError
from . import plain
from .child import BROKEN, UNCONFINED
from .confine import MEMORY, PROCESSOR_S, can_confine

__all__ = ["Line", "Nursery", "Stopped"]

FRAMES = 50_000  # of one process; a role of a trial of 100 updates needs some 1,000
BYTES = 1 << 30  # of one process
ASLEEP = 8  # seconds in which a process that is waited for uses no processor time
START = Path(__file__).with_name("isolated.py")


class Stopped(RoleError):
    """A student's process was ended, or ended by itself, before it had answered."""


class Nursery:
    """The process from which a student's processes are copied. A context manager; `close` ends all of them.

    `confined`: None means whether this machine can; True where it cannot raises `ClusterError`. `processor_s`: seconds of
    processor time that each process may use.
    """

    def __init__(self, confined: bool | None = None, processor_s: int = PROCESSOR_S):
        why = can_confine()
        if confined and why:
            raise ClusterError(f"A student's code is not run here: {why}.")
        self.confined, self.processor_s = not why if confined is None else confined, processor_s
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-role-")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-s", "-P", "-B", str(START), "labkit.course.sandbox.begin", str(theirs.fileno()),
                    str(processor_s * self.confined),
                ],
                pass_fds=(theirs.fileno(),), cwd=self._folder.name, env=_environment(self._folder.name),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._control = ours
        self._lines: set[Line] = set()

    def line(self, find: Callable[[Any], Any], refer: Callable[[Any], Any]) -> Line:
        """A new process, and the line to it. `find`, `refer`: see `plain`."""
        to_child, from_us = os.pipe()
        from_child, to_us = from_child_pipe = os.pipe()
        try:
            socket.send_fds(self._control, [b"begin"], [to_child, to_us])
            answer = self._control.recv(64)
        except OSError:
            answer = b""
        finally:
            os.close(to_child)
            os.close(to_us)
        if not answer:
            os.close(from_us)
            os.close(from_child_pipe[0])
            raise ClusterError("The process that student's code is started from has ended; grade this notebook again.")
        made = Line(self, int(answer), from_child, from_us, find, refer)
        self._lines.add(made)
        return made

    def ended(self, line: Line) -> tuple[int, float]:
        """Kill a process: (the status with which it ended, as of `os.waitpid`; seconds of processor time that it used)."""
        self._lines.discard(line)
        with contextlib.suppress(OSError):
            os.kill(line.pid, signal.SIGKILL)
        try:
            self._control.send(f"end{line.pid}".encode())
            status, used = self._control.recv(64).split()
            return int(status), float(used)
        except (OSError, ValueError):
            return 0, 0.0

    def close(self) -> None:
        """End everything that was started."""
        for line in list(self._lines):
            line.close()
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _environment(home: str) -> dict[str, str]:
    """Nothing of the grader's: one thread of linear algebra, and the same order of sets every time."""
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"HOME": home, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **one}


class Line:
    """The line to one process. `find`, `refer`: what its references mean."""

    def __init__(
        self,
        nursery: Nursery,
        pid: int,
        reading: int,
        writing: int,
        find: Callable[[Any], Any],
        refer: Callable[[Any], Any],
    ):
        self.nursery, self.pid, self._reading, self._writing = nursery, pid, reading, writing
        self._find, self._refer = find, refer
        self._frames, self._bytes, self._open, self._why, self._used = FRAMES, BYTES, True, "Ended.", 0.0
        os.set_blocking(writing, False)

    def say(self, frame: Any) -> None:
        """A frame to the process."""
        if not self._open:  # its descriptors may be another's by now
            raise Stopped(self._why)
        try:
            data = memoryview(plain.encode(frame, self._refer))
        except plain.Malformed as why:
            raise self.stop(f"it cannot be told what it is to be told ({why})") from None
        while data:
            try:
                data = data[os.write(self._writing, data) :]
            except BlockingIOError:
                self._wait(self._writing, writing=True)
            except OSError:
                raise self.gone() from None

    def hear(self) -> tuple[Any, list[int]]:
        """(the process's next frame, the numbers of what it needs no more). `Stopped` if none comes."""
        if not self._open:
            raise Stopped(self._why)
        self._frames -= 1
        if self._frames < 0:
            raise self.stop(f"it asked for more than {FRAMES:,} things, which is the limit of a process")
        try:
            frame, freed = plain.decode(self._read, self._find)
            if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
                raise plain.Malformed("no frame")
            if not isinstance(freed, list) or not all(type(number) is int for number in freed):
                raise plain.Malformed("no numbers")
        except (plain.Malformed, ValueError, TypeError) as why:
            raise self.stop(f"what it said is not to be understood ({why})") from None
        return frame, freed

    def _read(self, size: int) -> bytes:
        if size > plain.LARGEST:
            raise plain.Malformed("a frame without end")
        self._bytes -= size
        if self._bytes < 0:
            raise self.stop(f"it said more than {BYTES >> 20} MB")
        parts = []
        while size:
            self._wait(self._reading)
            part = os.read(self._reading, min(size, 1 << 20))
            if not part:
                raise self.gone()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, writing: bool = False) -> None:
        """Until there is something to read (or room to write); `Stopped` if the process sleeps instead."""
        asked = select.poll()
        asked.register(descriptor, select.POLLOUT if writing else select.POLLIN)
        used, still = -1, 0
        while not asked.poll(1000):
            now, state = _processor(self.pid)
            still = still + 1 if now == used and state in "ST" else 0
            used = now
            if still >= ASLEEP:
                raise self.stop("it waits for something that is no effect: a role waits with `await ctx...` only")

    def stop(self, why: str) -> Stopped:
        """End the process; the error that says why."""
        self.close()
        self._why = f"Ended: {why}" + ("" if why.endswith(("?", ".")) else ".")
        return Stopped(self._why)

    def gone(self) -> Stopped:
        """The error for a process that has ended by itself, or by the kernel's hand."""
        status = self.close()
        most = self.nursery.processor_s
        if os.WIFSIGNALED(status) and self._used > most - 0.5:
            self._why = f"Ended: it used {most} s of processor time, which is the limit of a process."
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self._why = "Ended: it was killed from outside (does this machine have enough memory?)."
        elif os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            self._why = f"Ended: the process broke down ({name}; it may use {MEMORY >> 20} MB)."
        elif os.WEXITSTATUS(status) == UNCONFINED:
            self._why = (
                "Not run: this host could not confine the process; the code that was to run in it is not at fault."
            )
        elif os.WEXITSTATUS(status) == BROKEN:
            self._why = "Ended: it used up its stack or its memory."
        else:
            self._why = "Ended: it left its process (sys.exit, os._exit); a role ends by returning."
        return Stopped(self._why)

    def processor_share(self) -> float:
        """The part of its processor time that the process has used; 0 if it has no limit."""
        limit = self.nursery.processor_s * self.nursery.confined
        return _processor(self.pid)[0] / os.sysconf("SC_CLK_TCK") / limit if limit and self._open else 0.0

    def close(self) -> int:
        """End the process; its status."""
        if not self._open:
            return 0
        self._open = False
        os.close(self._reading)
        os.close(self._writing)
        status, self._used = self.nursery.ended(self)
        return status


def _processor(pid: int) -> tuple[int, str]:
    """(ticks of processor time used, state: R runs, S sleeps ...) of a process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            parts = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0, "R"  # it is gone, or there is no /proc: reading says so
    return int(parts[11]) + int(parts[12]), parts[0]
