"""Fixture of widgets whose messages a stub of a browser receives."""

from __future__ import annotations

import comm
import pytest

from tests.lab.browser_stub import Browser


@pytest.fixture
def browsers(monkeypatch):
    """{id of a model: its `Browser`} of all widgets that the test makes."""
    found = {}

    def connect(*arguments, **more):
        made = Browser(*arguments, **more)
        found[made.comm_id] = made
        return made

    monkeypatch.setattr(comm, "create_comm", connect)
    return found
