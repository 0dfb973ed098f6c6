"""The interface of the peers of `round_trip`: `open_pair()`, a context manager that returns a `RoundTrips`.

A peer that uses a framework runs in a separate process, so that the framework's threads, settings and shutdown do not
affect the benchmark. `run_peer` is the benchmark's side and `serve_trips` the peer's side. A request "bytes count" is
sent as a line, and the seconds are returned as a line of JSON. The peer is in a separate process group, which is always
killed at the end. If the benchmark itself is killed, the peer reads the end of its input and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any

from ..subprocesses import environment

# (bytes, count) -> the seconds of each of `count` round trips. A round trip sends `bytes` bytes in each direction.
RoundTrips = Callable[[int, int], list[float]]

TIMEOUT_S, EXIT_TIMEOUT_S = 120.0, 10.0  # seconds for a reply (including the framework's start); for an orderly exit


@contextlib.contextmanager
def run_peer(module: str) -> Iterator[RoundTrips]:
    """Run `python -m module`, which calls `serve_trips`, within the context.

    Raises `RuntimeError`, with the last output of the process, if the process fails.
    """
    with tempfile.TemporaryFile() as stderr_file:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr_file}
        process = _start([module], text=True, start_new_session=True, **pipes)
        try:
            _reply(process, stderr_file)  # it is ready
            yield lambda nbytes, count: _request(process, stderr_file, f"{nbytes} {count}\n")
        finally:
            _end(process)


def _request(process: subprocess.Popen[str], stderr_file: IO[bytes], request: str) -> list[float]:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # then reading the answer fails, with the reason
        process.stdin.write(request)
        process.stdin.flush()
    return _reply(process, stderr_file)


def _reply(process: subprocess.Popen[str], stderr_file: IO[bytes]) -> list[float]:
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT_S, process.kill)  # ends the wait below
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if not line.endswith("\n"):
        stderr_file.seek(0)
        stderr = stderr_file.read().decode(errors="replace").strip()[-1000:]
        raise RuntimeError(f"{process.args[-1]} did not answer: {stderr}")  # type: ignore[index]
    return json.loads(line)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # there are no more requests
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(EXIT_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def serve_trips(pair: Callable[[], AbstractContextManager[RoundTrips]]) -> None:
    """Open `pair`, and make the requested round trips until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep the framework's output out of the replies
    with contextlib.suppress(BrokenPipeError), replies, pair() as trip:
        print("[]", file=replies, flush=True)
        for request in sys.stdin:
            print(json.dumps(trip(*map(int, request.split()))), file=replies, flush=True)


@contextlib.contextmanager
def companion_process(module: str, *arguments: object, pass_fds: Sequence[int] = ()) -> Iterator[None]:
    """Run `python -m module arguments` as the other end. It should end when its peer has ended; otherwise it is killed."""
    process = _start([module, *map(str, arguments)], pass_fds=pass_fds)
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def _start(line: list[str], **more: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-m", *line], env=environment(), **more)
