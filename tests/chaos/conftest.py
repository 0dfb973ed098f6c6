"""Fixtures of the chaos suite."""

import pytest

from tests.chaos.oracles import Oracle


@pytest.fixture
def oracle(monkeypatch):
    """An independent ledger (see `oracles`)."""
    return Oracle().watch(monkeypatch)
