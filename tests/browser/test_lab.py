"""`lk.Lab()` in a real JupyterLab: the first minute, all controls, and unusual actions of users.

The time until a press takes effect and the number of frames are written to `measured.json` beside the screenshots; no
test asserts a time.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from tests.browser.cells import DASK, SIMULATED

pytestmark = pytest.mark.slow

START = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
LIVE = "lab.view().state == 'running' and not lab.view().simulated and lab.view().t > 0"
TEXT = "document.querySelector('.labkit-lab').innerText"


def button(page, name, cell=0):
    """The button of this name in the lab below a cell."""
    return page.output(cell).get_by_role("button", name=name, exact=False).first


def text(page, cell=0):
    """All texts of the lab."""
    return page.output(cell).locator(".labkit-lab").first.inner_text()


@pytest.fixture
def measured(pictures):
    """Measurements, stored as an artefact: `measured[name] = value`."""
    path = pictures / "measured.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    yield kept
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


@pytest.fixture
def real(notebook):
    """A lab on four paced workers, live."""
    page = notebook([DASK, "import time\ntime.sleep(600)"])
    page.run_and_wait(0)
    page.await_images(least=5)
    page.await_kernel(LIVE)
    return page


@pytest.fixture
def simulated(notebook):
    """A lab that plays a run in virtual time."""
    page = notebook([SIMULATED, "lab2 = lk.Lab(panels=['staleness'])\nlab2"])
    page.run_and_wait(0)
    page.await_images(least=5)
    return page


def test_the_first_minute(notebook, measured):
    page = notebook(START)
    first = page.cells.index("code")
    page.run(first)
    page.page.wait_for_selector(".labkit-lab", timeout=60_000)
    page.page.wait_for_function(f"{TEXT}.includes('PREVIEW') || {TEXT}.includes('LIVE')", timeout=60_000)
    page.wait_idle(first)
    page.await_images(least=6)
    page.screenshot("first-minute-1-preview")
    page.await_kernel(LIVE, 60)
    assert page.frames(seconds=3).shown
    page.screenshot("first-minute-2-live")
    page.page.wait_for_selector(".lk-asked:not(.lk-gone)", timeout=60_000)
    page.screenshot("first-minute-3-asked")
    answer = page.output(first).get_by_role("button", name="50%")
    measured["answer, ms"] = page.acknowledged(answer.click, f"{TEXT}.includes('You answered 50%')")
    page.await_kernel("lab.view().step == 2", 60)
    page.await_kernel("lab.view().state == 'over'", 60)
    page.page.wait_for_function(f"{TEXT}.includes('fell to 20%')", timeout=20_000)
    assert "You answered 50%" in text(page, first)
    page.screenshot("first-minute-4-verdict")
    sync, free = page.kernel("[sum(c.gradients for c in t.counters.values()) for t in lab.traces[-2:]]")
    assert free > 1.5 * sync


def test_frames_arrive_and_drawing_is_cheap(real, measured):
    page = real
    page.frames(seconds=3)  # the layout is stable
    before = page.threads("labkit-page")
    frames = page.frames(seconds=8)
    after = page.threads("labkit-page")
    spent = sum(after.values()) - sum(before.values())
    measured["frames a second, by image"] = [round(rate, 1) for rate in frames.rates]
    measured["cores for drawing"] = round(spent / frames.seconds, 3)
    assert max(frames.shown) > 8
    assert sum(count > 0 for count in frames.shown) >= 4
    page.screenshot("dask-live")


def test_every_press_is_acknowledged_and_acts(real, measured):
    page, waits = real, []

    def press(name, shown, then):
        waits.append((name, page.acknowledged(button(page, name).click, shown)))
        page.await_kernel(then)
        page.frames(seconds=0.6)  # the next press is no double click

    named = "[...document.querySelectorAll('.labkit-lab button')].some(b => b.innerText.trim() === {!r})"
    for _ in range(3):
        press("Pause", named.format("Resume"), "lab.view().state == 'paused'")
        press("Resume", named.format("Pause"), "lab.view().state == 'running'")
    press("Pin", named.format("Unpin"), "lab.session.reference is not None")
    press("Unpin", named.format("Pin"), "lab.session.reference is None")
    chip = "[...document.querySelectorAll('.labkit-lab button.lk-slow')].some(b => b.innerText.trim() === 'w2')"
    button(page, "w2").click()
    slower = page.output(0).locator(".lk-slowdown .noUi-handle")
    slower.focus()
    for key, shown, then in [
        ("ArrowRight", chip, "> 1"),
        ("ArrowLeft", f"!({chip})", "== 1"),
        ("ArrowRight", chip, "> 1"),
    ]:
        waits.append(("slower", page.acknowledged(lambda key=key: page.press(key), shown)))
        page.await_kernel(f"lab.view().slow.get('worker-2', 1) {then}")
        page.frames(seconds=0.6)
    page.screenshot("dask-slowed")
    scrub = page.output(0).locator(".lk-scrub .noUi-handle")
    scrub.focus()
    waits.append(("scrub", page.acknowledged(lambda: page.press("Home"), f"{TEXT}.includes('Back to live')")))
    page.await_kernel("not lab.view().live")
    press("Back to live", f"!{TEXT}.includes('looking back')", "lab.view().live")
    waits.append(("kill", page.acknowledged(button(page, "Kill").click, f"{TEXT}.includes('kill')")))
    page.await_kernel("lab.view().conditions == {'worker-2': 'killed'} and lab.view().state == 'running'")
    page.page.wait_for_function(f"{TEXT}.includes('w2 killed')")
    page.screenshot("dask-killed")
    press("Restart", named.format("Kill"), "lab.view().conditions == {}")
    press("Stop", f"{TEXT}.includes('stopping') || {TEXT}.includes('stopped by you')", "lab.view().state == 'over'")
    press("Run", f"{TEXT}.includes('starting') || {TEXT}.includes('LIVE')", LIVE)
    measured["presses, ms"] = [(name, round(ms)) for name, ms in waits]
    measured["press to screen, median ms"] = round(statistics.median(ms for _, ms in waits))


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
    button(page, "Run", 1).click()
    page.await_kernel("lab2.view().state == 'running' and lab.view().state == 'running'")
    button(page, "Stop", 0).click()
    page.await_kernel("lab.view().state == 'over'")
    assert page.kernel("lab2.view().state") == "running"
    page.kernel("lab2.close()")


def test_scrub_step_and_what_if_in_virtual_time(simulated):
    page = simulated
    page.await_kernel("lab.view().t > 3e9")
    scrub = page.output(0).locator(".lk-scrub .noUi-handle")
    scrub.focus()
    page.press("ArrowLeft", "ArrowLeft")
    page.await_kernel("not lab.view().live")
    page.page.wait_for_function(f"{TEXT}.includes('looking back')")
    page.await_kernel("not lab.drawing")  # the moment that is looked at is drawn
    assert sum(page.frames(seconds=1).given) == 0  # and it is paused
    at = page.kernel("lab.view().t")
    button(page, "Step").click()
    page.await_kernel(f"lab.view().t > {at}")
    button(page, "What if from here").click()
    page.await_kernel("lab.view().live and lab.view().reference is not None and lab.view().state == 'running'")
    page.frames(seconds=1)
    page.screenshot("what-if")


def test_buttons_act_while_a_cell_runs(real):
    page = real
    page.run(1)
    button(page, "Pause").click()
    page.await_kernel("lab.view().state == 'paused'")
    assert page.prompt(1) == "*"
    page.interrupt()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        page.wait_idle(1)
    button(page, "Resume").click()
    page.await_kernel("lab.view().state == 'running'")


def test_a_closed_tab_ends_the_drawing_thread_and_an_opened_one_starts_it(real):
    page = real
    page.save()
    page.close_tab()
    page.await_kernel("not [t for t in __import__('threading').enumerate() if t.name.startswith('labkit-page')]", 60)
    assert page.kernel("lab.view().state") == "running"
    page.reopen()
    page.await_images(least=5)
    page.page.wait_for_selector(".labkit-lab")
    assert max(page.frames(seconds=3).shown) >= 2
    button(page, "Stop").click()
    page.await_kernel("lab.view().state == 'over'")


def test_every_control_can_be_used_with_keys_without_editing_the_cell(simulated):
    page = simulated
    before = page.cells
    button(page, "Pause").focus()
    page.press("Enter")
    page.await_kernel("lab.view().state == 'paused'")
    page.press("a", "b", "d", "d", "m", "x", "Escape")
    assert page.cells == before
    assert page.output(0).locator(".labkit-lab").count() == 1
    seen = set()
    for _ in range(40):
        page.press("Tab")
        seen.add(page.focused)
    assert {"Stop", "Pin"} <= {name.split("\n")[0] for name in seen}, seen
    rate = page.output(0).locator(".lk-side .noUi-handle").first
    rate.focus()
    was = page.kernel("lab.settings.strategy.learning_rate")
    page.press("ArrowRight", "ArrowRight")
    page.await_kernel(f"lab.settings.strategy.learning_rate > {was}")


def test_buttons_and_keys_of_the_lab_act_on_the_run(real):
    page = real
    button(page, "Run").dblclick()
    page.await_kernel(f"len(lab.runs) == 1 and {LIVE}")  # ended once, begun once
    menu = page.output(0).locator(".lk-side select").first
    menu.select_option(label="SyncPS")
    page.await_kernel("lab.settings.strategy.name == 'SyncPS' and lab.latest.plan.strategy.name == 'AsyncPS'")
    page.page.wait_for_selector(".labkit-lab .lk-next")  # it applies to the next run, and the lab shows this
    assert page.kernel("lab.view().state") == "running"
    page.kernel("import matplotlib.pyplot as plt\nfor _ in range(20): plt.figure(); plt.plot([1, 2]); plt.close()\n0")
    assert max(page.frames(seconds=3).shown) >= 2
    page.kernel("lab.cluster.client.shutdown()\n0")
    page.await_kernel("lab.view().state == 'failed'", 30)
    page.page.wait_for_function(f"{TEXT}.includes('failed')")
    page.screenshot("cluster-gone")
    button(page, "Run").click()  # a new cluster is started for it
    page.await_kernel(LIVE, 60)
    assert page.kernel("lab.latest.plan.strategy.name") == "SyncPS"
