"""The buttons of a lab in virtual time that calibrate, compare a run with its forecast, forecast and sweep."""

from __future__ import annotations

import pytest

from tests.browser.cells import SHEET, TEXT
from tests.browser.test_accessibility import violations

# A cluster with known costs instead of processes. The calibration has the same costs, so it forecasts exactly.
COSTS = """
from dataclasses import replace
import labkit as lk
problem = lk.Problem("digits", hidden=(16,))
costs = lk.Costs(lk.WorkCost(0.05), send=lk.Linear(2e-3), receive=lk.Linear(3e-3), update=lk.Linear(2e-3), cores=8)
cluster = lk.SimulatedCluster(workers=4, compute=None, costs=costs)
found = lk.calibrate(cluster, replace(problem, timing_only=True), 1)
exact = replace(found, costs=replace(costs, spread=lk.distributions.Measured((1.0, 1.0))), doubts=())
lab = lk.Lab(problem, "async-ps", cluster).set(seconds=600)
lab.calibration = None  # a lab has that of the lab which the same cell made before
lab
"""
BOTH = "['run', 'calibrate'].forEach(id => document.querySelector(`.labkit-lab [data-id=${id}]`).click())"


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook with a cell for a lab on a cluster with known costs, at 1366 x 768."""
    return notebook([COSTS], size=(1366, 768), whole=True)


@pytest.fixture
def known(shared):
    """A new lab in this cell."""
    page = shared
    page.theme("light")
    page.resize(1366, 768)
    page.run_and_wait(0)
    page.await_panels(least=5)
    page.lab().evaluate("node => node.scrollIntoView()")  # panels that are out of view are not drawn
    return page


def test_the_dashed_curve_is_drawn_and_follows_a_slowdown(known):
    page = known
    page.kernel("lab.calibration = exact")
    page.button("Run").click()
    page.await_kernel("lab.view().t > 3e9")
    page.await_caption("throughput", r"forecast \d+/s \([+−]0\.\d%\)")
    page.role("w2").click()
    page.lab().get_by_label("slowdown factor").select_option("5")
    page.await_kernel("len(lab.view().forecast.parts) == 2")
    page.await_kernel("lab.view().t > 9e9")
    shares = page.kernel("[part.rate() for part in lab.view().forecast.parts]")
    assert shares[1] / shares[0] == pytest.approx((3 + 1 / 5) / 4, rel=0.03)
    page.await_drawings(1)
    for shade in ("light", "dark"):
        page.theme(shade)
        page.screenshot(f"forecast-{shade}")


def test_calibrate_can_be_cancelled_and_is_refused_during_a_run(known):
    page = known
    page.button("Calibrate").click()
    page.lab().get_by_role("button", name="Cancel").click()
    page.await_kernel("lab.view().task.state == 'cancelled'")
    page.page.wait_for_selector(".labkit-lab .lk-task", state="hidden")
    assert page.kernel("lab.calibration is None")
    page.press("Escape")
    page.page.wait_for_selector(SHEET, state="hidden")
    page.page.evaluate(BOTH)  # the page does not know yet that the run has begun
    page.await_kernel("lab.view().state == 'running' and lab.view().t > 0")
    page.await_page(f"{TEXT}.includes('a run is active') && {TEXT}.includes('Press Stop first')")
    assert page.page.locator(SHEET).is_hidden()
    page.page.wait_for_selector(".labkit-lab [data-id=calibrate][aria-disabled=true]")
    page.button("Calibrate").click(force=True)  # it is marked as disabled; a press says why
    assert page.page.locator(SHEET).is_hidden()
    assert page.kernel("lab.view().state") == "running"


def test_what_if_and_a_sweep_show_their_results_in_the_page(known):
    page = known
    page.kernel("lab.calibration = exact")
    page.button("Forecast").click()
    sheet = page.page.locator(SHEET)
    sheet.get_by_label("workers to forecast").fill("8")
    sheet.get_by_role("button", name="Forecast", exact=True).click()
    page.await_kernel("lab.view().forecasts is not None")
    page.await_page("document.querySelectorAll('[aria-label=\"what if\"] tbody tr').length === 2")
    page.lab().get_by_role("button", name="sweep workers").click()
    sheet.get_by_label("values", exact=True).fill("1, 2, 4")
    sheet.get_by_role("button", name="Sweep", exact=True).click()
    page.await_kernel("lab.view().swept is not None and lab.view().task.state == 'over'")
    page.await_page("document.querySelectorAll('[aria-label=\"sweep a setting\"] tbody tr').length === 3")
    page.await_panels(".labkit-lab canvas.lk-figure")
    for shade in ("light", "dark"):
        page.theme(shade)
        page.screenshot(f"sweep-{shade}")
    page.resize(1366, 1800)  # the whole sheet is visible: axe-core cannot judge texts that are scrolled out of view
    page.await_page(f"(it => it.scrollHeight <= it.clientHeight)(document.querySelector('{SHEET}'))")
    for shade in ("dark", "light"):
        page.theme(shade)
        assert violations(page, SHEET) == []
    sheet.get_by_role("button", name="Watch").click()
    page.await_kernel("lab.trace.kinds.count('worker') == 8 and lab.view().t > 0")
    assert sheet.is_hidden()
