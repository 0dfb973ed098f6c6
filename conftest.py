"""Configuration of all tests and notebooks."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest

# One lesson and one assignment represent their kind in the quick suite; the other notebooks belong to the slow suites.
QUICK_NOTEBOOKS = ("04_asynchronous_sgd.ipynb", "02_synchronous_server.ipynb")
ROOT = Path(__file__).parent
NOTEBOOKS = ROOT / "notebooks"
WHOLE = os.environ.get("LABKIT_TESTS") == "whole"  # all parameter sets of the slow suites

# Every test has exactly one layer, as a marker: the marker that the test names, else the layer of the longest path above it.
LAYERS = ("unit", "simulated", "contract", "dask", "chaos", "multihost", "browser")
LAYER_OF = {
    "notebooks": "simulated",
    "tests": "unit",
    "tests/advisor": "simulated",
    "tests/browser": "browser",
    "tests/chaos": "chaos",
    "tests/cli": "simulated",
    "tests/contract": "contract",
    "tests/dask": "dask",
    "tests/digests": "simulated",
    "tests/docs": "simulated",
    "tests/engines/simulated": "simulated",
    "tests/engines/test_strategy_check.py": "simulated",
    "tests/lab": "simulated",
    "tests/multihost": "multihost",
    "tests/narrative": "simulated",
    "tests/results": "simulated",
    "tests/roles/test_invalid_gradients.py": "simulated",
    "tests/test_resume.py": "simulated",
    "tests/trace": "simulated",
    "tests/views": "simulated",
}

# Every run of the tests tries the same examples; `--hypothesis-profile=random` tries new examples. They have no time limit.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("random", print_blob=True, deadline=None)
hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the layer of every test, and mark as slow the tests that belong to the slow suites.

    These are cells of notebooks and parameter sets of sampled tests. Parameter sets that run only with
    `LABKIT_TESTS=whole` are deselected.
    """
    for item in items:
        named = {mark.name for mark in item.iter_markers() if mark.name in LAYERS}
        if len(named) > 1:
            raise pytest.UsageError(f"{item.nodeid} has the layers {', '.join(sorted(named))}; give one.")
        if not named:
            item.add_marker(_layer(item.path))
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
    for item in items:
        if item.path.suffix == ".ipynb" and not (NOTEBOOKS in item.path.parents and item.path.name in QUICK_NOTEBOOKS):
            item.add_marker(pytest.mark.slow)


def _layer(path: Path) -> str:
    """Return the layer of the tests of a file. Raises UsageError if no path above the file has a layer."""
    for folder in (path, *path.parents):
        if folder.is_relative_to(ROOT) and (layer := LAYER_OF.get(folder.relative_to(ROOT).as_posix())):
            return layer
    if path.is_relative_to(ROOT):
        raise pytest.UsageError(f"{path} has no layer; add its folder to LAYER_OF in conftest.py.")
    return "unit"


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


def pytest_configure() -> None:
    """Set Python's default handler for SIGINT.

    If the tests were started with SIGINT ignored (as by a shell script in the background), processes started by tests
    would also ignore SIGINT, and could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
