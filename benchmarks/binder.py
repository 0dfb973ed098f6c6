"""A session as on Binder: time until a picture moves, and memory.

The environment is built from `binder/`. JupyterLab, its kernels and all that these start have one core and 2 GB (control groups,
if this user can create them). The browser is outside, as that of a user of Binder. The time begins when Binder would start the
session; the image has been built before.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .binder_session import Environment, Session, build, groups
from .front_end import FrontEnd
from .rows import Benchmark, Row, Settings, Side, Values, alternate

START, LESSON = Path("notebooks/00_start_here.ipynb"), Path("notebooks/01_one_machine.ipynb")
LABS = 4
MINUTES = (5.0, 10.0, 20.0, 30.0)  # of one lab at full speed
LIVE = """
import labkit as lk
lab = lk.Lab(lk.Problem("digits"), "async-ps", lk.DaskCluster()).set(seconds=7200).run()
lab
"""
PAGE_S = 120.0  # seconds at most for a state of the page

CHROMIUM = shutil.which(os.environ.get("LABKIT_CHROMIUM", "chromium")) or "chromium"
READY = """() => {
    const session = window.jupyterapp?.shell?.currentWidget?.sessionContext;
    return session?.isReady && session.session?.kernel?.status === "idle";
}"""
RUN = """async number => {
    window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
    await window.jupyterapp.commands.execute("notebook:run-cell");
}"""
# The number of different pictures that one panel has shown so far, at most.
PICTURES = """least => {
    window.pictures ??= new Map();
    for (const panel of document.querySelectorAll(".labkit-lab [data-panel]")) {
        const canvas = panel.querySelector("canvas");
        if (!canvas?.width || !canvas.height) continue;
        const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        if (new Set(pixels).size <= 2) continue;
        const seen = window.pictures.get(panel.dataset.panel) ?? new Set();
        window.pictures.set(panel.dataset.panel, seen.add(pixels.reduce((sum, value) => (31 * sum + value) | 0, 0)));
    }
    return Math.max(0, ...[...window.pictures.values()].map(seen => seen.size)) >= least;
}"""


def run(settings: Settings) -> list[Row]:
    """Build the environment, then measure the opening of a session, and the memory of another one."""
    with TemporaryDirectory() as folder:
        settings.report_progress("the environment is built")
        environment = build(Path(folder), sys.executable)
        opened = [Side("labkit", lambda: _opening(environment), needs=("playwright",), programs=(CHROMIUM,))]
        memory = [Side("labkit", lambda: _memory(environment, settings))]
        return [*alternate(settings, "opening", opened), *alternate(settings, "memory", memory, repetitions=1)]


def _code(environment: Environment, notebook: Path) -> list[tuple[int, str]]:
    """Return (index of the cell, source) of the cells with code."""
    cells = json.loads((environment.repo / notebook).read_text())["cells"]
    return [(i, "".join(cell["source"])) for i, cell in enumerate(cells) if cell["cell_type"] == "code"]


def _opening(environment: Environment) -> Values:
    from playwright.sync_api import sync_playwright

    cell = next(i for i, source in _code(environment, START) if "lk.Lab(" in source)
    with groups() as control_groups, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.set_default_timeout(1000 * PAGE_S)
        began, times = time.monotonic(), dict[str, float]()
        with Session(environment, control_groups) as session:

            def reached(state: str) -> None:
                times[f"start of the session to {state}"] = time.monotonic() - began

            address = session.address()
            reached("a server that listens")
            page.goto(f"{address}lab/tree/{START}?token={session.token}")
            page.wait_for_function(READY, polling=50)
            reached("the start notebook with an idle kernel")
            page.evaluate(RUN, cell)
            page.wait_for_function(PICTURES, arg=1, polling=50)
            reached("the first picture, the cell being run at once")
            page.wait_for_function(PICTURES, arg=2, polling=50)
            reached("a picture that moves")
            browser.close()
    return {(name, "s"): seconds for name, seconds in times.items()}


def _memory(environment: Environment, settings: Settings) -> Values:
    found: dict[tuple[str, str], float] = {}
    with groups() as control_groups, Session(environment, control_groups) as session:
        session.address()

        def note(when: str) -> None:
            found[f"memory of all processes {when}", "MB"] = session.pss() / 1e6

        with session.kernel() as kernel:
            for _, source in _code(environment, LESSON):
                kernel.run(source)
            note("after the first lesson")
            for number in range(LABS):
                name = f"lab_{number}"
                kernel.run(f'import labkit as lk\n{name} = lk.Lab(scenario="first-minute").run()\n{name}')
                _await_updates(kernel, name)
            note(f"with {LABS} labs in the notebook")
        with session.kernel() as kernel:
            kernel.run(LIVE)
            _await_updates(kernel, "lab")
            note("with one lab, at its beginning")
            began = time.monotonic()
            for minutes in (0.1,) if settings.quick else MINUTES:
                kernel.acknowledge_frames(began + 60 * minutes - time.monotonic())
                note(f"with one lab, {minutes:g} minutes later")
        found["memory of all processes, at most", "MB"] = session.memory.pss / 1e6
    return found


def _await_updates(kernel: FrontEnd, lab: str) -> None:
    """Until the run of a lab has applied a gradient."""
    while not kernel.run("0", f"{lab}.view().t > 0"):
        kernel.acknowledge_frames(0.1)


BENCHMARK = Benchmark("binder", "a session of one core and 2 GB, as on Binder: time to a moving picture, memory", run)
