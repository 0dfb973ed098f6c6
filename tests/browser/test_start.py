"""A lab from its start to its end as a new user sees it: in view, one run at a time, a question that waits, and a picture that
stays when the lab is closed or its kernel has gone.
"""

from __future__ import annotations

import nbformat
import pytest

SIZES = [(1366, 768), (940, 700), (1920, 1080)]
FAST = """
import labkit as lk
cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1))
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", cluster, speed=20)
lab.set(seconds=20).run()
"""
SCENARIO = """
import labkit as lk
lab = lk.Lab(scenario="first-minute", speed=3).set(engine="simulated").run()
lab
"""
TEXTS = ["labkit is imported in the next cell.\n" * 12, SCENARIO, *["1 + 1\n" * 10] * 4]
# what a new user is told to use or to look at, and that has to be in view
PARTS = [".lk-toolbar", ".lk-player", ".lk-headline", ".lk-fault-controls"]
PANELS = ["timeline", "staleness", "gradient_flow", "throughput", "accuracy"]
PARTLY_HIDDEN = """parts => {
    const frame = document.querySelector(".jp-WindowedPanel-outer").getBoundingClientRect();
    const lab = document.querySelector(".labkit-lab");
    return parts.filter(part => {
        const box = lab.querySelector(part).getBoundingClientRect();
        const inside = box.top >= frame.top - 1 && box.bottom <= Math.min(frame.bottom, innerHeight) + 1
            && box.left >= frame.left - 1 && box.right <= Math.min(frame.right, innerWidth) + 1;
        return !inside || !box.width || !box.height;
    });
}"""
STATE = """() => ({
    headline: document.querySelector(".lk-headline").innerText, at: document.querySelector(".lk-state").innerText,
    blank: [...document.querySelectorAll(".labkit-lab [data-panel]")].filter(panel =>
        window.labkitMeasure.colours(panel.querySelector("canvas")) <= 1).map(panel => panel.dataset.panel),
})"""


def clear(page):
    """Close the lab, and remove it from the notebook."""
    page.kernel("if 'lab' in globals(): lab.close()\n0")
    page.command("notebook:clear-all-cell-outputs")
    page.page.wait_for_selector(".labkit-lab", state="detached")


@pytest.fixture(scope="module")
def page(notebook):
    """JupyterLab with side bar and menus, and a notebook with cells for a scenario, a short run and its end, and texts."""
    return notebook([*TEXTS, FAST, f"{FAST}lab.wait()", "lab.close()"], size=SIZES[0], whole=True)


@pytest.fixture
def cells(page):
    """The numbers of these cells."""
    return {"scenario": 1, "fast": len(TEXTS), "waits": len(TEXTS) + 1, "closes": len(TEXTS) + 2}


def test_the_lab_is_in_view_when_it_starts(page):
    panels = [f'[data-panel="{panel}"] canvas' for panel in PANELS]
    parts = [*PARTS, *panels]
    for width, height in SIZES:
        page.resize(width, height)
        page.run(1)
        page.lab(1).wait_for()
        page.await_page(f"parts => ({PARTLY_HIDDEN})(parts).length === 0", arg=parts)
        page.await_panels(least=5)
        page.await_layout()
        assert page.page.evaluate(PARTLY_HIDDEN, parts) == []
        assert page.selected == 2  # JupyterLab has gone to the next cell, and the lab is in view all the same
        page.screenshot(f"start-{width}x{height}")
        clear(page)


