"""Key presses in the lab are handled by the lab, and not by JupyterLab, which would insert or delete cells; and the keys that
the lab's list of keys names do what it says.

JupyterLab's behaviour with unprotected widgets is tested too: once it ignores keys in widgets, the lab need not stop them.
"""

from __future__ import annotations

import pytest

BARE = """
import ipywidgets as widgets
widgets.VBox([widgets.Button(description="press me"), widgets.Dropdown(options=["a", "b"])])
"""
LAB = """
import labkit as lk
cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.1))
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", cluster)
lab.set(seconds=600, speed=20).run()
"""
BUTTON, SLIDER, MENU, FIELD = (
    "button:visible",
    "input[type=range]:visible",
    "select:visible",
    "input[type=text]:visible",
)
SCROLLED = "() => document.querySelector('.jp-WindowedPanel-outer').scrollTop"
ASKED = "() => window.labkitMeasure.asked.press"
INSIDE = "() => document.activeElement.closest('.labkit-lab') !== null"


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook of three cells, the first with a lab."""
    page = notebook([LAB, "1", "2"])
    page.run_and_wait(0)
    page.await_panels(least=5)
    page.await_kernel("lab.view().t > 3e9")
    return page


@pytest.fixture
def lab(shared):
    """The lab, paused in the present, at its beginning in the focus."""
    shared.kernel("lab.live().set(speed=0.1).pause() and 0")
    shared.button("Resume").wait_for()
    shared.lab().focus()
    return shared


def test_without_protection_letters_and_arrows_act_on_the_cells(notebook):
    page = notebook([BARE, "1", "2"])
    page.run_and_wait(0)
    page.output(0).locator("button").focus()
    page.press("ArrowDown")
    assert page.selected == 1
    page.output(0).locator("button").focus()
    page.press("a")
    assert len(page.cells) == 4


def test_letters_and_arrows_leave_the_cells_alone(lab):
    for control in ("", BUTTON, SLIDER, MENU, FIELD, "canvas"):
        (lab.lab().locator(control).last if control else lab.lab()).focus()
        lab.press("a", "b", "m", "x", "d", "d", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Escape")
        assert lab.cells == ["code"] * 3, control
        assert lab.selected == 0, control
        assert lab.page.evaluate(INSIDE), control


def test_enter_presses_a_button_and_the_focus_stays(lab):
    lab.button("Resume").focus()
    lab.press("Enter")
    lab.button("Pause").wait_for()
    assert lab.focused == "Pause"
    lab.press("Space")
    lab.button("Resume").wait_for()
    assert lab.focused == "Resume"


def test_arrows_move_sliders_and_menus(lab):
    slider, menu = lab.lab().get_by_label("learning rate", exact=True), lab.lab().get_by_label("strategy")
    before = lab.kernel("lab.settings.strategy.learning_rate")
    slider.focus()
    lab.press("ArrowRight", "ArrowRight")
    lab.await_kernel(f"lab.settings.strategy.learning_rate > {before}")
    chosen = menu.input_value()
    menu.focus()
    lab.press("ArrowDown")
    lab.await_kernel("lab.settings.strategy.name != lab.latest.plan.strategy.name")
    shown = "([old]) => document.activeElement.value !== old"
    lab.await_page(shown, arg=[chosen])
    lab.press("ArrowUp")
    lab.await_kernel("lab.settings.strategy.name == lab.latest.plan.strategy.name")


def test_space_pauses_and_resumes_except_on_a_control(lab):
    lab.press("Space")
    lab.await_kernel("lab.view().state == 'running'")
    lab.button("Pause").wait_for()
    lab.press("Space")
    lab.await_kernel("lab.view().state == 'paused'")
    lab.lab().get_by_role("slider").first.focus()
    asked = lab.page.evaluate(ASKED)
    lab.press("Space")
    assert lab.page.evaluate(ASKED) == asked  # a press is sent when the key is pressed
    assert lab.kernel("lab.view().state") == "paused"


def test_space_does_not_scroll_the_page(lab):
    lab.resize(1280, 500)
    try:
        for place in (SLIDER, "canvas"):
            lab.lab().locator(place).first.focus()
            before = lab.page.evaluate(SCROLLED)
            lab.press("Space")
            lab.page.evaluate("() => window.labkitMeasure.laidOut()")  # a smooth scroll has begun by then
            assert lab.page.evaluate(SCROLLED) == before, place
    finally:
        lab.resize(1280)


def test_arrows_look_back_and_forward_and_end_is_the_present(lab):
    now = lab.kernel("lab.view().t")
    lab.press("ArrowLeft")
    lab.await_kernel(f"not lab.view().live and lab.view().t < {now}")
    lab.await_page("document.querySelector('.lk-state').innerText.includes('looking back')")
    at = lab.kernel("lab.view().t")
    lab.press("ArrowLeft")
    lab.await_kernel(f"lab.view().t < {at}")
    lab.press("Home")
    lab.await_kernel("lab.view().t == 0")
    lab.press(".")
    lab.await_kernel("lab.view().t > 0")  # the first applied update
    assert lab.kernel("lab.view().t / 1e9") == pytest.approx(0.1, abs=0.05)  # gradients take 0.1 s
    lab.press("End")
    lab.await_kernel("lab.view().live")


def test_u_undoes_the_last_change(lab):
    before = lab.kernel("lab.settings.strategy.learning_rate")
    lab.kernel("lab.set(learning_rate=0.7) and 0")
    lab.button("Undo").wait_for()
    lab.press("u")
    lab.await_kernel(f"lab.settings.strategy.learning_rate == {before}")


def test_question_mark_shows_the_keys_and_escape_closes_them(lab):
    keys = lab.lab().get_by_role("dialog", name="keys")
    assert not keys.is_visible()
    lab.button("Stop").focus()
    lab.press("?")
    keys.wait_for()
    assert lab.focused == "keys"
    assert {"Space", "?", "Esc", "u"} <= set(keys.locator("dt").all_inner_texts())
    lab.press("Escape")
    keys.wait_for(state="hidden")
    assert lab.focused == "Stop"


def test_tab_goes_through_the_controls_and_out(lab):
    lab.lab().locator("button:visible, select:visible").first.focus()
    seen = []
    while lab.page.evaluate(INSIDE) and len(seen) < 120:
        assert lab.lab().locator(":focus").is_visible()
        seen.append(lab.focused)
        lab.press("Tab")
    assert 20 < len(seen) < 120
    assert {"Stop", "time of the run", "learning rate", "strategy", "enlarge Timeline"} <= set(seen), seen
    lab.press("Shift+Tab")
    assert lab.page.evaluate(INSIDE)


def test_keys_with_a_modifier_are_still_jupyterlabs(lab):
    lab.lab().locator(BUTTON).last.focus()
    lab.press("Shift+Enter")
    lab.await_kernel("get_ipython().execution_count > 2")
    assert lab.selected == 1
