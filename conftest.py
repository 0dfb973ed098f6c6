"""What holds for all tests and notebooks, however they were started."""

import signal
from pathlib import Path

import pytest

# One lesson and one assignment are representatives of their kind; the other notebooks belong to the slow suites.
QUICK_NOTEBOOKS = ("00_start_here.ipynb", "04_asynchronous_and_stale.ipynb", "02_synchronous_server.ipynb")
NOTEBOOKS = Path(__file__).parent / "notebooks"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells of the notebooks that belong to the slow suites."""
    for item in items:
        if item.path.suffix == ".ipynb" and not (NOTEBOOKS in item.path.parents and item.path.name in QUICK_NOTEBOOKS):
            item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    """Give SIGINT Python's own handler, also where the tests were started with SIGINT ignored, as a shell script does with
    what it starts in the background: processes that tests start would inherit that, and could not be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
