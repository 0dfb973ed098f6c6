"""Keys in a widget below a cell reach the widget, and not JupyterLab, which would insert and delete cells.

What JupyterLab does with widgets that nobody protects is tested too: the day it leaves them alone, the lab needs no
script of its own.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

WIDGETS = """
import ipywidgets as widgets
from labkit.lab.page.css import ROOT, head

pressed = []
button = widgets.Button(description="press me")
button.on_click(lambda _: pressed.append("button"))
slider = widgets.IntSlider(value=5, max=10)
menu = widgets.Dropdown(options=["a", "b", "c"])
radio = widgets.RadioButtons(options=["d", "e", "f"])
box = widgets.VBox([button, slider, menu, radio])
"""
BARE = WIDGETS + "box"
GUARDED = WIDGETS + 'box.children = (widgets.HTML(head("")), *box.children)\nbox.add_class(ROOT)\nbox'
HANDLE = ".noUi-handle"


def start(notebook, cell):
    """A notebook of three cells, the first with widgets, the focus on the button among them."""
    page = notebook([cell, "1", "2"])
    page.run_and_wait(0)
    page.output(0).locator("select").wait_for()
    page.output(0).locator("button").focus()
    return page


@pytest.fixture
def guarded(notebook):
    """Widgets that are protected as the lab's are."""
    page = start(notebook, GUARDED)
    page.page.wait_for_function("() => document.querySelector('.jp-OutputArea img')?.complete")
    return page


def test_without_protection_letters_and_arrows_act_on_the_cells(notebook):
    page = start(notebook, BARE)
    page.press("ArrowDown")
    assert page.selected == 1
    page.output(0).locator("button").focus()
    page.press("a")
    assert len(page.cells) == 4


def test_letters_and_arrows_leave_the_cells_alone(guarded):
    for control in ("button", HANDLE, "select", "input[type=radio]"):
        it = guarded.output(0).locator(control).first
        it.focus()
        guarded.press("a", "b", "m", "x", "d", "d", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Escape")
        assert guarded.cells == ["code"] * 3, control
        assert guarded.selected == 0, control
        assert guarded.output(0).locator(":focus").count() == 1, control


def test_enter_and_space_press_a_button(guarded):
    guarded.press("Enter", "Space")
    guarded.await_kernel("pressed == ['button', 'button']")
    assert guarded.focused == "press me"


def test_arrows_move_sliders_menus_and_choices(guarded):
    guarded.output(0).locator(HANDLE).focus()
    guarded.press("ArrowLeft")
    guarded.await_kernel("slider.value == 4")
    guarded.press("ArrowRight", "ArrowUp")
    guarded.await_kernel("slider.value == 6")
    guarded.output(0).locator("select").focus()
    guarded.press("ArrowDown")
    guarded.await_kernel("menu.value == 'b'")
    guarded.output(0).locator("input[type=radio]").first.focus()
    guarded.press("ArrowDown")
    guarded.await_kernel("radio.value == 'e'")


def test_space_on_a_slider_does_not_scroll_the_page(guarded):
    top = "() => document.querySelector('.jp-WindowedPanel-outer').scrollTop"
    guarded.resize(1280, 400)
    guarded.output(0).locator(HANDLE).focus()
    before = guarded.page.evaluate(top)
    guarded.press("Space", "ArrowLeft")
    guarded.await_kernel("slider.value == 4")
    assert guarded.page.evaluate(top) == before


def test_tab_goes_through_the_controls_in_their_order_and_out(guarded):
    seen = []
    for _ in range(7):
        seen.append(guarded.page.evaluate("() => document.activeElement.tagName"))
        guarded.press("Tab")
    assert seen == ["BUTTON", "DIV", "DIV", "SELECT", *["INPUT"] * 3]  # a slider is its handle and its number
    assert guarded.output(0).locator(":focus").count() == 0
    guarded.press("Shift+Tab")
    assert guarded.output(0).locator(":focus").count() == 1


def test_keys_with_a_modifier_are_still_jupyterlabs(guarded):
    guarded.press("Shift+Enter")
    guarded.await_kernel("get_ipython().execution_count > 2")
    assert guarded.selected == 1