def test_the_question_waits_for_its_reader(page, cells):
    cell = cells["scenario"]
    page.resize(*SIZES[0])
    page.run_and_wait(cell)
    question = page.lab(cell).locator(".lk-question")
    question.wait_for()
    page.await_layout()
    page.screenshot("question")
    high = question.bounding_box()["height"]
    page.await_kernel("lab.view().state == 'paused'")
    at = page.kernel("lab.view().t")
    page.await_still()  # nothing is played any more
    assert page.kernel("(lab.view().t, lab.view().state, lab.view().step)") == (at, "paused", 0)
    question.get_by_role("button", name="50%").click()
    page.await_kernel("lab.view().answer is not None")
    page.kernel("lab.wait(fast=True)\n0")
    assert page.kernel("lab.view().state == 'over' and lab.view().step == len(lab.view().scenario.steps) - 1")
    page.lab(cell).locator(".lk-question.lk-wrong").filter(has_text="You answered 50%. Expected: 20%").wait_for()
    page.await_layout()
    page.screenshot("verdict")
    assert question.bounding_box()["height"] == high
    assert (
        page.page.evaluate(
            "() => { const it = document.querySelector('.lk-panels'); return it.scrollHeight - it.clientHeight; }"
        )
        == 0
    )


def test_a_start_replaces_all_panels_at_once(page, cells):
    cell = cells["fast"]
    clear(page)
    page.resize(*SIZES[2])
    page.run_and_wait(cell)
    page.await_panels(least=5)
    page.kernel("lab.wait(fast=True)\n0")
    page.await_still()
    before = page.page.evaluate(STATE)
    page.kernel("lab.set(speed=0.1) and 0")
    page.await_still()
    page.page.evaluate(f"() => window.labkitMeasure.record('.labkit-lab [data-panel]', {STATE})")
    page.button("Run", cell).click()
    page.await_kernel("lab.view().state == 'running' and lab.view().t > 2e8")
    page.await_drawings(3)
    drawings = page.page.evaluate("() => window.labkitMeasure.drawings()")
    first = drawings[0]
    shown = {*first["panels"], *first["state"]["blank"]}
    assert shown == set(PANELS), drawings  # no panel shows the old run beside the new one
    assert first["state"]["headline"] != before["headline"]
    assert first["state"]["at"] != before["at"]


def test_cells_that_are_run_leave_picture_numbers_and_what_to_do(page, cells, server):
    clear(page)
    page.resize(*SIZES[0])
    for cell in ("waits", "closes"):
        page.run(cells[cell])
    page.wait_idle(cells["closes"])
    output = page.output(cells["waits"])
    output.get_by_text("closed: run the cell again").wait_for()
    page.await_page("document.querySelector('.jp-OutputArea img')?.naturalWidth > 600")
    assert "applied 800" in output.inner_text()  # 4 workers, 20 s, 0.1 s per gradient
    assert "40 gradients per second" in output.get_by_role("img").get_attribute("alt")
    page.screenshot("closed")
    page.save()
    saved = nbformat.read(server.root / page.name, 4).cells[cells["waits"]].outputs
    assert any("data:image/png;base64," in str(output.get("data", {}).get("text/html", "")) for output in saved)


def test_after_a_restart_of_the_kernel_the_last_picture_says_what_to_do(page, cells):
    cell = cells["fast"]
    clear(page)
    page.run_and_wait(cell)
    page.lab(cell).evaluate("node => node.scrollIntoView()")  # panels that are out of view are not drawn
    page.await_kernel("lab.view().state == 'over'")
    page.await_still()  # the pictures before the run, which its beginning clears, are pictures, too
    page.await_panels(least=5)
    page.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:restart-kernel'); }")  # a dialogue follows
    page.page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    note = page.lab(cell).get_by_role("alert").filter(has_text="Kernel restarted: run the cell again")
    note.wait_for()
    assert page.page.evaluate("() => window.labkitMeasure.pictured('.labkit-lab canvas', 5)")
    assert page.lab(cell).locator("img").count() == 0
    page.lab(cell).evaluate("node => node.scrollIntoView()")
    page.screenshot("kernel-restarted")
    page.run_and_wait(cell)  # and so it is
    note.wait_for(state="detached")
    page.await_kernel("lab.view().t > 0")
    assert page.lab(cell).count() == 1
    assert not page.lab(cell).get_by_role("alert").is_visible()
