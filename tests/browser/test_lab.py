"""`lk.Lab()` in a real JupyterLab, in virtual time: two labs, looking back, faults."""

from __future__ import annotations

import pytest

from tests.browser.cells import SIMULATED, TEXT


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
    page.await_page(f"{TEXT}.includes('looking back')")
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
