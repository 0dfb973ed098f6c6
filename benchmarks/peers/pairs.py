"""The interface of the round trip's peers: `open_pair()`, a context manager that returns a `Trip`.

A peer that uses a framework runs in a separate process, so that the framework's threads, settings and shutdown do not affect
the benchmark. `apart` is the benchmark's side and `obey` the peer's: an order "bytes count" is sent as a line, the seconds
are returned as a line of JSON. The process is in a separate process group, which is always killed at the end; if the
benchmark itself is killed, the peer reads the end of its input and ends.
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

from ..children import environment

__all__ = ["Trip", "apart", "beside", "obey"]

# (bytes, count) -> the seconds of each of `count` round trips: `bytes` there, then as many back.
Trip = Callable[[int, int], list[float]]

PATIENCE, LEAVE = 120.0, 10.0  # seconds for an answer (including a framework's start); for an orderly end


@contextlib.contextmanager
def apart(module: str) -> Iterator[Trip]:
    """Run `python -m module`, which calls `obey`, while this is open. `RuntimeError`, with its last output, if it fails."""
    with tempfile.TemporaryFile() as words:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": words}
        process = _start([module], text=True, start_new_session=True, **pipes)
        try:
            _answer(process, words)  # it is ready
            yield lambda nbytes, count: _ask(process, words, f"{nbytes} {count}\n")
        finally:
            _end(process)


def _ask(process: subprocess.Popen[str], words: IO[bytes], order: str) -> list[float]:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # reading the answer then fails with the reason
        process.stdin.write(order)
        process.stdin.flush()
    return _answer(process, words)


def _answer(process: subprocess.Popen[str], words: IO[bytes]) -> list[float]:
    assert process.stdout is not None
    timer = threading.Timer(PATIENCE, process.kill)  # ends the wait below
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if not line.endswith("\n"):
        words.seek(0)
        said = words.read().decode(errors="replace").strip()[-1000:]
        raise RuntimeError(f"{process.args[-1]} did not answer. {said}")  # type: ignore[index]
    return json.loads(line)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # there are no more orders
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def obey(pair: Callable[[], AbstractContextManager[Trip]]) -> None:
    """Open `pair` and make the ordered trips, until there are no more orders."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep a framework's output out of the answers
    with contextlib.suppress(BrokenPipeError), answers, pair() as trip:
        print("[]", file=answers, flush=True)
        for order in sys.stdin:
            print(json.dumps(trip(*map(int, order.split()))), file=answers, flush=True)


@contextlib.contextmanager
def beside(module: str, *arguments: object, pass_fds: Sequence[int] = ()) -> Iterator[None]:
    """Run `python -m module arguments` as the other end. It should end when its peer has ended, and is killed otherwise."""
    process = _start([module, *map(str, arguments)], pass_fds=pass_fds)
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE)
    finally:
        process.kill()
        process.wait()


def _start(line: list[str], **more: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-m", *line], env=environment(), **more)
