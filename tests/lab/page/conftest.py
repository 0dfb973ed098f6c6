"""Fixture of pages that are drawn on demand."""

from __future__ import annotations

import pytest

from labkit.lab.page import Page
from tests.lab.page.stubs import ManualThread, StubLab, view


class Opened:
    """A page, the lab that it shows, its drawing thread, and the browser."""

    def __init__(self, now, panels, controls, awake, browsers):
        self.lab = StubLab(view() if now is None else now)
        threads = []

        def make_thread(name, paint):
            threads.append(ManualThread(name, paint))
            return threads[-1]

        self.page = Page(self.lab, panels, controls, awake, make_thread=make_thread)
        (self.thread,) = threads
        self.browser = browsers[self.page.widget.model_id]

    def press(self, action, *arguments):
        """A press in the browser."""
        self.browser.send_to_kernel(do="press", action=action, args=list(arguments))

    def show(self, **more):
        """Let the lab have this view, and draw one frame; returns the pictures in it, {panel: message}."""
        self.lab.now = view(**more)
        self.thread.frame()
        frames = self.browser.pictures()
        return frames[0] if frames else {}


@pytest.fixture
def open_page(browsers):
    """Open pages, which are closed at the end."""
    made = []

    def make(now=None, panels=("staleness",), controls=None, awake=True):
        made.append(Opened(now, panels, controls, awake, browsers))
        return made[-1]

    yield make
    for one in made:
        one.page.close()
