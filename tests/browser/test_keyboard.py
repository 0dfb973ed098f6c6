"""Key presses in the lab are handled by the lab, and not by JupyterLab, which would insert or delete cells.

JupyterLab's behaviour with unprotected widgets is tested too: once it ignores keys in widgets, the lab's script is no
longer needed.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

BARE = """
import ipywidgets as widgets
widgets.VBox([widgets.Button(description="press me"), widgets.Dropdown(options=["a", "b"])])
"""
LAB = """
import labkit as lk
slow = lk.SimulatedCluster(workers=3, compute=lk.Deterministic(0.1))
run = lk.train(lk.Problem("digits", hidden=(16,)), lk.AsyncPS(), slow, lk.Budget(seconds=600)).advance(0)
lab = run.watch()
lab
"""
BUTTON, HANDLE, MENU = "button:visible", ".noUi-handle:visible", "select:visible"
VALUE = "it => Number(it.getAttribute('aria-valuenow'))"
SCROLLED = "() => document.querySelector('.jp-WindowedPanel-outer').scrollTop"
INSIDE = "() => document.activeElement.closest('.jp-OutputArea') !== null"


@pytest.fixture
def lab(notebook):
    """A notebook of three cells, the first with a lab whose run is paused."""
    page = notebook([LAB, "1", "2"])
    page.run_and_wait(0)
    page.await_images(least=5)
    return page


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
    for control in (BUTTON, HANDLE, MENU):
        lab.output(0).locator(control).last.focus()
        lab.press("a", "b", "m", "x", "d", "d", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Escape")
        assert lab.cells == ["code"] * 3, control
        assert lab.selected == 0, control
        assert lab.page.evaluate(INSIDE), control


def test_enter_presses_a_button_and_the_focus_stays(lab):
    lab.output(0).get_by_role("button", name="Resume").focus()
    lab.press("Enter")
    lab.output(0).get_by_role("button", name="Pause").wait_for()
    assert lab.focused == "Pause"
    lab.frames(seconds=1)  # so that the next press is no double click
    lab.press("Space")
    lab.output(0).get_by_role("button", name="Resume").wait_for()
    assert lab.focused == "Resume"


def test_arrows_move_sliders_and_menus(lab):
    slider, menu = lab.output(0).locator(HANDLE).last, lab.output(0).locator(MENU).last
    before, chosen = slider.evaluate(VALUE), menu.input_value()
    slider.focus()
    lab.press("ArrowRight")
    assert slider.evaluate(VALUE) > before
    menu.focus()
    lab.press("ArrowDown")
    assert menu.input_value() != chosen


def test_space_on_a_slider_does_not_scroll_the_page(lab):
    lab.resize(1280, 500)
    lab.output(0).locator(HANDLE).first.focus()
    before = lab.page.evaluate(SCROLLED)
    lab.press("Space")
    lab.frames(seconds=0.5)  # scrolling is smooth
    assert lab.page.evaluate(SCROLLED) == before


def test_tab_goes_through_the_controls_and_out(lab):
    lab.output(0).locator("button:visible, select:visible").first.focus()
    seen = []
    while lab.page.evaluate(INSIDE) and len(seen) < 100:
        assert lab.output(0).locator(":focus").is_visible()
        seen.append(lab.focused)
        lab.press("Tab")
    assert 5 < len(seen) < 100
    assert any("Stop" in name for name in seen)
    lab.press("Shift+Tab")
    assert lab.page.evaluate(INSIDE)


def test_keys_with_a_modifier_are_still_jupyterlabs(lab):
    lab.output(0).locator(BUTTON).last.focus()
    lab.press("Shift+Enter")
    lab.await_kernel("get_ipython().execution_count > 2")
    assert lab.selected == 1
