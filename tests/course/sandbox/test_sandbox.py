# ruff: noqa: E501  (a line of a submission stays a line)
"""What a student process cannot do or import, and that it leaves nothing behind."""

import functools
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import labkit as lk
from labkit import course
from labkit.course.sandbox import confine, launch, processes
from labkit.course.sandbox.processes import ForkServer
from labkit.course.sandbox.remote_answers import RemoteAnswers
from labkit.errors import ClusterError, LabkitError
from labkit.strategies import Strategy
from tests.course.sharing import alive, below, descriptors, shared_answers, solution, wait_for_ends

linux = pytest.mark.skipif(
    bool(confine.confinement_problem()), reason=f"confined on Linux only: {confine.confinement_problem()}"
)


# refused operations ---------------------------------------------------------------------------------------------------

CONFINED = """
import ctypes, json, mmap, os, resource, signal, socket, sys, threading, time
from labkit.course.sandbox import confine
uid = int(sys.argv[1])
if uid: os.setgid(uid); os.setuid(uid)
confine.confine(1, 64 << 20)
libc = ctypes.CDLL(None, use_errno=True)
def tried(do):
    try: return f"done {do()}"
    except BaseException as error: return f"{type(error).__name__} {getattr(error, 'errno', '')}".strip()
def call(name, *args):
    value = getattr(libc, name)(*args)
    if value == -1: raise OSError(ctypes.get_errno(), name)
    return value
tries = {
    "open": lambda: open("/etc/passwd"), "write": lambda: open("/tmp/labkit-x", "w"), "stat": lambda: os.stat("/"),
    "list": lambda: os.listdir("/"), "mkdir": lambda: os.mkdir("/tmp/labkit-x"), "unlink": lambda: os.unlink("/tmp/labkit-y"),
    "chdir": lambda: os.chdir("/"), "fork": os.fork, "exec": lambda: os.execv("/bin/true", ["true"]),
    "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "thread": lambda: threading.Thread(target=int).start(), "socket": socket.socket, "pair": socket.socketpair,
    "kill": lambda: os.kill(os.getpid(), 0), "kill parent": lambda: os.kill(os.getppid(), 9), "setsid": os.setsid,
    "setrlimit": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)), "getppid": os.getppid,
    "setuid": lambda: os.setuid(0), "ptrace": lambda: call("ptrace", 0, 0, 0, 0), "prctl": lambda: call("prctl", 1, 0, 0, 0, 0),
    "mount": lambda: call("mount", b"x", b"/tmp", b"tmpfs", 0, 0), "sleep": lambda: time.sleep(60),
    "usleep": lambda: call("usleep", 60_000_000), "lock": lambda: threading.Event().wait(180), "pipe": os.pipe, "dup": lambda: os.dup(1),
    "memory": lambda: len(bytearray(1 << 30)), "mmap": lambda: mmap.mmap(-1, 1 << 30),
    "clock": lambda: time.time() > 0, "compute": lambda: sum(range(10)), "random": lambda: len(os.urandom(4)),
}
print(json.dumps({name: tried(do) for name, do in tries.items()}), flush=True)
while True: pass
"""
NO = "PermissionError 1"
EXPECTED = dict.fromkeys((
    "open", "write", "stat", "list", "mkdir", "unlink", "chdir", "fork", "exec", "spawn", "socket", "pair", "kill", "kill parent",
    "setsid", "setuid", "ptrace", "prctl", "mount", "sleep", "usleep", "pipe", "dup",
), NO) | {
    "thread": "RuntimeError", "setrlimit": "PermissionError 1", "getppid": "done -1", "lock": "done False",
    "memory": "MemoryError", "mmap": "OSError 12", "clock": "done True", "compute": "done 45", "random": "done 4",
}  # fmt: skip


