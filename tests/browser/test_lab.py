"""`lk.Lab()` in a real JupyterLab: the first minute on processes, two labs, looking back. Times until a press takes effect are
written to `measured.json` beside the screenshots; no test asserts a time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.cells import SIMULATED

START = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
LIVE = "lab.view().state == 'running' and not lab.view().simulated and lab.view().t > 0"
# every text of the state of the lab from now on, and of its limits
STATES = """() => {
    window.states = [];
    const look = () => window.states.push(document.querySelector(".labkit-lab .lk-player")?.innerText ?? "");
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
TEXT = "document.querySelector('.labkit-lab').innerText"


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook with a cell for a lab that plays a run in virtual time."""
    return notebook([SIMULATED, "lab2 = lk.Lab(panels=['staleness'])\nlab2"])


@pytest.fixture
def simulated(shared):
    """A new lab in this cell."""
    shared.run_and_wait(0)
    shared.await_panels(least=5)
    return shared


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
    page.close()


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
    page.await_still()  # the moment that is looked at is drawn
    at, drawn = page.kernel("lab.view().t"), page.drawn
    page.await_still()
    assert (page.kernel("lab.view().t"), page.drawn) == (at, drawn)  # and it is paused
    page.button("Step").click()
    page.await_kernel(f"lab.view().t > {at}")
    page.button("What if from here").click()
    page.await_kernel("lab.view().live and lab.view().reference is not None and lab.view().state == 'running'")
    page.await_drawings(2)
    page.screenshot("what-if")
