# ruff: noqa: E501  (a line of a submission stays a line)
"""No source of the reference notebook is in a process that runs submitted code, and feedback shows none of it.

The reference notebook's answer to q1 has a secret in a comment, a docstring, a constant, a local name, a helper's body, and the text of an
error. q1 of the submission is wrong, so q2 is graded a second time with the reference's q1. Every attempt searches its process
for the secret, and raises, returns or prints what it has found.
"""

import json
import tempfile

import pytest

from labkit.course.authoring.release import release
from labkit.course.grading import grade as grading
from labkit.course.grading.feedback import page
from labkit.course.grading.nbval_run import Harness
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.grading.reports import to_csv
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.sandbox.remote_answers import RemoteAnswers
from labkit.course.schema import parse
from labkit.course.variants import with_variant
from tests.course import toy_reference as toy
from tests.course.sharing import run_here, submission

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)

SECRET = "zebra_7319"
NUMBER = 73190427
MASTERS_Q1 = f'''# q1 (keep this line)
def scaled(x):
    """Return x {{{{scale}}}}."""
    ### BEGIN SOLUTION
    "{SECRET} docstring"
    {SECRET}_local = {NUMBER}  # {SECRET} comment
    def {SECRET}_inner(y={NUMBER}, *, {SECRET}_more=0):
        return V["scale"] * y
    if isinstance(x, str):
        raise ValueError("{SECRET} text", {SECRET}_local)
    return {SECRET}_inner(x)
    ### END SOLUTION'''

