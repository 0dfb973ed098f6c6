"""Executes one run in a terminal, with a progress bar, an orderly stop on Ctrl-C, and result files.

A simulated run advances in slices of wall time, which changes neither its events nor their order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import click

from ..engines.commands import Stop
from ..errors import LabkitError
from ..files import write_text
from ..narrative.log import log_lines
from ..paths import writing
from ..progress import Wait, bar_for
from ..run import Run, train
from ..spec import RunSpec
from ..summary import Summary
from ..trace import Trace
from ..trace.exports import save_npz, to_perfetto
from ..trace.schema import seconds
from .options import ResultFiles

SLICE = 0.1  # wall seconds after which a request to stop is noticed


@dataclass(frozen=True)
class Outcome:
    trace: Trace
    error: LabkitError | None
    interrupted: bool

    @property
    def diverged(self) -> bool:
        return (self.trace.ending or {}).get("stopped_by") == "diverged"

    def summary(self) -> Summary:
        return Summary.of(self.trace)

    def divergence_message(self) -> str:
        name, why = self.trace.header.strategy.name, (self.trace.ending or {}).get("why", "")
        return f"{name} diverged: {why}; a smaller --learning-rate may help."


def run(spec: RunSpec, cluster: Any) -> Outcome:
    """Execute a specification on `cluster` to the end.

    Errors of the run are in the outcome; errors before the start of the run are raised. The caller closes the cluster.
    """
    began = time.monotonic()
    error: LabkitError | None = None
    name = spec.strategy.name
    active_run = train(spec.problem, spec.strategy, cluster, spec.budget, faults=spec.faults, checkpoint=False)
    with active_run, Interrupt() as interrupt:
        try:
            _follow(active_run, interrupt)
        except LabkitError as failure:
            error = failure
    trace = active_run.trace
    if cluster.virtual_time:
        took = time.monotonic() - began
        click.echo(f"{name}: {seconds(trace.now):.2f} s of virtual time took {took:.2f} s", err=True)
    return Outcome(trace, error, interrupt.requested)


def _follow(active_run: Run, interrupt: Interrupt) -> None:
    """Wait until the run has ended, with a progress bar, and stop the run if it is interrupted. Raises the run's error."""
    with Wait(active_run.engine, bar_for(None)) as waiting:
        while not active_run.done:
            with contextlib.suppress(TimeoutError):
                waiting.wait(SLICE)
            if interrupt.requested and not active_run.done:
                active_run.engine.execute(Stop("interrupted"))
    active_run.wait(progress=False)


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
            click.echo(
                f"SIGINT (Ctrl-C) is ignored here; `kill {os.getpid()}` stops the run in an orderly way.", err=True
            )
        else:
            self._previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle_signal)
        self._previous_handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._handle_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def write(outcome: Outcome, files: ResultFiles) -> None:
    """Write the requested files of a run, also if it failed."""
    trace = outcome.trace
    if files.trace:
        save_npz(trace, files.trace)
    if files.perfetto:
        to_perfetto(trace, files.perfetto)
    if files.log:
        with writing(files.log):
            write_text(files.log, "".join(line + "\n" for line in log_lines(trace)))
    if files.figure:
        from ..views import overview, save

        save(overview(trace), files.figure)


def write_comparison(outcomes: list[Outcome], files: ResultFiles) -> None:
    if files.figure:
        from ..views import compare, save

        save(compare([outcome.trace for outcome in outcomes]), files.figure)
