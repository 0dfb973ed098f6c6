"""What a student's process may not do, said to the kernel before the first line of theirs is run.

It can compute, use memory up to a limit, read and write the files it already has open (two pipes to the judge), look at
the clock, and end. Everything else - opening a file, starting a process or a thread, a socket, a signal to somebody,
lifting its own limits - is refused by a seccomp filter with "operation not permitted", whoever the user is: the filter
holds for root, it cannot be taken off, and there is no process or thread that could outlive the judge's SIGKILL, because
none can be started. Processor time and memory are limits of the kernel's, too. Waiting for a while (a lock with a timeout)
is over at once: who sleeps uses no processor time, and the judge has other things to do than to wait for it.

The filter is a list of what is allowed, in the kernel's numbers, so a machine that is not listed here is refused.

Linux, seccomp(2) with SECCOMP_SET_MODE_FILTER through prctl(2); x86-64 and 64-bit ARM.
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

__all__ = ["Unconfined", "can_confine", "confine"]

CONFINED = "confined"  # what the process that tries says
PROBE_S = 60.0
PROCESSOR_S = 10  # seconds of processor time for one role or one set of functions
MEMORY = 384 << 20  # bytes of address space more than the process has when it begins

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # 1 is EPERM
OVER = 0x00050000 | 110  # ETIMEDOUT
LOAD, EQUAL, AT_LEAST, RETURN, AND = (
    0x20,
    0x15,
    0x35,
    0x06,
    0x54,
)  # of a BPF program: load a word, jump if, return, mask
OPERATION, TIMEOUT = 24, (40, 44)  # where a call's second and fourth arguments are
WAKE, WAITS = 1, (0, 9)  # operations of futex(2): FUTEX_WAKE; FUTEX_WAIT, FUTEX_WAIT_BITSET

# (how the kernel names the machine to a filter, its number of futex, the numbers that are allowed). In order: read, write,
# readv, writev,
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
    """This machine cannot keep a process from doing harm; the text says why."""


@functools.cache
def can_confine() -> str:
    """Why a process cannot be confined here; "" if it can. Found by confining one process (once, some 50 ms)."""
    if not sys.platform.startswith("linux"):
        return f"on {platform.system()} a student's code cannot be confined; grade on Linux, or in a Linux container"
    if platform.machine() not in MACHINES:
        return f"no filter is known for {platform.machine()}; known: {', '.join(MACHINES)}"
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", "-B", __file__], stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"whether a process can be confined here could not be found out ({why})"
    said = tried.stdout.decode(errors="replace").strip()
    if tried.returncode == 0 and said == CONFINED:
        return ""
    why_not = said or f"the process that tried ended with {tried.returncode}"
    return f"a student's code cannot be confined on this host: {why_not}"


def confine(processor_s: int = PROCESSOR_S, memory: int = MEMORY) -> None:
    """From here on this process can only compute. There is no way back. `Unconfined` if that cannot be had."""
    try:
        with open("/proc/self/statm") as statm:
            have = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError as why:
        raise Unconfined(f"/proc cannot be read ({why.strerror}); it is needed to limit memory") from None
    limits = {
        resource.RLIMIT_CPU: processor_s, resource.RLIMIT_AS: have + memory, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NPROC: 0,
    }  # fmt: skip
    for what, most in limits.items():
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):
            raise Unconfined(
                f"resource limit {what} cannot be set to {most:,} (the limit of this process is "
                f"{resource.getrlimit(what)[1]:,}); start with a higher one (ulimit -H)"
            ) from None
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc, NO_NEW_PRIVILEGES, 1)
    program = _program(*MACHINES[platform.machine()])
    held = ctypes.create_string_buffer(program, len(program))
    about = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    _call(libc, SET_SECCOMP, FILTER, ctypes.create_string_buffer(about, len(about)))


def _call(libc: ctypes.CDLL, option: int, *arguments: object) -> None:
    padded = [*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments), *[ctypes.c_ulong(0)] * 4]
    if libc.prctl(ctypes.c_int(option), *padded[:4]):
        number = ctypes.get_errno()
        raise Unconfined(
            f"prctl({option}) failed with error {number} ({os.strerror(number)}); this kernel has no seccomp filters, "
            "or a container or service forbids them"
        )


def _program(machine: int, futex: int, allowed: tuple[int, ...]) -> bytes:
    """The filter: another machine's calls end the process, what is allowed passes, the rest fails."""
    lines = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    lines += [(AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, KILL)]  # x86's second set of numbers
    for number in allowed:
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 1, 0, futex), (RETURN, 0, 0, REFUSE)]
    lines += [(LOAD, 0, 0, OPERATION), (AND, 0, 0, 0x7F), (EQUAL, 0, 1, WAKE), (RETURN, 0, 0, ALLOW)]
    lines += [(EQUAL, 2, 0, WAITS[0]), (EQUAL, 1, 0, WAITS[1]), (RETURN, 0, 0, REFUSE)]
    for half in TIMEOUT:  # the address of the longest time to wait: none means for ever, and who does that is ended
        lines += [(LOAD, 0, 0, half), (EQUAL, 1, 0, 0), (RETURN, 0, 0, OVER)]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def _probe() -> int:
    """What `can_confine` starts: confine this process, and see that a call that is not allowed is refused."""
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
    print("the filter was accepted and does not hold", flush=True)
    return 1


if __name__ == "__main__":
    os._exit(_probe())
