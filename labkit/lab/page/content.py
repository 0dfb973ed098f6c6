"""What the page of a lab shows, as plain values: one function per section, each a function of the `View`.

The values are traits of the widget (`widget.py`), and `page.js` shows them as they are; JSON can represent all of them. Sections:
toolbar, player, headline, question, faults, controls, runs, numbers, log, panels, experiments, ask, status; and `share`, which is
sent on request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...engines.command_words import PAIRS, WORDS
from ...engines.commands import Command
from ...errors import LabkitError
from ...formatting import short
from ...table import MISSING, Table
from ...trace.schema import NANO
from ...views import PANELS
from ...views.style import nice_above
from ..controls import Control, label_of
from ..experiments import default_values, sweepable
from ..glossary import explain
from ..handwriting import PEN

if TYPE_CHECKING:
    from ..inquiry import Answer
    from ..run_table import Entry
    from ..settings import Settings
    from ..view import View

Section = dict[str, Any]

SPEEDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
FACTORS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
SMALLEST = (
    200,
    100,
)  # pixels of the picture of a panel, with room for its margins; the browser scales it if it shows fewer
MOST_CHIPS = 16  # roles that are shown as buttons; of more there is a menu
MOST_BARS = 12  # classes of an answer
MOST_FEATURES = 12  # values of a sample that is no picture
MOST_RUNS = 8  # rows of the list of runs
MOST_LINES = 60  # of the log, the newest ones
LATE_S = 5.0  # reports that are later than this are said to be late, seconds
SHORTEST, LONG = 10.0, 60.0  # seconds of the slider: without a time limit; of a run with a longer limit, at first
NO_SCENARIO = "no scenario"
SLOTS = {"resume": "pause", "unpin": "pin", "forecast": "calibrate"}  # buttons in the place of another one
MEASURE = (
    "measure what gradients and messages cost on this cluster (half a minute), to forecast its runs and larger clusters"
)
FORECAST = "forecast other sizes of the cluster, sweep a setting, show the calibration"
ASK = "ask the model: give it a sample, and see its answer while it learns"
ENDED = {
    "seconds": "time limit reached", "accuracy": "target accuracy reached", "loss": "target loss reached",
    "patience": "no lower loss any more", "updates": "limit of updates reached",
    "samples": "limit of samples reached", "epochs": "limit of epochs reached", "finished": "all workers finished",
    "user": "stopped by you", "interrupted": "interrupted", "error": "error", "closed": "the cluster was closed",
}  # fmt: skip
COLUMNS = (
    ("grad/s", "gradients applied per second"),
    ("staleness", "mean staleness"),
    ("s to 95%", "seconds to the target accuracy, 95% by default"),
)


def toolbar(view: View, scenarios: dict[str, str]) -> Section:
    """The menu of scenarios and the buttons that control the run. `scenarios`: {name: title}."""
    on_cluster = not view.settings.cluster.virtual_time
    active = view.state in ("running", "paused")
    paused = "pause" not in view.available and "resume" in view.available
    paused = {"pausing": True, "resuming": False}.get(view.busy, paused)  # show the requested state at once
    pinned = "unpin" in view.available
    run = "Run again" if active and view.changed else "Run on cluster" if on_cluster else "Run"
    buttons = [
        _button("run", run, "start a run with these settings", view, main=True),
        _button("resume", "Resume", "continue", view) if paused else _button("pause", "Pause", "pause the run", view),
        _button("stop", "Stop", "end the run, with a final evaluation", view),
        _button("step", "Step", "go to the next applied update", view),
        _button("reset", f"Reset, seed {view.settings.problem.seed}", "back to 0 s with the same settings", view),
        _button("unpin", "Unpin", "remove the reference run", view) if pinned else
        _button("pin", "Pin", "make this the reference run: later runs are drawn over it", view),
        _button("calibrate", "Calibrate", MEASURE, view) if view.calibration is None else
        {**_button("forecast", "Forecast", FORECAST, view), "off": False},
        _button("ask", "Ask", ASK, view),
        _button(
            "undo", "Undo", f"undo the last fault or change of a setting: {view.undoes}", view,
            hidden="undo" not in view.available,
        ),
        _button(
            "what_if", "What if from here", "repeat the run up to this time, and continue from there", view,
            hidden=view.live or "what_if" not in view.available,
        ),
        _button("live", "Back to live", "show the present time", view, hidden=view.live),
    ]  # fmt: skip
    return {
        "scenarios": [["", NO_SCENARIO], *map(list, scenarios.items())],
        "scenario": view.scenario.name if view.scenario is not None and view.scenario.name in scenarios else "",
        "buttons": buttons,
    }


def _button(name: str, label: str, tip: str, view: View, **more: Any) -> Section:
    tip = f"not available: {view.why_not[name]}" if name in view.why_not else tip
    return {
        "id": SLOTS.get(name, name), "label": label, "action": name, "tip": tip, "off": name not in view.available, **more,
    }  # fmt: skip


def player(view: View) -> Section:
    """State of the run, displayed time and slider, limits, speed. Times in seconds. `scale`: the end of the slider as text, if
    this is not the end of the run.
    """
    t, recorded = view.t / NANO, view.recorded / NANO
    ends = None if view.ends is None else view.ends / NANO
    length = slider_length(recorded, ends)
    moves = view.replaying or (view.live and view.state == "running")
    return {
        "t": t, "recorded": recorded, "length": length, "moves": moves, "live": view.live,
        "scale": "" if ends is not None and length >= ends else f"{length:g} s",
        "failed": view.state == "failed", "at": f"{t:.1f} s" if view.live else f"{t:.2f} s", **_state(view),
        "ends": _limits(view, t, length, ends), "speed": view.settings.speed, "speeds": sorted({*SPEEDS, view.settings.speed}),
    }  # fmt: skip


def _state(view: View) -> Section:
    below = f"{view.busy}…" if view.busy else view.processes
    if not view.live:
        lamp, doing = ("REPLAY", "playing") if view.replaying else ("PAST", "looking back")
        return {"lamp": lamp, "below": below or doing}
    if view.state == "running":
        lamp = "PREVIEW" if view.processes else "LIVE"
        late = f"reports are {view.late:.0f} s late" if view.late >= LATE_S else "on the cluster"
        return {"lamp": f"● {lamp}", "below": below or ("virtual time" if view.simulated else late)}
    ending = view.trace.ending
    unanswered = view.asked and view.answer is None
    paused = "answer the question to go on" if unanswered else "press Resume"
    why = {"ready": "press Run", "paused": paused}.get(view.state, "")
    if view.state == "over" and ending is not None:
        why = ENDED.get(ending["stopped_by"], ending["stopped_by"])
    return {"lamp": view.state, "below": below or why}


def slider_length(recorded: float, ends: float | None) -> float:
    """The end of the time slider, in seconds. It depends on nothing but the run: `recorded` seconds of it, and its time limit.

    The slider of a run with a short time limit ends there. Otherwise it ends at a round number and grows with the run, until it
    ends at the limit.
    """
    length = nice_above(max(recorded, SHORTEST if ends is None else LONG))
    return max(length if ends is None else min(length, ends), recorded)


def _limits(view: View, t: float, length: float, ends: float | None) -> list[str]:
    goal, active = view.shown.budget.accuracy, view.state in ("running", "paused")
    limits = [f"{'ends at' if length >= ends else 'limit'} {ends:g} s"] if ends is not None else []
    if goal is not None:
        limits.append(f"{'or at' if limits else 'ends at'} {100 * goal:g}%")
    if active and ends is not None:
        limits.append(f"{max(0.0, ends - t):.0f} s left")
    return [limits[0], " · ".join(limits[1:])] if limits else ["", ""]


def headline(view: View, sentence: Callable[[], str]) -> Section:
    """The sentence on top, or an error. `sentence()`: the computed sentence."""
    if view.problem:
        return {"first": "⚠ ", "rest": view.problem, "error": True}
    computed = sentence()
    if view.notice:
        return {"first": f"{view.notice} ", "rest": computed, "error": False}
    first, stop, rest = (view.text, " ", computed) if view.text else computed.partition(". ")
    return {"first": first + stop, "rest": rest, "error": False}


def question(view: View) -> Section:
    """The question of the scenario, if it is asked now, with its answers; when the result is there, this in its place."""
    asked = view.scenario.question if view.scenario is not None and view.asked else None
    if asked is None or view.scenario is None:
        return {"text": ""}
    given = view.answer
    if given is not None and view.step == len(view.scenario.steps) - 1 and view.state == "over":
        verdict = asked.verdict.format(answer=asked.answers[given], right=asked.answers[asked.right])
        return {"text": verdict, "answers": [], "open": False, "result": "right" if given == asked.right else "wrong"}
    answers = [{"text": text, "given": i == given} for i, text in enumerate(asked.answers)]
    return {"text": asked.text, "answers": answers, "open": given is None, "result": ""}


def faults(view: View) -> Section:
    """The roles in which faults can be injected, with their conditions and the commands that are possible for each."""
    trace = view.trace
    servers, workers = ([trace.roles[i] for i in trace.role_ids(kind)] for kind in ("server", "worker"))
    named = (*workers, *servers)
    affected = next((role for role in (*view.slow, *view.conditions) if role in named), named[0] if named else "")
    return {"first": affected, "most": MOST_CHIPS, "roles": [_role(role, role in servers, view) for role in named]}


def _role(role: str, server: bool, view: View) -> Section:
    slow, condition = view.slow.get(role, 1.0), view.changing.get(role, "") or view.conditions.get(role, "")
    tip = " ".join(filter(None, (short(role), f"×{slow:g}" if slow != 1 else "", condition)))
    return {
        "name": role, "text": f"{short(role)} {condition}".strip(), "tip": tip, "server": server, "slow": slow,
        "away": bool(condition), "factors": sorted({*FACTORS, slow}), "buttons": [_command(kind, role, view) for kind in PAIRS],
    }  # fmt: skip


def _command(kind: type[Command], role: str, view: View) -> Section:
    """A button for a command; it executes the one that undoes it while that would have an effect."""
    opposite = PAIRS[kind]
    undo = opposite in view.supported and opposite.word in view.undo.get(role, ())
    now = opposite if undo else kind
    return {
        "id": kind.word, "label": WORDS[now].label, "action": now.word, "tip": WORDS[now].tip.format(short(role)),
        "off": now not in view.supported, "undo": undo, "change": f"{short(role)} {WORDS[now].progress}",
    }  # fmt: skip


def controls(
    shown: tuple[Control, ...], next_run: frozenset[str], received: Mapping[str, int], swept: Mapping[str, str] | None = None
) -> list[Section]:  # fmt: skip
    """The settings. `next_run`: the names of those of which the displayed run has a different value. `received`: {name: how many
    values the browser has sent}: when the number changes, a field shows the setting instead of what was typed. `swept`: {name:
    values} of the settings that have a button for a sweep.
    """
    swept = swept or {}
    return [
        _control(control, control.name in next_run, received.get(control.name, 0))
        | {"sweep": swept.get(control.name, "")}
        for control in shown
    ]


def _control(control: Control, next_run: bool, received: int) -> Section:
    found: Section = {
        "name": control.name, "label": control.label, "group": control.group, "kind": control.kind, "next": next_run,
        "help": f"{control.help or explain(control.name)}{'' if control.live else ' (for the next run)'}", "choices": [],
        "received": received,
    }  # fmt: skip
    if control.choices:
        values = [value for _, value in control.choices]
        return {**found, "choices": [label for label, _ in control.choices], "index": values.index(control.value)}
    if control.kind == "slider":
        found |= {"low": control.low, "high": control.high, "log": control.log}
    value = control.value
    return {**found, "value": value if not isinstance(value, float) or math.isfinite(value) else str(value)}


def experiments(view: View, swept: Mapping[str, str]) -> Section:
    """The calibration of the cluster, forecasts of other sizes, sweeps, and the progress of the task. `swept`: {name: values}
    of the settings that can be swept.
    """
    task, measured = view.task, view.calibration
    again = "Calibrate" if measured is None else "Calibrate again"
    progress: Section = {}
    if task is not None and task.state in ("running", "failed"):
        counted = f": {task.done} of {task.total}" if task.total else ""
        effect = "end it after the present probe or run, without a result"
        progress = {
            "text": task.problem or f"{task.text}{counted}", "done": task.done, "total": task.total,
            "failed": task.state == "failed", "cancel": _button("cancel", "Cancel", effect, view),
        }  # fmt: skip
    now, sweep = view.settings.cluster.workers, view.swept
    return {
        "task": progress, "kind": task.kind if view.task_active and task is not None else "",
        "calibrate": {
            "button": _button("calibrate", again, MEASURE, view),
            "text": _calibration_text(view), "table": None if measured is None else _table(measured.table()),
            "doubts": [] if measured is None else _doubts([*measured.doubts, *measured.doubts_about(view.settings.problem)]),
        },
        "forecast": {
            "buttons": [
                _button("forecast", "Forecast", "simulate this number of workers with the measured costs", view),
                _button("play_forecast", "Watch", "play a simulated run of this size in the panels", view),
            ],
            "workers": max(8 * now, 32), "hosts": str(measured.costs.hosts) if measured is not None else "1",
            "table": None if view.forecasts is None else _table(view.forecasts.table()),
            "doubts": [] if view.forecasts is None else _doubts(view.forecasts.doubts),
        },
        "sweep": {
            "button": _button("sweep", "Sweep", "simulate runs with several values of the setting", view),
            "settings": [[name, label_of(name)] for name in swept], "values": dict(swept),
            "text": "" if sweep is None else f"{label_of(sweep.setting)}: {sweep.note}",
            "table": None if sweep is None or not len(sweep.sweep) else _table(sweep.sweep.table()),
        },
    }  # fmt: skip


def _calibration_text(view: View) -> str:
    if view.calibration is None:
        why = view.why_not.get("calibrate", "")
        if why:
            return why[:1].upper() + why[1:]
        return "Not measured yet. It takes about half a minute, and nothing else may run meanwhile."
    return view.calibration.table().title


def _table(table: Table) -> Section:
    cells = table.cells()
    columns = list(zip(*cells)) or [()] * len(table.columns)
    right = [bool(column) and all(text[:1] in f"0123456789±{MISSING}" for text in column) for column in columns]
    return {"columns": list(table.columns), "rows": cells, "right": right}


def _doubts(doubts: Iterable[str]) -> list[str]:
    return [f"Doubtful: {doubt}." for doubt in dict.fromkeys(doubts)]


def ask(view: View) -> Section:
    """The sample of the user, and what the model predicts for it. Before it was asked: only that it is not open."""
    answer = view.model_answer
    if answer is None:
        return {"open": False}
    inputs = answer.inputs
    found: Section = {
        "open": True,
        "kind": inputs.kind,
        "title": answer.title,
        "right": answer.right,
        "number": answer.held_out,
        "held_out": inputs.held_out,
        "problem": answer.problem,
        "bars": _bars(answer),
        "weights": "",
    }
    if answer.update is not None:
        found["weights"] = f"weights of update {answer.update:,}, {answer.time or 0:.2f} s"
    if inputs.shape is not None:
        found |= {
            "shape": list(inputs.shape),
            "ink": inputs.shares(answer.sample[None])[0].ravel().tolist(),
            "pen": PEN,
        }
    else:
        found |= {"low": inputs.low[:2].tolist(), "high": inputs.high[:2].tolist()}
        names = inputs.dataset.feature_names or tuple(f"feature {k + 1}" for k in range(inputs.dataset.features))
        found |= {
            "names": list(names[:MOST_FEATURES]),
            "values": answer.sample[:MOST_FEATURES].tolist(),
            "features": len(names),
        }
    if inputs.kind == "plane":
        found |= {"points": inputs.points.tolist(), "labels": [] if inputs.labels is None else inputs.labels.tolist()}
    return found


def _bars(answer: Answer) -> list[Section]:
    """The probabilities of the classes, of many the largest ones, or the values of a regression."""
    if answer.values is None:
        return []
    if not answer.classes:
        return [{"name": name, "text": f"{value:.4g}"} for name, value in zip(answer.names[:MOST_BARS], answer.values)]
    shown = range(len(answer.names))
    if len(shown) > MOST_BARS:
        shown = (-answer.values).argsort(kind="stable")[:MOST_BARS].tolist()
    return [
        {
            "name": answer.names[k], "share": float(answer.values[k]), "text": f"{100 * answer.values[k]:.0f}%",
            "best": answer.names[k] == answer.predicted, "right": answer.truth is not None and k == int(answer.truth),
        }
        for k in shown
    ]  # fmt: skip


def sweep_values(settings: Settings) -> dict[str, str]:
    """Return {name: default values as text} of the settings that can be swept."""
    return {
        name: ", ".join(f"{value:g}" for value in default_values(control))
        for name, control in sweepable(settings).items()
    }


def runs(view: View) -> Section:
    """The finished runs, newest first."""
    newest = list(reversed(view.entries))[:MOST_RUNS]
    return {"columns": [list(column) for column in COLUMNS], "rows": [_run(entry, view) for entry in newest]}


def _run(entry: Entry, view: View) -> Section:
    rate, stale, passed = (
        entry.row.get(name) for name in ("gradients_per_second", "staleness_mean", "time_to_accuracy")
    )
    cells = [
        "–" if rate is None else f"{rate:,.0f}" if rate < 10_000 else f"{rate / 1000:,.0f}k",
        "–" if stale is None else f"{stale:.1f}" if 0 < stale < 100 else f"{stale:.0f}",
        "–" if passed is None else f"{passed:.1f}" if passed < 100 else f"{passed:.0f}",
    ]
    return {
        "number": entry.number, "name": entry.settings.strategy.name, "cells": cells, "on": entry.trace is view.trace,
        "pinned": entry.trace is not None and entry.trace is view.reference, "off": entry.trace is None,
    }  # fmt: skip


def numbers(found: list[tuple[str, str]], dashboard: str | None) -> Section:
    """Exact numbers at the displayed time, each with the explanation of its name."""
    return {"values": [[name, value, explain(name)] for name, value in found], "dashboard": dashboard or ""}


def log(lines: list[str]) -> list[str]:
    """The log, newest line first."""
    return list(reversed(lines[-MOST_LINES:]))


def share(text: Callable[[], str]) -> Section:
    """The share text of the lab, or the reason why it has none."""
    try:
        return {"text": text()}
    except LabkitError as error:
        return {"error": str(error)}


def panels(shown: tuple[str, ...], wide: Callable[[str], bool]) -> Section:
    """All panels, and those that are shown, in order. `wide(name)`: whether it takes a whole row."""
    return {
        "smallest": list(SMALLEST),
        "all": [[name, kind.title] for name, kind in PANELS.items()],
        "shown": [{"name": n, "title": PANELS[n].title, "help": explain(n), "wide": wide(n)} for n in shown],
    }
