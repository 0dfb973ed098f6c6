"""What the page shows, all of it, as one value: it is made anew for every frame, and the page is drawn from nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engines.commands import Command
from ..errors import LabkitError
from ..trace import Trace
from ..trace.role_states import conditions, slowed, undoable
from ..trace.vocabulary import NANO
from .settings import Settings
from .stage import Entry, Stage
from .story import Story
from .teller import Teller

__all__ = ["View", "make_view"]


@dataclass(frozen=True)
class View:
    """`t` is the moment that is looked at, `recorded` how far the record goes, `ends` where its budget ends (ns or None).

    `live`: `t` is now. `state`: "ready", "running", "paused", "over", "failed"; `replaying`: a look back moves by
    itself. `simulated`: the run that is on is moved by hand. `cluster`: (processes up, processes wanted) while they
    start; meanwhile a simulated run is seen. `busy`: the command that is being carried out, as "stopping". `problem`:
    what went wrong last. `says`: the story's sentence. `asked`: the story's question is to be shown; `said`: the answer
    that was committed to. `slow`: {role: factor} at `t`; `conditions`: {role: "killed", "frozen", ...} at
    `t`. `supported`: the commands that can be executed now; `undo`: {role: the words of those that would undo something now}.
    `can`: the names of the buttons that make sense now. `changed`: the settings that the next run will have and this one has not.
    """

    trace: Trace
    t: int
    recorded: int
    ends: int | None
    live: bool
    state: str
    replaying: bool
    simulated: bool
    pinned: Trace | None
    setup: Settings
    shown: Settings
    changed: tuple[str, ...]
    entries: tuple[Entry, ...]
    cluster: tuple[int, int] | None
    busy: str
    problem: str
    story: Story | None
    act: int
    says: str
    asked: bool
    said: int | None
    slow: dict[str, float]
    conditions: dict[str, str]
    supported: frozenset[type[Command]]
    undo: dict[str, frozenset[str]]
    can: frozenset[str]
    dashboard: str | None


def make_view(stage: Teller, story: Story | None, busy: str, problem: str) -> View:
    """The stage as it is now. `story`: the one that will be told when none is."""
    run, setup, head = stage.run, stage.setup, stage.head
    trace = stage.trace if run is None else run.engine.trace
    recorded = trace.watermark()
    t = recorded if head is None else min(head, recorded)
    told = stage.story or story
    shown = stage.bridging or (stage.shown if run is not None else setup)
    limit = trace.header["budget"].get("seconds")
    failed = run.engine.error if run is not None else None
    return View(
        trace=trace, t=t, recorded=recorded,
        ends=None if limit is None or stage.bridging is not None else round(limit * NANO),
        live=head is None, state=_state(stage), replaying=head is not None and stage.playing,
        simulated=stage.simulated, pinned=stage.pinned if stage.pinned is not trace else None, setup=setup, shown=shown,
        changed=_changed(setup, shown) if run is not None else (), entries=tuple(stage.entries),
        cluster=stage.processes.progress() if stage.bridging is not None else None, busy=busy,
        problem=problem or (str(failed) if failed is not None else ""), story=told, act=stage.act,
        says=_says(stage, told), asked=stage.asked and told is not None and told.question is not None, said=stage.said,
        slow=_slow(stage, trace, t), conditions={trace.roles[r]: how for r, how in conditions(trace, t).items()},
        supported=run.engine.supported_commands if stage.going and run else frozenset(), undo=undoable(trace),
        can=frozenset(_can(stage)), dashboard=_dashboard(stage),
    )  # fmt: skip


def _state(stage: Stage) -> str:
    run = stage.run
    if run is None:
        return "ready"
    if run.done:
        return "failed" if run.engine.error is not None else "over"
    return "paused" if stage.paused or not (stage.playing or stage.watched or not stage.simulated) else "running"


def _says(stage: Teller, story: Story | None) -> str:
    if story is None:
        return ""
    return story.acts[stage.act].says or story.shows if stage.act >= 0 else story.shows


def _can(stage: Stage) -> list[str]:
    found = ["run", "set"]
    run, going = stage.run, stage.going
    if (going and not stage.paused and (stage.playing or not stage.simulated)) or (
        stage.head is not None and stage.playing
    ):
        found.append("pause")
    elif going or stage.head is not None:
        found.append("resume")
    if going:
        found += ["stop", "slow"]
    if run is not None:
        found += ["reset", "seek", "pin"]
        if stage.simulated and stage.bridging is None:
            found.append("what_if")
    if stage.head is not None:
        found.append("live")
    if (
        stage.head is not None
        or (going and stage.bridging is None)
        or (run is None and stage.setup.cluster.virtual_time)
    ):
        found.append("step")
    if stage.pinned is not None:
        found.append("unpin")
    return found


def _changed(setup: Settings, shown: Settings) -> tuple[str, ...]:
    if setup is shown:
        return ()
    names, now = setup.names, shown.names
    return tuple(n for n in names if n != "speed" and (n not in now or setup.value(n) != shown.value(n)))


def _slow(stage: Stage, trace: Trace, t: int) -> dict[str, float]:
    if stage.run is None:
        return dict(stage.setup.cluster.slow)
    return {trace.roles[role]: factor for role, factor in slowed(trace, t).items()}


def _dashboard(stage: Stage) -> str | None:
    if stage.setup.cluster.virtual_time or not stage.processes.ready:
        return None
    try:
        link: Any = stage.processes.cluster.dashboard_link
    except (LabkitError, AttributeError, OSError):
        return None
    return str(link) if link else None
