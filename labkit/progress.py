"""Progress of a run towards its budget, and the progress bar that is shown while a program waits for a run, or for several
tasks, such as the runs of a sweep.

In a terminal the bar is drawn by rich on standard error. In a notebook it is one output, which is updated in place, without
a widget. The bar only reads the trace: it does not change a run. It is drawn at most four times per second, and takes less than
5% of the time.
"""

from __future__ import annotations

import html
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .engines.base import Engine, VirtualTimeEngine
from .engines.plan import Plan
from .errors import BadInput, shown
from .formatting import count_text, number_text, percent, rate
from .narrative.log import stop_reason
from .trace import Trace, updates
from .trace.query import judged_on, last_evaluation, samples_applied
from .trace.schema import seconds

FIRST_S = 0.5  # no bar is shown for a shorter wait
INTERVAL_S = 0.25  # wall seconds between two drawings of the bar, at least
COST = 20  # and at least so many times the duration of a drawing
RECENT = 40  # number of drawings from which the remaining time is estimated
BAR_WIDTH = 24  # columns of a terminal


def budget_limits(plan: Plan) -> dict[str, float]:
    """Return the budget of a run as {"updates" | "samples" | "seconds" | "accuracy" | "loss": limit}."""
    found = {
        "updates": plan.limits.updates, "samples": plan.limits.samples, "seconds": plan.budget.seconds,
        "accuracy": plan.budget.accuracy, "loss": plan.budget.loss,
    }  # fmt: skip
    return {name: float(limit) for name, limit in found.items() if limit is not None and math.isfinite(limit)}


@dataclass(frozen=True)
class Progress:
    """The progress of a run at one moment. `seconds`: engine time. `accuracy`, `loss`: on the samples to which the rules of the
    budget apply; None if not known (yet).
    """

    updates: int
    samples: int
    seconds: float
    accuracy: float | None
    limits: Mapping[str, float]
    loss: float | None = None

    @classmethod
    def of(cls, trace: Trace, limits: Mapping[str, float]) -> Progress:
        """Return the progress of a trace towards `limits`, the result of `budget_limits`."""
        evaluation = last_evaluation(trace, trained=False, table=judged_on(trace)) or (0.0, math.nan, math.nan)
        loss, accuracy = (value if math.isfinite(value) else None for value in evaluation[1:])
        return cls(updates(trace), samples_applied(trace), seconds(trace.now), accuracy, limits, loss)

    @property
    def share(self) -> float | None:
        """The part of the budget that is used up, from 0 to 1: that of the nearest limit.

        Accuracy does not grow evenly, so it counts only if there is no other limit. None if nothing is known.
        """
        now = {"updates": self.updates, "samples": self.samples, "seconds": self.seconds}
        shares = [now[name] / limit for name, limit in self.limits.items() if name in now and limit > 0]
        if not shares and self.accuracy is not None and self.limits.get("accuracy"):
            shares = [self.accuracy / self.limits["accuracy"]]
        return min(max(shares), 1.0) if shares else None

    @property
    def limited(self) -> list[str]:
        """Each quantity that has a limit, with its limit, as text: `107 of 300 updates`."""
        texts = self._texts()
        return [texts[name] for name in ("updates", "samples", "seconds", "accuracy", "loss") if name in self.limits]

    @property
    def numbers(self) -> list[str]:
        """Updates, samples (if they have a limit), rate, accuracy (if it is known) and time, as text, with their limits."""
        texts = self._texts()
        found = [texts["updates"]] + ([texts["samples"]] if "samples" in self.limits else [])
        if self.updates and self.seconds:
            found.append(f"{rate(self.updates / self.seconds)} updates/s")
        found += [] if self.accuracy is None else [texts["accuracy"]]
        return [*found, *([texts["loss"]] if "loss" in self.limits else []), texts["seconds"]]

    def _texts(self) -> dict[str, str]:
        """Return each quantity as text, with its limit if it has one."""
        of = {
            name: "" if name not in self.limits else f" of {self.limits[name]:,.0f}" for name in ("updates", "samples")
        }
        goal, limit = self.limits.get("accuracy"), self.limits.get("seconds")
        accuracy = "unknown" if self.accuracy is None else f"{self.accuracy:.1%}"
        return {
            "updates": f"{self.updates:,}{of['updates']} updates",
            "samples": f"{self.samples:,}{of['samples']} samples",
            "seconds": f"{self.seconds:.1f} s" if limit is None else f"{self.seconds:.1f} of {number_text(limit)} s",
            "accuracy": f"accuracy {accuracy}" + ("" if goal is None else f" of {100 * goal:g}%"),
            "loss": f"loss {'unknown' if self.loss is None else number_text(self.loss)}, ends at "
            f"{number_text(self.limits.get('loss'))}",
        }


