"""Configuration of all tests and notebooks."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# One lesson and one assignment are representatives of their kind; the other notebooks belong to the slow suites.
QUICK_NOTEBOOKS = ("04_asynchronous_sgd.ipynb", "02_synchronous_server.ipynb")
NOTEBOOKS = Path(__file__).parent / "notebooks"

# Every run of the tests tries the same examples; `--hypothesis-profile=random` tries new ones.
hypothesis.settings.register_profile("same", derandomize=True, database=None)
hypothesis.settings.register_profile("random", print_blob=True)
hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cells of notebooks, and the parameter sets of sampled tests, that belong to the slow suites; leave out what
    `LABKIT_CHAOS=whole` adds.
    """
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


def _samples(mark: str, items: list[pytest.Item]) -> Iterator[tuple[list[pytest.Item], list[pytest.Item]]]:
    """For every test marked `mark(n)`, on every engine: (n parameter sets at equal distances, the others)."""
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
    """Set Python's default handler for SIGINT, also if the tests were started with SIGINT ignored (as by a shell script in
    the background): processes started by tests would inherit that, and could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
