"""The state of a lab as one value. A new one is made for every frame; the page is a function of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.commands import Command
from ..errors import LabkitError
from ..trace import Trace
from ..trace.role_states import conditions, slowed, undoable
from ..trace.schema import NANO
from .actions import Action
from .run_table import Entry
from .scenario_runner import ScenarioRunner
from .scenarios.scenario import Scenario
from .session import Session
from .settings import Settings

__all__ = ["View", "make_view"]


@dataclass(frozen=True)
class View:
    """`t`: the displayed time, `recorded`: the end of the trace, `ends`: the end of the budget (ns, or None).

    `live`: `t` is the present. `state`: "ready", "running", "paused", "over", "failed". `replaying`: recorded time is replayed.
    `simulated`: the run is in virtual time. `processes`: (up, wanted) while they start and a simulated preview is shown. `busy`:
    the command that is being executed, as "stopping". `problem`: the last error. `settings`: of the next run; `shown`: of the
    displayed run; `changed`: names of settings that differ. `step`: number of the scenario's step, -1 for none; `text`: its
    sentence; `asked`: the question is to be shown; `answer`: number of the answer given. `slow`: {role: factor} at `t`;
    `conditions`: {role: "killed", "frozen", ...} at `t`. `supported`: the commands that the engine executes; `undo`: {role: words
    of the commands that would undo something now}. `actions`: classes of the actions that are available now.
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
    processes: tuple[int, int] | None
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
    actions: frozenset[type[Action]]
    dashboard: str | None


def make_view(session: Session, runner: ScenarioRunner, busy: str = "", problem: str = "") -> View:
    """Return the view of the present state of the session and the scenario."""
    run, settings, position = session.run, session.settings, session.position
    trace = session.trace if run is None else run.engine.trace
    recorded = trace.watermark()
    t = recorded if position is None else min(position, recorded)
    shown, scenario, reference = session.shown_settings, runner.scenario, session.reference
    limit = trace.header["budget"].get("seconds")
    failed = run.engine.error if run is not None else None
    return View(
        trace=trace, t=t, recorded=recorded,
        ends=None if limit is None or session.previewing else round(limit * NANO),
        live=position is None, state=session.state, replaying=session.replaying, simulated=session.simulated,
        reference=reference if reference is not trace else None, settings=settings, shown=shown,
        changed=_changed(settings, shown) if run is not None else (), entries=tuple(session.table),
        processes=session.processes.progress() if session.previewing else None, busy=busy,
        problem=problem or (str(failed) if failed is not None else ""), scenario=scenario, step=runner.step,
        text=_text(scenario, runner.step), asked=runner.asked and runner.question is not None, answer=runner.answer,
        slow=_slow(session, trace, t), conditions={trace.roles[r]: how for r, how in conditions(trace, t).items()},
        supported=run.engine.supported_commands if session.active and run else frozenset(), undo=undoable(trace),
        actions=session.actions, dashboard=_dashboard(session),
    )  # fmt: skip


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
    if session.run is None:
        return dict(session.settings.cluster.slow)
    return {trace.roles[role]: factor for role, factor in slowed(trace, t).items()}


def _dashboard(session: Session) -> str | None:
    if session.settings.cluster.virtual_time or not session.processes.ready:
        return None
    try:
        link = session.processes.cluster.dashboard_link
    except (LabkitError, AttributeError, OSError):
        return None
    return str(link) if link else None
