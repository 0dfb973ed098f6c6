"""Executes one run in a terminal, with a progress bar, an orderly stop on Ctrl-C, and result files.

The bar is drawn from the trace and does not affect the engine. A simulated run advances in slices of wall time, which
changes neither its events nor their order.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..engines.base import VirtualTimeEngine
from ..engines.commands import Stop
from ..engines.plan import Plan
from ..errors import BadInput, LabkitError, shown
from ..narrative.log import log_lines
from ..paths import reason
from ..run import Run, train
from ..spec import RunSpec
from ..summary import Summary
from ..trace import Trace, updates
from ..trace.exports import save_npz, to_perfetto
from ..trace.query import last_evaluation, samples_applied
from ..trace.schema import seconds
from .options import ResultFiles

__all__ = ["Outcome", "run", "write", "write_comparison"]

SLICE = 0.1  # wall seconds between two updates of the bar


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    trace: Trace
    error: LabkitError | None
    interrupted: bool

    @property
    def diverged(self) -> bool:
        """Whether the loss is no longer finite."""
        return (self.trace.ending or {}).get("stopped_by") == "diverged"

    def summary(self) -> Summary:
        """Return the summary of the run."""
        return Summary.of(self.trace)

    def divergence_message(self) -> str:
        """Return the message for a run that diverged."""
        name, why = self.trace.header["strategy"]["name"], (self.trace.ending or {}).get("why", "")
        return f"{name} diverged: {why}; a smaller --learning-rate may help."


def run(spec: RunSpec, cluster: Any) -> Outcome:
    """Execute a specification on `cluster` to the end.

    Errors of the run are in the outcome; errors before the start of the run are raised. The caller closes the cluster.
    """
    began = time.monotonic()
    error: LabkitError | None = None
    name = spec.strategy.name
    active_run = train(spec.problem, spec.strategy, cluster, spec.budget, faults=spec.faults, checkpoint=False)
    with active_run, Interrupt() as interrupt, ProgressBar(name, budget_limits(active_run.plan)) as show:
        try:
            _follow(active_run, interrupt, show)
        except LabkitError as failure:
            error = failure
    trace = active_run.trace
    if cluster.virtual_time:
        took = time.monotonic() - began
        click.echo(f"{name}: {seconds(trace.now):.2f} s of virtual time took {took:.2f} s", err=True)
    return Outcome(trace, error, interrupt.requested)


def _follow(active_run: Run, interrupt: Interrupt, show: Callable[[Trace], None]) -> None:
    """Wait until the run has ended, update the progress bar, and stop the run if it is interrupted."""
    step_once = _advance(active_run) if isinstance(active_run.engine, VirtualTimeEngine) else lambda: _wait(active_run)
    while not active_run.done:
        step_once()
        if interrupt.requested and not active_run.done:
            active_run.engine.execute(Stop("interrupted"))
        show(active_run.trace)
    active_run.wait()


def budget_limits(plan: Plan) -> dict[str, float]:
    """Return the budget of a run as {"updates" | "samples" | "seconds" | "accuracy": limit}."""
    found = {
        "updates": plan.limits.updates, "samples": plan.limits.samples, "seconds": plan.budget.seconds,
        "accuracy": plan.budget.accuracy,
    }  # fmt: skip
    return {name: float(limit) for name, limit in found.items() if limit is not None and math.isfinite(limit)}


def _wait(active_run: Run) -> None:
    """Wait for a run in real time, at most one slice."""
    with contextlib.suppress(TimeoutError):
        active_run.wait(SLICE)


def _advance(active_run: Run) -> Callable[[], None]:
    """Return a function that advances virtual time by a step, which takes about one slice of wall time."""
    step = 0.001

    def step_once() -> None:
        nonlocal step
        began = time.monotonic()
        active_run.advance(step)
        took = time.monotonic() - began
        step *= 2.0 if took < SLICE / 2 else 0.5 if took > 2 * SLICE else 1.0

    return step_once


class Interrupt:
    """A context in which Ctrl-C (SIGINT) and SIGTERM only request a stop of the run.

    After such a stop the run still has a final evaluation, a summary and the requested files. A second signal raises
    `KeyboardInterrupt`. If SIGINT is ignored, as in a background job of a shell script, it stays ignored, and a message
    on standard error gives the command that stops the run. Signals can be handled in the main thread only; in other
    threads this class has no effect.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def _handle_signal(self, *_: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            click.echo(f"SIGINT (Ctrl-C) is ignored here; `kill {os.getpid()}` stops the run in an orderly way.", err=True)
        else:
            self._previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle_signal)
        self._previous_handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._handle_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class ProgressBar:
    """A progress bar on standard error. Nothing is shown if standard error is not a terminal."""

    def __init__(self, name: str, limits: dict[str, float]):
        self.name, self.limits = name, limits
        self._progress: Any = None

    def __enter__(self) -> Callable[[Trace], None]:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[numbers]}"))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
            self._progress.start()
            self._task = self._progress.add_task(self.name, total=1.0, numbers="")
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _show(self, trace: Trace) -> None:
        if self._progress is not None:
            share, numbers = progress(trace, self.limits)
            self._progress.update(self._task, completed=share, numbers=numbers, refresh=True)


def progress(trace: Trace, limits: dict[str, float]) -> tuple[float, str]:
    """Return (progress towards the nearest limit, from 0 to 1; updates, time and accuracy as text)."""
    evaluation = last_evaluation(trace, trained=False)
    accuracy = evaluation[2] if evaluation else float("nan")
    now: dict[str, float] = {"updates": updates(trace), "samples": samples_applied(trace)}
    now["seconds"] = seconds(trace.now)
    texts = [f"{now['updates']:,} updates", f"{now['seconds']:.1f} s"]
    if math.isfinite(accuracy):
        now["accuracy"] = accuracy
        texts.append(f"accuracy {accuracy:.1%}" + (f" of {limits['accuracy']:.1%}" if "accuracy" in limits else ""))
    share = max((now[name] / limit for name, limit in limits.items() if limit > 0 and name in now), default=0.0)
    return min(share, 1.0), " · ".join(texts)


def write(outcome: Outcome, files: ResultFiles) -> None:
    """Write the requested files of a run, also if it failed."""
    trace = outcome.trace
    if files.trace:
        save_npz(trace, files.trace)
    if files.perfetto:
        to_perfetto(trace, files.perfetto)
    if files.log:
        try:
            Path(files.log).write_text("".join(line + "\n" for line in log_lines(trace)), encoding="utf-8")
        except OSError as why:
            raise BadInput(f"{shown(files.log)} cannot be written: {reason(why)}.") from None
    if files.figure:
        from ..views import overview, save

        save(overview(trace), files.figure)


def write_comparison(outcomes: list[Outcome], files: ResultFiles) -> None:
    """Write one figure of all runs."""
    if files.figure:
        from ..views import compare, save

        save(compare([outcome.trace for outcome in outcomes]), files.figure)
