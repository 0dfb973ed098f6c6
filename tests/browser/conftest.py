"""One JupyterLab and one browser for all tests of this folder, and notebooks that all tests of a file share.

They need the extra `browser` and a Chromium. Environment:

- `LABKIT_CHROMIUM`: the browser's executable; else what is on the path; else the one Playwright has downloaded.
- `LABKIT_SCREENSHOTS`: a folder for the pictures that tests make; else a temporary one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INSTALL = "pip install -e '.[browser]' and apt-get install chromium (or: playwright install chromium)"
ON_PATH = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]

# These tests run only if they are named; then it is an error, and no reason to skip them, if something is missing.
missing = [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
if missing:
    raise pytest.UsageError(f"{', '.join(missing)} missing: {INSTALL}")

from playwright.sync_api import sync_playwright  # noqa: E402

from tests.browser.page import Notebook, write  # noqa: E402
from tests.browser.server import LabServer  # noqa: E402


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """JupyterLab, started by `labkit lab`. When it has ended, no kernel and no Dask process may be left."""
    lab = LabServer(tmp_path_factory.mktemp("jupyterlab") / "home")
    yield lab
    left = lab.close()
    assert not left, f"JupyterLab has ended, and these had to be killed: {left}"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of screenshots."""
    named = os.environ.get("LABKIT_SCREENSHOTS")
    folder = Path(named).resolve() if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def record(pictures: Path) -> Callable[[str, Any], None]:
    """`record(name, value)` stores a measurement in `measured.json` beside the screenshots."""
    path = pictures / "measured.json"

    def store(name: str, value: Any) -> None:
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**kept, name: value}, indent=1, sort_keys=True) + "\n")

    return store


@pytest.fixture(scope="session")
def context() -> Iterator[Any]:
    """A browser with a clean profile, which may use the clipboard."""
    named = os.environ.get("LABKIT_CHROMIUM") or next(filter(None, map(shutil.which, ON_PATH)), None)
    with sync_playwright() as playwright:
        path = named or playwright.chromium.executable_path
        if not Path(path).is_file():
            pytest.fail(f"there is no Chromium at {path}: {INSTALL}")
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        context.add_init_script(path=HERE / "measure.js")
        yield context
        browser.close()


opened = pytest.StashKey[list[Notebook]]()  # the notebooks of a file


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, server: LabServer, context: Any, pictures: Path) -> Iterator[Callable]:
    """`notebook(cells)` opens a new notebook of these sources, or the copy that `labkit lab` has made of a notebook:

        page = notebook(["import labkit as lk; lk.Lab()"])
        page.run_and_wait(0)
        page.await_panels()
        page.output(0).get_by_role("button", name="Run").click()

    It replaces the notebook before it in the same tab. After the tests of the file all kernels are ended, and no process may be
    left.
    """
    pages = request.node.stash[opened] = []

    def open_one(cells: list[str] | str, **how: Any) -> Notebook:
        name = cells if isinstance(cells, str) else f"{request.node.path.stem}-{len(pages)}.ipynb"
        if not isinstance(cells, str):
            write(server.root / name, cells)
        pages.append(Notebook(server, context, name, pictures, **how))
        if isinstance(cells, str):  # a stored number would hide that a cell is run and gets the same again
            pages[-1].command("notebook:clear-all-cell-outputs")
        return pages[-1]

    yield open_one
    for page in pages:
        page.close()
    left = server.sweep()
    assert not left, f"the kernels have ended, and these had to be killed: {left}"


def pages_of(item: pytest.Item) -> list[Notebook]:
    """The open notebooks of the file of a test."""
    module = item.getparent(pytest.Module)
    return module.stash.get(opened, []) if module is not None else []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failure shows what the page and the kernel of each notebook looked like."""
    report = yield
    if report.failed and report.when != "teardown":
        for page in pages_of(item):
            name = f"failed-{item.name}-{Path(page.name).stem}".replace("/", "-")
            report.sections.append(("page and kernel", page.state(name)))
    return report


@pytest.fixture(autouse=True)
def no_errors_in_the_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test there must be no error in the browser's console."""
    yield
    errors = [error for page in pages_of(request.node) for error in page.errors]
    for page in pages_of(request.node):
        page.forgive()
    assert not errors, f"the browser complained: {errors}"
