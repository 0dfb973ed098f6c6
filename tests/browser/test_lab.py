"""`lk.Lab()` in a real JupyterLab: the first minute, all controls, and unusual actions of users.

The time until a press takes effect and the number of frames are written to `measured.json` beside the screenshots; no
test asserts a time.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.browser.cells import DASK, SIMULATED

pytestmark = pytest.mark.slow

START = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
LIVE = "lab.view().state == 'running' and not lab.view().simulated and lab.view().t > 0"
# every text of the state of the lab from now on, and of its limits
STATES = """() => {
    window.states = [];
    const look = () => window.states.push(document.querySelector(".labkit-lab .lk-player")?.innerText ?? "");
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
TEXT = "document.querySelector('.labkit-lab').innerText"


@pytest.fixture
def real(notebook):
    """A lab on four paced workers, live."""
    page = notebook([DASK, "import time\ntime.sleep(600)"])
    page.run_and_wait(0)
    page.await_panels(least=5)
    page.await_kernel(LIVE)
    return page


@pytest.fixture
def simulated(notebook):
    """A lab that plays a run in virtual time."""
    page = notebook([SIMULATED, "lab2 = lk.Lab(panels=['staleness'])\nlab2"])
    page.run_and_wait(0)
    page.await_panels(least=5)
    return page


def test_the_first_minute(notebook, record):
    page = notebook(START)
    first = page.cells.index("code")
    page.page.evaluate(STATES)
    page.run(first)
    page.page.wait_for_selector(".labkit-lab")
    page.page.wait_for_function(f"{TEXT}.includes('PREVIEW') || {TEXT}.includes('LIVE')")
    page.wait_idle(first)
    page.await_panels(least=5)
    page.screenshot("first-minute-1-preview")
    page.await_kernel(LIVE)
    page.await_drawings(4)
    odd = [text for text in page.page.evaluate("() => window.states") if "stopped" in text or "3600" in text]
    assert odd == []  # the preview gives way to the cluster; no run was stopped, and none ends at 3600 s
    page.screenshot("first-minute-2-live")
    page.page.wait_for_selector(".lk-question:not([hidden])")
    page.await_kernel("lab.view().state == 'paused'")  # the question waits for its reader
    page.screenshot("first-minute-3-asked")
    answer = page.output(first).get_by_role("button", name="50%")
    given = "document.querySelector('.lk-answers .lk-given')?.innerText === '50%'"
    record("answer, ms", round(page.acknowledged(answer.click, given)))
    page.await_kernel("lab.view().step == 2")
    page.await_kernel("lab.view().state == 'over'")
    page.page.wait_for_function(f"{TEXT}.includes('You answered 50%. Expected: 20%')")
    page.screenshot("first-minute-4-verdict")
    sync, free = page.kernel("[sum(c.gradients for c in t.counters.values()) for t in lab.traces[-2:]]")
    assert free > 1.5 * sync


def test_frames_arrive_and_drawing_is_cheap(real, record):
    page = real
    page.frames(seconds=3)  # the layout is stable
    before = page.threads("labkit-page")
    frames = page.frames(seconds=8)
    after = page.threads("labkit-page")
    spent = sum(after.values()) - sum(before.values())
    record("frames a second, by panel", [round(rate, 1) for rate in frames.rates])
    record("cores for drawing", round(spent / frames.seconds, 3))
    page.await_drawings(8)
    for panel in ("timeline", "staleness", "throughput", "accuracy"):
        page.await_drawings(1, f'[data-panel="{panel}"] canvas')
    page.screenshot("dask-live")


def test_every_press_is_acknowledged_and_acts(real, record):
    page, waits = real, []

    def press(name, shown, then, how=None):
        waits.append((name, page.acknowledged(how or page.button(name).click, shown)))
        page.await_kernel(then)
        page.frames(seconds=0.6)  # the next press is no double click

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
    page.page.wait_for_function(f"{TEXT}.includes('w2 killed')")
    page.screenshot("dask-killed")
    press("Restart", f"{pressed} || {named.format('Kill')}", "lab.view().conditions == {}")
    press("Stop", f"{TEXT}.includes('stopping') || {TEXT}.includes('stopped by you')", "lab.view().state == 'over'")
    press("Run", f"{TEXT}.includes('starting') || {TEXT}.includes('LIVE')", LIVE)
    record("presses, ms", [(name, round(ms)) for name, ms in waits])
    record("press to screen, median ms", round(statistics.median(ms for _, ms in waits)))


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


def test_two_cells_are_two_labs(simulated):
    page = simulated
    page.run_and_wait(1)
    assert page.output(0).locator(".labkit-lab").count() == 1
    assert page.output(1).locator(".labkit-lab").count() == 1
    page.button("Run", 1).click()
    page.await_kernel("lab2.view().state == 'running' and lab.view().state == 'running'")
    page.button("Stop", 0).click()
    page.await_kernel("lab.view().state == 'over'")
    assert page.kernel("lab2.view().state") == "running"
    page.kernel("lab2.close()")


def test_scrub_step_and_what_if_in_virtual_time(simulated):
    page = simulated
    page.await_kernel("lab.view().t > 3e9")
    page.lab().get_by_label("time of the run").focus()
    page.press("ArrowLeft", "ArrowLeft")
    page.await_kernel("not lab.view().live")
    page.page.wait_for_function(f"{TEXT}.includes('looking back')")
    page.await_kernel("not lab.drawing")  # the moment that is looked at is drawn
    assert sum(page.frames(seconds=1).drawn) == 0  # and it is paused
    at = page.kernel("lab.view().t")
    page.button("Step").click()
    page.await_kernel(f"lab.view().t > {at}")
    page.button("What if from here").click()
    page.await_kernel("lab.view().live and lab.view().reference is not None and lab.view().state == 'running'")
    page.frames(seconds=1)
    page.screenshot("what-if")


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


def test_a_closed_tab_ends_the_drawing_thread_and_an_opened_one_starts_it(real):
    page = real
    page.save()
    page.close_tab()
    page.await_kernel("not [t for t in __import__('threading').enumerate() if t.name.startswith('labkit-page')]")
    assert page.kernel("lab.view().state") == "running"
    page.reopen()
    page.await_panels(least=5)
    page.page.wait_for_selector(".labkit-lab")
    page.await_drawings(2)
    page.button("Stop").click()
    page.await_kernel("lab.view().state == 'over'")


def test_presses_in_quick_succession_and_a_cluster_that_fails(real):
    page = real
    page.button("Run").dblclick()
    page.await_kernel(f"len(lab.runs) == 1 and {LIVE}")  # ended once, begun once
    menu = page.lab().get_by_label("strategy")
    menu.select_option(label="SyncPS")
    page.await_kernel("lab.settings.strategy.name == 'SyncPS' and lab.latest.plan.strategy.name == 'AsyncPS'")
    page.page.wait_for_selector(".labkit-lab .lk-next")  # it applies to the next run, and the lab shows this
    assert page.kernel("lab.view().state") == "running"
    page.kernel("import matplotlib.pyplot as plt\nfor _ in range(20): plt.figure(); plt.plot([1, 2]); plt.close()\n0")
    page.await_drawings(2)
    page.kernel("lab.cluster.client.shutdown()\n0")
    page.await_kernel("lab.view().state == 'failed'")
    page.page.wait_for_function(f"{TEXT}.includes('failed')")
    page.screenshot("cluster-gone")
    page.button("Run").click()  # a new cluster is started for it
    page.await_kernel(LIVE)
    assert page.kernel("lab.latest.plan.strategy.name") == "SyncPS"
