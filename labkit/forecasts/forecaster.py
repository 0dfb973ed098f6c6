"""The forecast of a run that is shown in a lab: short simulated runs with the measured costs of the cluster.

It is computed before the run starts, and again, in slices, after each change that affects the speed of the run: a slowdown, a
live option of the strategy. It follows the command log of the run, so buttons, programs and fault schedules are treated alike.
Other faults are not forecast, because a calibration does not measure how long a recovery takes; the forecast then says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..engines.active_faults import ActiveFaults
from ..engines.cluster_spec import ClusterSpec
from ..engines.commands import (
    Command,
    Cut,
    Delay,
    Drop,
    End,
    Executed,
    Freeze,
    Join,
    Kill,
    Leave,
    Limit,
    SetOptions,
    Slow,
)
from ..errors import LabkitError
from ..formatting import short
from ..run import Run
from ..spec import RunSpec
from ..trace.schema import NANO
from ..views.forecast import ForecastPart, RunForecast
from .calibration import Calibration
from .steady_state import ROUGH, SteadyState

SLICE = 0.02  # most wall seconds between two looks at the clock
NOT_FORECAST: tuple[type[Command], ...] = (Kill, Freeze, Cut, Drop, Delay, Limit, Join, Leave)


def can_forecast(cluster: ClusterSpec) -> bool:
    """Whether a run on this cluster has costs that can be measured: it is on processes, or simulated with costs."""
    return not cluster.virtual_time or cluster.costs is not None


def forecaster_of(spec: RunSpec, calibration: Calibration | None) -> Forecaster | None:
    """Return the forecast of a run, which is not computed yet; None if there is nothing to forecast, or if
    the run is simulated with the calibration itself.
    """
    if calibration is None or not can_forecast(spec.cluster):
        return None
    costs, same = spec.cluster.costs, replace(calibration.costs, hosts=1)
    if spec.cluster.virtual_time and costs is not None and replace(costs, hosts=1) == same:
        return None
    return Forecaster(calibration, spec)


class Forecaster:
    """The forecast of one run, which is computed by `advance`, and follows the run by `follow`.

    `spec`: that of the run at its beginning. `clock`: returns the wall time in seconds. One thread calls the methods.

    The simulated runs compute no gradients, so evaluations are not part of them.
    """

    def __init__(self, calibration: Calibration, spec: RunSpec, clock: Callable[[], float] = time.monotonic):
        self.spec, self._calibration, self._clock = spec, calibration, clock
        self._now = spec  # that of the last part
        self._active = ActiveFaults(spec.cluster.slow)
        self._doubts = calibration.doubts_about(spec.problem, [(spec.strategy, spec.cluster)])
        self._parts: list[ForecastPart] = []  # finished ones
        self._start = 0  # ns of the part that is computed
        self._steady: SteadyState | None = None  # of the part that is computed, after its first slice
        self._due = True  # whether a part is to be computed
        self._seen = 0  # commands of the run
        self._value: RunForecast | None = None

    @property
    def done(self) -> bool:
        """Whether everything is computed that is known of the run so far."""
        return not self._due

    @property
    def value(self) -> RunForecast | None:
        """The forecast as far as it is computed; the same object until it changes. None: there is none (yet)."""
        return self._value

    def advance(self, seconds: float) -> None:
        """Compute for about so many seconds of wall time, or until it is done."""
        until = self._clock() + seconds
        while self._due and self._clock() < until:
            now, left = self._now, max(0.001, min(until - self._clock(), SLICE))
            try:
                steady = self._steady = self._steady or SteadyState(
                    now.problem, now.strategy, self._calibration.simulated(now.cluster)
                )
                done = steady.advance(ROUGH, left)
            except LabkitError as error:
                self._due = False
                self._doubt(f"not all of it can be forecast: {error}")
                return
            if done:
                self._finish(steady)

    def follow(self, run: Run) -> None:
        """Begin another part if the run has executed a command that changes its speed."""
        commands = run.engine.commands
        new, self._seen = commands[self._seen :], len(commands)
        changed: float | None = None
        for entry in new:
            command = entry.command if isinstance(entry, Executed) else entry
            if isinstance(command, Slow) or (isinstance(command, End) and isinstance(command.fault, Slow)):
                slow = {**self._now.cluster.slow, command.role: self._active.apply(command)}
                changed = self._change(entry.at, slow=slow)
            elif isinstance(command, SetOptions):
                changed = self._change(entry.at, **command.options)
            elif isinstance(command, NOT_FORECAST):
                self._doubt(f"without the {command.word} of {short(getattr(command, 'role', '') or 'links')}")
        if changed is not None:
            self._start, self._steady, self._due = round(changed * NANO), None, True

    def _change(self, at: float, **options: object) -> float | None:
        """Change options of the last part. Return the time of the change in seconds, or None if it changes no speed."""
        before = self._now
        try:
            self._now = before.changed(**options)
        except LabkitError:  # a command that a specification cannot express
            return None
        known = {"learning_rate", "momentum", "weight_decay", "clip_norm"}
        return at if set(options) - known and self._now != before else None

    # computing --------------------------------------------------------------------------------------------------------

    def _finish(self, steady: SteadyState) -> None:
        part = ForecastPart(self._start, steady.trace, steady.window, dict(self._now.cluster.slow))
        self._parts = [*(known for known in self._parts if known.start < part.start), part]
        self._steady, self._due = None, False
        self._make()

    def _doubt(self, why: str) -> None:
        if why not in self._doubts:
            self._doubts.append(why)
            self._make()

    def _make(self) -> None:
        self._value = RunForecast(tuple(self._parts), tuple(self._doubts)) if self._parts else None
