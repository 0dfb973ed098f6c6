"""Pages for the tests of the page."""

from __future__ import annotations

import threading

import pytest
from page_stub import Stub, until, view

from labkit.lab.page import Page


@pytest.fixture
def open_page(monkeypatch):
    """Make pages of stubs; their threads are over, so that only the test writes. All are closed in the end."""
    monkeypatch.setattr("labkit.lab.page.page.SETTLES", 0.02)
    made = []

    def make(now=None, panels=("staleness",), controls=None, drawing=False):
        page = Page(Stub(view() if now is None else now), panels, controls)
        page.kit.clock = iter(range(0, 10**9, 10)).__next__  # each time somebody looks it is ten seconds later
        made.append(page)
        if not drawing:
            page.painter.close()
        page.show()
        return page

    yield make
    for page in made:
        page.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("labkit-page")])