# Each sets `found`, text to search in, where the reference's q1 can be called. A pattern does not match itself.
FIND = r"""
import sys, gc, re
secret = re.compile("z[e]bra_[0-9]{4}|7[3]19[0-9]{2}27")
"""
ATTEMPTS = {
    "linecache": "import linecache\nfound = repr(linecache.cache)",
    "linecache of its cell": "import linecache\nfound = ''.join(linecache.getlines('<cell q1>')) + ''.join(linecache.getlines(getattr(getattr(scaled, '__code__', 0), 'co_filename', '')))",
    "inspect": "import inspect\nfound = repr(inspect.getsource(scaled))",
    "inspect the file": "import inspect\nfound = repr(inspect.getsourcelines(scaled)) + inspect.getfile(scaled)",
    "signature": "import inspect\nfound = repr(inspect.signature(scaled)) + repr(inspect.getfullargspec(scaled)) + repr(scaled.__defaults__) + repr(scaled.__kwdefaults__) + repr(scaled.__annotations__)",
    "code object": "c = scaled.__code__\nfound = repr((c.co_consts, c.co_names, c.co_varnames, c.co_code, c.co_freevars, c.co_cellvars, c.co_qualname))",
    "nested code": "def walk(c):\n    for k in c.co_consts:\n        if hasattr(k, 'co_consts'): yield k; yield from walk(k)\nfound = repr([(k.co_consts, k.co_names, k.co_varnames) for k in walk(scaled.__code__)])",
    "disassembly": "import dis\nfound = dis.Bytecode(scaled).dis()",
    "docstring": "found = repr(scaled.__doc__)",
    "globals of the function": "found = repr(scaled.__globals__)",
    "closure": "found = repr([c.cell_contents for c in scaled.__closure__]) + repr([vars(c.cell_contents) for c in scaled.__closure__ if hasattr(c.cell_contents, '__dict__')])",
    "the line": "line = scaled.__closure__[-1].cell_contents\nfound = repr(vars(line)) + repr([vars(line.context)] if line.context else '')",
    "main": "import __main__\nfound = repr(vars(__main__))",
    "modules": "found = repr([vars(m) for m in list(sys.modules.values()) if hasattr(m, '__dict__')])",
    "frames": "f, found = sys._getframe(), ''\nwhile f:\n    found += repr((f.f_locals, f.f_code.co_consts, list(f.f_globals.items())))\n    f = f.f_back",
    "frames of an error": "try:\n    scaled('x')\nexcept Exception as error:\n    found, t = '', error.__traceback__\n    while t:\n        found += repr((t.tb_frame.f_locals, t.tb_frame.f_code.co_consts)); t = t.tb_next",
    "text of an error": "try: scaled('x')\nexcept Exception as error: found = repr(error) + str(error.args) + str(error.__context__) + str(error.__cause__) + str(getattr(error, '__notes__', ''))",
    "traceback of an error": "import traceback\ntry: scaled('x')\nexcept Exception: found = traceback.format_exc()",
    "an error that ends it": "scaled('x')",
    "an error of a missing argument": "try: scaled()\nexcept Exception as error: found = repr(error)",
    "an error of a wrong name": "try: scaled(1, zebra=2)\nexcept Exception as error: found = repr(error)",
    "strings of the collector": "found = repr([s for o in gc.get_objects() for s in (o if isinstance(o, (list, tuple, set, frozenset)) else list(o.values()) if isinstance(o, dict) else ()) if isinstance(s, str) and secret.search(s)])",
    "code of the collector": "import types\nfound = repr([(o.co_consts, o.co_names) for o in gc.get_objects() if isinstance(o, types.CodeType)] + [(o.__code__.co_consts, o.__code__.co_names, o.__doc__) for o in gc.get_objects() if isinstance(o, types.FunctionType)])",
    "referents of the collector": "todo, seen, hits = [f], set(), []\nwhile todo and len(seen) < 200_000:\n    o = todo.pop()\n    if id(o) in seen: continue\n    seen.add(id(o))\n    if isinstance(o, (str, int)) and secret.search(str(o)): hits.append(o)\n    todo += gc.get_referents(o)\nfound = repr(hits)",
    "referrers": "found = repr(gc.get_referrers(scaled))",
    "warnings": "import warnings\nwith warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always'); scaled(np.float64(1e308)); found = repr([(x.message, x.line, x.filename) for x in w])",
    "pickle": "import pickle\nfound = repr(pickle.dumps(scaled))",
    "copy": "import copy\nfound = repr(vars(copy.deepcopy(scaled)))",
    "memory of arrays": "found = b''.join(np.empty(1 << k, 'u1').tobytes() for k in range(4, 22) for _ in range(8)).decode('latin1')",
    "memory behind an array": "a = np.empty(1, 'u1')\nv = np.lib.stride_tricks.as_strided(a, (1 << 14,), (1,))\nfound = v.tobytes().decode('latin1')",
    "memory by address": "import ctypes\nfound = b''.join(ctypes.string_at(id(o), 64) for o in gc.get_objects()).decode('latin1')",
    "memory of the heap": "import ctypes\nfound = b''.join(ctypes.string_at(id(o), min(sys.getsizeof(o), 4096)) for o in gc.get_objects()).decode('latin1')",
    "its maps": "found = open('/proc/self/maps').read()",
    "its descriptors": "import os\nfound = ''\nfor d in range(64):\n    try: found += repr(os.pread(d, 1 << 16, 0))\n    except OSError: pass",
    "sources beside it": "found = open('sources.json').read()",
    "sources by path": "import os, glob\nfound = ''.join(open(p).read() for p in glob.glob('/tmp/labkit-*/work/*') + glob.glob('*'))",
    "request the cell": "found = repr(scaled.__closure__[-1].cell_contents.request('source', 'scaled'))",
    "ask for another function": "found = repr(scaled.__closure__[-1].cell_contents.request('reference', '__import__', ['os'], {}))",
    "ask for its code": "found = repr(scaled.__closure__[-1].cell_contents.request('reference', 'scaled.__code__', [], {}))",
    "ask for an attribute": "found = repr(scaled.__closure__[-1].cell_contents.request('get', 1, '__dict__'))",
    "hand over what answers": "class X:\n    def __rmul__(self, o): return o\nfound = repr(scaled(X()))",
    "hand over a function": "found = repr(scaled(lambda *a: __import__('sys')._getframe(1)))",
    "hand over a text": "found = repr(scaled(['a']))",
    "exhaust it": "try: scaled([0] * 100_000)\nexcept BaseException as e: found = repr(e)\ntry: found += repr(scaled('x'))\nexcept BaseException as e: found += repr(e)",
    "variant": "found = repr(globals().get('V'))",
    "names": "found = repr(dir()) + repr(globals())",
}  # fmt: skip


