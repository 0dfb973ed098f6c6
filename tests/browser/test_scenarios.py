"""Scenarios, run to their end in a browser, with a screenshot: by turns 940 pixels wide and light, and 1600 wide and dark. Every
sixth one, and all with `LABKIT_TESTS=whole`.

The screenshots are artefacts for manual inspection; the content of scenarios is tested without a browser.
"""

from __future__ import annotations

import os

from labkit.lab.scenarios import SCENARIOS

CELL = """
import labkit as lk
lab = lk.Lab(speed=20).set(engine="simulated")
lab
"""
TRIED = list(SCENARIOS)[:: 1 if os.environ.get("LABKIT_TESTS") == "whole" else 6]
NARROW, WIDE = (940, "light"), (1600, "dark")
SIDEWAYS = (
    "(() => { const lab = document.querySelector('.labkit-lab'); return lab.scrollWidth > lab.clientWidth + 1; })()"
)


def test_scenarios_play_to_their_end_and_fit_the_page(notebook):
    page = notebook([CELL])
    page.run_and_wait(0)
    page.await_panels(least=5)
    too_wide = []
    assert len(SCENARIOS) > 10
    for name, scenario in ((name, SCENARIOS[name]) for name in TRIED):
        page.kernel(f"lab.play({name!r})\n0")
        if scenario.question is not None:
            page.kernel("lab.answer(1)\n0")
        page.kernel("lab.wait(fast=True)\n0")
        assert page.kernel("(lab.view().state, lab.view().step)") == ("over", len(scenario.steps) - 1)
        page.await_still()
        width, shade = WIDE if page.shade == "light" else NARROW
        page.resize(width, 900, drawn=False)
        page.theme(shade)
        page.await_panels()
        if page.page.evaluate(SIDEWAYS):
            too_wide.append((name, width, shade))
        page.screenshot(f"scenario-{name}-{width}-{shade}", page.output(0).locator(".labkit-lab").first)
    assert too_wide == []
