"""Accessibility of the lab and of guesses, checked with axe-core in both themes: names, roles, contrast of texts, and more;
and what axe-core cannot know: the alternative texts of panels.
"""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

LAB = """
import labkit as lk
cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1))
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", cluster, speed=20).set(seconds=600).run()
lab
"""
GUESS = """
guess = lk.Guess("How much is left?", {"80%": 0.8, "50%": 0.5, "20%": 0.2})
guess
"""
REVEALED = """
guess.commit("50%")
guess.reveal(0.2, "because each step waits for the slowest worker")
"""
SCENARIO = """
asked = lk.Lab(scenario="first-minute", speed=20).set(engine="simulated").run()
asked
"""
SYMBOLS = (
    "shortTextContent",
    "nonBmp",
)  # of texts such as "?" and "→"; their colours are those of the texts beside them
NAME = """it => it.getAttribute("aria-label") || it.innerText?.trim() || it.title || it.labels?.[0]?.innerText.trim()"""


AXE = """async ([selector, options]) => {
    // JupyterLab's body has no height and hides what overflows; axe-core would take all texts for invisible
    document.body.style.minHeight = "100vh";
    // and it leaves out what is scrolled out of view
    document.querySelector(selector).scrollIntoView({ block: "start" });
    return await window.axe.run({ include: [[selector]], exclude: [[".lk-log > div"]] }, options);
}"""


def violations(page, selector):
    """What axe-core finds below a selector: [(rule, explanation, element)]. Also texts whose contrast it cannot decide.

    The lines of the log are left out: axe-core has an internal error for a line that is scrolled out of view, and then checks no
    contrast at all. The other texts in the log's colour are checked.
    """
    if not page.page.evaluate("() => 'axe' in window"):
        page.page.evaluate(Axe().axe_script)
    answer = page.page.evaluate(AXE, [selector, {"resultTypes": ["violations", "incomplete"]}])
    unclear = [rule for rule in answer["incomplete"] if rule["id"] == "color-contrast"]
    return [
        (rule["id"], node["failureSummary"], node["html"][:200])
        for rule in (*answer["violations"], *unclear)
        for node in rule["nodes"]
        if rule not in unclear or node["any"][0]["data"]["messageKey"] not in SYMBOLS
    ]


@pytest.fixture(scope="module")
def shared(notebook):
    """A lab with a killed and a slow worker, paused, below the first cell; and guesses."""
    page = notebook([LAB, GUESS, REVEALED, SCENARIO])
    page.run_and_wait(0)
    page.await_kernel("lab.view().t > 3e9")
    page.kernel("lab.kill('worker-1', restart=False).slow('worker-2', 5).pin() and 0")
    page.await_kernel("lab.view().t > 6e9")
    page.kernel(
        "lab.pause().set(learning_rate=0.2, workers=5) and 0"
    )  # there is something to undo, and for the next run
    page.await_panels(least=5)
    page.await_still()
    return page


@pytest.fixture(scope="module", params=["light", "dark"])
def page(request, shared):
    """The notebook, in each theme."""
    shared.theme(request.param)
    return shared


def test_the_lab_and_that_violations_are_found(page):
    sentence, button = page.lab().locator(".lk-headline"), page.lab().get_by_role("button", name="full screen")
    button = button.element_handle()
    try:
        pale = {"light": "#cccccc", "dark": "#333333"}[page.shade]
        sentence.evaluate("(it, colour) => { it.style.color = colour; }", pale)
        button.evaluate("it => { it.removeAttribute('aria-label'); it.removeAttribute('title'); }")
        assert {rule for rule, *_ in violations(page, ".labkit-lab")} == {"button-name", "color-contrast"}
    finally:
        sentence.evaluate("it => { it.style.color = ''; }")
        button.evaluate("it => { it.setAttribute('aria-label', 'full screen'); }")
    page.lab().locator("details").evaluate_all("all => all.forEach(details => { details.open = true; })")
    page.lab().locator(".lk-share code").wait_for()
    assert violations(page, ".labkit-lab") == []
    page.screenshot(f"accessible-{page.shade}", page.lab())
    page.lab().locator("details").evaluate_all("all => all.forEach(details => { details.open = false; })")


def test_the_texts_of_panels_are_legible(page):
    page.page.evaluate("() => window.labkitMeasure.readTexts()")
    width, height = page.size
    page.resize(width + 40, height)  # all panels are drawn again
    page.resize(width, height)
    texts = page.page.evaluate("() => window.labkitMeasure.textsRead()")
    assert {panel for panel, *_ in texts} == {"timeline", "staleness", "gradient_flow", "throughput", "accuracy"}
    pale = {(panel, text): round(ratio, 1) for panel, text, ratio, _ in texts if ratio < 4.5}
    assert pale == {}


def test_the_list_of_keys_and_an_enlarged_panel(page):
    page.lab().focus()
    page.press("?")
    page.lab().get_by_role("dialog").wait_for()
    assert violations(page, ".lk-help") == []
    page.press("Escape")
    page.panel("accuracy").get_by_role("button", name="enlarge").click()
    assert violations(page, ".lk-panels") == []
    page.press("Escape")


def test_the_question_to_the_model(page):
    page.kernel("lab.ask(0) and 0")
    page.lab().locator(".lk-ask .lk-best").wait_for()
    page.lab().locator(".lk-pad").focus()
    assert violations(page, ".lk-ask") == []
    page.screenshot(f"accessible-ask-{page.shade}", page.lab())
    page.press("Escape")
    page.lab().locator(".lk-ask").wait_for(state="hidden")


def test_guesses_before_and_after_the_measurement(page):
    page.run_and_wait(1)
    page.output(1).locator(".labkit-guess").wait_for()
    assert violations(page, ".labkit-guess") == []
    page.run_and_wait(2)
    page.output(1).locator(".lk-wrong").wait_for()
    page.output(2).get_by_text("because each step").wait_for()
    assert violations(page, ".labkit-guess") == []
    assert violations(page, ".jp-Cell:nth-child(3) .jp-OutputArea-output") == []


def test_the_question_of_a_scenario(page):
    page.run_and_wait(3)
    question = page.lab(3).locator(".lk-question")
    question.wait_for()
    assert violations(page, ".lk-question") == []
    question.get_by_role("button", name="50%").click()
    page.kernel("asked.wait(fast=True) and 0")
    assert page.kernel("asked.view().state == 'over' and asked.view().step == len(asked.view().scenario.steps) - 1")
    page.lab(3).locator(".lk-question.lk-wrong").wait_for()
    assert violations(page, ".lk-question") == []
    page.kernel("asked.close()\n0")
    page.clear(3)


def test_every_control_has_a_name_and_every_panel_a_text_that_says_what_it_shows(shared):
    shared.lab().locator("details").evaluate_all("all => all.forEach(details => { details.open = true; })")
    controls = shared.lab().locator("button, select, input, canvas, summary").all()
    assert len(controls) > 30
    nameless = [c.evaluate("it => it.outerHTML") for c in controls if not c.evaluate(NAME)]
    assert nameless == []
    texts = {
        name: shared.panel(name).locator("canvas").get_attribute("aria-label") for name in ("throughput", "accuracy")
    }
    assert "gradients/s" in texts["throughput"] or "per second" in texts["throughput"], texts
    assert "%" in texts["accuracy"], texts