def attempt(lines):
    """A q2 that searches, and raises with what it has found (its end, which contains the secret if it was found)."""
    body = "\n".join("    " + line for line in (FIND + lines).split("\n"))
    return f"""# q2 (keep this line)
def both(x, y):
    import sys
    f = both
    found = ''
{body}
    hit = secret.search(found)
    if hit: raise RuntimeError('LEAKED ' + found[max(hit.start() - 40, 0):hit.end() + 40])
    return scaled(x) + scaled(y)
"""


@pytest.fixture(scope="module")
def course(server):
    cells = [
        {**cell, "source": MASTERS_Q1} if cell["metadata"].get("nbgrader", {}).get("grade_id") == "q1" else cell
        for cell in toy.cells()
    ]
    reference = with_variant(parse(toy.notebook(cells), "m"), None)
    answers = solutions_as_answers(reference)
    outcome = run_here(rebuild(reference, answers, None), server)
    assert {name: c.message for name, c in outcome.cells.items() if not c.passed} == {}
    outputs = {cell.id: outcome.cells[cell.id].outputs for cell in reference.of_kind("test")}
    return grading.GradingKey(reference, outputs, answers, "first"), release(reference, "first")


@pytest.fixture
def grade(course, monkeypatch, server):
    """A function that grades the sources of a submission; (result, [(rebuilt notebook, results of its cells)] of all runs)."""
    key, released = course
    seen = []

    def run(rebuilt, harness):
        seen.append((rebuilt, run_here(rebuilt, server)))
        return seen[-1][1]

    def made(**sources):
        seen.clear()
        with tempfile.TemporaryDirectory() as folder:
            handed_in = submission(toy.solve(released, **sources), key.base, folder)
            return grading.grade_one(key, handed_in, Harness()), list(seen)

    monkeypatch.setattr(grading, "run_notebook", run)
    return made


def with_reference(seen):
    """Whether one of the runs had the reference's answers."""
    return any("reference" in rebuilt.sources for rebuilt, _ in seen)


WRONG_Q1 = "# q1 (keep this line)\ndef scaled(x):\n    return 9 * x - 1"


def test_reference_answers_are_used_without_sending_their_source(grade):
    result, seen = grade(q1=WRONG_Q1)
    assert [score.earned for score in result.questions if score.tests] == [1.0, 3.0, 1.0]
    assert result.questions[1].with_reference
    for rebuilt, _ in seen:
        assert SECRET not in json.dumps(rebuilt.sources["cells"])
        assert SECRET not in json.dumps(rebuilt.notebook)


@pytest.mark.slow
def test_a_search_of_the_process_finds_nothing_of_the_reference(course, grade):
    found = []
    for name in ATTEMPTS:
        result, seen = grade(q1=WRONG_Q1, q2=attempt(ATTEMPTS[name]))
        if not with_reference(seen) and not result.questions[1].ok:
            found.append(f"{name}: it was not graded with the reference's answer")
        shown = {
            "a message": json.dumps([[cell.message for cell in outcome.cells.values()] for _, outcome in seen]),
            "the page": page(result, "A toy"),
            "the CSV": to_csv([result], course[0].base, "plain"),
            "the JSON": json.dumps(result.as_json()),
        }
        secrets = ("LEAKED", SECRET, str(NUMBER))
        found += [
            f"{name}: {secret} in {where}" for where, text in shown.items() for secret in secrets if secret in text
        ]
    assert not found, "\n".join(found)


def test_text_made_with_reference_answers_is_not_on_the_feedback_page(grade):
    """The reference's results can be used in computations, but do not appear in text."""
    for say in ("raise ValueError(f'ANSWER {scaled(1000)}')", "return f'ANSWER {scaled(1000)}'",
                "print(f'ANSWER {scaled(1000)}')\n    return 1"):  # fmt: skip
        result, seen = grade(q1=WRONG_Q1, q2=f"# q2 (keep this line)\ndef both(x, y):\n    {say}")
        assert with_reference(seen), say
        assert "2000" not in page(result, "A toy"), say


