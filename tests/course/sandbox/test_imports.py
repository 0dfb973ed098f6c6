# ruff: noqa: E501  (a line of a submission stays a line)
"""What submitted code may import and what Python imports by itself is there, on a Python whose C modules are files as on one that
contains them; other packages are without effect or "not available in graded code". The oracle is this Python.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import labkit as lk
from labkit import course
from labkit.course.sandbox import launch, restricted_api
from labkit.course.sandbox.confine import confinement_problem
from tests.course import toy_reference as toy
from tests.course.sharing import shared_answers, solution, submission

linux = pytest.mark.skipif(bool(confinement_problem()), reason=f"confined on Linux only: {confinement_problem()}")

# Left out of `launch.ANSWERS`, by the reason.
NEEDS = {
    "a network or another process": "ensurepip ftplib http imaplib mailbox multiprocessing nntplib poplib smtplib socket socketserver ssl subprocess urllib venv webbrowser wsgiref xmlrpc email mimetypes",
    "files": "compileall dbm filecmp fileinput modulefinder netrc py_compile pyclbr shelve sqlite3 tabnanny tarfile zipapp",
    "a terminal, a window or the system": "curses fcntl getpass grp idlelib nt posix posixpath ntpath genericpath pty pwd readline syslog termios tkinter tty turtle turtledemo winreg winsound msvcrt antigravity this",
    "tests of Python": "lib2to3 pydoc_data test",
    "what newer versions removed": "aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp mailcap msilib nis nturl2path ossaudiodev pipes smtpd sndhdr spwd sre_compile sre_constants sre_parse sunau telnetlib uu wave xdrlib",
    "what newer versions added": "annotationlib compression",
}  # fmt: skip


def test_every_module_of_the_standard_library_is_preloaded_or_left_out_for_a_reason():
    listed = {name.partition(".")[0] for name in (*launch.INTERPRETER, *launch.ANSWERS)}
    left_out = set(" ".join(NEEDS.values()).split())
    public = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    assert public - listed - left_out == set()


@linux
def test_every_preloaded_module_can_be_imported_in_a_student_process(server):
    names = [name for name in launch.ANSWERS if not name.startswith("_")]
    source = "import importlib\ndef f(name):\n    try: return importlib.import_module(name).__name__\n    except ImportError as error: return str(error)"
    same = {"numpy.core": "numpy._core", "os.path": "posixpath"}
    with shared_answers([solution(source, f="function")], server) as answers:
        found = {name: answers.defined("q")["f"](name) for name in names}
    assert {
        name: said for name, said in found.items() if said not in (name, same.get(name)) and "numpy.core" not in name
    } == {}


# what Python imports by itself: each is the body of a function of `x`, which is 1
PROGRAMS = {
    "a Greek letter": "η = x\nreturn η + 1",
    "another Greek letter": "σ_max = [x]\nreturn σ_max",
    "a word of another language": "größe = {'größe': x}\nreturn größe",
    "Chinese": "变量 = x\nreturn 变量",
    "a ligature, which is normalized": "ﬁ = x\nreturn fi",
    "an argument": "return (lambda é: é)(é=x)",
    "the name of a character": "return '\\N{GREEK SMALL LETTER ETA}'",
    "a name in a pattern": "import re\nreturn re.findall('\\\\N{DIGIT ONE}', '121')",
    "unicodedata": "import unicodedata\nreturn unicodedata.normalize('NFKC', 'ﬁ'), unicodedata.name('η')",
    "the name of a character in code that is made": "return eval('\"\\\\N{DIGIT ONE}\"')",
    "datetime.strptime": "import datetime\nreturn datetime.datetime.strptime('1 May 2020', '%d %b %Y').isoformat()",
    "time.strptime": "import time\nreturn list(time.strptime('2020-05-01', '%Y-%m-%d'))[:3]",
    "strftime": "import datetime\nreturn datetime.date(2020, 5, 1).strftime('%A %d %B')",
    "Latin-1": "return 'é'.encode('latin-1') + 'é'.encode('iso-8859-15') + 'é'.encode('cp1252')",
    "UTF-16 and others": "return ['é'.encode(c) for c in ('utf-16', 'utf-16-le', 'utf-32', 'utf-7', 'utf-8-sig')]",
    "IDNA": "return 'größe.example'.encode('idna'), 'größe'.encode('punycode')",
    "other alphabets": "return 'щ'.encode('koi8-r'), 'щ'.encode('cp1251'), '変'.encode('shift_jis'), '变'.encode('gb18030')",
    "codecs": "import codecs\nreturn codecs.encode('abc', 'rot13'), codecs.encode(b'abc', 'hex'), codecs.encode(b'a', 'base64')",
    "escapes": "return 'é\\n'.encode('unicode_escape'), b'\\\\n'.decode('unicode_escape'), '\\\\x41'.encode().decode('raw_unicode_escape')",
    "an unknown codec": "try:\n    'x'.encode('no-such-codec')\nexcept LookupError as error:\n    return str(error)",
    "text of a large number": "import sys\nsys.set_int_max_str_digits(0)\ntry:\n    return len(str(10**20000)), int('7' * 20000) % 1000\nfinally:\n    sys.set_int_max_str_digits(4300)",
    "decimals": "import decimal, fractions\nreturn f\"{decimal.Decimal('1234.5'):,.2f}\", str(fractions.Fraction('0.125'))",
    "statistics": "import statistics\nreturn statistics.NormalDist(0, 1).cdf(0), statistics.median([1, 2, 3]), statistics.quantiles(range(9))",
    "a warning": "import warnings\nwarnings.warn('careful')\nreturn x",
    "a traceback": "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    return traceback.format_exc().splitlines()[-1]",
    "the syntax tree": "import ast\nreturn ast.unparse(ast.parse('η = 1 + 2'))",
    "type hints": "import typing\ndef g(a: 'list[int]') -> 'float': ...\nreturn str(typing.get_type_hints(g))",
    "pickle": "import pickle, copy\nreturn pickle.loads(pickle.dumps({'a': [1, 2]}, protocol=0)), copy.deepcopy([[1]])",
    "hashes": "import hashlib, zlib, hmac\nreturn hashlib.sha256(b'x').hexdigest(), hashlib.md5(b'x').hexdigest(), zlib.crc32(b'x'), hmac.new(b'k', b'm', 'sha1').hexdigest()",
    "compression": "import bz2, gzip, lzma, zlib\nreturn [m.decompress(m.compress(b'aaaa')) for m in (bz2, gzip, lzma, zlib)]",
    "random numbers": "import random, secrets\nreturn random.Random(3).gauss(0, 1), random.Random('é').random(), len(secrets.token_hex(4))",
    "text tools": "import csv, difflib, html, io, string, textwrap, urllib.parse\nreturn list(csv.reader(io.StringIO('a,b'))), difflib.get_close_matches('appel', ['apple']), html.unescape('&eacute;'), string.Template('$a').substitute(a=1), urllib.parse.quote('é')",
    "printing": "import io, pprint, logging\nout = io.StringIO()\npprint.pprint({'a': 1}, stream=out)\nlogging.getLogger('é').warning('%s', x)\nreturn out.getvalue()",
    "dataclasses and enums": "import dataclasses, enum\nOp = enum.Enum('Op', 'A B')\nP = dataclasses.make_dataclass('P', ['a', 'b'])\nreturn [o.name for o in Op], dataclasses.asdict(P(1, 2))",
    "tools for functions": "import functools, contextlib, operator\n@functools.singledispatch\ndef g(a): return 0\n@g.register\ndef _(a: int): return 1\nwith contextlib.suppress(ValueError):\n    int('x')\nreturn g(1), functools.reduce(operator.add, [1, 2])",
    "the source of a function": "import inspect\nreturn inspect.signature(lambda a, b=1: 0).parameters['b'].default",
    "a coroutine": "import asyncio\nasync def c(): return 3\ntry:\n    c().send(None)\nexcept StopIteration as end:\n    return end.value",
    "dates and places": "import calendar, zoneinfo, locale, uuid\nreturn calendar.monthrange(2024, 2), str(uuid.uuid5(uuid.NAMESPACE_DNS, 'é'))",
    "linear algebra": "a = np.array([[2.0, 1], [1, 3]])\nreturn np.linalg.svd(a)[1], np.linalg.solve(a, [1, 2]), np.einsum('ij,jk,kl->il', a, a, a, optimize=True)",
    "transforms and polynomials": "return np.fft.rfft([1.0, 2, 3]), np.polynomial.Polynomial.fit([0, 1, 2], [1, 2, 5], 2).coef.round(6) + 0.0, np.polyfit([0, 1], [1, 2], 1).round(6)",
    "files in memory": "import io\nreturn np.loadtxt(io.StringIO('1 2\\n3 4')), np.genfromtxt(io.BytesIO(b'1,2'), delimiter=',')",
    "stored arrays": "import io\nout = io.BytesIO()\nnp.savez_compressed(out, a=[1])\nout.seek(0)\nreturn np.load(out)['a']",
    "statistics of arrays": "return np.histogram([1, 2, 2], bins='auto')[0], np.percentile([1, 2, 3], 50), np.unique([2, 1, 2]), np.cov([[1.0, 2], [2, 4]]), np.median([1, 2])",
    "random arrays": "return np.random.default_rng(1).normal(size=2), np.random.RandomState(1).rand(2), np.random.default_rng(2).permutation(4)",
    "text of arrays": "return np.array2string(np.arange(3.0), precision=2), repr(np.float32(1)), np.char.upper(['é']), np.strings.add('a', 'b'), np.format_float_scientific(1e9)",
    "an error of NumPy": "try:\n    np.zeros(2) + np.zeros(3)\nexcept ValueError as error:\n    return str(error)",
    "a loop that NumPy has not": "try:\n    np.add('a', 1)\nexcept TypeError as error:\n    return type(error).__name__",
    "assertions of NumPy": "try:\n    np.testing.assert_allclose([1.0], [2.0])\nexcept AssertionError as error:\n    return 'Mismatched' in str(error)",
    "masks, records, windows": "return np.ma.array([1, 2], mask=[0, 1]).sum(), np.rec.array([(1, 2.0)], names='a,b').a, np.lib.stride_tricks.sliding_window_view([1, 2, 3], 2), np.vectorize(lambda v: v + 1)([1])",
    "dates of NumPy": "return str(np.datetime64('2020-01-01') + 1), np.busday_count('2020-01', '2020-02')",
}  # fmt: skip


def function(body, name="f"):
    return f"def {name}(x):\n{textwrap.indent(body, '    ')}\n"


@pytest.fixture(scope="module")
def here():
    names = {}
    exec("import numpy as np", names)

    def run(body):
        exec(function(body), names)
        return names["f"](1)

    return run


@linux
def test_what_python_imports_by_itself_is_loaded(server, here, recwarn):
    """In a student process, where C modules of this Python are files that cannot be opened."""
    cells = [solution("\n".join(function(body, f"f{i}") for i, body in enumerate(PROGRAMS.values())),
                      **{f"f{i}": "function" for i in range(len(PROGRAMS))})]  # fmt: skip
    wrong = []
    with shared_answers(cells, server) as answers:
        names = answers.defined("q")
        for i, (name, body) in enumerate(PROGRAMS.items()):
            try:
                found = repr(names[f"f{i}"](1))
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            if found != repr(here(body)):
                wrong.append(f"{name}: {found}, and not {here(body)!r}")
    assert not wrong, "\n".join(wrong)


NO_IMPORTS = """
import json, sys
sys.path.insert(0, {folder!r})
import launch
launch.preload("labkit.course.sandbox.fork_server")
import numpy as np
found, names = {{}}, {{"np": np}}
sys.stderr = sys.stdout = open("/dev/null", "w")
for name, source in json.loads(sys.argv[1]).items():
    before = set(sys.modules)
    exec(source, names)
    names["f"](1)
    found[name] = sorted(set(sys.modules) - before)
