"""Configuration of all tests and notebooks: layers, the slow suites, two workers, and the report."""

import functools
import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# nbval is loaded here, and not as an installed plugin: jsonschema, which it imports, would import these packages for formats that
# notebooks do not have. One compiles a grammar, which took longer than all other imports in each process of the tests.
sys.modules.update(rfc3987_syntax=None, isoduration=None)  # type: ignore[arg-type]
pytest_plugins = ["nbval.plugin"]

# One lesson represents its kind in the quick suite; the others belong to the slow suites.
QUICK_NOTEBOOKS = ("10_hybrid_parallelism.ipynb",)
# Releases fail until they are solved; `tests/course/test_same_verdicts.py` runs solved copies.
collect_ignore_glob = ["notebooks/assignments/*.ipynb"]
ROOT = Path(__file__).parent
NOTEBOOKS = ROOT / "notebooks"
WHOLE = os.environ.get("LABKIT_TESTS") == "whole"  # all parameter sets of the slow suites

# {folder or file: (layer, what is tested)}. Every test has exactly one layer, as a marker: the marker that the test names, else
# that of the longest path above it. The report has a line for each entry.
LAYERS = ("unit", "simulated", "contract", "dask", "chaos", "multihost", "browser")
SUITES = {
    "notebooks": ("simulated", "lessons, executed and compared with their outputs"),
    "tests": ("unit", "files, data sets, specifications, displays, documents, imports"),
    "tests/benchmarks": ("unit", "the benchmarks themselves"),
    "tests/binder": ("unit", "the environment of a Binder session"),
    "tests/browser": ("browser", "the lab in JupyterLab in a real browser"),
    "tests/chaos": ("chaos", "random faults: the ledger against the parameters, on both engines"),
    "tests/cli": ("simulated", "the command line"),
    "tests/contract": ("contract", "the same statements in virtual time and on processes"),
    "tests/course": ("unit", "release, check and grade; attacks on the confined process"),
    "tests/dask": ("dask", "processes: starts, faults, recovery, existing clusters, strangers"),
    "tests/data": ("unit", "data sets, partitions, batches"),
    "tests/dev": ("unit", "types, docstrings, packages"),
    "tests/digests": ("simulated", "simulated runs, bit for bit"),
    "tests/docs": ("simulated", "the documentation site"),
    "tests/engines": ("unit", "commands, lifecycle, the role core, checkpoints"),
    "tests/engines/dask": ("unit", "recovery policy, transport and frames, without a cluster"),
    "tests/engines/simulated": ("simulated", "the event loop, links, faults and forks in virtual time"),
    "tests/engines/test_strategy_check.py": ("simulated", "the check of a user's strategy"),
    "tests/forecasts": (
        "simulated",
        "sweeps, measured costs, forecasts and advice, against closed forms and long runs",
    ),
    "tests/lessons": ("simulated", "figures, formulas and measurements of the lessons"),
    "tests/lab": ("simulated", "the lab: settings, scenarios, playback, panels, page"),
    "tests/multihost": ("multihost", "several hosts: network namespaces"),
    "tests/models": ("simulated", "models of a user: checks, training, identity, files"),
    "tests/models/torch": ("simulated", "modules of PyTorch"),
    "tests/narrative": ("simulated", "a run in sentences and log lines"),
    "tests/nn": ("unit", "networks, optimizers, codecs against NumPy"),
    "tests/notebooks": ("simulated", "texts and numbers of the lessons"),
    "tests/results": ("simulated", "published results and replays in NumPy"),
    "tests/roles": ("unit", "gates, collectives, servers with scripted inputs"),
    "tests/roles/test_invalid_gradients.py": ("simulated", "gradients that are refused"),
    "tests/strategies": ("unit", "the catalogue of strategies"),
    "tests/test_resume.py": ("simulated", "runs that are resumed"),
    "tests/trace": ("simulated", "the trace, the ledger and the numbers derived from them"),
    "tests/views": ("simulated", "panels: values, images, display lists"),
}
# What starts processes of a Dask cluster runs one at a time, on one worker of pytest-xdist; the other files fill the other one.
PROCESS_FIXTURES = {"dask_processes", "cluster", "started"}
PROCESS_LAYERS = ("dask", "multihost")
NICENESS = 10  # of workers of pytest-xdist whose tests compute: those with processes wait for each other, and are the last to end

