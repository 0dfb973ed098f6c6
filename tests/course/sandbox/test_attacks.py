# ruff: noqa: E501  (a line of a submission stays a line)
"""Every attack of the corpus earns nothing, gets a reason, and does not affect the next submission."""

import copy
import functools
import re

import pytest

import labkit as lk
from labkit import course
from labkit.course.grading import grade as grading
from labkit.course.grading.nbval_run import Harness
from labkit.course.sandbox import processes, session
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.sandbox.processes import ForkServer
from labkit.errors import LabkitError
from tests.course import toy_reference as toy
from tests.course.attacks import copying, exhausting, forging, leaving, patching, put
from tests.course.sharing import below, shared_answers, solution, submission

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)

SHORT = 1  # seconds of processor time where that is the limit that must strike
LONG = 60  # where another limit must strike first, however slow the machine
CLASSES = (copying, forging, leaving, exhausting, patching)
QUICK = {next(a.name for a in module.ATTACKS if not a.slow) for module in CLASSES}  # one of each class


@functools.cache
def reference():
    return course.trial(lk.SyncPS(), workers=2, updates=12, seed=5)


def try_strategy(server, source):
    """Do what a hidden test does; (the mark, the reason)."""
    made = shared_answers([solution(source, X="class")], server).defined("q")["X"]
    trial = course.trial(made, workers=2, updates=12, seed=5)
    return trial.ok and course.same_parameters(trial, reference()), trial.error


@pytest.fixture(scope="module")
def patient_server():
    with ForkServer(True, LONG) as made:
        yield made


@pytest.fixture(scope="module")
def short_server():
    with ForkServer(True, SHORT) as made:
        yield made


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr(processes, "MAX_FRAMES", 1500)
    monkeypatch.setattr(processes, "MAX_OUTLINE_BYTES", 4 << 20)
    monkeypatch.setattr(processes, "MAX_IDLE_S", 2)
    monkeypatch.setattr(session, "MAX_MEMORY", 24 << 20)


def test_attack_names_are_unique():
    names = [a.name for module in CLASSES for a in module.ATTACKS]
    assert len(set(names)) == len(names) > 290


def test_the_strategies_without_attacks_pass(patient_server):
    assert try_strategy(patient_server, put(base="right")) == (True, "")
    assert try_strategy(patient_server, put()) == (False, "")


@pytest.mark.parametrize(
    "quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["one of the class", "all others"]
)
@pytest.mark.parametrize("module", CLASSES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_attacks_get_no_points(patient_server, short_server, module, quick):
    attacks = [attack for attack in module.ATTACKS if (attack.name in QUICK) == quick]
    assert attacks
    failed = []
    for attack in attacks:
        server = short_server if "processor time" in attack.why else patient_server
        earned, why = try_strategy(server, attack.source)
        wrong = {
            "it got the points": earned,
            f"the reason is {why[:200]!r}": not re.search(attack.why, why, re.DOTALL) or len(why) >= 1500,
            "a process is left": below(server.process.pid),
            "the next submission is affected": double(server) != 42,
        }
        failed += [f"{attack.name}: {what}" for what, is_so in wrong.items() if is_so]
    assert not failed, "\n".join(failed)


def double(server):
    with shared_answers([solution("def double(x): return 2 * x", double="function")], server) as guest:
        return guest.defined("q")["double"](21)


def test_values_that_imitate_the_answer_are_refused(patient_server):
    assert patching.FUNCTIONS
    accepted = []
    for name, source in patching.FUNCTIONS:
        with shared_answers([solution(source, f="function", v="value")], patient_server) as guest:
            names = guest.defined("q")
            for ask, want in ((lambda names=names: names["f"](3), 6), (lambda names=names: names["v"], 7)):
                try:
                    course.expect("it", ask(), want)
                except (LabkitError, course.CheckFailed):
                    continue
                accepted.append(f"{name}: {want}")
        if below(patient_server.process.pid) or double(patient_server) != 42:
            accepted.append(f"{name}: the next submission is affected")
    assert not accepted, "\n".join(accepted)


DUMMIES = "for _ in range(9): await ctx.compute(int, cost=1e-8)"


@pytest.mark.slow
def test_a_worker_cannot_hide_its_lead(patient_server):
    """A slow worker cannot increase its iteration count with empty work."""
    made = shared_answers([solution(put(worker=DUMMIES), X="class")], patient_server).defined("q")["X"]
    hidden, plain = (course.trial(s, workers=3, updates=30, slow={"worker-2": 5}).check() for s in (made, lk.AsyncPS()))
    assert max(hidden.leads) == max(plain.leads) > 3
    assert {len(of) for of in hidden.iterations.values()} == {len(of) for of in plain.iterations.values()}


# from the file to the mark --------------------------------------------------------------------------------------------

REFERENCE, RELEASED = toy.REFERENCE, toy.RELEASED
TRICKS = """answers = RemoteAnswers = course = names = globals = None
import builtins, IPython, numpy.testing
builtins.print = builtins.abs = lambda *a, **k: 9
get_ipython().run_line_magic('load_ext', 'x')
numpy.testing.assert_allclose = lambda *a, **k: None
"""
EQUAL = """class E(float):
    __eq__ = __ge__ = __gt__ = lambda s, o: True
    __lt__ = __le__ = __ne__ = lambda s, o: False
    __repr__ = __str__ = lambda s: '7'
    __hash__ = None
answer = E(1)
"""


def changed(change, **sources):
    raw = copy.deepcopy(RELEASED)
    for name, source in sources.items():
        toy.find(raw, name)["source"] = source
    change(raw["cells"])
    return raw


def marked(cells):
    """NBVAL_ comments, tags, points, and stored outputs with the expected answer."""
    for cell in cells:
        cell["metadata"]["tags"] = ["nbval-skip", "raises-exception", "nbval-ignore-output"]
        metadata = cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] == "code" and metadata.get("grade"):
            metadata.update(points=1000, locked=False)
            cell["source"] = "# NBVAL_SKIP\n# NBVAL_RAISES_EXCEPTION\npass"
            cell["execution_count"] = 1
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "7\n"}]