@linux
@pytest.mark.slow
@pytest.mark.parametrize("uid", [0, 65534])
def test_a_confined_process_can_only_compute(uid):
    if os.getuid() and uid != os.getuid():
        pytest.skip("another user needs root")
    done = subprocess.run([sys.executable, "-c", CONFINED, str(uid)], capture_output=True, text=True)
    result = json.loads(done.stdout)
    if result["setrlimit"].startswith("ValueError"):  # Python itself checks the permission
        result["setrlimit"] = NO
    assert result == EXPECTED
    assert -done.returncode in (signal.SIGXCPU, signal.SIGKILL)  # it had one second of processor time


@linux
def test_the_filter_allows_the_listed_calls_of_one_machine_type_only():
    machine, futex, allowed = confine.MACHINES["x86_64"]
    for number in range(500):
        assert filtered(machine, number) == (
            confine.ALLOW if number in allowed else confine.ALLOW if number == futex else confine.REFUSE
        )
    assert filtered(machine ^ 1, 0) == filtered(machine, 0x40000000) == confine.KILL
    wait, wake, timed = 0x80, 0x81, 0x189  # private; the last is FUTEX_WAIT_BITSET by the clock of the day
    assert filtered(machine, futex, wake, 7) == filtered(machine, futex, wait, 0) == confine.ALLOW
    assert filtered(machine, futex, wait, 1) == filtered(machine, futex, timed, 1 << 40) == confine.TIMED_OUT
    assert filtered(machine, futex, 6, 0) == confine.REFUSE


def filtered(machine, number, operation=0, timeout=0):
    """The kernel's action: interprets the BPF program."""
    data = struct.pack("<IIQQQQQQQ", number, machine, 0, 0, operation, 0, timeout, 0, 0)
    program = confine.bpf_program(*confine.MACHINES["x86_64"])
    lines, at, word = list(struct.iter_unpack("HBBI", program)), 0, 0
    while True:
        code, yes, no, value = lines[at]
        if code == confine.LOAD:
            word = struct.unpack_from("<I", data, value)[0]
        elif code == confine.AND:
            word &= value
        elif code == confine.RETURN:
            return value
        else:
            at += yes if (word == value if code == confine.EQUAL else word >= value) else no
        at += 1


def test_code_is_not_run_if_required_confinement_is_missing(monkeypatch):
    monkeypatch.setattr(processes, "confinement_problem", lambda: "there is no kernel")
    with pytest.raises(ClusterError, match="is not run here: there is no kernel"):
        ForkServer(True)
    with ForkServer() as free:
        assert not free.confined
        assert shared_answers([solution("def f(): return 1", f="function")], free).defined("q")["f"]() == 1


# imports --------------------------------------------------------------------------------------------------------------

LOADED = """
import sys
sys.path.insert(0, {folder!r})
import launch
launch.restrict(launch.ALLOWED[{module!r}])
launch.preload({module!r})
import importlib
importlib.import_module({module!r})
importlib.import_module("labkit.course.sandbox.confine")
print(*sys.modules)
"""
PACKAGES = {"labkit", "labkit.roles", "labkit.course", "labkit.course.sandbox"}