# Every run of the tests tries the same examples; `--hypothesis-profile=random` tries new examples. They have no time limit.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("random", print_blob=True, deadline=None)
hypothesis.settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage while tests are collected, which took half of that time; and later only among newer objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# selection ------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the layer of every test, the tests that belong to the slow suites, and the group of pytest-xdist.

    Slow are cells of notebooks, unless only notebooks are named, and parameter sets of sampled tests. Parameter sets that run
    only with `LABKIT_TESTS=whole` are deselected.
    """
    for item in items:
        named = {mark.name for mark in item.iter_markers() if mark.name in LAYERS}
        if len(named) > 1:
            raise pytest.UsageError(f"{item.nodeid} has the layers {', '.join(sorted(named))}; give one.")
        if not named:
            item.add_marker(SUITES[suite_of(item.path)][0])
    left: set[pytest.Item] = set()
    for mark, group in _sampled(items):
        quick = _spread([item for item in group if not item.get_closest_marker("slow")], *mark.args)
        others = [item for item in group if item not in quick]
        for item in others:
            item.add_marker(pytest.mark.slow)
        left |= set(others) - _spread(others, mark.kwargs.get("slow"))
    if left and not WHOLE:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    config.stash[LEFT] = Counter(suite_of(item.path) for item in left)
    everything = _only_notebooks(config)
    for item in items:
        quick = everything or item.path.name in QUICK_NOTEBOOKS
        if item.path.suffix == ".ipynb" and not (quick and NOTEBOOKS in item.path.parents):
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group("processes" if starts_processes(item) else _group_of_file(item.path)))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten a long text: ids are sent between processes, and printed if a test fails."""
    return f"{val[:40]!a}..." if isinstance(val, str | bytes) and len(val) > 80 else None


