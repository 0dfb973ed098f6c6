# ruff: noqa: E501  (a line of a submission stays a line)
"""Exhausting time, memory, messages, timeouts."""

from . import Attack, put

ATTACKS = (
    Attack("a loop without end", put(worker="while True: pass"), "processor time", slow=True),
    Attack("a loop in the cell", "while True: pass", "processor time", slow=True),
    Attack("a loop that catches everything", put(worker="while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
           "processor time", slow=True),
    Attack("signals put off", put(
        worker="import signal\nsignal.pthread_sigmask(0, range(1, 64))\nsignal.signal(24, signal.SIG_IGN)\nwhile True: pass"),
        "processor time", slow=True),
    Attack("a source that takes for ever", "X = " + "+".join(["(" * 20 + "1" + ")" * 20] * 40000), "not defined|neither a strategy|Ended", slow=True),
    Attack("a constant that takes for ever", "X = 9**9**9**9", "processor time|not defined", slow=True),
    Attack("a regular expression", put(worker="import re; re.match('(a+)+$', 'a' * 60 + 'b')"), "processor time", slow=True),
    Attack("a loop of questions", put(worker="while True: ctx.now"), "more than"),
    Attack("a loop of effects", put(worker="while True: await ctx.sleep(0.01)"), "more than"),
    Attack("a loop of looks", put(worker="while True: await ctx.recv(lk.Weights, timeout=0)"), "more than"),
    Attack("a loop of own work", put(worker="while True: await ctx.compute(int, cost=0)"), "more than"),
    Attack("a loop of notes", put(worker="while True: ctx.note('x' * 10_000)"), "more than"),
    Attack("a loop of messages", put(worker="while True: ctx.send('server-0', lk.Pull())"), "more than"),
    Attack("a loop of long questions", put(
        worker="while True:\n    try: ctx.peers([0] * 300_000)\n    except Exception: pass"), "MB of text"),
    Attack("a loop of named tuples", put(
        worker="import collections\nctx.save({'a': [collections.namedtuple(f'N{i}', 'a')(1) for i in range(200)]})"), "malformed"),
    Attack("keys with the same hash", put(worker="ctx.save({'a': {i * (2**61 - 1) for i in range(9_000)}})"), "malformed"),
    Attack("a loop of big messages", put(
        worker="big = lk.Chunk(np.zeros(1 << 20), 0, 0)\nwhile True: ctx.send('server-0', big)").replace("lk.Weights)", "lk.Weights, lk.Chunk)", 1),
        "more than"),
    Attack("one message, sent again and again", put(
        worker="ctx.send(ctx.name, lk.Chunk(np.zeros(1 << 20), 0, 0))\nbig = await ctx.recv(lk.Chunk)\nwhile True: ctx.send('server-0', big)",
        ).replace("lk.Weights)", "lk.Weights, lk.Chunk)", 1), "more than"),
    Attack("big states", put(worker="while True: ctx.save({'a': np.zeros(1 << 20)})"), "more than"),
    Attack("things that are kept", put(worker="keep = []\nwhile True: keep.append(next(ctx.batches()))"), "holds on to|more than"),
    Attack("ten gigabytes", put(worker="x = np.ones(10 << 30)"), "MemoryError"),
    Attack("ten gigabytes, bit by bit", put(worker="keep = []\nwhile True: keep.append(np.ones(1 << 20))"), "MemoryError|memory"),
    Attack("ten gigabytes of text", put(worker="x = 'x' * (10 << 30)"), "MemoryError"),
    Attack("ten gigabytes at once", "x = bytearray(10 << 30)\n" + put(worker="x"), "NameError|MemoryError"),
    Attack("ten gigabytes by mmap", put(worker="import mmap; mmap.mmap(-1, 10 << 30)"), "Error"),
    Attack("a list in itself", put(worker="a = []\na.append(a)\nctx.save({'a': a})"), "nested lists"),
    Attack("recursion", put(worker="f = lambda: f()\nf()"), "RecursionError"),
    Attack("recursion to the end of the stack", put(worker="import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nf()"),
           "Ended|Memory|SystemError|RecursionError", slow=True),
    Attack("asleep", put(worker="import time; time.sleep(9)"), "time.sleep"),
    Attack("asleep in C", put(worker="import ctypes\nif ctypes.CDLL(None).usleep(10**9): raise OSError('usleep')"), "usleep"),
    Attack("asleep in select", put(worker="import select; select.select([], [], [], 99)"), "not permitted"),
    Attack("asleep in a lock", put(worker="import threading\nlock = threading.Lock()\nlock.acquire()\nassert lock.acquire(timeout=99)"),
           "AssertionError"),
    Attack("asleep for good", put(worker="import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()"), "without an effect", slow=True),
    Attack("asleep on its own pipe", put(worker="import os; os.read(ctx._grader._reading, 1)"), "without an effect", slow=True),
    Attack("asyncio", put(worker="import asyncio; await asyncio.sleep(1)"), "event loop|cannot wait"),
    Attack("an event loop", put(worker="import asyncio; asyncio.run(asyncio.sleep(1))"), "Error"),
    Attack("all roles wait", put(worker="await ctx.recv(lk.Push)"), "deadlock"),
    Attack("all workers return", put(worker="return"), ""),
    Attack("the server returns", put(server="return"), "waits|returned|end"),
)  # fmt: skip