@functools.cache
def loaded_by(script):
    words = [sys.executable, "-s", "-P", "-B", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@linux
@pytest.mark.parametrize(
    ("module", "packages", "third_parties"),
    [
        ("labkit.course.sandbox.fork_server", PACKAGES | {"labkit.models"}, {"msgpack", "numpy"}),
        ("labkit.course.grading.reader_process", PACKAGES - {"labkit.roles"} | {"labkit.course.grading"}, set()),
    ],
)
def test_a_confined_process_has_loaded_exactly_the_modules_of_the_allow_list(module, packages, third_parties):
    folder = str(Path(launch.__file__).parent)
    loaded = loaded_by(LOADED.format(folder=folder, module=module))
    assert {name for name in loaded if name.partition(".")[0] == "labkit"} == {*launch.ALLOWED[module], *packages}
    new = {name.partition(".")[0] for name in loaded - loaded_by("import sys; print(*sys.modules)")}
    own = {"labkit", "launch"} | {
        name for name in new if name.startswith(("_cython", "cython_runtime", "_sysconfigdata"))
    }
    assert new - own - set(sys.stdlib_module_names) == third_parties


@pytest.mark.parametrize("module", launch.ALLOWED)
def test_the_allow_list_has_leaf_modules_of_roles_only(module):
    ours = [name for name in launch.ALLOWED[module] if not name.startswith("labkit.course.")]
    values = ("encoding", "errors", "formatting", "models.numpy_model", "options", "random_streams")
    shared = [f"labkit.{name}" for name in values]
    assert all(name in shared or name.startswith("labkit.roles.") for name in ours)


@linux
def test_no_other_module_of_labkit_can_be_imported():
    folder = str(Path(launch.__file__).parent)
    names = ["labkit.strategies", "labkit.roles.shard", "labkit.roles.collectives", "labkit.course.testing"]
    script = LOADED.format(folder=folder, module="labkit.course.sandbox.fork_server")
    script += f"""
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print("refused:" + error.name)
"""
    assert {f"refused:{name}" for name in names} <= loaded_by(script)


# leftovers ------------------------------------------------------------------------------------------------------------

LOOP = "def f(forever):\n    while forever: pass\n"
STRATEGY = """
@dataclass(frozen=True)
class X(lk.Strategy):
    messages = (lk.Push, lk.Pull, lk.Weights)
    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, 0.1)
            ctx.send(request.sender, shard.weights())
    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            {line}
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))
"""


@linux
def test_closing_the_answers_leaves_no_process_and_no_file():
    before = descriptors()
    answers = RemoteAnswers([solution("def g(): return 1", g="function")], [], True)
    server = answers.server
    folder, pid = server.folder, server.process.pid
    open_line = server.fork(lambda reference: reference, lambda value: None)  # a role in the middle
    assert answers.defined("q")["g"]() == 1
    assert alive(pid)
    assert alive(open_line.pid)
    assert folder.is_dir()
    answers.close()
    answers.close()
    assert not alive(pid)
    assert not alive(open_line.pid)
    assert not folder.exists()
    assert descriptors() <= before


@linux
def test_a_killed_role_leaves_no_process(server, monkeypatch):
    before = descriptors()
    lines = []
    make = server.fork

    def fork(*arguments):
        lines.append(make(*arguments))
        if len(lines) == 4:  # a role in the middle of the trial
            os.kill(lines[-1].pid, signal.SIGKILL)
        return lines[-1]

    monkeypatch.setattr(server, "fork", fork)
    X = shared_answers([solution(STRATEGY.format(line="pass"), X="class")], server).defined("q")["X"]
    trial = course.trial(X, workers=2, updates=5)
    assert "killed by another process" in trial.error  # and not: too much processor time
    assert not trial.ok
    assert len(lines) >= 4
    assert not any(alive(line.pid) for line in lines)
    assert descriptors() <= before
    assert not below(server.process.pid)


@linux
def test_a_closed_connection_keeps_raising_and_uses_no_descriptor(server):
    line = server.fork(lambda reference: reference, lambda value: None)
    line.stop("enough")
    others = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]  # they have the numbers that it had
    try:
        for use in (lambda: line.send([1]), line.receive):
            with pytest.raises(processes.ProcessEnded, match="Ended: enough"):
                use()
        assert line.close() == 0
        for descriptor in others:
            os.fstat(descriptor)
    finally:
        for descriptor in others:
            os.close(descriptor)


GRADER = """
import sys, time
from tests.course.sharing import solution
from labkit.course.sandbox.remote_answers import RemoteAnswers
answers = RemoteAnswers([solution(sys.stdin.readline().encode().decode("unicode_escape"), f="function")], [], True)
f = answers.defined("q")["f"]
f(False)
print(answers.server.process.pid, answers.server.folder, flush=True)
f(True)
"""


