"""Ask the model, in a real JupyterLab: a drawing, held-out samples, the keyboard, the plane, and the menu of own models."""

from __future__ import annotations

import pytest

from tests.browser.test_panels import CUT, OVERLAPS, SIDEWAYS

LAB = """
import labkit as lk
from tests.models.own_models import MLP, Linear
cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1))
lab = lk.Lab(lk.Problem("digits", hidden=(32,)), "sync-ps", cluster, speed=5).set(seconds=900, learning_rate=0.5)
lab
"""
# places on the line of a 2, as shares of the pad
TWO = [
    (0.3, 0.33), (0.34, 0.22), (0.44, 0.16), (0.56, 0.16), (0.66, 0.22), (0.7, 0.33), (0.65, 0.45), (0.3, 0.85), (0.72, 0.85),
]  # fmt: skip
PANE = "document.querySelector('.lk-ask')"
TEXT = f"{PANE}.innerText"
ANSWER = f"{PANE}.querySelector('.lk-verdict b').innerText"
SHARES = f"[...{PANE}.querySelectorAll('.lk-bars b')].map(it => it.innerText).join()"
ASKED = "lab.view().model_answer"


@pytest.fixture(scope="module")
def page(notebook):
    """A notebook with the lab, before its first run."""
    page = notebook([LAB], size=(1366, 768), whole=True)
    page.run_and_wait(0)
    page.await_panels(least=5)
    return page


@pytest.fixture(autouse=True)
def begin(page):
    """The question is open, and no run is active."""
    page.theme("light")
    page.kernel("lab.stop() and 0")
    if not page.page.locator(".lk-ask").is_visible():
        page.button("Ask").click()
    page.page.wait_for_selector(".lk-ask:not([hidden])")


def draw(page, corners):
    """Draw a line through these corners with the mouse."""
    pad, mouse = page.page.locator(".lk-pad").bounding_box(), page.page.mouse
    for k, (x, y) in enumerate(corners):
        mouse.move(pad["x"] + x * pad["width"], pad["y"] + y * pad["height"], steps=5 if k else 1)
        if k == 0:
            mouse.down()
    mouse.up()


def test_the_answer_for_a_drawn_digit_changes_while_the_run_learns(page):
    page.await_page(f"{TEXT}.includes('no model yet: press Run')")
    assert page.focused.startswith("drawing")
    page.kernel("lab.run().pause() and lab.step() and 0")
    page.page.wait_for_selector(".lk-ask .lk-best")  # a held-out sample is answered at once
    draw(page, TWO)
    page.await_page(f"{TEXT}.includes('your drawing')")
    first = page.page.evaluate(SHARES)
    page.kernel("lab.resume() and 0")
    page.await_page(f"{SHARES} !== {first!r}")  # nobody draws: the weights are newer
    page.await_kernel("lab.view().t > 30e9")
    page.await_page(f"{ANSWER} === '2'")
    page.kernel("lab.pause() and 0")
    page.await_still()
    page.screenshot("ask-drawn")
    model, ink = page.kernel(f"int(lab.latest.result().predict({ASKED}.sample)[0]), float({ASKED}.sample.sum())")
    assert str(model) == page.page.evaluate(ANSWER) == "2"
    assert 250 < ink < 450  # of the held-out twos: 257 to 358
    page.theme("dark")
    page.screenshot("ask-dark")
    page.button("Clear").click()
    page.await_kernel(f"{ASKED}.sample.sum() == 0")


