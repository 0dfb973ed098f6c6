"""Confines a process with a seccomp filter and resource limits, before it runs submitted code.

A confined process can compute, use memory up to a limit, read and write the files that are open already (two pipes to
the grader), read the clock, and exit. Every other system call (for example to open a file, to start a process or a
thread, to create a socket, to signal another process, or to raise its own limits) fails with EPERM, also for root. The
filter cannot be removed. Because the process cannot start other processes or threads, a SIGKILL ends everything that it
runs. The kernel limits processor time and memory. A wait with a timeout (for a lock, for example) returns at once,
because a sleeping process uses no processor time and would block the grader.

The filter lists the allowed calls by their numbers, so confinement fails on a machine type that is not listed.

Linux: seccomp(2) with SECCOMP_SET_MODE_FILTER through prctl(2); x86-64 and 64-bit ARM.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import struct
import subprocess
import sys

BROKEN = 70  # exit status of a student process that could not report what went wrong
UNCONFINED = 71  # exit status of a process that could not be confined: the host's fault, no submitted code was run
CONFINED = "confined"  # printed by the probe
PROBE_S = 60.0
PROCESSOR_S = 10  # seconds of processor time of one student process
MEMORY = 384 << 20  # bytes of address space beyond those in use when the process is confined

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # 1 is EPERM
TIMED_OUT = 0x00050000 | 110  # ETIMEDOUT
LOAD, EQUAL, AT_LEAST, RETURN, AND = (
    0x20,
    0x15,
    0x35,
    0x06,
    0x54,
)  # of a BPF program: load a word, jump if, return, mask
OPERATION, TIMEOUT = 24, (40, 44)  # offsets of a call's second and fourth arguments
WAKE, WAITS = 1, (0, 9)  # operations of futex(2): FUTEX_WAKE; FUTEX_WAIT, FUTEX_WAIT_BITSET

# (AUDIT_ARCH value, number of futex, numbers of the allowed calls). In order: read, write, readv, writev,
# close, fstat, lseek; mmap, mprotect, munmap, brk, mremap, madvise; rt_sigaction, rt_sigprocmask, rt_sigreturn,
# sigaltstack; sched_yield, restart_syscall; getpid, gettid, clock_gettime, clock_getres, gettimeofday, getrandom,
# getrusage, times; exit, exit_group; and, of x86-64, time.
MACHINES = {
    "x86_64": (0xC000003E, 202, (0, 1, 19, 20, 3, 5, 8, 9, 10, 11, 12, 25, 28, 13, 14, 15, 131, 24, 219, 39, 186, 228, 229,
                            96, 318, 98, 100, 60, 231, 201)),
    "aarch64": (0xC00000B7, 98, (63, 64, 65, 66, 57, 80, 62, 222, 226, 215, 214, 216, 233, 134, 135, 139, 132, 124, 128,
                             172, 178, 113, 114, 169, 278, 165, 153, 93, 94)),
}  # fmt: skip


class Unconfined(Exception):
    """A process cannot be confined on this host; the text is the reason."""


@functools.cache
def confinement_problem() -> str:
    """Return why a process cannot be confined on this host, or "". This starts and confines a process, once (about 50 ms)."""
    if not sys.platform.startswith("linux"):
        return f"on {platform.system()} a student's code cannot be confined; grade on Linux, or in a Linux container"
    if platform.machine() not in MACHINES:
        return f"no filter is known for {platform.machine()}; known: {', '.join(MACHINES)}"
    try:
        probe = subprocess.run(
            [sys.executable, "-I", "-S", "-B", __file__], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"the test whether a process can be confined here failed ({why})"
    output = probe.stdout.decode(errors="replace").strip()
    if probe.returncode == 0 and output == CONFINED:
        return ""
    why_not = output or f"the test process ended with status {probe.returncode}"
    return f"a student's code cannot be confined on this host: {why_not}"


def confine(processor_s: int = PROCESSOR_S, memory: int = MEMORY) -> None:
    """Confine this process until it ends. Raises `Unconfined` if the host does not support confinement."""
    try:
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError as why:
        raise Unconfined(f"/proc cannot be read ({why.strerror}); it is needed to limit memory") from None
    # The kernel limits the whole address space, of which Python and NumPy already use a part.
    limits = {
        resource.RLIMIT_CPU: processor_s, resource.RLIMIT_AS: used + memory, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NPROC: 0,
    }  # fmt: skip
    for resource_number, limit in limits.items():
        try:
            resource.setrlimit(resource_number, (limit, limit))
        except (ValueError, OSError):
            raise Unconfined(
                f"resource limit {resource_number} cannot be set to {limit:,} (the limit of this process is "
                f"{resource.getrlimit(resource_number)[1]:,}); start with a higher one (ulimit -H)"
            ) from None
    # Last, because the filter refuses what is above, too. Without NO_NEW_PRIVILEGES only root may set a filter.
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc, NO_NEW_PRIVILEGES, 1)
    program = bpf_program(*MACHINES[platform.machine()])
    buffer = ctypes.create_string_buffer(program, len(program))
    about = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _call(libc, SET_SECCOMP, FILTER, ctypes.create_string_buffer(about, len(about)))


def _call(libc: ctypes.CDLL, option: int, *arguments: object) -> None:
    padded = [*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments), *[ctypes.c_ulong(0)] * 4]
    if libc.prctl(ctypes.c_int(option), *padded[:4]):
        number = ctypes.get_errno()
        raise Unconfined(
            f"prctl({option}) failed with error {number} ({os.strerror(number)}); this kernel has no seccomp filters, "
            "or a container or service forbids them"
        )


def bpf_program(machine: int, futex: int, allowed: tuple[int, ...]) -> bytes:
    """Return the BPF program. System calls of another machine type kill the process, allowed calls pass, all others fail."""
    lines = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    lines += [(AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, KILL)]  # the x32 calls of x86-64
    for number in allowed:
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 1, 0, futex), (RETURN, 0, 0, REFUSE)]
    lines += [(LOAD, 0, 0, OPERATION), (AND, 0, 0, 0x7F), (EQUAL, 0, 1, WAKE), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 2, 0, WAITS[0]), (EQUAL, 1, 0, WAITS[1]), (RETURN, 0, 0, REFUSE)]
    for half in TIMEOUT:  # the address of the timeout; a wait without timeout is allowed, because the grader ends it
        lines += [(LOAD, 0, 0, half), (EQUAL, 1, 0, 0), (RETURN, 0, 0, TIMED_OUT)]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def _probe() -> int:
    """Confine this process, which `confinement_problem` has started, and check that a forbidden call fails."""
    try:
        confine()
    except Unconfined as why:
        print(why, flush=True)
        return 1
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except PermissionError:
        print(CONFINED, flush=True)
        return 0
    print("the filter was accepted but has no effect", flush=True)
    return 1


if __name__ == "__main__":
    os._exit(_probe())