@linux
@pytest.mark.slow
def test_no_process_remains_when_the_grader_is_killed():
    root = str(Path(__file__).parents[3])
    grader = subprocess.Popen(
        [sys.executable, "-c", GRADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    )  # fmt: skip
    with grader:
        grader.stdin.write(LOOP.replace("\n", "\\n") + "\n")
        grader.stdin.flush()
        server, folder = grader.stdout.readline().split()
        roles = below(int(server))  # the process for calls, which `f(False)` has started
        assert roles
        grader.kill()
    wait_for_ends([int(server), *roles])
    # a killed process cannot clean up: only an empty folder remains
    for left in Path(folder).parent.glob(Path(folder).name):
        assert not list(left.iterdir())
        left.rmdir()


@linux
def test_a_fork_server_that_has_ended_is_reported():
    with ForkServer(True) as server:
        names = shared_answers([solution("def g(): return 1", g="function")], server).defined("q")
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        for _ in range(2):
            with pytest.raises(LabkitError, match="has ended"):
                names["g"]()


@linux
def test_threads_can_each_use_a_fork_server():
    def one(number):
        with ForkServer(True) as server:
            g = shared_answers([solution(f"def g(x): return x + {number}", g="function")], server).defined("q")["g"]
            return [g(i) for i in range(5)]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, range(2))) == [[n + i for i in range(5)] for n in range(2)]


# limits ---------------------------------------------------------------------------------------------------------------

ENDLESS = {
    "while": "while True: pass",
    "an iterator": "import itertools\n    for _ in itertools.count(): pass",
    "a sum": "return sum(range(10**13))",
    "a number": "return 9**9**9**9",
    "a pattern": "import re\n    re.match('(a+)+$', 'a' * 60 + 'b')",
    "an error that is caught": "while True:\n        try: 1 / 0\n        except BaseException: pass",
    "signals that are ignored": "import signal\n    signal.pthread_sigmask(0, range(1, 64))\n    signal.signal(24, signal.SIG_IGN)\n    while True: pass",
    "an array": "a = np.ones((300, 300))\n    while True: a = a @ a / 300",
}  # fmt: skip


@pytest.fixture(scope="module")
def brief():
    """A fork server whose limit is a fraction of a second, less than the kernel's can be."""
    with ForkServer(True, 0.2) as made:
        yield made


@linux
@pytest.mark.parametrize("loop", ENDLESS)
def test_an_endless_loop_is_called_by_its_name_and_has_its_whole_time(loop, brief, monkeypatch):
    used, kill = [], brief.kill

    def killed(connection):
        status, seconds = kill(connection)
        used.append(seconds)
        return status, seconds

    monkeypatch.setattr(brief, "kill", killed)
    said = r"used 0.2 s of processor time, which is the limit .*does a loop never end"
    cell = solution(f"def f(x):\n    {ENDLESS[loop]}", f="function")
    with shared_answers([cell], brief) as answers, pytest.raises(LabkitError, match=said):
        answers.defined("q")["f"](1)
    assert used[-1] >= 0.2


@linux
def test_an_endless_loop_outside_of_functions_is_called_by_its_name(brief):
    with shared_answers([solution("while True: pass\nv = 1", v="value")], brief) as answers:
        assert "processor time" in repr(answers.defined("q")["v"])


@linux
def test_an_answer_that_comes_after_the_limit_is_none(brief):
    """The limit is not that of the moment at which the grader looks: a result of a process that has used more does not count."""
    source = "import time\ndef f(x):\n    while time.process_time() < 0.25: pass\n    return x"
    cell = solution(source, f="function")
    with shared_answers([cell], brief) as answers, pytest.raises(LabkitError, match="processor time"):
        answers.defined("q")["f"](1)


# shared state ---------------------------------------------------------------------------------------------------------


