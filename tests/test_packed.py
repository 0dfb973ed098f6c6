"""A user's code as it is sent to other processes: what is sent, what is not, and the messages.

One process without the user's modules loads every value. The oracle is what the same function returns here.
"""

import importlib
import json
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import cloudpickle
import pytest

import labkit as lk
from labkit.packed import LIMIT_BYTES, Packed

# {file: its text}; every folder has another `run`, which uses the others in one of the ways that Python has
FILES = {
    "own_values.py": """
        from typing import Generic, TypeVar
        RATE = 0.5
        T = TypeVar("T")
        class Base:
            def name(self):
                return f"{type(self).__name__} {RATE}"
        class Box(Generic[T]):
            def __init__(self, value: T):
                self.value = value
        def outer(x):
            return inner(x) + 1
        def inner(x):
            return 2 * x
    """,
    "own_unused.py": "class Unused: pass\ndef unused(): return 1\n",
    "own_class.py": """
        from dataclasses import dataclass
        from own_values import Base, Box
        from own_unused import Unused
        @dataclass(frozen=True)
        class Derived(Base):
            box: Box = Box(3)
            other: Unused | None = None
        def run(argument: Unused | None = None) -> Unused | str:
            return f"{Derived().name()} {Derived().box.value}"
    """,
    "own_function.py": "from own_values import outer\ndef run(): return outer(2)\n",
    "own_module.py": "import own_uses_unused\ndef run(): return own_uses_unused.number()\n",
    "own_uses_unused.py": "import own_unused\nfrom own_unused import unused\nNUMBER = 7\ndef number(): return NUMBER\n",
    "own_edited.py": "import own_number\ndef run(): return own_number.number()\n",
    "own_number.py": "NUMBER = 7\ndef number(): return NUMBER\n",
    "own_late.py": """
        def run():
            from own_values import outer
            import own_package.part as part
            return outer(3) + part.three()
    """,
    "own_package/__init__.py": "from . import part, cycle\ndef run(): return cycle.four() + part.three()\n",
    "own_package/part.py": """
        from . import cycle
        def three():
            return cycle.four() - 1
        def run():
            from . import late
            from .late import five
            return five() + late.five()
    """,
    "own_package/cycle.py": "from . import part\ndef four(): return 4\ndef run(): return part.three() + four()\n",
    "own_package/late.py": "def five(): return 5\n",
    "own_type.py": "from own_values import Box, T\ndef run(): return f'{Box[T].__parameters__} {Box[int](1).value}'\n",
    "own_lambda.py": "from own_values import inner\nrun = lambda: [inner(k) for k in range(3)]\n",
    "own_optional.py": """
        def run():
            try:
                import own_nowhere
            except ImportError:
                try:
                    from . import own_nowhere
                except ImportError:
                    return "without"
            import own_program  # ends the program
    """,
    "own_program.py": "number = 1\nraise SystemExit(3)\n",
    "own_error.py": """
        def run():
            try:
                raise ValueError
            except ValueError as error:
                frame = error.__traceback__
                return f"{frame.tb_frame.f_code.co_filename} {frame.tb_lineno}"
    """,
    "site-packages/installed_package.py": "def run(): return 1\n",
    "own_needs.py": "import installed_package\ndef run(): return installed_package.run()\n",
    "own_compiled/__init__.py": "def run(): return 1\n",
    "own_big.py": "import numpy as np\nTABLE = np.zeros(2**23 + 1)\ndef run(): return TABLE[0]\n",
    "own_lock.py": """
        import threading, own_values
        LOCK = threading.Lock()
        class Locked:
            def method(self):
                return other()
        def other():
            with LOCK:
                return own_values.RATE
        run = Locked()
    """,
}  # fmt: skip
SENT = [
    "own_class", "own_function", "own_module", "own_late", "own_package", "own_package.part", "own_package.cycle", "own_type",
    "own_lambda", "own_optional", "own_error",
]  # fmt: skip
BY_NAME = {"own_needs": "installed_package", "own_compiled": "own_compiled"}
LOADS = """
import json, pickle, sys

answers = []
for packed in pickle.load(sys.stdin.buffer):
    before = set(sys.modules)
    try:
        answers.append(packed.value("tcp://a:1")())
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
    for name in set(sys.modules) - before:  # each value is loaded as by a new process
        if name.startswith("own"):
            del sys.modules[name]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The user's modules."""
    folder = tmp_path_factory.mktemp("of_a_user")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    path = [str(folder), str(folder / "site-packages")]
    sys.path[:0] = path
    try:
        names = [*SENT, *BY_NAME, "own_edited", "own_big", "own_lock"]
        yield {name: importlib.import_module(name) for name in names if name != "own_late"}
    finally:
        del sys.path[:2]
        for name in [name for name in sys.modules if name.startswith(("own_", "installed_package"))]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def loaded(modules):
    """{module: what its `run` returns in a process that has none of the modules}."""
    compiled = sys.modules["own_compiled.part"] = type(sys)("own_compiled.part")
    compiled.__file__ = "/home/user/own_compiled/part.abi3.so"
    modules["own_late"] = importlib.import_module("own_late")
    packed = [Packed.of(modules[name].run, name) for name in (*SENT, *BY_NAME, "own_edited")]
    helper = sys.modules["own_number"]

    def assigned():
        helper.NUMBER = 8

    def edited():
        source = Path(helper.__file__)
        source.write_text(source.read_text().replace("7", "9 * 1"))  # another size: Python compiles it again

    def reloaded():
        importlib.reload(helper)

    for change in (assigned, edited, reloaded):
        change()
        packed.append(Packed.of(modules["own_edited"].run, change.__name__))
    packed = [Packed(each.name, each.pickled, "another process") for each in packed]
    done = subprocess.run([sys.executable, "-c", LOADS], input=pickle.dumps(packed), capture_output=True, check=True)
    return dict(zip((each.name for each in packed), json.loads(done.stdout)))