def state_text(engine: Engine) -> str:
    """Return the state of a run: `running`, `paused`, `not over` (in virtual time), or the reason of its end."""
    ending = engine.trace.ending
    if engine.stopped_by is not None:
        return f"ended: {stop_reason(engine.trace, ending) if ending is not None else engine.stopped_by}"
    if engine.paused:
        return "paused"
    return "not over" if isinstance(engine, VirtualTimeEngine) else "running"


# bars -----------------------------------------------------------------------------------------------------------------


class Bar(ABC):
    """A progress bar. It appears when it is first drawn."""

    @abstractmethod
    def draw(self, name: str, share: float | None, text: str) -> None:
        """Draw the bar. `share`: from 0 to 1; None: unknown. `text`: the numbers."""

    @abstractmethod
    def close(self) -> None:
        """End the bar. What was drawn last stays."""


class TerminalBar(Bar):
    """A bar in a terminal. `console`: a rich console; None: standard error."""

    def __init__(self, console: Any = None):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(BAR_WIDTH),
            TextColumn("{task.fields[numbers]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        )  # fmt: skip
        prints = sys.stdout is not None and sys.stdout.isatty()  # what is printed meanwhile appears above the bar
        self._progress = Progress(
            *columns, console=console or Console(stderr=True), auto_refresh=False, redirect_stdout=prints, expand=True
        )
        self._task: Any = None

    def draw(self, name: str, share: float | None, text: str) -> None:
        """Draw the bar on the last line of the terminal."""
        if self._task is None:
            self._task = self._progress.add_task(name, total=1.0, numbers=text)
            self._progress.start()
        self._progress.update(self._task, completed=share or 0.0, numbers=text, refresh=True)

    def close(self) -> None:
        """End the line."""
        self._progress.stop()


class NotebookBar(Bar):
    """A bar in the output of a cell: an HTML output with a text form, which is replaced in place."""

    def __init__(self) -> None:
        self._output: Any = None

    def draw(self, name: str, share: float | None, text: str) -> None:
        """Draw the bar in the output of the cell that is being executed."""
        from IPython.display import display

        shown = {"text/plain": f"{name}: {text}", "text/html": bar_html(name, share, text)}
        if self._output is None:
            self._output = display(shown, raw=True, display_id=True)
        else:
            self._output.update(shown, raw=True)

    def close(self) -> None:
        """Nothing is left to do: the output stays in the notebook."""


def bar_html(name: str, share: float | None, text: str) -> str:
    """Return a bar as HTML, in the colors of the page."""
    frame = "display: inline-block; width: 160px; height: 8px; border: 1px solid currentColor; border-radius: 4px; opacity: 0.8"
    fill = f"display: block; width: {100 * (share or 0):.0f}%; height: 100%; background: currentColor"
    return (
        f'<div style="font-variant-numeric: tabular-nums"><b>{html.escape(name)}</b> <span style="{frame}">'
        f'<span style="{fill}"></span></span> {html.escape(text)}</div>'
    )


def check_progress(progress: Any) -> bool | None:
    """Return the argument `progress` of a public function. Raises `BadInput` if it is not True, False or None."""
    if not isinstance(progress, bool | None):
        raise BadInput(f"progress={shown(progress)} is not allowed; it is True, False or None.")
    return progress


def bar_for(progress: bool | None) -> Callable[[], Bar] | None:
    """Return the class of bar to show, or None for no bar.

    `progress`: None shows a bar in a terminal and in a notebook that a person uses; not in pipes and log files, not in notebooks
    that are executed without a browser (whose outputs may be compared), and not in threads besides the main thread. True shows a
    bar in any case, False none.
    """
    if progress is False:
        return None
    request = _cell_request()
    if progress is None and threading.current_thread() is not threading.main_thread():
        return None
    if request is not None:  # a front end with a person accepts input
        return NotebookBar if progress or request.get("content", {}).get("allow_stdin") else None
    return TerminalBar if progress or (sys.stderr is not None and sys.stderr.isatty()) else None


def _cell_request() -> Mapping[str, Any] | None:
    """Return the request that executes the present cell of a notebook; None outside a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    try:
        return None if kernel is None else kernel.get_parent("shell")
    except (AttributeError, LookupError):
        return {}


# waiting --------------------------------------------------------------------------------------------------------------


class Wait:
    """Waits for the end of a run, and draws a bar meanwhile. As a context manager, it draws the final state at the end.

    `bar`: makes the bar when it is first needed; None: no bar. `clock`: wall seconds.
    """

    def __init__(self, engine: Engine, bar: Callable[[], Bar] | None, clock: Callable[[], float] = time.monotonic):
        self._engine, self._make, self._clock = engine, bar, clock
        self._name = "" if bar is None else engine.plan.strategy.name
        self._limits = {} if bar is None else budget_limits(engine.plan)
        self._bar: Bar | None = None
        self._next = clock() + FIRST_S
        self._seen: deque[tuple[float, float]] = deque(maxlen=RECENT)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run is over. Raises `TimeoutError` after `timeout` seconds of wall time; the run then continues."""
        if self._make is None:
            return self._engine.wait(timeout)
        deadline = math.inf if timeout is None else self._clock() + timeout
        while True:
            until = min(self._next, deadline)
            try:
                return self._engine.wait(max(0.0, until - self._clock()))
            except TimeoutError:
                if until == deadline:
                    raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.") from None
            self.draw()

    def draw(self) -> None:
        """Draw the bar, if it is time to."""
        began = self._clock()
        if self._make is None or began < self._next:
            return
        self._engine.flush()
        progress = Progress.of(self._engine.trace, self._limits)
        state, left = [], self._time_left(progress.share)
        if self._engine.paused:
            state = ["paused"]
        elif left is not None:
            state = [f"{'at most ' if 'accuracy' in self._limits else ''}{_clock_text(left)} left"]
        self._bar = self._bar or self._make()
        self._show(self._bar, progress.share, [*state, *progress.numbers])
        ended = self._clock()
        self._next = ended + max(INTERVAL_S, COST * (ended - began))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is None:
            return
        try:
            self._engine.flush()
            progress = Progress.of(self._engine.trace, self._limits)
            over = self._engine.stopped_by is not None
            self._show(self._bar, progress.share, [*([state_text(self._engine)] if over else []), *progress.numbers])
        finally:
            self._bar.close()

    def _show(self, bar: Bar, share: float | None, texts: list[str]) -> None:
        bar.draw(self._name, share, " · ".join([*([] if share is None else [percent(share)]), *texts]))

    def _time_left(self, share: float | None) -> float | None:
        """Return the estimated wall seconds until the end; None if there is no estimate."""
        if share is None or set(self._limits) <= {"accuracy", "loss"}:
            return None
        self._seen.append((self._clock(), share))
        (then, before), (now, _) = self._seen[0], self._seen[-1]
        return (1 - share) * (now - then) / (share - before) if share > before else None


class TaskProgress:
    """The progress of several tasks, drawn as a bar. As a context manager, it draws the final state at the end.

    `name`: what is executed. `noun`: one of the tasks, as "run". `done`: tasks that were finished before. `bar`, `clock`: as in
    `Wait`. The bar may be drawn at any time with `draw`, which has no effect if it is too early.
    """

    def __init__(
        self, name: str, noun: str, total: int, done: int = 0, *, bar: Callable[[], Bar] | None,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._name, self._noun, self._total, self._done, self._failed = name, noun, total, done, 0
        self._make, self._clock = bar, clock
        self._bar: Bar | None = None
        self._next = clock() + FIRST_S
        self._seen: deque[tuple[float, int]] = deque([(clock(), done)], maxlen=RECENT)

    def finish(self, failed: bool = False) -> None:
        """Count one more finished task."""
        self._done, self._failed = self._done + 1, self._failed + failed
        self._seen.append((self._clock(), self._done))
        self.draw()

    def draw(self) -> None:
        """Draw the bar, if it is time to."""
        began = self._clock()
        if self._make is None or began < self._next:
            return
        self._bar = self._bar or self._make()
        self._show(self._bar, began)
        ended = self._clock()
        self._next = ended + max(INTERVAL_S, COST * (ended - began))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is None:
            return
        try:
            self._show(self._bar, self._clock())
        finally:
            self._bar.close()

    def _show(self, bar: Bar, now: float) -> None:
        share = self._done / self._total
        texts = [percent(share), f"{self._done:,} of {count_text(self._total, self._noun)}"]
        if self._seen[0][1] < self._done < self._total:
            texts.append(f"{_clock_text(self._time_left(now))} left")
        bar.draw(self._name, share, " · ".join([*texts, *([f"{self._failed:,} failed"] if self._failed else [])]))

    def _time_left(self, now: float) -> float:
        """Return the estimated wall seconds until the end: as long per task as recently, but at least as if a task ended now."""
        (then, before), (last, done) = self._seen[0], self._seen[-1]
        left = self._total - done
        return max(
            left * (last - then) / (done - before) - (now - last), (left - 1) * (now - then) / (done + 1 - before)
        )


def _clock_text(seconds: float) -> str:
    """Return a remaining time as text: `8 s`, `2 min 5 s`, `3 h 20 min`."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
