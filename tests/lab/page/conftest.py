"""Fixture of pages with stubs."""

from __future__ import annotations

import threading

import pytest

from labkit.lab.page import Page
from labkit.lab.page.drawing_thread import DrawingThread
from labkit.lab.page.widget_factory import WidgetFactory
from tests.lab.page.page_stub import Opened, Stub, until, view


@pytest.fixture
def open_page(monkeypatch):
    """Create pages with stubs, which are drawn only with `drawing=True`. All are closed at the end."""
    monkeypatch.setattr("labkit.lab.page.page.SETTLES", 0.02)
    made = []

    def make(now=None, panels=("staleness",), controls=None, drawing=False):
        threads = []

        def make_thread(name, paint):
            threads.append(DrawingThread(name, paint))
            if not drawing:
                threads[-1].close()
            return threads[-1]

        lab = Stub(view() if now is None else now)
        clock = iter(range(0, 10**9, 10)).__next__  # at each call it is ten seconds later
        factory = WidgetFactory(clock)
        page = Page(lab, panels, controls, factory=factory, make_thread=make_thread)
        made.append(page)
        page.refresh()
        return Opened(page, lab, factory, *threads)

    yield make
    for page in made:
        page.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("labkit-page")])
