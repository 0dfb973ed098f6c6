"""Configuration of all tests and notebooks."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# One lesson and one assignment represent their kind in the quick suite; the other notebooks belong to the slow suites.
QUICK_NOTEBOOKS = ("04_asynchronous_sgd.ipynb", "02_synchronous_server.ipynb")
ROOT = Path(__file__).parent
NOTEBOOKS = ROOT / "notebooks"

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
    `LABKIT_CHAOS=whole` are left out.
    """
    for item in items:
        named = {mark.name for mark in item.iter_markers() if mark.name in LAYERS}
        if len(named) > 1:
            raise pytest.UsageError(f"{item.nodeid} has the layers {', '.join(sorted(named))}; give one.")
        if not named:
            item.add_marker(_layer(item.path))
    for _, others in _samples("sample", items):
        for item in others:
            item.add_marker(pytest.mark.slow)
    if os.environ.get("LABKIT_CHAOS") != "whole":
        left = {i for _, others in _samples("part", items) for i in others if i.get_closest_marker("slow")}
        if left:
            config.hook.pytest_deselected(items=list(left))
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


def _samples(mark: str, items: list[pytest.Item]) -> Iterator[tuple[list[pytest.Item], list[pytest.Item]]]:
    """Yield for every test marked `mark(n)`, on every engine: (n parameter sets at equal distances, the other sets)."""
    groups: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker(mark):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            test = item.nodeid.removesuffix(item.name) + item.originalname
            groups.setdefault((test, str(parameters.get("engine"))), []).append(item)
    for group in groups.values():
        (count,) = group[0].get_closest_marker(mark).args
        chosen = {(2 * k + 1) * len(group) // (2 * count) for k in range(count)}
        if len(group) > count:
            yield [group[k] for k in sorted(chosen)], [item for k, item in enumerate(group) if k not in chosen]


def pytest_configure() -> None:
    """Set Python's default handler for SIGINT.

    If the tests were started with SIGINT ignored (as by a shell script in the background), processes started by tests
    would also ignore SIGINT, and could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
