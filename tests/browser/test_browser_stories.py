"""Every story, played to its end in a browser, and pictures of it: at 940 and 1600 pixels, light and dark.

The pictures are artefacts of the run, for people to look at; what a story shows is checked without a browser.
"""

from __future__ import annotations

import pytest

from labkit.lab.stories import STORIES

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
    return list(STORIES)


def test_every_story_plays_to_its_end_and_fits_the_page(notebook, names):
    page = notebook([CELL])
    page.run_and_wait(0)
    page.await_images(least=5)
    for name in names:
        page.kernel(f"lab.tell({name!r})\n0")
        if STORIES[name].question is not None:
            page.kernel("lab.answer(1)\n0")
        page.await_kernel(f"lab.view().state == 'over' and lab.view().act == {len(STORIES[name].acts) - 1}", 120)
        page.await_kernel("not lab._page.painter.alive", 30)  # the last picture, drawn fine, is on its way
        for shade in ("light", "dark"):
            page.theme(shade)
            for width in (940, 1600):
                page.resize(width, 1500)
                page.await_images(".labkit-lab .lk-panel:not(.lk-gone) img", least=1)
                assert not page.page.evaluate(SIDEWAYS), f"{name} at {width}: something is wider than the lab"
                page.screenshot(f"story-{name}-{width}-{shade}", page.output(0).locator(".labkit-lab").first)
    page.theme("light")