@functools.cache
def _group_of_file(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _only_notebooks(config: pytest.Config) -> bool:
    """Return whether nothing but notebooks is named, as in `pytest --nbval notebooks`."""
    named = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return all(path.resolve().is_relative_to(NOTEBOOKS) for path in named)


def starts_processes(item: pytest.Item) -> bool:
    """Return whether a test starts processes of a Dask cluster, or is a cell of a notebook that does."""
    if item.get_closest_marker("processes") or any(item.get_closest_marker(layer) for layer in PROCESS_LAYERS):
        return True
    if item.path.suffix == ".ipynb":
        return _has_processes(item.path)
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = PROCESS_FIXTURES - parameters.keys()  # a parameter may have the name of one
    return parameters.get("engine") == "dask" or not fixtures.isdisjoint(getattr(item, "fixturenames", ()))


@functools.cache
def _has_processes(notebook: Path) -> bool:
    return any(word in notebook.read_text() for word in ("DaskCluster", "lk.Lab("))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Refuse processes in a test that is not in their group: there would be two clusters at once.

    After the last test of a file its garbage is collected. The runs of a file are in reference cycles with their arrays, and so
    few objects that the collector of Python did not run before a worker of pytest-xdist had 4 GB. What is left stays: the next
    collections (labkit makes one where the location of a run is reserved) need not search it again.
    """
    original = forkserver.ensure_running

    def refuse() -> None:
        raise AssertionError(f"{item.nodeid} starts processes: mark it with @pytest.mark.processes")

    if not starts_processes(item):
        forkserver.ensure_running = refuse
        if hasattr(item.config, "workerinput") and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
    try:
        return (yield)
    finally:
        forkserver.ensure_running = original
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@functools.cache
def suite_of(path: Path) -> str:
    """Return the key in `SUITES` of a file. Raises UsageError if no path above the file has an entry."""
    for folder in (path, *path.parents):
        if folder.is_relative_to(ROOT) and (name := folder.relative_to(ROOT).as_posix()) in SUITES:
            return name
    if path.is_relative_to(ROOT):
        raise pytest.UsageError(f"{path} has no layer; add its folder to SUITES in conftest.py.")
    return "tests"


def _suite_of_test(name: str) -> str:
    return suite_of(ROOT / name.partition("::")[0])


def _sampled(items: list[pytest.Item]) -> list[tuple[pytest.Mark, list[pytest.Item]]]:
    """Return the mark `sample` and the parameter sets of every test that has one, on every engine."""
    groups: dict[tuple[str, str], tuple[pytest.Mark, list[pytest.Item]]] = {}
    for item in items:
        mark = item.get_closest_marker("sample")
        if isinstance(item, pytest.Function) and mark:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            test = item.nodeid.removesuffix(item.name) + item.originalname
            groups.setdefault((test, str(parameters.get("engine"))), (mark, []))[1].append(item)
    return list(groups.values())


def _spread(items: list[pytest.Item], count: int | None = None) -> set[pytest.Item]:
    """Return `count` of the items, at equal distances; all, if there are not more or without a count."""
    if count is None or len(items) <= count:
        return set(items)
    return {items[(2 * k + 1) * len(items) // (2 * count)] for k in range(count)}


# processes ------------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Set Python's default handler for SIGINT, and replace the dots of the terminal by the report of suites.

    If the tests were started with SIGINT ignored (as by a shell script in the background), processes started by tests
    would also ignore SIGINT, and could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.get_verbosity() < 0 and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SuiteReport(config), "labkit-suites")


# the report -----------------------------------------------------------------------------------------------------------

LEFT = pytest.StashKey[Counter[str]]()  # {suite: parameter sets that only LABKIT_TESTS=whole runs}


@dataclass
class Suite:
    """The tests of one suite in this session: names of those that are not finished, and what became of the others."""

    open: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class SuiteReport:
    """Writes one line for each suite, when its last test has ended: what was tested, how many tests, and their seconds."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._suites: dict[str, Suite] = {}
        self._left: Counter[str] = Counter()
        self._began = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests are known, without pytest-xdist."""
        self._left = self._config.stash.get(LEFT, Counter())
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The tests are known to a worker of pytest-xdist."""
        if not all("@" in name for name in ids):
            raise pytest.UsageError("pytest-xdist ignores the groups of tests; install pytest as in the extra `test`.")
        self._expect(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker of pytest-xdist has ended."""
        self._left = Counter(getattr(node, "workeroutput", {}).get("left", self._left))

    def _expect(self, ids: Iterable[str]) -> None:
        for name in ids:
            self._suites.setdefault(_suite_of_test(name), Suite()).open.add(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Write nothing for a test that has passed or was skipped."""
        if report.passed or report.skipped:
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            return (outcome if report.when == "call" or not report.passed else "", "", "")
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the test; write the line of its suite if it was the last."""
        suite = self._suites.get(key := _suite_of_test(report.nodeid))
        if suite is None:
            return
        suite.seconds += report.duration
        if report.failed or report.skipped or report.when == "call":
            suite.outcomes[report.outcome] += 1
        if report.when == "teardown":
            suite.open.discard(report.nodeid)
            if not suite.open:
                self._write(key, suite)

    def _write(self, key: str, suite: Suite) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        counts = ", ".join(
            f"{suite.outcomes[name]} {name}" for name in ("failed", "passed", "skipped") if suite.outcomes[name]
        )
        name = key.removeprefix("tests/")
        terminal.ensure_newline()
        terminal.write_line(
            f"{time.monotonic() - self._began:5.0f} s  {name:<32} {counts:>22} in {suite.seconds:5.1f} s   {SUITES[key][1]}",
            red=bool(suite.outcomes["failed"]),
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write what LABKIT_TESTS=whole adds."""
        if self._left:
            parts = ", ".join(f"{name.removeprefix('tests/')} {count:,}" for name, count in sorted(self._left.items()))
            verb = "adds" if WHOLE else "would add"
            terminalreporter.write_line(f"LABKIT_TESTS=whole {verb} {self._left.total():,} parameter sets: {parts}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: send the number of parameter sets that were left out to the report."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = dict(session.config.stash.get(LEFT, Counter()))
