"""What a lab measures and simulates besides its runs: a calibration of the cluster, forecasts of other sizes, and sweeps.

One of them is executed at a time, on a thread of its own, so the command thread can execute other commands in the meantime. Its
progress is a value that every frame of the page reads. A cancelled one ends after its present probe or run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engines.base import Cluster
from ..engines.cluster_spec import slow_with
from ..engines.costs import Costs
from ..engines.dask import DaskCluster
from ..engines.simulation_only import is_simulation_only
from ..errors import BadInput, LabkitError, nearest, shown
from ..forecasts.calibration import Calibration, calibrate
from ..forecasts.forecast import Forecasts, forecast_runs
from ..forecasts.forecaster import can_forecast
from ..forecasts.sweeps import RESULTS, Setting, Sweep, execute
from ..formatting import number_text
from ..options import check_number
from ..roles.budget import Budget
from .controls import Control, controls, label_of
from .session import Session
from .settings import Settings

GRADIENTS, GRADIENTS_PER_WORKER = 2000, 100  # of one simulated run of a forecast or a sweep, if nothing else ends it
MOST_VALUES = 7  # of a sweep, by default
MOST_WORKERS = 32  # of a sweep of the workers, by default
MOST_SEEDS, MOST_HOSTS = 100, 1000
# default values of a logarithmic slider
ROUND = tuple(float(f"{digit}e{power}") for power in range(-6, 7) for digit in (1, 3))
NOT_SWEPT = (
    "seed",
    "seconds",
    "accuracy",
    "loss",
    "patience",
    "validation",
    "checkpoint_every",
    "eval_every",
    "replicas",
    "speed",
)
COLUMNS = {"pace": "compute", "distribution": "compute"}  # {setting: column of a sweep} if the names differ
JOIN_S = 10.0  # wall seconds to wait for a cancelled task when the lab is closed
NAMES = {"calibrate": "calibration", "forecast": "forecast", "sweep": "sweep"}


@dataclass(frozen=True)
class ExperimentProgress:
    """The progress of a task. `kind`: "calibrate", "forecast" or "sweep". `text`: what is done. `done`, `total`: finished probes
    or runs; `total` is 0 if it is not known. `state`: "running", "over", "cancelled" or "failed". `problem`: the error, as text.
    """

    kind: str
    text: str
    done: int = 0
    total: int = 0
    state: str = "running"
    problem: str = ""


class _Cancelled(Exception):
    """The task was cancelled."""


class ExperimentTask:
    """A calibration, forecast or sweep on a thread. `work(count)` executes it and returns its result; it calls `count(done,
    total)` after each part, which raises an exception if the task was cancelled. `over(result)` is called on the thread at the
    end; `changed()` after each change of the progress.
    """

    def __init__(
        self, kind: str, text: str, work: Callable[[Callable[[int, int], None]], Any], over: Callable[[Any], None],
        changed: Callable[[], None],
    ):  # fmt: skip
        self.progress = ExperimentProgress(kind, text)
        self._work, self._over, self._changed = work, over, changed
        self._cancelled, self._ended = threading.Event(), threading.Event()
        self._result: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._execute, name=f"labkit-lab-{kind}", daemon=True)

    @property
    def active(self) -> bool:
        """Whether the task has not ended."""
        return not self._ended.is_set()

    def start(self) -> ExperimentTask:
        """Start the thread."""
        self._thread.start()
        return self

    def cancel(self) -> None:
        """End the task after its present probe or run. Its result is discarded. Idempotent."""
        if self.active and not self._cancelled.is_set():
            self._cancelled.set()
            self.progress = replace(self.progress, text="cancelling")
            self._changed()

    def wait(self) -> Any:
        """Wait for the end, and return the result. Ctrl-C cancels the task. Raises its error, and `LabkitError` if it was
        cancelled.
        """
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        if self.progress.state == "cancelled":
            raise LabkitError(f"The {NAMES[self.progress.kind]} was cancelled.")
        return self._result

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _count(self, done: int, total: int) -> None:
        if self._cancelled.is_set():
            raise _Cancelled
        self.progress = replace(self.progress, done=done, total=total)
        self._changed()

    def _execute(self) -> None:
        try:
            result = self._work(self._count)
            if self._cancelled.is_set():
                raise _Cancelled
            self._over(result)
            self._result = result
            self.progress = replace(self.progress, state="over")
        except _Cancelled:
            self.progress = replace(self.progress, state="cancelled")
        except Exception as error:  # raised by `wait`, and shown on the page
            self._error = error
            text = str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
            self.progress = replace(self.progress, state="failed", problem=text)
        finally:
            self._ended.set()
            self._changed()


@dataclass(frozen=True, eq=False)
class Swept:
    """A sweep of one setting. `sweep`: the results so far. `note`: on which cluster the runs were simulated."""

    setting: str
    sweep: Sweep
    note: str


class Experiments:
    """The calibration of a lab, and its tasks. `changed()` is called on any thread when the page may have to be drawn again.

    `task`: the last task, or None. `forecasts`: the last forecast of another size. `swept`: the last sweep.

    The methods that start a task are called on the command thread, as those of the session. They raise `BadInput` if the task is
    not possible now.
    """

    def __init__(self, session: Session, changed: Callable[[], None]):
        self._session, self._changed = session, changed
        self.task: ExperimentTask | None = None
        self.forecasts: Forecasts | None = None
        self.swept: Swept | None = None

    @property
    def active(self) -> bool:
        """Whether a task is executed."""
        return self.task is not None and self.task.active

    def occupied(self, settings: Settings) -> str:
        """The reason why a run with these settings cannot start now, or ""."""
        if not self.active or self.task is None:
            return ""
        kind = self.task.progress.kind
        if kind == "calibrate":
            return "The cluster is being calibrated, so nothing else may run: wait, or press Cancel."
        if not settings.cluster.virtual_time:
            return f"A {NAMES[kind]} takes time from the processors that the run needs: wait, or press Cancel."
        return ""

    def cancel(self) -> None:
        """Cancel the task, if one is executed."""
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        """Cancel the task, and wait for its end."""
        task = self.task
        if task is not None:
            task.cancel()
            task.join(JOIN_S)

    # calibration ------------------------------------------------------------------------------------------------------

    def calibrate(self, seconds: float = 10.0) -> ExperimentTask:
        """Measure the cluster of the settings with their problem."""
        session, settings = self._session, self._session.next_run.settings
        seconds = check_number("seconds", seconds, 1, 3600)
        why = self.why_not_calibrate()
        if why:
            raise BadInput(f"Calibrate: {why}")
        session.processes.check()
        cluster: Cluster = settings.cluster_on(None if settings.cluster.virtual_time else session.processes.cluster)

        problem = settings.problem

        def work(count: Callable[[int, int], None]) -> Calibration:
            count(0, 0)
            if isinstance(cluster, DaskCluster) and not cluster.is_open:  # as many processes as the next run needs
                cluster.open(len(settings.strategy.layout(problem, settings.cluster).nodes))
            return calibrate(cluster, problem, seconds, on_progress=count)

        def over(found: Calibration) -> None:
            session.calibration = found

        return self._start("calibrate", f"measuring {problem.name} on this cluster", work, over)

    def why_not_calibrate(self) -> str:
        """The reason why the cluster cannot be calibrated now, or ""."""
        session, cluster = self._session, self._session.next_run.settings.cluster
        if cluster.virtual_time and cluster.costs is None:
            return "the engine is simulated, and its times are settings, so there is nothing to measure. Choose the engine dask."
        if not cluster.virtual_time and is_simulation_only() and session.processes.cluster.starts_processes:
            return "processes are not started here (LABKIT_LIGHT is set), so there is nothing to measure."
        if self.active:
            return self._wait_for_task()
        if session.displayed.active:
            return "a run is active, and nothing else may run on the cluster while it is measured. Press Stop first."
        return ""

    # forecasts ------------------------------------------------------------------------------------------------------

    def forecast(self, workers: int, hosts: int | None = None, seeds: int = 3) -> ExperimentTask:
        """Forecast the run of the settings with another number of workers, and beside it with the present one."""
        settings = self._session.next_run.settings
        calibration = self._calibration("forecast")
        sizes = sorted({settings.cluster.workers, _count("workers", workers, 100_000)})
        hosts = None if hosts is None else _count("hosts", hosts, MOST_HOSTS)
        _count("seeds", seeds, MOST_SEEDS)
        self._check_idle("forecast")
        spec, budget = settings.cluster, _bounded(settings, max(sizes), target=True)

        def work(count: Callable[[int, int], None]) -> Forecasts:
            count(0, 0)
            clusters = [calibration.simulated(spec, n, hosts) for n in sizes]
            runs = [Setting(settings.problem, settings.strategy, cluster, budget) for cluster in clusters]
            return forecast_runs(
                runs, calibration, seeds, progress=False, on_result=lambda done, total, row: count(done, total)
            )

        def over(found: Forecasts) -> None:
            self.forecasts = found

        return self._start("forecast", f"simulating {workers:,} workers", work, over)

    def play_forecast(self, workers: int, hosts: int | None = None) -> None:
        """Start a simulated run of the settings with another number of workers, on a cluster with the measured costs. The
        displayed run becomes the reference run.
        """
        session = self._session
        settings, calibration = session.next_run.settings, self._calibration("run")
        workers = _count("workers", workers, 100_000)
        hosts = None if hosts is None else _count("hosts", hosts, MOST_HOSTS)
        cluster = calibration.simulated(settings.cluster, workers, hosts)
        made = replace(settings, spec=replace(settings.spec, cluster=replace(cluster.spec, record=True)))
        if session.displayed.run is not None and not session.displayed.is_preview:
            session.pin()
        session.start(made, ())

    def _calibration(self, what: str) -> Calibration:
        found = self._session.calibration
        if found is None:
            raise BadInput(f"{what}: the lab has no calibration: press Calibrate, or set lab.calibration.")
        return found

    # sweeps -----------------------------------------------------------------------------------------------------------

    def sweep(self, setting: str, values: Iterable[Any] | None = None, seeds: int = 3) -> ExperimentTask:
        """Simulate the run of the settings with several values of one setting."""
        now, calibration = self._session.next_run.settings, self._session.calibration
        _count("seeds", seeds, MOST_SEEDS)
        if setting in RESULTS:
            raise BadInput(
                f"sweep: {setting} is also a result of every run; use lk.sweep with several budgets, as "
                f"[lk.Budget({setting}=...), ...]."
            )
        each = settings_of_sweep(now, setting, values)
        self._check_idle("sweep")
        measured = calibration if can_forecast(now.cluster) else None
        note = "simulated with the calibration" if measured is not None else _simulated_on(now)
        cells = [_cell(made, measured) for made in each]
        column = COLUMNS.get(setting, setting)
        texts = {made.spec.write(column): made.value(setting) for made in each} if setting in COLUMNS else {}
        only = each[0].value(setting)
        if not isinstance(only, bool | int | float | str | None):
            only = each[0].spec.write(column)
        rows: list[Mapping[str, Any]] = []

        def show(found: Sequence[Mapping[str, Any]]) -> Sweep:
            named = tuple(_renamed(row, column, setting, texts, only) for row in found)
            made = Sweep(named, (setting,))
            self.swept = Swept(setting, made, note)
            return made

        def work(count: Callable[[int, int], None]) -> Sweep:
            def on_result(done: int, total: int, row: Mapping[str, Any]) -> None:
                rows.append(row)
                show(sorted(rows, key=order))
                count(done, total)

            count(0, len(cells) * seeds)
            return execute(cells, seeds, on_result=on_result)

        known = [made.spec.write(column) if setting in COLUMNS else made.value(setting) for made in each]

        def order(row: Mapping[str, Any]) -> int:
            value = row.get(column)
            return known.index(value) if value in known else len(known)

        text = f"simulating {len(each)} values of {label_of(setting)}"
        return self._start("sweep", text, lambda count: show(work(count).rows), lambda found: None)

    # ------------------------------------------------------------------------------------------------------------------

    def _start(self, kind: str, text: str, work: Callable[..., Any], over: Callable[[Any], None]) -> ExperimentTask:
        self.task = ExperimentTask(kind, text, work, over, self._changed)
        return self.task.start()

    def why_not_simulate(self) -> str:
        """The reason why nothing can be forecast or swept now, or ""."""
        if self.active:
            return self._wait_for_task()
        shown = self._session.displayed
        if shown.previewing or (self._session.playback.state == "running" and not shown.simulated):
            return "the simulations would take time from the processes of the active run. Press Pause or Stop first."
        return ""

    def _check_idle(self, kind: str) -> None:
        why = self.why_not_calibrate() if kind == "calibrate" else self.why_not_simulate()
        if why:
            raise BadInput(f"{kind.capitalize()}: {why}")

    def _wait_for_task(self) -> str:
        assert self.task is not None
        return f"a {NAMES[self.task.progress.kind]} is in progress. Wait for its end, or press Cancel."


# settings -------------------------------------------------------------------------------------------------------------


def sweepable(settings: Settings) -> dict[str, Control]:
    """Return {name: control} of the settings with a numeric range, which a sweep can vary without given values."""
    return {
        control.name: control for control in controls(settings)
        if control.kind in ("steps", "slider") and control.name not in NOT_SWEPT and len(default_values(control)) > 1
    }  # fmt: skip


def default_values(control: Control) -> list[Any]:
    """Return up to `MOST_VALUES` values of a control, from its range: on a logarithmic scale 1, 3, 10, 30 ..., around the
    present value.
    """
    if control.kind == "slider" and control.log:
        inside = [value for value in ROUND if control.low <= value <= control.high]
        near = sorted(inside, key=lambda value: abs(math.log(value / max(control.value, 1e-12))))[:MOST_VALUES]
        return sorted(near)
    if control.kind == "slider":
        return [float(f"{control.low + (control.high - control.low) * k / 4:.6g}") for k in range(5)]
    numbers = [value for _, value in control.choices if _is_finite(value)]
    if control.name == "workers":
        numbers = [2**k for k in range(20) if 2**k <= max(MOST_WORKERS, control.value)][:MOST_VALUES]
    return _thinned(numbers)


def _thinned(values: list[Any]) -> list[Any]:
    """Return at most `MOST_VALUES` of these sorted values, with the first and the last one."""
    if len(values) <= MOST_VALUES:
        return values
    places = {round(k * (len(values) - 1) / (MOST_VALUES - 1)) for k in range(MOST_VALUES)}
    return [values[place] for place in sorted(places)]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def settings_of_sweep(now: Settings, setting: str, values: Iterable[Any] | None) -> list[Settings]:
    """Return the settings with each of the values; None: the default values, as far as they are possible."""
    if setting not in now.names or setting == "speed":
        raise nearest("setting", setting, [name for name in now.names if name != "speed"])
    if values is None:
        control = sweepable(now).get(setting)
        if control is None:
            raise BadInput(f"sweep({setting!r}): there is no numeric range of this setting; give values=[...].")
        found = []
        for value in default_values(control):
            try:
                found.append(_with_value(now, setting, value))
            except BadInput:  # it does not fit the other settings
                continue
        if len(found) < 2:
            raise BadInput(f"sweep({setting!r}): the other settings allow only one value of it; give values=[...].")
        return found
    try:
        given = [values] if isinstance(values, str) else list(values)
    except TypeError:
        raise BadInput(f"values={shown(values)}: give a list of values.") from None
    if not given:
        raise BadInput("values=[]: give at least one value.")
    found = [_with_value(now, setting, value) for value in given]
    if any(made.value(setting) == other.value(setting) for k, made in enumerate(found) for other in found[:k]):
        raise BadInput(f"values={shown(given)}: a value occurs twice.")
    return found


def _with_value(now: Settings, setting: str, value: Any) -> Settings:
    more = {}
    if setting == "workers" and isinstance(value, int):
        more = {"slow": slow_with(now.cluster.slow, value)}
    if isinstance(value, str):
        value = now.read(setting, value)
    return now.changed(**{setting: value}, **more)


def _cell(settings: Settings, calibration: Calibration | None) -> Setting:
    """Return the setting of a sweep: simulated with the calibration, or as the lab simulates these settings."""
    spec = settings.cluster
    if calibration is not None:
        cluster: Cluster = calibration.simulated(spec)
    else:
        cluster = settings.changed(engine="simulated").cluster_on(None)
    return Setting(settings.problem, settings.strategy, cluster, _bounded(settings, spec.workers))


def _bounded(settings: Settings, workers: int, target: bool = False) -> Budget:
    """Return the budget of a simulated run. `target`: with an accuracy, if the data has classes."""
    budget, problem = settings.budget, settings.problem
    most = max(GRADIENTS, GRADIENTS_PER_WORKER * workers) * problem.batch_size
    if problem.partition.divides_batch:
        most = -(-most // workers)
    accuracy = budget.accuracy
    if target and accuracy is None and not problem.timing_only and problem.dataset.classes is not None:
        accuracy = 0.95
    return replace(budget, samples=min(most, budget.samples or most), accuracy=accuracy)


def _simulated_on(settings: Settings) -> str:
    """Return how long gradients take in a sweep without a calibration."""
    simulated = settings.changed(engine="simulated")
    costs: Costs | None = simulated.cluster.costs
    if costs is not None:
        return "simulated with the costs of the cluster"
    return f"simulated without a calibration: gradient time {number_text(simulated.value('pace'))} s"


def _count(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadInput(f"{name}={shown(value)} is not allowed; give a whole number from 1 to {most:,}.")
    return value


def _renamed(row: Mapping[str, Any], column: str, setting: str, texts: Mapping[str, Any], only: Any) -> dict[str, Any]:
    """Return a row in which the swept setting has its name and its value in the lab. `only`: its value if it has no column
    because it does not differ between the runs.
    """
    found = {
        (setting if name == column else name): texts.get(value, value) if name == column and texts else value
        for name, value in row.items()
    }  # fmt: skip
    return found if setting in found else {setting: only, **found}
