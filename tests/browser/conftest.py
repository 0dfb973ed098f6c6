"""One JupyterLab for all tests of this folder, and a browser for each file of them.

Where Playwright or Chromium is missing, these tests are skipped, by name and with how to get them. Environment:

- `LABKIT_BROWSER=required`: it is an error if one is skipped, or if fewer than `LABKIT_BROWSER_LEAST` (1) ran.
- `LABKIT_CHROMIUM`: the browser's executable; else what is on the path; else the one Playwright has downloaded.
- `LABKIT_SCREENSHOTS`: a folder for the pictures that tests make; else a temporary one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.server import LabServer

HERE = Path(__file__).parent
INSTALL = "pip install -e '.[browser]' and apt-get install chromium (or: playwright install chromium)"
ON_PATH = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
REQUIRED = os.environ.get("LABKIT_BROWSER") == "required"

ran = pytest.StashKey[set[str]]()
failed = pytest.StashKey[bool]()


def chromium() -> str | None:
    """The browser's executable, or None."""
    named = os.environ.get("LABKIT_CHROMIUM")
    found = [named] if named else [path for name in ON_PATH if (path := shutil.which(name))]
    if found:
        return found[0]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).is_file() else None


def missing() -> str:
    """The missing requirements of these tests, as text; "" if none."""
    for module, name in (("playwright", "Playwright"), ("axe_playwright_python", "axe-playwright-python")):
        if importlib.util.find_spec(module) is None:
            return f"{name} is not installed: {INSTALL}"
    path = chromium()
    return "" if path and Path(path).is_file() else f"there is no Chromium{f' at {path}' if path else ''}: {INSTALL}"


# skipped by name, or not at all -----------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    why = missing() if mine and not REQUIRED else ""
    for item in mine if why else ():
        item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if HERE in item.path.parents and report.when == "call" and not report.skipped:
        item.config.stash.setdefault(ran, set()).add(item.nodeid)
        item.stash[failed] = report.failed
    return report


def too_few(config: pytest.Config) -> str:
    """The reason why a session that had to run browser tests has not, or ""."""
    count, least = len(config.stash.get(ran, ())), int(os.environ.get("LABKIT_BROWSER_LEAST", "1"))
    if REQUIRED and count < least and not config.option.collectonly:
        return f"LABKIT_BROWSER=required, and {count} browser tests ran; at least {least} have to"
    return ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    if too_few(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "/browser/" in report.nodeid]
    if skipped:
        names = ", ".join(report.nodeid.rpartition("::")[2] for report in skipped)
        terminalreporter.write_line(
            f"Browser tests skipped: {names}: {skipped[0].longrepr[2].removeprefix('Skipped: ')}", yellow=True
        )
    if too_few(config):
        terminalreporter.write_line(too_few(config), red=True)


# fixtures ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """JupyterLab. When it has ended, no kernel and no Dask process may be left."""
    if missing():
        pytest.fail(missing())
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


@pytest.fixture(scope="module")
def context(server: LabServer) -> Iterator[Any]:
    """A browser with a clean profile, which may use the clipboard. For one file only: its driver keeps an event loop running
    in this thread, which would interfere with other tests.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        context.add_init_script(path=HERE / "measure.js")
        yield context
        browser.close()


@contextlib.contextmanager
def notebooks(server: LabServer, context: Any, pictures: Path, stem: str, node: pytest.Item | None) -> Iterator[Callable]:
    """The function that opens notebooks; afterwards they are closed. `node`: the test, of which a failure is pictured."""
    from tests.browser.page import Notebook, write

    opened: list[Notebook] = []

    def open_one(cells: list[str] | Path, **how: Any) -> Notebook:
        name = f"{stem}-{len(opened)}.ipynb"
        write(server.root / name, cells)
        opened.append(Notebook(server, context, name, pictures, **how))
        return opened[-1]

    yield open_one
    for page in opened:
        if node is not None and node.stash.get(failed, False) and not page.page.is_closed():
            page.screenshot(f"failed-{Path(page.name).stem}")
        page.close()
    left = server.sweep()
    assert not left, f"the kernels have ended, and these had to be killed: {left}"
    errors = [error for page in opened for error in page.errors]
    assert not errors, f"the browser complained: {errors}"


@pytest.fixture
def notebook(request: pytest.FixtureRequest, server: LabServer, context: Any, pictures: Path) -> Iterator[Callable]:
    """`notebook(cells)` opens a new notebook of these sources, or a copy of the notebook at this path:

        page = notebook(["import labkit as lk; lk.Lab()"])
        page.run_and_wait(0)
        page.await_panels()
        page.output(0).get_by_role("button", name="Run").click()

    After the test its kernel is ended; there must be no error in the browser's console, and no process may be left. A
    test that fails leaves a picture of each of its notebooks.
    """
    with notebooks(server, context, pictures, request.node.originalname, request.node) as opens:
        yield opens


@pytest.fixture(scope="module")
def shared_notebook(
    request: pytest.FixtureRequest, server: LabServer, context: Any, pictures: Path
) -> Iterator[Callable]:
    """As `notebook`, for all tests of a file. A file uses one of the two, because the end of a test with `notebook` ends all
    kernels.
    """
    with notebooks(server, context, pictures, request.node.path.stem, None) as opens:
        yield opens


@pytest.fixture(autouse=True)
def picture_of_failure(request: pytest.FixtureRequest, pictures: Path) -> Iterator[None]:
    """A test of a shared notebook that fails leaves a picture of each open tab."""
    yield
    if "shared_notebook" in request.fixturenames and request.node.stash.get(failed, False):
        for i, page in enumerate(request.getfixturevalue("context").pages):
            page.screenshot(path=pictures / f"failed-{request.node.name}-{i}.png")
