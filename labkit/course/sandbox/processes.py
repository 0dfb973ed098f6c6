"""Starts student processes, exchanges frames with them, and ends them. Runs in the grader.

What a student process sends is treated as data only. `ProcessEnded` is raised if a process sleeps without using
processor time, uses too much of it, sends too much, or has ended; its text is the reason. An endless loop is ended by a
limit on the number of frames or on processor time, never by wall time, so that scores do not depend on the load of the
machine. Processor time is read from the process's clock, which is exact to a microsecond. (The kernel's own limit, and the
times in /proc, count clock ticks.)
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...encoding import Decoder, EncodingError, encode
from ...errors import ClusterError, RoleError
from ...files import temporary
from .confine import BROKEN, MEMORY, PROCESSOR_S, UNCONFINED, confinement_problem

MAX_FRAMES = 50_000  # frames that one process may send; a role in a trial of 100 updates sends about 1,000
MAX_BYTES = 1 << 30  # bytes that one process may send
MAX_OUTLINE_BYTES = 32 << 20  # of these, bytes of outlines: to decode a byte takes up to half a microsecond
MAX_IDLE_S = 8  # a process that should answer, but uses no processor time for so many seconds, is ended
LAUNCH = Path(__file__).with_name("launch.py")


class ProcessEnded(RoleError):
    """A student process ended, or was ended by the grader, before it answered."""


class ForkServer:
    """The process from which student processes are forked (see `fork_server`). `close`, or the end of a `with`, ends them all.

    `confined`: if True, `ClusterError` is raised on a host without confinement; if None, processes are confined if the
    host supports it. `processor_s`: the limit of processor time of each process in seconds. `process`: the fork server's
    process, which runs in the temporary `folder`.
    """

    def __init__(self, confined: bool | None = None, processor_s: float = PROCESSOR_S):
        why = confinement_problem()
        if confined and why:
            raise ClusterError(f"Submitted code is not run here: {why}.")
        self.confined, self.processor_s = not why if confined is None else confined, processor_s
        self.folder = temporary.new()
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-s", "-P", "-B", str(LAUNCH), "labkit.course.sandbox.fork_server", str(theirs.fileno()),
                    str(processor_s * self.confined),
                ],
                pass_fds=(theirs.fileno(),), cwd=self.folder, env=_environment(str(self.folder)),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._control = ours
        self._connections: set[StudentConnection] = set()

    def fork(self, find: Callable[[Any], Any], refer: Callable[[Any], Any]) -> StudentConnection:
        """Start a student process and return the connection to it. `find`, `refer`: see `encoding`."""
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
            raise ClusterError("The fork server of the student processes has ended; grade this notebook again.")
        connection = StudentConnection(self, int(answer), from_child, from_us, find, refer)
        self._connections.add(connection)
        return connection

    def kill(self, connection: StudentConnection) -> tuple[int, float]:
        """Kill a process. Returns (its status as `os.waitpid` returns it, the processor time in seconds that it used)."""
        self._connections.discard(connection)
        with contextlib.suppress(OSError):
            os.kill(connection.pid, signal.SIGKILL)
        try:
            self._control.send(f"end{connection.pid}".encode())
            status, used = self._control.recv(64).split()
            return int(status), float(used)
        except (OSError, ValueError):
            return 0, 0.0

    def close(self) -> None:
        """End the fork server and all student processes."""
        for connection in list(self._connections):
            connection.close()
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _environment(home: str) -> dict[str, str]:
    """Return the environment of student processes: no variables of the grader, one linear-algebra thread, a fixed hash seed."""
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"HOME": home, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **one}


class StudentConnection:
    """The connection to one student process. `find`, `refer`: resolve and make references (see `encoding`)."""

    def __init__(
        self,
        server: ForkServer,
        pid: int,
        reading: int,
        writing: int,
        find: Callable[[Any], Any],
        refer: Callable[[Any], Any],
    ):
        self.server, self.pid, self._reading, self._writing = server, pid, reading, writing
        self._decoder, self._refer = Decoder(find), refer
        self._frames, self._bytes, self._open, self._why, self._used = MAX_FRAMES, MAX_BYTES, True, "Ended.", 0.0
        os.set_blocking(writing, False)

    def send(self, frame: Any) -> None:
        """Send a frame. Raises `ProcessEnded` if the process has ended."""
        if not self._open:  # the numbers of the closed descriptors may be in use again
            raise ProcessEnded(self._why)
        try:
            data = memoryview(b"".join(encode(frame, self._refer)))
        except EncodingError as why:
            raise self.stop(f"a value cannot be sent to it ({why})") from None
        while data:
            try:
                data = data[os.write(self._writing, data) :]
            except BlockingIOError:
                self._wait(self._writing, writing=True)
            except OSError:
                raise self.ended() from None

    def receive(self) -> tuple[Any, list[int]]:
        """Return (the process's next frame, the numbers of the references that it has dropped).

        Raises `ProcessEnded` if the process ends before it sends a frame, or sends a malformed frame.
        """
        if not self._open:
            raise ProcessEnded(self._why)
        self._frames -= 1
        if self._frames < 0:
            raise self.stop(f"it sent more than {MAX_FRAMES:,} requests, the limit of a process")
        try:
            frame, freed = self._decoder.decode(self._read)
            if self._decoder.outline_bytes > MAX_OUTLINE_BYTES:
                raise self.stop(
                    f"it sent more than {MAX_OUTLINE_BYTES >> 20} MB of text, numbers and lists (arrays may have more)"
                )
            if self.processor_share() > 1.0:
                raise self._out_of_time()
            if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
                raise EncodingError("the frame is not a list that begins with a name")
            if not isinstance(freed, list) or not all(type(number) is int for number in freed):
                raise EncodingError("the dropped references are not numbers")
        except (EncodingError, ValueError, TypeError) as why:
            raise self.stop(f"it sent a malformed frame ({why})") from None
        return frame, freed

    def _read(self, size: int) -> bytes:
        self._bytes -= size
        if self._bytes < 0:
            raise self.stop(f"it sent more than {MAX_BYTES >> 20} MB")
        parts = []
        while size:
            self._wait(self._reading)
            part = os.read(self._reading, min(size, 1 << 20))
            if not part:
                raise self.ended()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, writing: bool = False) -> None:
        """Wait until the pipe can be read (or written). End the process if it sleeps for `MAX_IDLE_S` seconds, or if it has
        used its processor time.
        """
        poller = select.poll()
        poller.register(descriptor, select.POLLOUT if writing else select.POLLIN)
        limit = self.server.processor_s if self.server.confined else math.inf
        used, idle_s = processor_seconds(self.pid), 0.0
        # one thread: its time is at most wall time
        while not poller.poll(1000 * (step := min(max(limit - used, 0.001), 1.0))):
            now = processor_seconds(self.pid)
            idle_s = idle_s + step if now == used and _state(self.pid) in "ST" else 0.0
            used = now
            if used > limit:
                raise self._out_of_time()
            if idle_s >= MAX_IDLE_S:
                raise self.stop("it sleeps or waits without an effect: a role waits with `await ctx...` only")

    def _out_of_time(self) -> ProcessEnded:
        most = self.server.processor_s
        return self.stop(
            f"it used {most:g} s of processor time, which is the limit of a process (does a loop never end?)"
        )

    def stop(self, why: str) -> ProcessEnded:
        """End the process, and return the error to raise."""
        self.close()
        self._why = f"Ended: {why}" + ("" if why.endswith(("?", ".")) else ".")
        return ProcessEnded(self._why)

    def ended(self) -> ProcessEnded:
        """Return the error for a process that has exited or was killed by the kernel."""
        status = self.close()
        if os.WIFSIGNALED(status) and self._used > self.server.processor_s:
            self._why = str(self._out_of_time())
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self._why = "Ended: it was killed by another process (is the memory of this machine sufficient?)."
        elif os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            self._why = f"Ended: the process crashed ({name}; its memory limit is {MEMORY >> 20} MB)."
        elif os.WEXITSTATUS(status) == UNCONFINED:
            self._why = "Not run: the process could not be confined on this host; the submitted code is not the cause."
        elif os.WEXITSTATUS(status) == BROKEN:
            self._why = "Ended: it used up its stack or its memory."
        else:
            self._why = "Ended: it exited (sys.exit, os._exit); a role ends by returning."
        return ProcessEnded(self._why)

    def processor_share(self) -> float:
        """Return the used fraction of the process's limit of processor time; 0 if the process has no limit."""
        limit = self.server.processor_s * self.server.confined
        return processor_seconds(self.pid) / limit if limit and self._open else 0.0

    def used_share(self) -> float:
        """Return the used fraction of that limit of the process of which it has used most: processor time, frames, bytes."""
        outline = self._decoder.outline_bytes / MAX_OUTLINE_BYTES
        return max(self.processor_share(), 1 - self._frames / MAX_FRAMES, 1 - self._bytes / MAX_BYTES, outline)

    def close(self) -> int:
        """End the process and return its status; 0 if it was closed before."""
        if not self._open:
            return 0
        self._open = False
        os.close(self._reading)
        os.close(self._writing)
        status, self._used = self.server.kill(self)
        return status


def processor_seconds(pid: int) -> float:
    """Return the processor time that another process has used, in seconds; 0 if it has ended or the system does not tell."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # its CPUCLOCK_SCHED, as clock_getcpuclockid(3) returns it on Linux
    except (OSError, AttributeError):
        return 0.0


def _state(pid: int) -> str:
    """Return the state of a process: "R" if it runs, "S" if it sleeps, "T" if it is stopped, ..."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "R"  # the process has ended, or the system has no /proc; reading the pipe shows which