print(json.dumps(found), file=sys.__stdout__)
"""


def test_python_imports_nothing_more_if_it_can_import_everything():
    """Not confined, as where C modules are built in and therefore need no file: if nothing is imported, it does not matter."""
    programs = json.dumps({name: function(body) for name, body in PROGRAMS.items()})
    script = NO_IMPORTS.format(folder=str(Path(launch.__file__).parent))
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-c", script, programs], capture_output=True, text=True, check=True
    )
    assert {name: new for name, new in json.loads(done.stdout).items() if new} == {}


NAMES = {"η": "η = 2\ndef scaled(x):\n    return η * x", "größe": "def scaled(größe):\n    return 2 * größe",
         "σ": "def scaled(x, σ=2):\n    return σ * x", "变量": "def 变量(x): return 2 * x\ndef scaled(x): return 变量(x)",
         "é (two characters)": "e\u0301 = 2\ndef scaled(x): return \u00e9 * x",
         "a name of a character": "def scaled(x): return 2 * x * len('\\N{GREEK SMALL LETTER ETA}')",
         "a class": "class Größe:\n    def __mul__(self, x): return 2 * x\ndef scaled(x): return Größe() * x"}  # fmt: skip


@linux
@pytest.mark.parametrize("name", NAMES)
def test_identifiers_of_any_language_are_read_and_run(name, tmp_path, server):
    """From the file to the value: the process that reads a submission parses its answers, too."""
    raw = toy.solve(toy.RELEASED, q1=f"# q1 (keep this line)\n{NAMES[name]}")
    read = submission(raw, toy.REFERENCE, tmp_path)
    assert read.problem == ""
    with shared_answers([solution(read.answers.solutions["q1"], scaled="function")], server) as answers:
        assert answers.defined("q")["scaled"](21) == 42


# notebooks ------------------------------------------------------------------------------------------------------------

NOTEBOOK = {
    "tqdm": ("from tqdm import tqdm\ndef f(x): return [i for i in tqdm(range(x), desc='é')]", [0, 1, 2]),
    "tqdm.auto": ("from tqdm.auto import tqdm, trange\ndef f(x): return list(tqdm(['a'])) + list(trange(1, x))", ["a", 1, 2]),
    "tqdm, the module": ("import tqdm\ndef f(x): return sum(1 for _ in tqdm.tqdm([1, 2])) + len(tqdm.trange(x))", 5),
    "tqdm as a context": ("import tqdm.notebook as t\ndef f(x):\n    with t.tqdm(total=x) as bar:\n        bar.update(1)\n        bar.set_postfix(loss=1)\n    return x", 3),
    "display": ("def f(x):\n    display(x, clear=True)\n    return x", 3),
    "IPython.display": ("from IPython.display import HTML, clear_output, display\ndef f(x):\n    clear_output(wait=True)\n    display(HTML('x'))\n    return x", 3),
    "get_ipython": ("get_ipython().run_line_magic('matplotlib', 'inline')\ndef f(x): return x", 3),
    "axes of a plot": ("import matplotlib.pyplot as plt, matplotlib.ticker as ticker\nfrom matplotlib import cm\nimport seaborn as sns\ndef f(x):\n    fig, axes = plt.subplots(2, 2)\n    axes[0, 1].plot([1], color=cm.viridis(0.5))\n    with plt.style.context('x'):\n        plt.show()\n    return x", 3),
    "lk.Context as a hint": ("def f(x: lk.Context) -> lk.Gradient: return x", 3),
    "hints in hints": ("from typing import Optional\ndef f(x: Optional[lk.Context] = None, y: 'list[lk.Weights]' = (), z: lk.Parameters | None = None) -> dict[str, lk.Trace]: return x", 3),
    "a name for a hint": ("from labkit import Context, Run\nCtx = Context\n@dataclass\nclass A:\n    ctx: Ctx = None\n    run: Run | None = None\ndef f(x: Ctx): return x if A().ctx is None else 0", 3),
    "class Op(str, Enum)": ("from enum import Enum\nclass Op(str, Enum):\n    F = 'forward'\n    B = 'backward'\ndef f(x): return [(Op.F, 0), (Op.B, 0)]", [("forward", 0), ("backward", 0)]),
    "IntEnum": ("from enum import IntEnum\nclass Op(IntEnum):\n    F = 7\ndef f(x): return {Op.F: [Op.F]}", {7: [7]}),
    "StrEnum and Flag": ("import enum\nclass A(enum.StrEnum):\n    F = enum.auto()\nclass B(enum.IntFlag):\n    P = 1\n    Q = 2\ndef f(x): return A.F, B.P | B.Q", ("f", 3)),
    "a float of one's own": ("class Seconds(float):\n    def __repr__(self): return 'much'\ndef f(x): return Seconds(1.5)", 1.5),
    "Fraction": ("from fractions import Fraction\ndef f(x): return Fraction(x, 2)", 1.5),
    "Decimal": ("from decimal import Decimal\ndef f(x): return [Decimal('1.50'), -Decimal(x), Decimal('1e3')]", [1.5, -3, 1000]),
    "a fraction that is a whole number": ("from fractions import Fraction\ndef f(x): return Fraction(2**70)", 2**70),
}  # fmt: skip


@linux
@pytest.mark.parametrize("name", NOTEBOOK)
def test_what_works_in_a_notebook_works_in_an_answer(name, server):
    source, want = NOTEBOOK[name]
    with shared_answers([solution(source, f="function")], server) as answers:
        course.expect("it", answers.defined("q")["f"](3), want)


NO = restricted_api.UNAVAILABLE
MISSING = {
    "import pandas as pd\ndef f(x): return pd.Series([x])": ("the module pandas " + NO, "line 1: import pandas as pd"),
    "import msgpack\ndef f(x): return msgpack.packb(x)": ("the module msgpack " + NO, "line 1: import msgpack"),
    "from scipy.stats import norm\ndef f(x): return norm.pdf(x)": ("the module scipy " + NO, "line 1: from scipy.stats import norm"),
    "def f(x):\n    import torch\n    return torch.ones(x)": ("the module torch " + NO, "line 2: import torch"),
    "import my_helpers\ndef f(x): return my_helpers.g(x)": ("the module my_helpers " + NO, "line 1: import my_helpers"),
    "import labkit.strategies\ndef f(x): return labkit.strategies": ("the module labkit.strategies " + NO, "line 1"),
    "import turtle\ndef f(x): return turtle.Pen()": ("the module turtle " + NO, "line 1: import turtle"),
    "def f(x): return lk.SyncPS()": ("lk.SyncPS " + NO, "available: "),
    "def f(x): return lk.Context()": ("lk.Context " + NO, "except as a type hint"),
    "def f(x): return isinstance(x, lk.Gradient)": ("lk.Gradient " + NO, "except as a type hint"),
    "class A(lk.Context): pass\ndef f(x): return A()": ("lk.Context " + NO, "line 1: class A(lk.Context)"),
    "def f(x): return open('data.csv').read()": ("has no files", "line 1: def f(x)"),
    "from enum import Enum\nclass Op(Enum):\n    F = 'forward'\ndef f(x): return [(Op.F, 0)]": ("f returned a member of the Enum Op: write `class Op(str, Enum)`", "line 4"),
    "@dataclass\nclass P:\n    a: int\ndef f(x): return P(x)": ("f returned a P: only numbers, text, arrays", "line 4"),
    "def g(x): return y\ny = z\ndef f(x): return g(x)": ("name 'y' is not defined", "before that: NameError: name 'z' is not defined (cell q, line 2"),
}  # fmt: skip


@linux
@pytest.mark.parametrize("source", MISSING)
def test_what_is_missing_is_named_with_the_line_and_what_to_write(source, server):
    with shared_answers([solution(source, f="function")], server) as answers, pytest.raises(lk.LabkitError) as raised:
        answers.defined("q")["f"](1)
    assert not [text for text in MISSING[source] if text not in str(raised.value)], str(raised.value)


def test_type_hints_are_public_names_of_labkit():
    assert all(isinstance(getattr(lk, name), type) for name in restricted_api.HINTS)
