"""The fork server of student processes.

`main(DESCRIPTOR, PROCESSOR_S)` forks a student process for each request on the socket DESCRIPTOR. `launch` has loaded the
modules that these may use. Each role has its own process, so roles share no memory, as on a cluster. PROCESSOR_S is the
limit of processor time of each student process in seconds; 0 means that student processes are not confined. The grader
enforces the limit (`processes`); the kernel's, which is higher, ends a process that the grader does not wait for. The fork
server ends when the other end of the socket is closed, for instance because the grader has ended.
"""

from __future__ import annotations

import math
import os
import random
import socket
import time

import numpy as np

from ...errors import RoleError
from .confine import BROKEN, UNCONFINED, Unconfined, confine
from .parent_death import end_with_parent
from .proxies import GraderConnection
from .student_process import StudentProcess

MARGIN = 1.5  # the kernel's limit is higher by this factor: it counts clock ticks, which may deviate by more than 10%


def main(descriptor: str, processor_s: str) -> None:
    serve(socket.socket(fileno=int(descriptor)), float(processor_s))


def serve(control: socket.socket, processor_s: float) -> None:
    """Fork a process for every pair of descriptors received; report how a process ended when asked.

    Requests: b"begin" with two descriptors, answered by the process id; b"end" and a process id, answered by the status of
    `os.wait4` and the processor time used in seconds.
    """
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            return
        if message.startswith(b"end"):
            _, status, used = os.wait4(int(message[3:]), 0)
            control.send(f"{status} {used.ru_utime + used.ru_stime}".encode())
            continue
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            control.close()
            try:
                run_student_process(descriptors[0], descriptors[1], processor_s, parent)
            except Unconfined:
                os._exit(UNCONFINED)
            finally:
                os._exit(BROKEN)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())


def run_student_process(reading: int, writing: int, processor_s: float, parent: int) -> None:
    """Confine this forked process, keep only its two pipes open, and answer the grader until it ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.closerange(3, min(reading, writing))
    os.closerange(min(reading, writing) + 1, max(reading, writing))
    os.closerange(max(reading, writing) + 1, 1024)
    end_with_parent(parent)
    if processor_s:
        confine(math.ceil(processor_s * MARGIN))
    setattr(time, "sleep", refuse_sleep)  # noqa: B010
    random.seed(0)  # numbers drawn from the global generator are the same in every run
    np.random.seed(0)
    StudentProcess(GraderConnection(reading, writing)).serve()


def refuse_sleep(seconds: float) -> None:
    """Raise `RoleError`. Replaces `time.sleep`, which would block the process without letting virtual time pass."""
    raise RoleError("time.sleep blocks the process and lets no virtual time pass: write `await ctx.sleep(seconds)`.")
