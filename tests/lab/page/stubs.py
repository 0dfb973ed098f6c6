"""Parts of tests of the page: views, a lab that only records presses, a drawing thread without a thread."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import SimpleNamespace

import numpy as np

import labkit as lk
from labkit.lab.run_table import Entry
from labkit.lab.scenarios.scenario import Question, Scenario, ScenarioStep
from labkit.lab.settings import Settings
from labkit.lab.view import View
from labkit.narrative import run_row
from labkit.trace.schema import NANO

EVERYTHING = frozenset({
    "run", "pause", "stop", "reset", "step", "seek", "live", "what_if", "set", "undo", "play", "answer", "pin", "show_run",
    "calibrate", "forecast", "play_forecast", "sweep", "cancel", "ask",
})  # without the opposites of "pause" and "pin"  # fmt: skip
SCENARIO = Scenario(
    "slow-worker", "One straggler", "All wait.", (ScenarioStep(text="Synchronous."), ScenarioStep(text="Asynchronous.")),
    question=Question("Throughput falls to …", ("80%", "50%", "20%"), 2, "You answered {answer}; it fell to {right}."),
)  # fmt: skip


@cache
def trace(workers=3, seconds=0.5):
    """The trace of a short run."""
    cluster = lk.SimulatedCluster(workers, compute=lk.distributions.Deterministic(0.05))
    run = lk.train(lk.Problem("digits", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(seconds=seconds))
    return run.wait().trace


def view(of=None, **more):
    """The view of a lab that shows this trace."""
    of = trace() if of is None else of
    settings = Settings().changed(workers=3)
    plain = {
        "trace": of, "t": of.watermark(), "recorded": of.watermark(), "ends": 10 * NANO, "live": True, "state": "paused",
        "replaying": False, "simulated": True, "reference": None, "settings": settings, "shown": settings, "changed": (),
        "entries": (), "processes": "", "busy": "", "problem": "", "scenario": None, "step": -1, "text": "", "asked": False,
        "answer": None, "slow": {}, "conditions": {}, "supported": frozenset({lk.Slow, lk.Kill}), "undo": {},
        "available": EVERYTHING, "dashboard": None,
    }  # fmt: skip
    return View(**{**plain, **more})


def entries():
    """A table of two finished runs."""
    settings = Settings()

    def run_of(record):
        return SimpleNamespace(engine=SimpleNamespace(trace=record))

    return (
        Entry(1, settings.changed(strategy="sync-ps"), run_of(trace(2)), run_row(trace(2))),
        Entry(2, settings, run_of(trace(3)), run_row(trace(3))),
    )


class StubLab:
    """A lab that executes nothing. `pressed`: (button, arguments ...). `effect(name)`: the fields of the view that it changes."""

    def __init__(self, now):
        self.now, self.pressed, self.effect = now, [], lambda name: {}

    def view(self):
        return self.now

    def press(self, name, *arguments):
        self.pressed.append((name, *arguments))
        self.now = dataclasses.replace(self.now, **self.effect(name))

    def scenarios(self):
        return {SCENARIO.name: SCENARIO.title}

    def share_text(self):
        return "strategy=async-ps"


class ManualThread:
    """The interface of `DrawingThread`; `frame()` draws one frame, if one is due, on the thread of the test."""

    def __init__(self, name, paint):
        self.name, self._paint = name, paint
        self.sent, self.acknowledged, self.share = 0, -1, 0.28
        self.since_action = 60.0
        self.due = self.acted = self.closed = False

    def frame(self):
        """Draw; returns the seconds until the next frame. None: the lab is idle."""
        self.due = False
        return self._paint()

    @property
    def alive(self):
        return self.due

    @property
    def watched(self):
        return self.acknowledged >= 0

    def wake(self):
        self.due = not self.closed

    def after_action(self):
        self.acted = True

    def acknowledge(self, frame):
        self.acknowledged = frame

    def next_frame(self):
        self.sent += 1
        return self.sent

    def join(self, timeout=None):
        return not self.due

    def close(self):
        self.closed, self.due = True, False


def resolved(layer, buffers):
    """The instructions of a layer with their points and pixels in them, as texts."""
    points = np.frombuffer(buffers[layer["points"]], np.float32).reshape(-1, 2)
    pixels = buffers[layer["pixels"]]
    found = []
    for one in layer["ops"]:
        used = np.empty((0, 2), np.float32)
        if one["do"] == "shapes":
            used = points[one["at"] : one["at"] + sum(one["n"])]
        elif one["do"] == "curve":
            used = points[one["at"] : one["at"] + len(one["codes"])]
        elif one["do"] == "markers":
            used = points[one["at"] : one["at"] + len(one["codes"]) + one["count"]]
        image = pixels[one["byte"] : one["byte"] + 4 * one["rows"] * one["columns"]] if one["do"] == "image" else b""
        plain = {name: value for name, value in sorted(one.items()) if name not in ("at", "byte")}
        found.append(repr((plain, used.round(3).tolist(), image)))
    return found