def test_the_text_of_a_submissions_error_is_bounded(server):
    source = "def f(): raise ValueError('x' * 3_000_000 + 'end')\ndef g(): raise type('E' * 500_000, (Exception,), {})('y' * 500_000)"
    cell = {"id": "q", "kind": "solution", "source": source, "defines": {"f": "function", "g": "function"}}
    with RemoteAnswers([cell], [], server=server) as answers:
        for function in answers.defined("q").values():
            with pytest.raises(Exception) as info:  # noqa: PT011  (its length is what counts)
                function()
            assert len(str(info.value)) < 1000
            assert len(type(info.value).__name__) < 50


def test_a_class_of_the_reference_is_not_available(server):
    """Its methods would be source in the student's process."""
    secret = {
        "id": "q1",
        "source": f"class K:\n    {SECRET} = 1\nv = [1, 2]\ndef h(): return v",
        "kind": "solution",
        "defines": {},
    }
    cells = [
        {"id": "q1", "kind": "reference", "source": "", "defines": {"K": "class", "v": "value", "h": "function"}},
        {
            "id": "q2",
            "kind": "solution",
            "source": "def f(): return v + h(), 'K' in globals()",
            "defines": {"f": "function"},
        },
    ]
    with RemoteAnswers(cells, [], reference=[secret], server=server) as answers:
        assert answers.defined("q2")["f"]() == ([1, 2, 1, 2], False)


def test_only_the_class_of_a_reference_error_is_passed_on(server):
    cells = [
        {"id": "q1", "kind": "reference", "source": "", "defines": {"h": "function"}},
        {"id": "q2", "kind": "solution", "defines": {"f": "function"},
         "source": "def f(x):\n    try: return h(x)\n    except Exception as e: return type(e).__name__, str(e)"},
    ]  # fmt: skip
    source = f"class Own(KeyError): pass\ndef h(x):\n    if x == 1: raise KeyError('{SECRET}')\n    if x == 2: raise Own('{SECRET}')\n    return 1 / x"
    with RemoteAnswers(
        cells, [], reference=[{"id": "q1", "source": source, "kind": "solution", "defines": {}}], server=server
    ) as answers:
        f = answers.defined("q2")["f"]
        assert f(4) == 0.25
        assert [f(x)[0] for x in (0, 1, 2)] == ["ZeroDivisionError", "KeyError", "RoleError"]
        assert all(SECRET not in f(x)[1] and "division" not in f(x)[1] for x in (0, 1, 2))


def test_globals_of_the_reference_persist_for_one_student_process(server):
    """As in a notebook: a global of the reference persists until its next call by the same process."""
    cells = [
        {"id": "q1", "kind": "reference", "source": "", "defines": {"h": "function"}},
        {"id": "q2", "kind": "solution", "source": "def f(): return h(), h()", "defines": {"f": "function"}},
    ]
    source = "n = [0]\ndef h():\n    n[0] += 1\n    return n[0]"
    with RemoteAnswers(
        cells, [], reference=[{"id": "q1", "source": source, "kind": "solution", "defines": {}}], server=server
    ) as answers:
        assert answers.defined("q2")["f"]() == (1, 2)


@pytest.mark.slow
def test_grading_through_nbval_reveals_no_reference_source(course, tmp_path):
    """Regression test: q1 is wrong deliberately, q2 raises the text of linecache."""
    key, released = course
    leak = "# q2 (keep this line)\nimport linecache\ndef both(x, y):\n    raise ValueError(str({k: v for k, v in linecache.cache.items() if 'cell' in k}))"
    handed_in = submission(toy.solve(released, q1=WRONG_Q1, q2=leak), key.base, tmp_path)
    result = grading.grade_one(key, handed_in, Harness(confined=True))
    text = page(result, "A toy") + json.dumps(result.as_json())
    assert SECRET not in text
    assert "9 * x - 1" in text  # its own source is allowed
