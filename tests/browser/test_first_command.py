"""The first command of the README, and the first minute: `labkit lab` opens the start notebook, whose first cell shows a lab that
previews, trains on processes and asks. Times until a press takes effect are written to `measured.json` beside the screenshots; no
test asserts a time.
"""

from __future__ import annotations

from labkit.cli.notebooks import FIRST
from tests.browser.cells import LIVE, TEXT

# every text of the state of the lab from now on, and of its limits
STATES = """() => {
    window.states = [];
    const look = () => window.states.push(document.querySelector(".labkit-lab .lk-player")?.innerText ?? "");
    window.observer = new MutationObserver(look);
    window.observer.observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
SEEN = "() => { window.observer.disconnect(); return window.states; }"


def test_the_first_cell_of_the_start_notebook_runs_a_lab_on_processes(notebook, server, context, record):
    for tab in context.pages:
        tab.close()
    assert server.opens == f"lab/tree/{FIRST}"
    page = notebook(FIRST, whole=True)
    first = page.cells.index("code")
    page.page.evaluate(STATES)
    page.run(first)
    page.page.wait_for_selector(".labkit-lab")  # JupyterLab 4.2 has only the visible cells in the page
    page.await_page(f"{TEXT}.includes('PREVIEW') || {TEXT}.includes('LIVE')")
    page.wait_idle(first)
    page.await_panels(least=5)
    page.screenshot("first-minute-1-preview")
    page.await_kernel(LIVE)
    page.await_drawings(4)
    odd = [text for text in page.page.evaluate(SEEN) if "stopped" in text or "3600" in text]
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
    page.await_page(f"{TEXT}.includes('You answered 50%. Expected: 20%')")
    page.screenshot("first-minute-4-verdict")
    sync, free = page.kernel("[sum(c.gradients for c in t.counters.values()) for t in lab.traces[-2:]]")
    assert free > 1.5 * sync
