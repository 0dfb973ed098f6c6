"""Fault injection in a real JupyterLab: a role is killed and restarted, frozen and thawed, and the page shows it at once.

The scenarios about failures are run with all the others.
"""

from __future__ import annotations

from tests.browser.cells import SIMULATED

RUNNING = "lab.view().state == 'running' and lab.view().t > 0"
CHIPS = "[...document.querySelectorAll('.labkit-lab .lk-chips button')].map(b => b.innerText.trim())"
BUTTONS = (
    "[...document.querySelectorAll('.labkit-lab .lk-fault-controls .lk-buttons button')].map(b => b.innerText.trim())"
)
GRADIENTS = "sum(c.gradients for c in lab.trace.counters.values())"


def press(page, name, chip, then):
    """Press a button; the chip shows the condition of the role, and the run continues."""
    page.button(name).click()
    page.await_page(f"{CHIPS}.includes('{chip}')")
    page.await_kernel(then)


def kill_freeze_and_back(page, name):
    """By the buttons of the lab below the first cell, whose run is live."""
    page.await_kernel(RUNNING)
    page.role("w2").click()
    assert page.page.evaluate(BUTTONS)[:2] == ["Kill", "Freeze"]
    press(page, "Kill", "w2 killed", "lab.view().conditions == {'worker-2': 'killed'}")
    page.await_page(f"{BUTTONS}[0] === 'Restart'")
    before = page.kernel(GRADIENTS)
    page.await_kernel(f"{GRADIENTS} > {before} + 20")  # the others continue, and it stays away
    page.screenshot(f"{name}-killed")
    assert page.kernel("lab.view().conditions") == {"worker-2": "killed"}
    press(page, "Restart", "w2", "lab.view().conditions == {}")
    page.await_drawings(2)
    page.screenshot(f"{name}-restarted")
    page.role("w1").click()
    press(page, "Freeze", "w1 frozen", "lab.view().conditions == {'worker-1': 'frozen'}")
    page.await_page(f"{BUTTONS}[1] === 'Thaw'")
    page.screenshot(f"{name}-frozen")
    press(page, "Thaw", "w1", "lab.view().conditions == {}")
    assert page.kernel("lab.view().state") == "running"
    page.button("Stop").click()
    page.await_kernel("lab.view().state == 'over'")
    assert page.kernel("lk.ledger(lab.trace)['closes']")


def test_kill_and_restart_freeze_and_thaw_in_virtual_time(notebook):
    page = notebook([SIMULATED])
    page.run_and_wait(0)
    page.await_panels(least=5)
    kill_freeze_and_back(page, "faults-simulated")
    moments = [
        time / 1e9 for time in page.kernel("[e.time for e in lab.trace.events if e.kind in ('killed', 'restarted')]")
    ]
    for at, chip in ((moments[0] + 0.1, "w2 killed"), (moments[1] + 0.1, "w2")):  # looking back
        page.kernel(f"lab.seek({at}) and 0")
        page.await_page(f"{CHIPS}.includes('{chip}')")