def moved(cells):
    """Tests removed, replaced, moved, duplicated; a test's id on the answer cell and vice versa."""
    tests = [c for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
    cells[:] = [c for c in cells if c not in tests][::-1] + [toy.test("q1-test", "q1", 3, "pass") for _ in "123"]
    cells += [
        toy.solution("q1", "print(7)", "q1-test"),
        toy.solution("q9", "x = 1"),
        toy.solution("q1", "# again\nprint(0)", "q1"),
    ]


def given(cells):
    """Added cells that claim to be the instructor's."""
    cells.insert(
        0, toy.code("from labkit import *\ndef right(*a): pass", toy.nbgrader("imports", "locked"), given=True)
    )
    cells.insert(1, toy.code('V = {"scale": 0}', variant=True))
    cells.insert(2, toy.code("import os\nos._exit(0)"))


SUBMISSIONS = {
    "marked": changed(marked, q1="# NBVAL_SKIP\ndef scaled(x): return None"),
    "moved": changed(moved),
    "given": changed(given),
    "patched": changed(list, q1=TRICKS + EQUAL + "def scaled(x): return E(1)", q3=TRICKS + EQUAL),
    "the next one": toy.solve(RELEASED),
}  # fmt: skip
POINTS = dict.fromkeys(SUBMISSIONS, 0.0) | {"the next one": 8.0}


def graded(key, folder, names, harness):
    """Points by submission."""
    handed = [submission(SUBMISSIONS[name], REFERENCE, folder, name) for name in names]
    return {r.student.name: r.earned for r in grading.grade_all(key, handed, harness, 2)}


@pytest.mark.slow
def test_file_content_does_not_raise_scores(tmp_path, toy_key, here):
    assert graded(toy_key, tmp_path, SUBMISSIONS, Harness()) == POINTS


@pytest.mark.slow
def test_files_beside_a_submission_do_not_raise_scores(tmp_path, monkeypatch, toy_key):
    """Here with nbval, whose comments, tags and configuration a submission could use."""
    files = {"conftest.py": "raise SystemExit(0)", "pytest.ini": "[pytest]\naddopts = --collect-only\n", "sitecustomize.py": "import os; os._exit(0)",
             "numpy.py": "1 / 0", "labkit.py": "1 / 0", "usercustomize.py": "1 / 0", "sources.json": "{}", "rebuilt.ipynb": "{}"}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    names = ("marked", "the next one")
    assert graded(toy_key, tmp_path, names, Harness(confined=True)) == {name: POINTS[name] for name in names}
