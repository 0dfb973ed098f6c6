"""Fixtures for tests of the page: the widgets are real; the lab is a stub."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from functools import cache
from types import SimpleNamespace

import ipywidgets

import labkit as lk
from labkit.lab import actions
from labkit.lab.run_table import Entry
from labkit.lab.scenarios.scenario import Question, Scenario, Step
from labkit.lab.settings import Settings
from labkit.lab.view import View
from labkit.narrative import run_row
from labkit.trace.schema import NANO

EVERYTHING = frozenset(
    {getattr(actions, name) for name in actions.__all__} - {actions.Action, actions.Resume, actions.Unpin}
)
SCENARIO = Scenario(
    "slow-worker", "One straggler", "All wait.", (Step(text="Synchronous."), Step(text="Asynchronous.")),
    question=Question("Throughput falls to …", ("80%", "50%", "20%"), 2, "You answered {answer}; it fell to {right}."),
)  # fmt: skip


@cache
def trace(workers=3, seconds=0.5, slow=False):
    """A trace to show."""
    faults = [lk.Slow("worker-1", 5, at=0.2)] if slow else []
    cluster = lk.SimulatedCluster(workers, compute=lk.Deterministic(0.05))
    run = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=seconds), faults=faults)
    return run.wait().trace


def view(of=None, **more):
    """The view of a lab that shows this trace."""
    of = trace() if of is None else of
    settings = Settings().changed(workers=3)
    plain = {
        "trace": of, "t": of.watermark(), "recorded": of.watermark(), "ends": 10 * NANO, "live": True, "state": "paused",
        "replaying": False, "simulated": True, "reference": None, "settings": settings, "shown": settings, "changed": (),
        "entries": (), "processes": None, "busy": "", "problem": "", "scenario": None, "step": -1, "text": "", "asked": False,
        "answer": None, "slow": {}, "conditions": {},
        "supported": frozenset({lk.Slow, lk.Kill}), "undo": {}, "actions": EVERYTHING, "dashboard": None,
    }  # fmt: skip
    return View(**{**plain, **more})


class Stub:
    """A lab that does nothing. `answers`: the effect of each press."""

    def __init__(self, now):
        self.now, self.pressed, self.answers = now, [], lambda action: {}

    def view(self):
        return self.now

    def press(self, action):
        self.pressed.append(action)
        self.now = dataclasses.replace(self.now, **self.answers(action))

    def scenarios(self):
        return {SCENARIO.name: SCENARIO.title}

    def share_text(self):
        return "strategy=async-ps"


def until(condition, seconds=20.0):
    """Wait until a condition set by another thread is true."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.005)


def all_widgets(page):
    """All widgets on the page, including those in boxes."""
    found, todo = [], [page.box]
    while todo:
        widget = todo.pop()
        found.append(widget)
        todo += getattr(widget, "children", ())
    return found


def button(page, label):
    """The button with this text."""
    found = [w for w in all_widgets(page) if isinstance(w, ipywidgets.Button) and w.description.startswith(label)]
    assert found, label
    return found[0]


def labelled(page, kind, label):
    """The widget of this kind with this description."""
    return next(w for w in all_widgets(page) if isinstance(w, kind) and w.description == label)


def by_class(page, name):
    """The first widget with this class of the style sheet."""
    return next(w for w in reversed(all_widgets(page)) if name in w._dom_classes)


def panel(page, name):
    """(box, title, image) of a panel."""
    box = by_class(page, f"lk-p-{name}")
    return box, *box.children


def setting(page, label):
    """The widget of the setting with this label; the menu of strategies has none."""
    kinds = {"lk-setting", "lk-check"}
    return next(w for w in all_widgets(page) if kinds & set(w._dom_classes) and w.description == label)


class Opened:
    """A page, the stub that it shows, and its drawing thread; `clock` is the page's."""

    def __init__(self, page, lab, factory, thread):
        self.page, self.lab, self.thread, self._factory = page, lab, thread, factory

    def set_clock(self, clock):
        self._factory.clock = clock

    def __getattr__(self, name):
        return getattr(self.page, name)


def seen(widget):
    return "lk-gone" not in widget._dom_classes


def text(page):
    """All texts on the page."""
    return " ".join(
        re.sub("<style>.*</style>", "", w.value) for w in all_widgets(page) if isinstance(w, ipywidgets.HTML)
    )


def run_of(record):
    """The part of a run that a table of runs uses."""
    return SimpleNamespace(engine=SimpleNamespace(trace=record))


def entries():
    settings = Settings()
    return (
        Entry(1, settings.changed(strategy="sync-ps"), run_of(trace(2)), run_row(trace(2))),
        Entry(2, settings, run_of(trace(3)), run_row(trace(3))),
    )