def test_held_out_samples_and_single_pixels_by_keyboard(page):
    page.kernel("lab.run().pause() and lab.step() and 0")
    page.button("next held-out sample").focus()
    page.press("Enter")
    page.await_page(f"{TEXT}.includes('held-out sample')")
    before = page.kernel(f"{ASKED}.held_out")
    page.press("Enter")
    page.await_kernel(f"{ASKED}.held_out == {before + 1}")
    page.await_page(f"{TEXT}.includes('held-out sample {before + 2} of 359')")
    label = page.kernel(f"int({ASKED}.truth)")
    assert page.page.locator(".lk-which b").inner_text() == f"class {label}"
    t, sample = page.kernel("lab.view().t"), page.kernel(f"{ASKED}.sample.tolist()")
    page.page.locator(".lk-pad").focus()
    page.press("ArrowRight", "ArrowRight", "ArrowDown", "Space")
    page.await_kernel(f"{ASKED}.held_out is None")
    place = 8 * 1 + 2
    set_to = 0.0 if sample[place] > 8 else 16.0
    assert page.kernel(f"{ASKED}.sample.tolist()") == pytest.approx(
        [*sample[:place], set_to, *sample[place + 1 :]], abs=1e-5
    )
    assert page.page.locator(".lk-hint").inner_text() == f"row 2, column 3: {100 * set_to / 16:.0f}% ink"
    assert page.kernel("lab.view().t, lab.view().live") == (t, True)  # the keys of the lab are not meant


def test_a_point_of_the_plane_by_click_and_slider(page):
    page.kernel("lab.set(data='moons') and lab.run().pause() and lab.step() and 0")
    page.await_page(f"{TEXT}.includes('feature 2')")
    page.page.locator(".lk-pad").click(position={"x": 103, "y": 75})
    page.await_kernel(f"{ASKED}.held_out is None")
    middle = page.kernel(f"((lab.inquiry.answer().inputs.low + {ASKED}.inputs.high) / 2).tolist()")
    assert page.kernel(f"{ASKED}.sample.tolist()") == pytest.approx(middle, abs=0.03)
    assert page.page.locator(".lk-hint").inner_text() == "click, or use arrow keys"  # not that of the digits before
    page.screenshot("ask-plane")
    low = page.kernel(f"{ASKED}.inputs.low.tolist()")
    page.page.get_by_label("feature 1").focus()
    page.press("Home")
    page.await_kernel(f"abs({ASKED}.sample[0] - {low[0]}) < 0.01")
    page.kernel("lab.stop().set(data='digits') and 0")


def test_the_menu_of_own_models_and_the_question_to_one(page):
    page.kernel("lab.set(model=Linear()).set(model=Linear(scale=1.0)).set(model=MLP()).set(model=None) and 0")
    menu = page.lab().get_by_label("model", exact=True)
    page.await_page("document.querySelector('select[aria-label=model]')?.options.length === 4")
    texts = menu.locator("option").all_inner_texts()
    assert texts == ["dense layers", "Linear, scale=0.1", "Linear, scale=1.0", "MLP"]
    menu.select_option("MLP")
    page.await_kernel("lab.settings.problem.model == MLP()")
    page.await_page("!document.querySelector('.lk-settings select[aria-label=\"hidden layers\"]')")
    page.button("Run").click()
    page.await_kernel(f"lab.latest.plan.problem.model == MLP() and {ASKED}.values is not None")
    page.page.wait_for_selector(".lk-ask .lk-best")
    page.screenshot("ask-own-model")
    menu.select_option("dense layers")
    page.await_kernel("lab.settings.problem.model is None")


@pytest.mark.parametrize("size", [(1366, 768), (940, 700), (1920, 1080)])
def test_nothing_is_cut_beside_the_question(page, size):
    page.kernel("lab.run().pause() and lab.step() and lab.ask(0) and 0")
    page.resize(*size)
    page.page.wait_for_selector(".lk-ask .lk-best")
    page.screenshot(f"ask-{size[0]}")
    assert page.page.evaluate(f"({CUT})().filter(text => !text.startsWith('FIGCAPTION'))") == []
    assert page.page.evaluate(OVERLAPS) == []
    assert max(page.page.evaluate(SIDEWAYS)) <= 0
    page.resize(1366, 768)


def test_escape_closes_it_and_gives_the_focus_back(page):
    page.page.locator(".lk-pad").focus()
    page.press("Escape")
    page.page.wait_for_selector(".lk-ask", state="hidden")
    assert page.focused == "Ask"
    page.await_kernel(f"{ASKED} is None")
