"""Every scenario, run to its end in a browser, with screenshots: at 940 and 1600 pixels, light and dark.

The screenshots are artefacts for manual inspection; the content of scenarios is tested without a browser.
"""

from __future__ import annotations

import pytest

from labkit.lab.scenarios import SCENARIOS

pytestmark = pytest.mark.slow

CELL = """
import labkit as lk
lab = lk.Lab(speed=20).set(engine="simulated")
lab
"""
SIDEWAYS = (
    "(() => { const lab = document.querySelector('.labkit-lab'); return lab.scrollWidth > lab.clientWidth + 1; })()"
)


@pytest.fixture(scope="module")
def names():
    """In the order of the menu."""
    return list(SCENARIOS)


def test_every_scenario_plays_to_its_end_and_fits_the_page(notebook, names):
    page = notebook([CELL])
    page.run_and_wait(0)
    page.await_panels(least=5)
    for name in names:
        page.kernel(f"lab.play({name!r})\n0")
        if SCENARIOS[name].question is not None:
            page.kernel("lab.answer(1)\n0")
        page.await_kernel(f"lab.view().state == 'over' and lab.view().step == {len(SCENARIOS[name].steps) - 1}")
        page.await_kernel("not lab.drawing")  # the last picture, in full resolution, is being sent
        for shade in ("light", "dark"):
            page.theme(shade)
            for width in (940, 1600):
                page.resize(width, 900)
                page.await_panels()
                assert not page.page.evaluate(SIDEWAYS), f"{name} at {width}: something is wider than the lab"
                page.screenshot(f"scenario-{name}-{width}-{shade}", page.output(0).locator(".labkit-lab").first)
    page.theme("light")
