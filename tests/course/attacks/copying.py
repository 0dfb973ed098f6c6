# ruff: noqa: E501  (a line of a submission stays a line)
"""Using labkit's own strategy: importing it, finding it in memory, reading its source."""

from . import Attack, put

READ = """
import numpy, os
path = os.path.dirname(os.path.dirname(numpy.__file__))
"""
NOT_THERE = "not defined"

ATTACKS = (
    Attack("subclass", "@dataclass(frozen=True)\nclass X(lk.SyncPS): pass", "lk.SyncPS is not available"),
    Attack("alias", "X = lk.SyncPS", "lk.SyncPS is not available"),
    Attack("import", "from labkit import SyncPS as X", "SyncPS"),
    Attack("import the module", "from labkit.strategies import SyncPS as X", "labkit.strategies"),
    Attack(
        "import by name",
        "import importlib\nX = importlib.import_module('labkit.strategies').SyncPS",
        "labkit.strategies",
    ),
    Attack("__import__", "X = __import__('labkit.strategies.sync', fromlist=['SyncPS']).SyncPS", "labkit.strategies"),
    Attack("getattr", "X = getattr(lk, 'Sync' + 'PS')", "lk.SyncPS is not available"),
    Attack("module dict", "X = lk.__dict__['SyncPS']", "KeyError"),
    Attack(
        "forget the restricted module",
        "import sys\ndel sys.modules['labkit']\nimport labkit\nX = labkit.SyncPS",
        NOT_THERE,
    ),
    Attack(
        "another path",
        "import sys, numpy\nfor n in list(sys.modules):\n    if 'labkit' in n: del sys.modules[n]\n"
        "sys.path.insert(0, numpy.__file__.rsplit('/', 4)[0])\nsys.path_importer_cache.clear()\nimport labkit\nX = labkit.SyncPS",
        NOT_THERE,
    ),
    Attack(
        "subclasses", "X = next(c for c in lk.Strategy.__subclasses__() if c.__name__ == 'SyncPS')", "StopIteration"
    ),
    Attack(
        "all subclasses",
        "def below(c):\n    for s in type.__subclasses__(c):\n        yield s; yield from below(s)\n"
        "X = next(c for c in below(object) if c.__name__ in ('SyncPS', 'AsyncPS', 'BoundedStaleness'))",
        "StopIteration",
    ),
    Attack(
        "garbage collector",
        "import gc\nX = next(o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == 'SyncPS')",
        "StopIteration",
    ),
    Attack(
        "modules in memory",
        "import gc, types\nX = next(vars(o)['SyncPS'] for o in gc.get_objects()\n"
        "         if isinstance(o, types.ModuleType) and 'SyncPS' in vars(o))",
        "StopIteration",
    ),
    Attack(
        "frames",
        "import sys\nf, found = sys._getframe(), None\nwhile f:\n    found = found or f.f_globals.get('SyncPS') or "
        "f.f_locals.get('SyncPS')\n    f = f.f_back\nX = found",
        "neither a strategy",
    ),
    Attack(
        "inspect",
        "import inspect\nexec(inspect.getsource(lk.ServerStrategy).replace('ServerStrategy', 'X'))",
        NOT_THERE,
    ),
    Attack("read the file", READ + "exec(open(path + '/labkit/strategies/sync.py').read())", "not permitted"),
    Attack("os.open", READ + "exec(os.read(os.open(path + '/labkit/strategies/sync.py', 0), 9999))", "not permitted"),
    Attack("io", READ + "import io\nexec(io.FileIO(path + '/x').read())", "not permitted"),
    Attack("list the folder", READ + "X = os.listdir(path)[0]", "not permitted"),
    Attack(
        "numpy's reader",
        READ + "import numpy as np\nX = np.fromfile(path + '/labkit/__init__.py', dtype='u1')",
        "not permitted",
    ),
    Attack(
        "the C library",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.open(b'/etc/passwd', 0) < 0\nX = ctypes.get_errno()",
        "neither a strategy",
    ),
    Attack(
        "linecache",
        READ + "import linecache\nX = linecache.getlines(path + '/labkit/strategies/sync.py')[0]",
        "IndexError",
    ),
    Attack("its own memory", "X = open('/proc/self/mem', 'rb')", "not permitted"),
    Attack("the grader's memory", "import os\nX = open(f'/proc/{os.getpid() - 1}/mem', 'rb')", "not permitted"),
    Attack(
        "no class at all",
        "class Anything:\n    def __getattr__(self, name): return self\n    def __call__(self, *a, **k): return self\nX = Anything()",
        "neither a strategy",
    ),
    Attack("a mock", "from unittest.mock import MagicMock\nX = MagicMock()", ""),
    Attack("a tool as a strategy", "X = lk.push_pull", "neither a strategy"),
    Attack("the base", "X = lk.Strategy", ""),
    Attack("the grader's module", put(server="import labkit.course.sandbox.remote_answers", base="right"), "labkit"),
    Attack("the reference's trial", put(server="course.trial(lk.SyncPS())", base="right"), "course"),
)
