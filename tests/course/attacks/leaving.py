"""Leaving the process: ending it, starting others, outliving the grader, reaching the network."""

from . import Attack, put

NO = "not permitted"
LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\ndef ok(value):\n    assert value >= 0, ctypes.get_errno()\n"

ATTACKS = (
    Attack("sys.exit", put(worker="import sys; sys.exit(0)"), "SystemExit"),
    Attack("exit", put(worker="raise SystemExit"), "SystemExit"),
    Attack("os._exit", put(worker="import os; os._exit(0)"), "it exited"),
    Attack("os._exit of the server", put(server="import os; os._exit(0)"), "it exited"),
    Attack("os._exit as the sandbox does", put(worker="import os; os._exit(70)"), "stack or its memory"),
    Attack("exit at once", "import os\nos._exit(0)", "it exited"),
    Attack("sys.exit at once", "import sys\nsys.exit(0)\n", "not defined"),
    Attack("KeyboardInterrupt", put(worker="raise KeyboardInterrupt"), "KeyboardInterrupt"),
    Attack("GeneratorExit", put(worker="raise GeneratorExit"), "GeneratorExit"),
    Attack("StopIteration", put(worker="raise StopIteration"), "StopIteration"),
    Attack("abort", put(worker="import os; os.abort()"), "crashed|it exited"),
    Attack("segmentation fault", put(worker="import ctypes; ctypes.string_at(0)"), "SIGSEGV"),
    Attack("a signal to itself", put(worker="import os; os.kill(os.getpid(), 9)"), NO),
    Attack("a signal to all", put(worker="import os; os.kill(-1, 9)"), NO),
    Attack(
        "raise_signal", put(worker="import signal; signal.raise_signal(9); 1 / 0"), "OSError|not permitted|ZeroDivision"
    ),
    Attack("fork", put(worker="import os; os.fork()"), NO),
    Attack("fork bomb", put(worker="import os\nwhile True: os.fork()"), NO),
    Attack("double fork", put(worker="import os\nif not os.fork():\n    os.setsid()\n    os.fork()"), NO),
    Attack("setsid", put(worker="import os; os.setsid()"), NO),
    Attack("fork of the C library", LIBC + put(worker="ok(libc.fork())"), "AssertionError: 1"),
    Attack(
        "vfork by number",
        LIBC + put(worker="ok(libc.syscall(58 if __import__('sys').maxsize else 0))"),
        "AssertionError: 1|Ended",
    ),
    Attack("subprocess", put(worker="import subprocess; subprocess.Popen(['true'])"), "not permitted|subprocess"),
    Attack("system", put(worker="import os; assert os.system('true') == 0"), "AssertionError|not permitted"),
    Attack("exec", put(worker="import os; os.execv('/bin/true', ['true'])"), NO),
    Attack(
        "a thread", put(worker="import threading; threading.Thread(target=print).start()"), "can't start new thread"
    ),
    Attack("a pool", put(worker="from multiprocessing import Pool; Pool(2)"), ""),
    Attack("a socket", put(worker="import socket; socket.socket()"), "not permitted|socket"),
    Attack("a socket pair", put(worker="import socket; socket.socketpair()"), "not permitted|socket"),
    Attack("the network", put(worker="import urllib.request as r; r.urlopen('http://127.0.0.1:1')"), ""),
    Attack("a pipe of its own", put(worker="import os; os.pipe()"), NO),
    Attack("another user", put(worker="import os; os.setuid(0)"), NO),
    Attack("another root", put(worker="import os; os.chroot('/')"), NO),
    Attack("another niceness", put(worker="import os; os.nice(-5)"), NO),
    Attack(
        "lifting limits",
        put(worker="import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))"),
        "not permitted|not allowed",
    ),
    Attack("ptrace", LIBC + put(worker="ok(libc.ptrace(0, 0, 0, 0))"), "AssertionError: 1"),
    Attack("another filter", LIBC + put(worker="ok(libc.prctl(22, 2, 0))"), "AssertionError: 1"),
    Attack("to live when the grader dies", LIBC + put(worker="ok(libc.prctl(1, 0))"), "AssertionError: 1"),
    Attack("32-bit calls", LIBC + put(worker="libc.syscall(0x40000000 + 57)"), "crashed|AssertionError|Ended"),
    Attack("writing a file", put(worker="open('conftest.py', 'w').write('x')"), NO),
    Attack("writing to /tmp", put(worker="open('/tmp/x', 'w')"), NO),
    Attack("a named module", "import os\nos.mkdir('numpy')\n" + put(worker="1 / 0"), "ZeroDivisionError"),
    Attack(
        "shared memory",
        put(worker="from multiprocessing.shared_memory import SharedMemory; SharedMemory('x', True, 9)"),
        "",
    ),
    Attack("memfd", put(worker="import os; os.memfd_create('x')"), NO),
    Attack(
        "other descriptors",
        put(
            worker="import os\nfor d in range(3, 1024):\n    try: os.write(d, b'\\xff' * 64)\n    except OSError: pass"
        ),
        "Ended",
    ),
    Attack("standard output", put(worker="import os\nfor d in (0, 1, 2): os.write(d, b'1 passed')"), ""),
    Attack("atexit", "import atexit\natexit.register(print, 'x')\n" + put(), ""),
    Attack("signal handlers", put(top="import signal\nsignal.signal(15, signal.SIG_IGN)"), ""),
    Attack("on the wrong door", put(worker="import labkit.course.sandbox"), "labkit"),
)
