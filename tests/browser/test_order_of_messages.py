"""The script of the page with a model that delivers the messages of a real page in a given order."""

from __future__ import annotations

import base64

import pytest

from labkit.lab.page.widget import PageWidget
from tests.lab.conftest import browsers  # noqa: F401  a fixture
from tests.lab.page.conftest import open_page  # noqa: F401  a fixture
from tests.lab.page.stubs import trace, view

MODEL = """async ([script, state]) => {
    const { default: make } = await import(`data:text/javascript;base64,${script}`);
    const listeners = new Map(), widget = make();
    window.seen = [], window.layouts = [];
    window.model = {
        state,
        get: name => window.model.state[name],
        on: (event, act) => listeners.set(event, [...(listeners.get(event) ?? []), act]),
        off: (event, act) => listeners.set(event, (listeners.get(event) ?? []).filter(other => other !== act)),
        send: message => {
            if (message.do === "seen") window.seen.push(message.frame);
            if (message.do === "layout") window.layouts.push(message);
        },
        emit: (event, ...values) => (listeners.get(event) ?? []).forEach(act => act(...values)),
    };
    widget.initialize({ model: { ...window.model } });  // each call has a model of its own
    window.render = el => { widget.render({ model: { ...window.model }, el }); };
    window.render(document.body);
}"""
STATE = """state => {
    window.model.state = state;
    Object.keys(state).forEach(name => window.model.emit(`change:${name}`));
}"""
MESSAGE = """([content, buffers]) => {
    const bytes = text => new DataView(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer);
    window.model.emit("msg:custom", content, buffers.map(bytes));
}"""
PICTURES = """() => [...document.querySelectorAll("[data-panel]")].map(panel => [
    panel.querySelector(".lk-caption").title, window.labkitMeasure.colours(panel.querySelector("canvas")) > 2])"""


@pytest.mark.parametrize("order", ["state first", "frame first", "two frames first"])
def test_the_pictures_of_a_new_run_stay_also_if_they_come_before_its_state(context, open_page, order):  # noqa: F811
    """In JupyterLab a message can overtake a change of the state that was sent before it."""
    page = open_page(panels=("throughput", "staleness"))

    def state():
        return {name: value for name, value in page.browser.state.items() if name[0] != "_"}

    def frames():
        taken = page.browser.take("frame")
        return [[message, [base64.b64encode(data).decode() for data in buffers]] for message, buffers in taken]

    page.thread.frame()
    first, before = state(), frames()
    run = trace(2)
    for t in (run.watermark() // 2, run.watermark()):
        page.lab.now = view(of=run, t=t)
        page.thread.frame()
    second, after = state(), frames()
    assert len(after) == 2
    assert "axes" in after[0][0]["panels"][0]

    tab = context.new_page()
    tab.evaluate(MODEL, [base64.b64encode(PageWidget._esm.encode()).decode(), first])
    for frame in before:
        tab.evaluate(MESSAGE, frame)
    early = {"state first": 0, "frame first": 1, "two frames first": 2}[order]
    for frame in after[:early]:
        tab.evaluate(MESSAGE, frame)
    tab.evaluate(STATE, second)
    for frame in after[early:]:
        tab.evaluate(MESSAGE, frame)
    captions = {panel["name"]: panel["caption"] for frame, _ in after for panel in frame["panels"]}
    seen = tab.evaluate("async () => { await new Promise(requestAnimationFrame); return window.seen; }")
    assert seen[-1] == after[-1][0]["frame"]
    assert len(seen) == len(set(seen)), "a frame was acknowledged twice"
    assert tab.evaluate(PICTURES) == [[captions["throughput"], True], [captions["staleness"], True]]
    tab.close()


def test_a_panel_is_visible_if_one_of_two_views_shows_it(context, open_page):  # noqa: F811
    page = open_page(panels=("throughput", "staleness"))
    state = {name: value for name, value in page.browser.state.items() if name[0] != "_"}
    tab = context.new_page()
    tab.set_viewport_size({"width": 1280, "height": 1600})  # high enough for the whole page
    tab.evaluate(MODEL, [base64.b64encode(PageWidget._esm.encode()).decode(), state])
    tab.wait_for_function("() => window.layouts.at(-1)?.visible.length === 2")
    before = tab.evaluate("() => window.layouts.length")
    tab.evaluate("() => { const hidden = document.createElement('div'); hidden.hidden = true;"
                 " document.body.append(hidden); window.render(hidden); }")  # fmt: skip
    tab.wait_for_function("count => window.layouts.length > count", arg=before)
    assert set(tab.evaluate("() => window.layouts.at(-1).visible")) == {"throughput", "staleness"}
    orders = tab.evaluate("() => window.layouts.map(layout => layout.order)")
    assert orders == sorted(set(orders))
    tab.close()
