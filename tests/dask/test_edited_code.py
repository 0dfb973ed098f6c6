"""Processes execute the code of a user's module as it is in the client when a run starts; one cluster for all edits.

The oracle is what the module computes in the client, and what virtual time notes.
"""

import importlib
import sys

import pytest

import labkit as lk
from tests.dask.helpers import events

HELPER = "def number():\n    return NUMBER\n"
STRATEGY = """
from dataclasses import dataclass

import labkit as lk
import helper_of_edited
from helper_of_edited import number

OWN = VALUE

def both():
    return f"{OWN} {number()} {helper_of_edited.number()}"

@dataclass(frozen=True)
class Edited(lk.AsyncPS):
    async def worker(self, ctx, model):
        ctx.note(f"computed {both()}")
        await super().worker(ctx, model)
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes the two modules, which only this process can import."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(own, number):
        (tmp_path / "helper_of_edited.py").write_text(HELPER.replace("NUMBER", str(number)))
        (tmp_path / "strategy_of_edited.py").write_text(STRATEGY.replace("VALUE", str(own)))
        importlib.invalidate_caches()

    yield write
    for name in ("helper_of_edited", "strategy_of_edited"):
        sys.modules.pop(name, None)


def computed(run):
    """What the first worker computed."""
    return next(event.text for event in events(run, "note") if event.text.startswith("computed"))


def test_processes_execute_the_code_that_the_client_has(started, files):
    def check(expected):
        module = sys.modules["strategy_of_edited"]
        assert module.both() == expected
        run = started(module.Edited(), lk.Budget(updates=3))
        virtual = lk.train("moons", module.Edited(), lk.SimulatedCluster(workers=2), lk.Budget(updates=3)).wait()
        assert computed(run.wait()) == computed(virtual) == f"computed {expected}"

    def reload(*names):
        for name in names:
            importlib.reload(sys.modules[f"{name}_of_edited"])

    files(1, 1)
    importlib.import_module("strategy_of_edited")
    check("1 1 1")
    files(2, 2)  # edited, and not reloaded
    check("1 1 1")
    reload("strategy")
    check("2 1 1")
    reload("helper")  # the strategy has imported the function before
    check("2 1 2")
    reload("strategy")
    check("2 2 2")
    sys.modules["strategy_of_edited"].OWN = 3  # in a notebook
    check("3 2 2")
    sys.modules["helper_of_edited"].number.__code__ = (lambda: 4).__code__  # as IPython's autoreload does
    check("3 4 4")


def test_a_restarted_role_has_the_code_of_the_start(started, files):
    files(1, 1)
    module = importlib.import_module("strategy_of_edited")
    run = started(module.Edited())
    run.wait_for(lambda run: len([e for e in events(run, "note") if e.text.startswith("computed")]) >= 2)
    module.OWN = 2
    run.kill("worker-1")
    run.wait_for(lambda run: len([e for e in events(run, "note") if e.text.startswith("computed")]) >= 3)
    assert {event.text for event in events(run, "note") if event.text.startswith("computed")} == {"computed 1 1 1"}
