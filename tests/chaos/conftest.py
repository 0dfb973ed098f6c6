"""How much chaos: some of it in every run of the tests, all of it with `LABKIT_CHAOS=whole`."""

import os

import pytest

WHOLE = os.environ.get("LABKIT_CHAOS") == "whole"


def seeds(some, all_of_them):
    """Numbers of schedules."""
    return range(all_of_them if WHOLE else some)


@pytest.fixture
def oracle(monkeypatch):
    """Books of the tests' own."""
    from oracles import Oracle

    return Oracle().watch(monkeypatch)