@pytest.mark.parametrize("name", SENT)
def test_modules_of_a_user_are_sent(modules, loaded, name):
    assert loaded[name] == modules[name].run()


@pytest.mark.parametrize("name", BY_NAME)
def test_installed_and_compiled_packages_are_named(loaded, name):
    assert loaded[name] == (
        f"ClusterError: The Dask worker at tcp://a:1 has no module {BY_NAME[name]!r}, which {name} needs; install it there."
    )


def test_another_version_of_a_package_is_named():
    packed = Packed("Mine", pickle.dumps(lk.AsyncPS()).replace(b"AsyncPS", b"AsyncPX"))
    with pytest.raises(lk.ClusterError, match=r"Dask worker at tcp://a:1 cannot load Mine: AttributeError: .*AsyncPX"):
        packed.value("tcp://a:1")


def test_an_edited_module_is_sent_as_it_is_at_that_moment(loaded):
    assert [loaded[name] for name in ("own_edited", "assigned", "edited", "reloaded")] == [7, 8, 8, 9]


def test_a_value_that_cannot_be_pickled_is_named_by_its_attributes(modules):
    text = r"Mine cannot be sent to other processes: TypeError: cannot pickle '_thread.lock' object \(in a.method.other.LOCK\)"
    with pytest.raises(lk.BadInput, match=text):
        Packed.of({"b": 1, "a": modules["own_lock"].run}, "Mine")


def test_what_is_too_big_is_named(modules):
    text = r"own_big cannot be sent .* 67.1 MB for each role \(in TABLE\), and at most 67.1 MB are sent. Load arrays"
    with pytest.raises(lk.BadInput, match=text):
        Packed.of(modules["own_big"].run, "own_big", LIMIT_BYTES)
    assert len(Packed.of(modules["own_big"].run, "own_big").pickled) > LIMIT_BYTES


def test_the_modules_of_cloudpickle_are_restored_while_threads_pickle_and_others_are_kept(modules):
    before = cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(modules["own_class"])
    try:
        done = []

        def work():
            for name in ("own_class", "own_function"):
                done.append(Packed.of(modules[name].run, name))

            with pytest.raises(lk.BadInput):
                Packed.of(modules["own_lock"].run, "own_lock")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({packed.pickled for packed in done}) == 2
        assert cloudpickle.list_registry_pickle_by_value() == before | {"own_class"}
    finally:
        cloudpickle.unregister_pickle_by_value(modules["own_class"])
