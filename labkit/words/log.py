"""A run's log in words: what you did, what the run reached, who was slow, how it ended; one line an event.

    5.00 s you slowed w2 x5
    5.40 s w1 was killed
    5.92 s accuracy passed 95%
    7.40 s straggler: w2, computing 0.50 s against a median of 0.10 s
    12.00 s the end: 12 s are over

A function of the trace and of nothing else: notebook, terminal, files and the lab show the same lines.
"""

from __future__ import annotations

import html
import math
from typing import Any

from ..trace.marks import marks_until, short, shortened
from ..trace.trace import Trace
from ..trace.vocabulary import seconds
from .harm import LINKS, ROLES, links_text, role_text, value
from .sentence import goal_of
from .stragglers import Stragglers, stragglers

__all__ = ["MILESTONES", "Log", "events", "log_lines"]

MILESTONES = (0.5, 0.75, 0.9, 0.95, 0.99)  # accuracies worth a line, beside the budget's
PAUSES = 3  # lines about pauses with nothing in between; who steps makes many
VERBS = {"resume": "went on", "pause": "paused"}


class Log(list[str]):
    """Lines that print as such."""

    def __repr__(self) -> str:
        return "\n".join(self) if self else "nothing happened yet"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return "".join(f"<div>{html.escape(line)}</div>" for line in (self or [repr(self)]))


def log_lines(trace: Trace, t: int | None = None, memory: Stragglers | None = None) -> list[str]:
    """The events up to `t` (ns; None is now) as lines, `5.00 s you slowed w2 x5`. See `events`."""
    return [f"{seconds(time):.2f} s {words}" for time, words in events(trace, t, memory)]


def events(trace: Trace, t: int | None = None, memory: Stragglers | None = None) -> list[tuple[int, str]]:
    """(ns, what happened) up to `t` (ns; None is now), in order.

    `memory`: a `Stragglers()` that the caller keeps from one call to the next about the same trace, so that its rows are
    not all read again.
    """
    known = trace.watermark()
    t = known if t is None else min(t, known)
    found = [*_marks(trace, t), *_learned(trace, t), *(memory.until(trace, t) if memory else stragglers(trace, t))]
    found.sort(key=lambda event: event[0])
    ending = trace.ending
    if ending is not None and t >= ending["time"]:
        found.append((ending["time"], f"the end: {_why(trace, ending)}"))
    return found


# what was done --------------------------------------------------------------------------------------------------------


def _marks(trace: Trace, t: int) -> list[tuple[int, str]]:
    """Marks in words. Of many pauses in a row the first ones, and how many there were."""
    found: list[tuple[int, str]] = []
    killed: list[str] = []  # what follows from that at once is said already
    pauses = 0
    for alike in _alike(marks_until(trace, t)):
        mark = alike[0]
        if mark["kind"] == "kill":
            killed.append(mark.get("name", ""))
        elif mark["kind"] == "lost" and mark.get("name") in killed and "killed" in mark.get("why", ""):
            killed.remove(mark["name"])
            continue
        if mark["kind"] in LINKS and "name" in mark:
            found.append((mark["time"], links_text(alike)))
            continue
        pauses = pauses + 1 if mark["kind"] == "pause" else 0
        line = (mark["time"], mark_text(trace, mark))
        if pauses > PAUSES:
            found[-1] = mark["time"], f"you paused, {pauses - PAUSES + 1} more times"
        else:
            found.append(line)
    return found


def _alike(marks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Marks one by one; those that say the same of several links at one time are together."""
    found: list[list[dict[str, Any]]] = []
    for mark in marks:
        last = found[-1][0] if found else None
        if last is not None and mark["kind"] in LINKS and _said(mark) == _said(last):
            found[-1].append(mark)
        else:
            found.append([mark])
    return found


def _said(mark: dict[str, Any]) -> tuple[Any, ...]:
    return mark["kind"], mark["time"], value(mark)


def mark_text(trace: Trace, mark: dict[str, Any]) -> str:
    """One mark, as a person would say it to who made it."""
    kind, name = mark["kind"], short(mark.get("name", ""))
    if kind == "slow" and "factor" in mark:
        factor = mark["factor"]
        if factor == 1:
            return f"you gave {name} its own speed back"
        return f"you slowed {name} x{factor:g}" if factor > 1 else f"you sped up {name} x{1 / factor:.3g}"
    if kind == "set":
        return f"you set {mark['text']}"
    if kind in VERBS:
        return f"you {VERBS[kind]} {name}".rstrip()
    if kind in ROLES:
        return role_text(mark)
    if kind == "note":
        figures = ", ".join(f"{key} = {value:g}" for key, value in mark.get("numbers", {}).items())
        noted = "you noted" if mark["role"] < 0 else f"{short(trace.roles[mark['role']])} noted"
        return f"{noted}: {mark['text']}" + (f" ({figures})" if figures else "")
    return shortened(str(mark["text"]))


# what was reached -----------------------------------------------------------------------------------------------------


def _learned(trace: Trace, t: int) -> list[tuple[int, str]]:
    """When accuracy first passed a milestone (of several at once, the highest), and when the loss was lost. What an
    untrained model can do is no news.
    """
    goals = sorted({*MILESTONES, goal_of(trace)})
    columns = trace.column("evaluations", "time", "update", "loss", "accuracy")
    found: list[tuple[int, str]] = []
    for time, update, loss, accuracy in zip(*(column.tolist() for column in columns)):
        if time > t:
            break
        passed = [goal for goal in goals if accuracy >= goal]
        goals = goals[len(passed) :]
        if not math.isfinite(loss):
            return [*found, (round(time), "the loss is no longer a finite number")]
        if passed and update > 0:
            found.append((round(time), f"accuracy passed {100 * passed[-1]:g}%"))
    return found


def _why(trace: Trace, ending: dict[str, Any]) -> str:
    """Why the run is over, in words."""
    reason, budget = ending["stopped_by"], trace.header["budget"]
    why = (ending.get("why") or "").split("\n", 1)[0]
    said = {
        "accuracy": f"accuracy reached {100 * goal_of(trace):g}%", "user": "you stopped it", "interrupted": "interrupted",
        "finished": "every worker has finished", "error": "an error", "diverged": "diverged", "deadlock": "deadlock",
        "closed": "the cluster was closed",
    }.get(reason)  # fmt: skip
    if said is None and reason in budget:
        unit = {"seconds": "s", "epochs": "epochs"}.get(reason, reason)
        said = f"{budget[reason]:,g} {unit} are over" if reason == "seconds" else f"{budget[reason]:,g} {unit} done"
    said = said or f"stopped by {reason}"
    if why.startswith(said):
        return shortened(why)
    return said + (f": {why}" if why else "")
