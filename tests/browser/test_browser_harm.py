"""Chips in a real JupyterLab: a role is killed and comes back, is frozen and thawed, and the page says so at once; and
the two stories about machines that die, as pictures at 940 and 1600 pixels, light and dark.
"""

from __future__ import annotations

import pytest

from labkit.lab.stories import STORIES

pytestmark = pytest.mark.slow

DASK = """
import labkit as lk
lab = lk.Lab().set(seconds=600)
lab.cluster.open(6)
lab.run()
"""
SIMULATED = """
import labkit as lk
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", lk.SimulatedCluster(workers=4, compute=0.1)).set(seconds=600)
lab.run()
"""
TOLD = """
import labkit as lk
lab = lk.Lab(speed=20).set(engine="simulated")
lab
"""
LIVE = "lab.view().state == 'running' and lab.view().t > 0"
CHIPS = "[...document.querySelectorAll('.labkit-lab .lk-chips button')].map(b => b.innerText.trim())"
VERBS = "[...document.querySelectorAll('.labkit-lab .lk-verbs button')].map(b => b.innerText.trim())"
SIDEWAYS = (
    "(() => { const lab = document.querySelector('.labkit-lab'); return lab.scrollWidth > lab.clientWidth + 1; })()"
)


def button(page, name):
    """The button of this name in the lab below the first cell."""
    return page.output(0).get_by_role("button", name=name, exact=False).first


def gradients(page):
    """How many were applied so far."""
    return page.kernel("sum(c.gradients for c in lab.trace.counters.values())")


def press(page, name, chip, then):
    """Press a verb; the chip says how the role is now, and the run goes on."""
    button(page, name).click()
    page.page.wait_for_function(f"{CHIPS}.includes('{chip}')", timeout=20_000)
    page.await_kernel(then, 30)
    page.frames(seconds=0.6)  # the next press is no double click


def kill_freeze_and_back(page, name):
    page.await_kernel(LIVE, 60)
    button(page, "w2").click()
    assert page.page.evaluate(VERBS)[:2] == ["Kill", "Freeze"]
    press(page, "Kill", "w2 killed", "lab.view().conditions == {'worker-2': 'killed'}")
    assert page.page.evaluate(VERBS)[0] == "Restart"
    before = gradients(page)
    page.frames(seconds=1.5)
    page.screenshot(f"{name}-killed")
    assert gradients(page) > before  # the others go on, and it stays away
    assert page.kernel("lab.view().conditions") == {"worker-2": "killed"}
    press(page, "Restart", "w2", "lab.view().conditions == {}")
    page.frames(seconds=1.5)
    page.screenshot(f"{name}-restarted")
    button(page, "w1").click()
    press(page, "Freeze", "w1 frozen", "lab.view().conditions == {'worker-1': 'frozen'}")
    assert page.page.evaluate(VERBS)[1] == "Thaw"
    page.frames(seconds=0.6)
    page.screenshot(f"{name}-frozen")
    press(page, "Thaw", "w1", "lab.view().conditions == {}")
    assert page.kernel("lab.view().state") == "running"
    button(page, "Stop").click()
    page.await_kernel("lab.view().state == 'over'", 30)
    assert page.kernel("lk.ledger(lab.trace)['closes']")


def test_kill_and_restart_freeze_and_thaw_in_virtual_time(notebook):
    page = notebook([SIMULATED])
    page.run_and_wait(0)
    page.await_images(least=5)
    kill_freeze_and_back(page, "harm-simulated")
    moments = [
        mark["time"] / 1e9 for mark in page.kernel("[m for m in lab.trace.marks if m['kind'] in ('kill', 'restart')]")
    ]
    for at, chip in ((moments[0] + 0.1, "w2 killed"), (moments[1] + 0.1, "w2")):  # looking back
        page.kernel(f"lab.seek({at}) and 0")
        page.page.wait_for_function(f"{CHIPS}.includes('{chip}')", timeout=20_000)


def test_kill_and_restart_freeze_and_thaw_on_processes(notebook):
    page = notebook([DASK])
    page.run_and_wait(0)
    page.await_images(least=5)
    page.await_kernel("not lab.view().simulated", 60)
    kill_freeze_and_back(page, "harm-dask")


@pytest.mark.parametrize("name", ["worker-dies", "server-dies"])
def test_the_stories_of_machines_that_die_fit_the_page(notebook, name):
    page, story = notebook([TOLD]), STORIES[name]
    page.run_and_wait(0)
    page.await_images(least=5)
    page.kernel(f"lab.tell({name!r})\n0")
    if story.question is not None:
        page.kernel("lab.answer(0)\n0")
    page.await_kernel(f"lab.view().state == 'over' and lab.view().act == {len(story.acts) - 1}", 120)
    page.await_kernel("not lab._page.painter.alive", 30)
    for shade in ("light", "dark"):
        page.theme(shade)
        for width in (940, 1600):
            page.resize(width, 1500)
            page.await_images(".labkit-lab .lk-panel:not(.lk-gone) img", least=1)
            assert not page.page.evaluate(SIDEWAYS), f"{name} at {width}: something is wider than the lab"
            page.screenshot(f"story-{name}-{width}-{shade}", page.output(0).locator(".labkit-lab").first)
    page.theme("light")
