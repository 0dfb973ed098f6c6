"""What a reader can do with the panels, the fields and the texts of a lab: read values, enlarge, save, copy, type; and that
nothing is cut, at three sizes of the window, in the light theme at one and in the dark theme at two device pixels per CSS pixel.

All tests use one lab in virtual time, paused: gradients take 0.1 s.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

SIZES = [(1366, 768), (940, 700), (1920, 1080)]
LAB = """
import labkit as lk
cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1), slow={"worker-2": 5})
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", cluster, speed=20).set(seconds=900).run()
lab
"""
# the last question for a value was asked at this point, and is answered
POINTED = """([panel, x, y]) => {
    const { pointed, open } = window.labkitMeasure;
    return pointed?.panel === panel && Math.abs(pointed.x - x) < 0.01 && Math.abs(pointed.y - y) < 0.01 && !open.size;
}"""
LABEL = ".labkit-lab .lk-tip"
# texts that are wider than the elements that show them; labels for screen readers are one pixel wide
CUT = """() => [...document.querySelectorAll(".labkit-lab *")].filter(it => {
    if (!it.checkVisibility({opacityProperty: true, visibilityProperty: true}) || it.clientWidth <= 1) return false;
    const style = getComputedStyle(it);
    if (style.overflowX === "visible" || it.closest("[aria-hidden=true]")) return false;
    return it.scrollWidth > it.clientWidth + 1;
}).map(it => `${it.tagName}.${it.className}: ${it.innerText.slice(0, 60)} (${it.scrollWidth} > ${it.clientWidth})`)"""
# the menu of scenarios may show only the beginning of a title
FIELDS = ".labkit-lab :is(select:not(.lk-scenario), input[type=text])"
NARROW_MENUS = (
    f"() => [...document.querySelectorAll('{FIELDS}')]"
    """.filter(it => {
    if (!it.checkVisibility()) return false;
    const pen = document.createElement("canvas").getContext("2d"), style = getComputedStyle(it);
    pen.font = style.font;
    const text = it.tagName === "SELECT" ? it.selectedOptions[0]?.text ?? "" : it.value;
    const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + (it.tagName === "SELECT" ? 16 : 0);
    return pen.measureText(text).width > it.clientWidth - padding + 1;
}).map(it => `${it.getAttribute("aria-label")}: ${it.selectedOptions?.[0]?.text ?? it.value} (${it.clientWidth})`)"""
)
SIDEWAYS = """() => [document.querySelector(".labkit-lab"), document.querySelector(".jp-WindowedPanel-outer")]
    .map(it => it.scrollWidth - it.clientWidth)"""
# controls of the toolbar that cover each other
OVERLAPS = """() => {
    const shown = [...document.querySelectorAll(".lk-toolbar :is(button, select)")].filter(it => it.checkVisibility());
    const boxes = shown.map(it => [it.innerText.split("\\n")[0], it.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], i) => boxes.slice(i + 1).filter(([, b]) =>
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
    ).map(([other]) => `${one} overlaps ${other}`));
}"""
PIXELS = """() => [...document.querySelectorAll(".labkit-lab canvas")].filter(it => it.clientWidth)
    .map(it => [it.width / it.clientWidth, it.height / it.clientHeight])"""


@pytest.fixture(scope="module")
def shared(notebook):
    """A notebook with the lab."""
    page = notebook([LAB], size=SIZES[0], whole=True)
    page.run_and_wait(0)
    page.await_kernel("lab.view().t > 20e9")
    page.kernel("lab.pause() and 0")
    page.await_panels(least=5)
    page.await_still()
    return page


@pytest.fixture
def page(shared):
    """The notebook, in the present of the lab, at its first size and in the light theme."""
    shared.theme("light")
    if shared.size != SIZES[0]:
        shared.resize(*SIZES[0])
    shared.press("Escape")
    shared.kernel("lab.live().pause() and 0")
    shared.lab().scroll_into_view_if_needed()
    shared.await_still()
    return shared


def copied(page, button):
    """The text that a press of this button copies."""
    before = page.page.evaluate("() => window.labkitMeasure.copies()")
    button.click()
    page.await_page("before => window.labkitMeasure.copies() > before", arg=before)
    return page.page.evaluate("() => navigator.clipboard.readText()")


def table(page, panel):
    """The table that the button of a panel copies: rows of texts, the first of them the names of the columns."""
    page.panel(panel).hover()
    text = copied(page, page.panel(panel).get_by_role("button", name="Copy"))
    return [line.split("\t") for line in text.splitlines()]


def point(page, panel, x, y):
    """Move the pointer there, in CSS pixels of the canvas; when the kernel has answered which value is there."""
    canvas = page.panel(panel).locator("canvas")
    box = canvas.bounding_box()
    canvas.hover(position={"x": x, "y": y})
    page.await_page(POINTED, arg=[panel, x / box["width"], y / box["height"]])


def pointed(page, panel, x, y):
    """The text beside the pointer, at these shares of the width and height of a panel; "" if there is none."""
    box = page.panel(panel).locator("canvas").bounding_box()
    point(page, panel, 3, 3)
    page.page.locator(LABEL).wait_for(state="hidden")
    point(page, panel, round(x * box["width"]), round(y * box["height"]))
    return page.page.locator(LABEL).inner_text() if page.page.locator(LABEL).is_visible() else ""


# values ---------------------------------------------------------------------------------------------------------------


def test_the_timeline_names_role_and_times_under_the_pointer(page):
    texts = [pointed(page, "timeline", 0.6, y) for y in (0.15, 0.3, 0.45, 0.6, 0.75)]
    page.screenshot("pointed")
    roles = [text.split(":")[0] for text in texts if text]
    assert {"worker-0", "worker-1", "worker-2", "worker-3"} & set(roles), texts
    assert any(re.search(r"\d\.\d+", text) for text in texts), texts


def test_curves_show_their_values_under_the_pointer(page):
    text = pointed(page, "accuracy", 0.6, 0.5)
    shown = re.fullmatch(r"this run: ([\d.]+)% at ([\d.]+) s", text)
    assert shown is not None, text
    value, at = float(shown[1]), float(shown[2])
    rows = [(float(time), float(accuracy)) for _, time, accuracy in table(page, "accuracy")[1:]]
    assert any((time, accuracy) == pytest.approx((at, value), abs=0.01) for time, accuracy in rows), (text, rows)


def test_values_are_reached_by_keyboard(page):
    counts = {value: int(count) for value, count in table(page, "staleness")[1:]}
    page.panel("staleness").locator("canvas").focus()
    at = page.kernel("lab.view().t")
    found = []
    for _ in range(3):
        page.await_answer("step", lambda: page.press("ArrowRight"))
        found.append(page.page.locator(LABEL).inner_text())
    shown = [re.match(r"staleness (\d+): ([\d,]+) of", text) for text in found]
    assert all(shown), found
    assert len(set(found)) > 1, "each press goes to the next value"
    assert [counts.get(each[1], 0) for each in shown] == [int(each[2].replace(",", "")) for each in shown]
    assert page.lab().locator(".lk-marker").is_visible()
    assert page.kernel("(lab.view().live, lab.view().t)") == (True, at), "the arrows move the pointer, not the time"
    page.press("Escape")
    assert not page.page.locator(LABEL).is_visible()


def test_a_panel_is_copied_as_a_table(page):
    header, *rows = table(page, "staleness")
    assert header == ["staleness (updates)", "gradients"]
    counts = {int(value): int(count) for value, count in rows}
    assert sum(counts.values()) == page.kernel("sum(c.gradients for c in lab.trace.counters.values())")
    assert max(counts) == page.kernel("lab.latest.summary()['staleness']['max']")


def test_a_panel_is_saved_as_png_and_svg(page):
    for panel in ("timeline", "accuracy"):
        for kind, beginning in (("PNG", b"\x89PNG\r\n"), ("SVG", b"<?xml")):
            page.panel(panel).hover()
            with page.page.expect_download() as download:
                page.panel(panel).get_by_role("button", name=kind).click()
            assert download.value.suggested_filename == f"{panel}.{kind.lower()}"
            content = Path(download.value.path()).read_bytes()
            assert content.startswith(beginning)
            assert len(content) > 5000


def test_the_share_text_is_copied(page):
    page.lab().get_by_text("share text", exact=True).click()
    assert copied(page, page.lab().locator(".lk-share").get_by_role("button", name="Copy")) == page.kernel(
        "lab.share_text()"
    )
    page.lab().get_by_text("share text", exact=True).click()


# sizes ----------------------------------------------------------------------------------------------------------------


def test_a_panel_is_enlarged_and_escape_ends_it(page):
    before = page.panel("accuracy").bounding_box()
    page.panel("accuracy").hover()
    page.panel("accuracy").get_by_role("button", name="enlarge").click()
    page.await_panels('[data-panel="accuracy"] canvas')
    after = page.panel("accuracy").bounding_box()
    assert after["width"] > 1.8 * before["width"]
    assert after["height"] > 1.8 * before["height"]
    assert not page.panel("timeline").is_visible()
    page.screenshot("enlarged")
    page.press("Escape")
    page.panel("timeline").wait_for()
    page.await_page("w => document.querySelector('[data-panel=accuracy]').offsetWidth <= w", arg=before["width"] + 1)


def test_the_lab_fills_the_screen_and_returns(page):
    full = "document.fullscreenElement !== null"
    page.lab().focus()
    page.press("f")
    page.await_page(full)
    assert page.page.evaluate("document.fullscreenElement.matches('.labkit-lab')")
    page.await_page("document.querySelector('.labkit-lab').offsetHeight >= innerHeight - 2")
    page.await_panels(least=5)
    page.screenshot("full-screen")
    page.press("f")
    page.await_page(f"!({full})")
    page.lab().get_by_role("button", name="full screen").click()
    page.await_page(full)
    page.page.evaluate("document.exitFullscreen()")
    page.await_page(f"!({full})")


def test_nothing_is_cut_and_pictures_are_sharp(page):
    problems = {}
    page.kernel("lab.set(learning_rate=0.3) and 0")  # so that Undo is shown
    page.button("Undo").wait_for()
    for (width, height), (shade, ratio) in itertools.product(SIZES, (("light", 1), ("dark", 2))):
        page.theme(shade)
        page.page.evaluate("() => window.labkitMeasure.readTexts()")
        page.resize(width + 30, height)  # so that all panels are drawn again
        page.resize(width, height, ratio=ratio)
        page.await_page(
            f"r => ({PIXELS})().every(([x, y]) => Math.abs(x - r) < 0.02 && Math.abs(y - r) < 0.02)", arg=ratio
        )
        page.await_panels(least=2)
        texts = page.page.evaluate("() => window.labkitMeasure.textsRead()")
        assert {panel for panel, *_ in texts} >= {"timeline", "staleness"}
        page.screenshot(f"lab-{width}x{height}-{shade}")
        problems[width, height, shade] = [
            *[f"{over} pixels wider than its frame" for over in page.page.evaluate(SIDEWAYS) if over],
            *page.page.evaluate(CUT),
            *page.page.evaluate(NARROW_MENUS),
            *page.page.evaluate(OVERLAPS),
            *{f"{panel}: {text} is {beyond:.0f} pixels beyond" for panel, text, _, beyond in texts if beyond > 1},
        ]
    page.kernel("lab.undo() and 0")
    assert len(problems) == 6
    assert {place: found for place, found in problems.items() if found} == {}


# fields and the slider ------------------------------------------------------------------------------------------------


def test_typed_values_that_are_not_allowed_are_refused_and_said(page):
    for typed in ("-5", "1e99", "fast"):
        type_and_correct(page, typed)


def type_and_correct(page, typed):
    field = page.lab().get_by_label("learning rate, typed")
    before = field.input_value()
    field.fill(typed)
    page.press("Enter")
    headline = page.lab().locator(".lk-headline.lk-error")
    headline.filter(has_text="learning").wait_for()
    page.await_page("v => document.querySelector('[aria-label=\"learning rate, typed\"]').value === v", arg=before)
    assert page.kernel("lab.settings.strategy.learning_rate") == float(before)
    allowed = "0.25" if before != "0.25" else "0.2"
    field.fill(allowed)
    page.press("Enter")
    page.await_kernel(f"lab.settings.strategy.learning_rate == {allowed}")
    headline.wait_for(state="detached")


def test_the_scale_of_the_slider_stays_when_one_looks_back(page):
    slider = page.lab().get_by_label("time of the run")

    def scale():
        """Seconds of the run at the right end of the slider."""
        share = float(slider.input_value()) / float(slider.get_attribute("max"))
        return page.kernel("lab.view().t") / 1e9 / share

    now = scale()
    assert page.lab().locator(".lk-scale").inner_text() == f"{now:.0f} s"  # the run ends at 900 s, the slider here
    for seconds in (15, 10):
        page.kernel(f"lab.seek({seconds}) and 0")
        page.await_page(f"document.querySelector('.lk-state').innerText.includes('{seconds}.00 s')")
        assert scale() == pytest.approx(now, rel=0.02)
    page.kernel("lab.live() and 0")
    page.await_page("!document.querySelector('.lk-state').innerText.includes('looking back')")
    page.kernel("lab.pause() and 0")
