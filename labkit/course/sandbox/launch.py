"""Starts a process that handles a submission: `launch.py MODULE ARGUMENT...` runs `MODULE.main(ARGUMENT...)`.

The script is run by its path in an isolated interpreter (`-I`, or `-s -P`, so that neither the folder of a submission
nor user packages are on the import path). Therefore the script imports nothing of labkit. `ALLOWED` lists every module
of labkit that each process may import; the import of any other module of labkit fails. The packages of these modules
are empty modules, because their `__init__` would import all strategies and collectives, which must not be in the memory
of these processes.

A confined process cannot open files, so it can import a module only if the module is loaded before. `PRELOADED` lists the
modules of the standard library and of NumPy that are loaded: what Python itself imports while it runs code (`unicodedata`
for an identifier that is not ASCII, codecs, `_strptime`), and, where submitted code runs, what an answer may import.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import warnings
from pathlib import Path

ALLOWED = {
    "labkit.course.sandbox.fork_server": (
        "labkit.encoding",
        "labkit.errors",
        "labkit.formatting",
        "labkit.models.numpy_model",
        "labkit.options",
        "labkit.random_streams",
        "labkit.roles.context",
        "labkit.roles.effects",
        "labkit.roles.messages",
        "labkit.roles.source_check",
        "labkit.roles.tasks",
        "labkit.course.sandbox.cells",
        "labkit.course.sandbox.confine",
        "labkit.course.sandbox.fork_server",
        "labkit.course.sandbox.parent_death",
        "labkit.course.sandbox.proxies",
        "labkit.course.sandbox.restricted_api",
        "labkit.course.sandbox.student_process",
    ),
    "labkit.course.grading.reader_process": (
        "labkit.errors",
        "labkit.course.regions",
        "labkit.course.schema",
        "labkit.course.grading.answers",
        "labkit.course.grading.archive",
        "labkit.course.grading.magics",
        "labkit.course.grading.reader_process",
        "labkit.course.grading.submitted_notebook",
        "labkit.course.sandbox.confine",
        "labkit.course.sandbox.parent_death",
    ),
}
"""By the module that a process runs: the modules of labkit that it may import."""

# Imported by the interpreter, by built-in types and by C code of the standard library when they are first used.
INTERPRETER = (
    "_compat_pickle", "_pydatetime", "_pylong", "_strptime", "ast", "codecs", "copyreg", "encodings.aliases", "encodings.ascii",
    "encodings.base64_codec", "encodings.big5", "encodings.bz2_codec", "encodings.cp1250", "encodings.cp1251",
    "encodings.cp1252", "encodings.cp437", "encodings.cp850", "encodings.euc_jp", "encodings.euc_kr", "encodings.gb18030",
    "encodings.gbk", "encodings.hex_codec", "encodings.idna", "encodings.iso8859_1", "encodings.iso8859_15",
    "encodings.iso8859_2", "encodings.iso8859_5", "encodings.koi8_r", "encodings.latin_1", "encodings.mac_roman",
    "encodings.punycode", "encodings.quopri_codec", "encodings.raw_unicode_escape", "encodings.rot_13", "encodings.shift_jis",
    "encodings.unicode_escape", "encodings.utf_16", "encodings.utf_16_be", "encodings.utf_16_le", "encodings.utf_32",
    "encodings.utf_32_be", "encodings.utf_32_le", "encodings.utf_7", "encodings.utf_8", "encodings.utf_8_sig",
    "encodings.uu_codec", "encodings.zlib_codec", "linecache", "re", "tokenize", "traceback", "tracemalloc", "unicodedata",
    "warnings",
)  # fmt: skip
# Imported by answers. Left out is what needs files, processes, a network, a terminal or a window, or is deprecated.
ANSWERS = (
    "abc", "argparse", "array", "asyncio", "atexit", "base64", "bdb", "binascii", "bisect", "builtins", "bz2", "calendar",
    "cmath", "cmd", "code", "codeop", "collections", "collections.abc", "colorsys", "concurrent.futures",
    "concurrent.futures.thread", "configparser", "contextlib", "contextvars", "copy", "cProfile", "csv", "ctypes",
    "dataclasses", "datetime", "decimal", "difflib", "dis", "doctest", "enum", "errno", "faulthandler", "fnmatch", "fractions",
    "functools", "gc", "getopt", "gettext", "glob", "graphlib", "gzip", "hashlib", "heapq", "hmac", "html", "html.entities",
    "html.parser", "importlib", "importlib.abc", "importlib.machinery", "importlib.metadata", "importlib.resources",
    "importlib.util", "inspect", "io", "ipaddress", "itertools", "json", "keyword", "locale", "logging", "logging.config",
    "logging.handlers", "lzma", "marshal", "math", "mmap", "numbers", "opcode", "operator", "optparse", "os", "os.path",
    "pathlib", "pdb", "pickle", "pickletools", "pkgutil", "platform", "plistlib", "pprint", "profile", "pstats", "pydoc",
    "pyexpat", "queue", "quopri", "random", "reprlib", "resource", "rlcompleter", "runpy", "sched", "secrets", "select",
    "selectors", "shlex", "shutil", "signal", "site", "stat", "statistics", "string", "stringprep", "struct", "symtable", "sys",
    "sysconfig", "tempfile", "textwrap", "threading", "time", "timeit", "token", "tomllib", "trace", "types", "typing",
    "unittest", "unittest.mock", "urllib.parse", "uuid", "weakref", "xml.etree.ElementTree", "zipfile", "zipimport", "zlib",
    "zoneinfo", "__future__", "numpy", "numpy.char", "numpy.core", "numpy.core.multiarray", "numpy.core.numeric",
    "numpy.ctypeslib", "numpy.dtypes", "numpy.exceptions", "numpy.fft", "numpy.lib.array_utils", "numpy.lib.format",
    "numpy.lib.mixins", "numpy.lib.npyio", "numpy.lib.recfunctions", "numpy.lib.scimath", "numpy.lib.stride_tricks",
    "numpy.linalg", "numpy.ma", "numpy.ma.mrecords", "numpy.polynomial", "numpy.random", "numpy.rec", "numpy.strings",
    "numpy.testing", "numpy.typing", "numpy.version",
)  # fmt: skip
READING = ("bz2", "json", "lzma", "stat", "zipfile", "zlib")

PRELOADED = {
    "labkit.course.sandbox.fork_server": (*INTERPRETER, *ANSWERS),
    "labkit.course.grading.reader_process": (*INTERPRETER, *READING),
}
"""By the module that a process runs: what it loads before it is confined. A name that this Python does not have is skipped."""


class AllowList:
    """An import finder that rejects every module of labkit except `modules`. The next finder handles other packages."""

    def __init__(self, modules: tuple[str, ...]):
        self.modules = frozenset(modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` if `name` is a module of labkit that is not listed."""
        if name.partition(".")[0] == "labkit" and name not in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r} in this process", name=name)


def restrict(modules: tuple[str, ...]) -> None:
    """Allow the import of these modules of labkit only, each without the `__init__` of its packages."""
    root = Path(__file__).resolve().parents[3]
    for module in modules:
        parents = module.split(".")[:-1]
        for depth in range(1, len(parents) + 1):
            name = ".".join(parents[:depth])
            if name not in sys.modules:
                sys.modules[name] = package = types.ModuleType(name)
                package.__path__ = [str(root.joinpath(*parents[:depth]))]
    sys.meta_path.insert(0, AllowList(modules))  # type: ignore[arg-type]


def preload(module: str) -> None:
    """Load the modules that the process `module` needs after it is confined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are deprecated
        for name in PRELOADED[module]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def main() -> None:
    module, *arguments = sys.argv[1:]
    restrict(ALLOWED[module])
    preload(module)
    importlib.import_module(module).main(*arguments)


if __name__ == "__main__":
    main()
