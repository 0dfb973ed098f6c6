"""The state of a lab as one value. A new value is made for every frame, and the page is a function of this value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..engines.command_words import WORDS
from ..engines.commands import Command, Cut, Freeze, Kill
from ..errors import LabkitError
from ..forecasts.calibration import Calibration
from ..forecasts.forecast import Forecasts
from ..trace import Trace
from ..trace.role_states import FAR_FUTURE, GONE, conditions, slowed, undoable
from ..trace.schema import NANO
from ..views.forecast import RunForecast
from .experiments import ExperimentProgress, Experiments, Swept
from .inquiry import Answer, Inquiry
from .run_table import Entry
from .scenario_runner import ScenarioRunner
from .scenarios.scenario import Scenario
from .session import Session
from .settings import Settings

# conditions, and the commands that begin them
ENTERS: dict[str, type[Command]] = {**dict.fromkeys(GONE, Kill), "frozen": Freeze, "cut off": Cut}


@dataclass(frozen=True)
class View:
    """The state of a lab at one moment.

    - `trace`, `reference`: the traces of the displayed run and of the reference run.
    - `t`: the displayed time. `recorded`: the end of the trace. `ends`: the end of the time limit, or None. All in ns.
    - `live`: whether `t` is the present. `replaying`: whether an earlier time is displayed and advances. `simulated`:
      whether the run is in virtual time. `late`: how far reports are behind the clock of a run that goes on, s.
    - `state`: "ready", "running", "paused", "over" or "failed".
    - `settings`: the settings of the next run. `shown`: those of the displayed run. `changed`: the names of the settings
      that differ. `entries`: the table of runs.
    - `processes`: the stage of the start, while a simulated preview is shown because processes start, otherwise "".
    - `busy`: the text of the command in progress, for example "stopping", or "". `problem`: the text of the last error.
    - `scenario`: the scenario, or None. `step`: the number of its step; -1 if none is played. `text`: the sentence of the
      step. `asked`: whether the question is shown. `answer`: the number of the given answer.
    - `slow`: {role: slowdown factor} at `t`. `conditions`: {role: "killed", "frozen", ...} at `t`. `changing`: {role:
      "stopping", "restarting", ...} of those for which the present has a command in progress, or another condition.
    - `supported`: the commands that the engine executes. `undo`: {role: words of the commands that would undo something
      now}. `available`: the names of the buttons that have an effect now.
    - `dashboard`: the address of Dask's dashboard, or None.
    - `notice`: which settings the last change of a setting has changed, too, or "". `undoes`: what Undo undoes, or "".
    - `forecast`: the forecast of the displayed run, or None. `calibration`: the measured costs of the cluster, or None.
    - `task`: the progress of the last calibration, forecast or sweep, or None. `forecasts`, `swept`: the results of the last
      forecast of another size, and of the last sweep (so far), or None. `why_not`: {button: why it is not available}.
    - `model_answer`: what the model predicts for the sample of the user, or None if nothing is asked.
    """

    trace: Trace
    t: int
    recorded: int
    ends: int | None
    live: bool
    state: str
    replaying: bool
    simulated: bool
    reference: Trace | None
    settings: Settings
    shown: Settings
    changed: tuple[str, ...]
    entries: tuple[Entry, ...]
    processes: str
    busy: str
    problem: str
    scenario: Scenario | None
    step: int
    text: str
    asked: bool
    answer: int | None
    slow: dict[str, float]
    conditions: dict[str, str]
    supported: frozenset[type[Command]]
    undo: dict[str, frozenset[str]]
    available: frozenset[str]
    dashboard: str | None
    notice: str = ""
    undoes: str = ""
    forecast: RunForecast | None = None
    calibration: Calibration | None = None
    task: ExperimentProgress | None = None
    forecasts: Forecasts | None = None
    swept: Swept | None = None
    why_not: Mapping[str, str] = field(default_factory=dict)
    changing: Mapping[str, str] = field(default_factory=dict)
    model_answer: Answer | None = None
    late: float = 0.0

    @property
    def task_active(self) -> bool:
        """Whether a calibration, a forecast or a sweep is in progress."""
        return self.task is not None and self.task.state == "running"


def make_view(
    session: Session, runner: ScenarioRunner, busy: str = "", problem: str = "", experiments: Experiments | None = None,
    command: Command | None = None, inquiry: Inquiry | None = None,
) -> View:  # fmt: skip
    """Make the view of the present state of the session, the scenario, the experiments and the question to the model.
    `command`: the one in progress.
    """
    experiments = experiments if experiments is not None else Experiments(session, lambda: None)
    why_not, playback, history = _why_not(session, experiments), session.playback, session.history
    run, settings, position = session.displayed.run, session.next_run.settings, playback.position
    trace = session.displayed.trace if run is None else run.engine.trace
    recorded = trace.watermark()
    t = recorded if position is None else min(position, recorded)
    shown, scenario, reference = session.displayed.settings, runner.scenario, session.reference
    limit = trace.header.budget.seconds
    failed = run.engine.error if run is not None else None
    shown_conditions = conditions(trace, t)
    return View(
        trace=trace, t=t, recorded=recorded,
        ends=None if limit is None or session.displayed.is_preview else round(limit * NANO),
        live=position is None, state=playback.state, replaying=playback.replaying, simulated=session.displayed.simulated,
        reference=reference if reference is not trace else None, settings=settings, shown=shown,
        changed=_changed(settings, shown) if run is not None else (), entries=tuple(session.table),
        processes=session.processes.progress() if session.displayed.previewing else "", busy=busy,
        problem=problem or (str(failed) if failed is not None else ""), scenario=scenario, step=runner.step,
        text=_text(scenario, runner.step), asked=runner.asked and runner.question is not None, answer=runner.answer,
        slow=_slow(session, trace, t), conditions={trace.roles[r]: how for r, how in shown_conditions.items()},
        supported=run.engine.supported_commands if session.displayed.active and run else frozenset(), undo=undoable(trace),
        available=_available(session, experiments, why_not), dashboard=_dashboard(session), notice=history.notice,
        undoes=history.undoes, forecast=session.forecast, calibration=session.calibration,
        task=experiments.task.progress if experiments.task is not None else None, forecasts=experiments.forecasts,
        swept=experiments.swept, why_not=why_not,
        changing=_changing(trace, shown_conditions, command) if position is None and session.displayed.active else {},
        model_answer=inquiry.answer() if inquiry is not None and inquiry.open else None,
        late=run.engine.seconds - recorded / NANO if run is not None and playback.state == "running" else 0.0,
    )  # fmt: skip


def _changing(trace: Trace, shown: Mapping[int, str], command: Command | None) -> dict[str, str]:
    """Return what happens to roles: because of the command in progress, and of conditions that are not displayed yet."""
    now = conditions(trace, FAR_FUTURE)
    found: dict[str, type[Command] | None] = {
        trace.roles[role]: ENTERS[now[role]] if role in now else WORDS[ENTERS[shown[role]]].undone_by
        for role in sorted({*now, *shown}) if now.get(role) != shown.get(role)
    }  # fmt: skip
    if command is not None and type(command) in WORDS:
        found[command.role] = type(command)  # type: ignore[attr-defined]
    return {role: WORDS[kind].progress for role, kind in found.items() if kind is not None}


def _why_not(session: Session, experiments: Experiments) -> dict[str, str]:
    """Return {button: why it is not available} of the experiments, and of `run`."""
    simulate, occupied = experiments.why_not_simulate(), experiments.occupied(session.next_run.settings)
    uncalibrated = "" if session.calibration is not None else "the cluster is not calibrated yet."
    found = {
        "calibrate": experiments.why_not_calibrate(), "forecast": simulate or uncalibrated, "sweep": simulate,
        "play_forecast": occupied or uncalibrated, "run": occupied,
    }  # fmt: skip
    return {name: why for name, why in found.items() if why}


def _available(session: Session, experiments: Experiments, why_not: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the buttons that have an effect now."""
    shown, playback = session.displayed, session.playback
    exists, active, back = shown.run is not None, shown.active, playback.position is not None
    found = {
        "set": True, "ask": True,
        **{name: name not in why_not for name in ("run", "calibrate", "forecast", "play_forecast", "sweep")},
        "pause": playback.can_pause, "resume": (active or back) and not playback.can_pause,
        "stop": active or experiments.active, "cancel": experiments.active,
        "reset": exists, "seek": exists, "pin": exists, "unpin": session.reference is not None,
        "what_if": shown.simulated and not shown.is_preview, "live": back, "undo": bool(session.history.undoes),
        "step": back or (active and not shown.previewing) or (not exists and shown.settings.cluster.virtual_time),
    }  # fmt: skip
    return frozenset(name for name, is_available in found.items() if is_available)


def _text(scenario: Scenario | None, step: int) -> str:
    if scenario is None:
        return ""
    return scenario.steps[step].text or scenario.summary if step >= 0 else scenario.summary


def _changed(settings: Settings, shown: Settings) -> tuple[str, ...]:
    if settings is shown:
        return ()
    names, now = settings.names, shown.names
    return tuple(n for n in names if n != "speed" and (n not in now or settings.value(n) != shown.value(n)))


def _slow(session: Session, trace: Trace, t: int) -> dict[str, float]:
    if session.displayed.run is None:
        return dict(session.next_run.settings.cluster.slow)
    return {trace.roles[role]: factor for role, factor in slowed(trace, t).items()}


def _dashboard(session: Session) -> str | None:
    if session.next_run.settings.cluster.virtual_time or not session.processes.ready:
        return None
    try:
        link = session.processes.cluster.dashboard_link
    except (LabkitError, AttributeError, OSError):
        return None
    return str(link) if link else None
