"""A lab on the processes of a Dask cluster: all controls, faults, and unusual actions of users. All tests share one cluster.

Times until a press takes effect are written to `measured.json` beside the screenshots; no test asserts a time.
"""

from __future__ import annotations

import statistics

import pytest

from tests.browser.cells import DASK, LIVE, SHEET, TEXT
from tests.browser.test_faults import kill_freeze_and_back

WATCH = """
problem = lk.Problem("digits", hidden=(16,))
run = lk.train(problem, lk.AsyncPS(), lab.cluster, lk.Budget(seconds=600))
watch = run.watch()
watch
"""


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook with a cell for a lab on four paced workers."""
    return notebook([DASK, "import threading\nthreading.Event().wait()", WATCH])


@pytest.fixture
def real(shared):
    """This lab, live."""
    if not shared.kernel(f"'lab' in globals() and {LIVE}"):
        shared.run_and_wait(0)
    shared.await_kernel(LIVE)
    shared.await_panels(least=5)
    return shared


def test_frames_arrive(real):
    real.await_drawings(8)
    for panel in ("timeline", "staleness", "throughput", "accuracy"):
        real.await_drawings(1, f'[data-panel="{panel}"] canvas')
    real.screenshot("dask-live")


def test_every_press_is_acknowledged_and_acts(real, record):
    page, waits = real, []

    def press(name, shown, then, how=None):
        waits.append((name, page.acknowledged(how or page.button(name).click, shown)))
        page.await_kernel(then)

    named = "[...document.querySelectorAll('.labkit-lab button')].some(b => !b.hidden && b.innerText.trim() === {!r})"
    for _ in range(3):
        press("Pause", named.format("Resume"), "lab.view().state == 'paused'")
        press("Resume", named.format("Pause"), "lab.view().state == 'running'")
    press("Pin", named.format("Unpin"), "lab.session.reference is not None")
    press("Unpin", named.format("Pin"), "lab.session.reference is None")
    chip = "[...document.querySelectorAll('.labkit-lab .lk-chips .lk-slow')].some(b => b.innerText.trim() === 'w2')"
    page.role("w2").click()
    factor = page.lab().get_by_label("slowdown factor")
    for choice, shown in (("3", chip), ("1", f"!({chip})"), ("5", chip)):
        press(
            "slowdown", shown, f"lab.view().slow.get('worker-2', 1) == {choice}",
            lambda choice=choice: factor.select_option(choice),
        )  # fmt: skip
    page.screenshot("dask-slowed")
    page.lab().get_by_label("time of the run").focus()
    press("time of the run", named.format("Back to live"), "not lab.view().live", lambda: page.press("Home"))
    press("Back to live", f"!{TEXT}.includes('looking back')", "lab.view().live")
    # a press is shown before its effect: Kill takes the time until the loss is noticed
    pressed = "document.querySelector('.lk-fault-controls .lk-pressed') !== null"
    killed = "lab.view().conditions == {'worker-2': 'killed'} and lab.view().state == 'running'"
    press("Kill", pressed, killed)
    page.await_page(f"{TEXT}.includes('w2 killed')")
    page.screenshot("dask-killed")
    press("Restart", f"{pressed} || {named.format('Kill')}", "lab.view().conditions == {}")
    press("Stop", f"{TEXT}.includes('stopping') || {TEXT}.includes('stopped by you')", "lab.view().state == 'over'")
    press("Run", f"{TEXT}.includes('starting') || {TEXT}.includes('LIVE')", LIVE)
    record("presses, ms", [(name, round(ms)) for name, ms in waits])
    record("press to screen, median ms", round(statistics.median(ms for _, ms in waits)))


def test_kill_and_restart_freeze_and_thaw(real):
    kill_freeze_and_back(real, "faults-dask")


def test_running_the_cell_again_leaves_one_lab_one_cluster_and_no_thread_more(real):
    page = real
    before = len(page.threads())
    pids = page.kernel("sorted(lab.cluster.client.run(__import__('os').getpid).values())")
    for _ in range(2):
        page.run_and_wait(0)
        page.await_kernel(LIVE)
    assert page.output(0).locator(".labkit-lab").count() == 1
    assert page.kernel("sorted(lab.cluster.client.run(__import__('os').getpid).values())") == pids
    mine = "[t for t in __import__('threading').enumerate() if t.name.startswith('labkit')]"
    page.await_kernel(f"len({mine}) == {before}")


def test_buttons_act_while_a_cell_runs(real):
    page = real
    page.run(1)
    page.button("Pause").click()
    page.await_kernel("lab.view().state == 'paused'")
    assert page.prompt(1) == "*"
    page.interrupt()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        page.wait_idle(1)
    page.button("Resume").click()
    page.await_kernel("lab.view().state == 'running'")


def test_a_watched_run_moves_and_stops(real):
    page = real
    page.button("Stop").click()
    page.await_kernel("lab.view().state == 'over'")
    page.run_and_wait(2)
    page.lab(2).wait_for()
    page.await_kernel("run.trace.watermark() > 0")
    page.await_panels(".jp-Cell:nth-child(3) .labkit-lab canvas", least=5)
    page.await_drawings(3, ".jp-Cell:nth-child(3) .labkit-lab canvas")
    page.screenshot("watch-dask", page.output(2))
    page.button("Stop", 2).click()
    page.await_kernel("run.stopped_by == 'user'")


def test_calibrate_measures_the_processes_and_the_next_run_is_compared_with_its_forecast(real, record):
    page = real
    page.button("Stop").click()
    page.await_kernel("lab.view().state == 'over'")
    page.button("Calibrate").dblclick()  # one measurement
    page.page.wait_for_selector(f"{SHEET} progress")
    page.await_page(f"/measuring digits on this cluster: \\d+ of \\d+/.test({TEXT})")
    page.screenshot("calibrate-1-measuring")
    assert page.kernel("'run' not in lab.view().available")
    page.await_kernel("lab.calibration is not None")
    page.await_page(f"document.querySelector('{SHEET} table')?.innerText.includes('gradient')")
    page.screenshot("calibrate-2-measured")
    page.button("Run").click()
    page.page.wait_for_selector(SHEET, state="hidden")  # the panels show the run
    page.await_kernel(f"lab.comparison is not None and {LIVE} and lab.view().t > 4e9")
    page.await_caption("throughput", "forecast .* measured")
    page.await_caption("staleness", "dashes: forecast")
    page.screenshot("calibrate-3-compared")
    record("forecast, measured and forecast", page.kernel("[list(row) for row in lab.comparison.cells()]"))


def test_presses_in_quick_succession_and_a_cluster_that_fails(real):
    page = real
    finished = page.kernel("len(lab.runs)")
    page.button("Run").dblclick()
    page.await_kernel(f"len(lab.runs) == {finished + 1} and {LIVE}")  # ended once, begun once
    menu = page.lab().get_by_label("strategy")
    menu.select_option(label="SyncPS")
    page.await_kernel("lab.settings.strategy.name == 'SyncPS' and lab.latest.plan.strategy.name == 'AsyncPS'")
    page.page.wait_for_selector(".labkit-lab .lk-next")  # it applies to the next run, and the lab shows this
    assert page.kernel("lab.view().state") == "running"
    page.kernel("import matplotlib.pyplot as plt\nfor _ in range(20): plt.figure(); plt.plot([1, 2]); plt.close()\n0")
    page.await_drawings(2)
    page.kernel("lab.cluster.client.shutdown()\n0")
    page.await_kernel("lab.view().state == 'failed'")
    page.await_page(f"{TEXT}.includes('failed')")
    page.screenshot("cluster-gone")
    page.button("Run").click()  # a new cluster is started for it
    page.await_kernel(LIVE)
    assert page.kernel("lab.latest.plan.strategy.name") == "SyncPS"
