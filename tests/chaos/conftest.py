"""What the chaos suite shares."""

import pytest
from oracles import Oracle


@pytest.fixture
def oracle(monkeypatch):
    """Books of the tests' own."""
    return Oracle().watch(monkeypatch)