@linux
def test_roles_share_no_memory_but_function_calls_do(server):
    source = "seen = []\n" + STRATEGY.format(
        line="globals()['seen'].append(1)\n            assert len(seen) == 1 + round(ctx.now / 0.1)"
    )
    X = shared_answers([solution(source, X="class")], server).defined("q")["X"]
    course.trial(X, workers=3, updates=9).check()
    count = shared_answers(
        [solution("calls = []\ndef f():\n    calls.append(1)\n    return len(calls)", f="function")], server
    ).defined("q")["f"]
    assert [count(), count()] == [1, 2]  # one process for all calls, as in a notebook


def every(cls):
    return {c for c in cls.__subclasses__() if c.__module__.startswith("labkit.")}.union(
        *map(every, cls.__subclasses__())
    )


@linux
def test_no_strategy_and_no_problem_is_in_the_memory_of_a_role(server):
    source = textwrap.dedent("""
        import gc, sys, types
        def f():
            names = {o.__name__ for o in gc.get_objects() if isinstance(o, type)}
            modules = {o.__name__ for o in gc.get_objects() if isinstance(o, types.ModuleType) and o.__name__.startswith("labkit")}
            return sorted(names), sorted(modules), sorted(sys.modules)
    """)
    names, in_memory, modules = shared_answers([solution(source, f="function")], server).defined("q")["f"]()
    secret = {cls.__name__ for cls in every(Strategy)} - {"ServerStrategy"} | {
        "Problem",
        "Shard",
        "SimulatedRun",
        "Trial",
    }
    assert {"SyncPS", "AsyncPS", "Pipeline"} <= secret
    assert not secret & set(names)
    assert not [m for m in in_memory if "strategies" in m or "simulated" in m or "problem" in m]
    assert [m for m in modules if m.startswith("labkit")] == ["labkit", "labkit.course"]


@linux
def test_the_environment_has_no_variables_of_the_grader(server):
    source = (
        "import os, sys\ndef f(): return dict(os.environ), sys.argv, [d for d in range(64) if is_open(d)], os.getcwd.__name__\n"
        "def is_open(d):\n    try: os.lseek(d, 0, 1)\n    except OSError as error: return error.errno != 9  # a pipe has no place\n    return True"
    )
    environment, argv, opened, _ = shared_answers([solution(source, f="function")], server).defined("q")["f"]()
    assert set(environment) <= {
        "HOME",
        "LANG",
        "PYTHONHASHSEED",
        "LC_CTYPE",
        *(k for k in environment if k.endswith("_NUM_THREADS")),
    }
    assert "labkit-" in environment["HOME"]
    assert len(opened) == 5  # three that lead nowhere, and the two ends
    root = str(Path(__file__).parents[3])  # the path of the checkout may have any name
    assert not any("assignment" in word or "grade" in word for word in (word.removeprefix(root) for word in argv))


# the same every time --------------------------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize(
    ("line", "text"),
    [("ctx.tasks()", "ctx.tasks() is not available in graded code"),
     ("await ctx.recv(lk.Chunk, tag=1)", "ctx.recv(tag=...) is not available in graded code")],
    ids=["tasks", "tag"],
)  # fmt: skip
def test_tasks_of_graded_code_are_refused_by_name(line, text):
    with ForkServer(True) as server:
        X = shared_answers([solution(STRATEGY.format(line=line), X="class")], server).defined("q")["X"]
        assert text in course.trial(X, workers=2, updates=3).error


@linux
def test_the_same_submission_gives_the_same_trial():
    source = STRATEGY.format(line="[await ctx.sleep(0.001 * len(w)) for w in {'a', 'bb', 'ccc', ctx.name}]")
    found = []
    for _ in range(2):
        with ForkServer(True) as server:
            X = shared_answers([solution(source, X="class")], server).defined("q")["X"]
            trial = course.trial(X, workers=3, updates=9, compute=lk.distributions.Exponential(0.1)).check()
            order = shared_answers(
                [solution("v = list({'one', 'two', 'three', 'four', 'five'})", v="value")], server
            ).defined("q")["v"]
            found.append((trial.parameters.tobytes(), trial.seconds, trial.staleness, order))
    assert found[0] == found[1]
