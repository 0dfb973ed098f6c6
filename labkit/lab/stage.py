"""What is on: one run, the one it is compared with, and the moment that is looked at. No widgets and no threads here.

Everything in this file is called by one thread (the conductor's), except what only sets a value: `seek`, `live`,
`setup`. A moment in the past is a number; every picture is drawn from (trace, moment), so looking back needs nothing
but that number, and the run that goes on does not notice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..engines.base import VirtualTimeEngine
from ..engines.commands import Command, Slow
from ..engines.light import is_light
from ..errors import BadInput
from ..knobs import knobs_of
from ..narrative.table import run_row
from ..roles.budget import Budget
from ..run import Run, train
from ..trace import Trace
from ..trace.query import next_apply
from ..trace.vocabulary import NANO
from .processes import Processes
from .settings import Settings

__all__ = ["Entry", "Stage"]

SLICE = 0.02  # seconds of wall time that a simulated run is moved in one go: buttons are answered in between
MANY = 500  # roles whose reports take as long to collect, after every slice, as a slice lasts
LONGEST = 0.25  # seconds made up for at once: a machine that is too slow plays slower and does not jump
POLL = 0.1  # seconds between two looks at a run that moves by itself
KEPT = 12  # finished runs whose traces are kept; of older ones the numbers stay


@dataclass
class Entry:
    """One line of the table of runs. `run` is None once it has been given up to save memory."""

    number: int
    setup: Settings
    run: Run | None
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def trace(self) -> Trace | None:
        """The record of the run."""
        return self.run.engine.trace if self.run is not None else None


class Stage:
    """See the module. `clock` returns seconds of wall time."""

    def __init__(self, setup: Settings, processes: Processes, clock: Callable[[], float] = time.monotonic):
        self.setup, self.processes, self._clock = setup, processes, clock
        self.run: Run | None = None
        self.shown = self.begun = setup  # the setup of the run that is on: as it is now, and as it began
        self.pinned: Trace | None = None
        self.entries: list[Entry] = []
        self.head: int | None = None  # the moment looked at, ns; None: now
        self.playing = False  # whether a simulated run, or a look back, moves by itself
        self.paused = False  # a run on a cluster was told to hold
        self.bridging: Settings | None = None  # what will run for real once the cluster is there
        self._booked = True
        self.watched = False  # somebody else may move this simulated run
        self._blank: tuple[Settings, Trace] | None = None
        self._last: float | None = None

    # what there is to see ---------------------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace:
        """The record of the run that is on; before the first one, an empty record of what would be run."""
        if self.run is not None:
            return self.run.engine.trace
        setup = self.setup
        if self._blank is None or self._blank[0] is not setup:
            paper = setup.changed(engine="simulated")
            blank = train(paper.problem, paper.strategy, paper.cluster_on(None), paper.budget).advance(0.0)
            self._blank = (setup, blank.trace)
        return self._blank[1]

    @property
    def simulated(self) -> bool:
        """Whether the run that is on is moved by hand."""
        return self.run is not None and isinstance(self.run.engine, VirtualTimeEngine)

    @property
    def going(self) -> bool:
        """Whether a run is on and not over."""
        return self.run is not None and not self.run.done

    def moment(self) -> int:
        """The time (ns) that is looked at."""
        now = self.trace.watermark()
        return now if self.head is None else min(self.head, now)

    # running ----------------------------------------------------------------------------------------------------------

    def begin(self, setup: Settings | None = None, faults: tuple[Any, ...] = ()) -> None:
        """Start a run. One that goes on is ended first. For real processes that are not there yet, a simulated run of the
        same is played until they are.
        """
        setup = self.setup if setup is None else setup
        if not setup.cluster.virtual_time and is_light() and self.processes.cluster.ours:
            setup = setup.changed(engine="simulated")
        if not setup.cluster.virtual_time:
            self.processes.check()
        self.end()
        self.bridging = None
        if not setup.cluster.virtual_time and not self.processes.ready:
            self._bridge(setup, faults)
            return
        cluster = setup.cluster_on(self.processes.cluster if not setup.cluster.virtual_time else None)
        self._on(train(setup.problem, setup.strategy, cluster, setup.budget, faults=faults), setup)

    def _on(self, run: Run, setup: Settings) -> None:
        self.run, self.shown, self.begun, self._booked = run, setup, setup, False
        self.head, self.paused, self.playing, self._last, self.watched = None, False, True, None, False

    def receive(self, run: Run, setup: Settings, play: bool) -> None:
        """A run that somebody else has started is on; a simulated one is moved from here only if it is to be played."""
        self._on(run, setup)
        self.watched = not play
        self.playing = play or not self.simulated

    def _bridge(self, setup: Settings, faults: tuple[Any, ...]) -> None:
        paper = setup.changed(engine="simulated")
        paper = replace(paper, spec=replace(paper.spec, budget=Budget(seconds=3600)))
        self._on(train(paper.problem, paper.strategy, paper.cluster_on(None), paper.budget), paper)
        self.bridging, self._after, self._booked = setup, faults, True
        nodes = len(self.run.plan.layout.nodes)  # type: ignore[union-attr]
        self.processes.start(nodes, lambda: self.on_ready())

    def on_ready(self) -> None:
        """Called, on any thread, when the cluster is there; whoever owns the stage sees to it that `tick` is called."""

    def _cross(self) -> None:
        """The cluster is there (or cannot be had): from the simulated run to the real one."""
        assert self.bridging is not None
        setup, faults, problem = self.bridging, self._after, self.processes.problem
        if problem is not None:
            self.bridging = None
            self.end()
            self.run = None
            raise problem
        self.begin(setup, faults)

    def end(self) -> None:
        """End the run that goes on, if any, and book it."""
        self.bridging = None
        if self.run is not None and not self.run.done:
            self.run.stop()
        self._book()
        self.playing = self.paused = False

    def stop(self) -> None:
        """End the run that goes on."""
        self.end()

    def reset(self) -> None:
        """Back to the beginning: the run that is on is ended, and the same, with the same seed, stands ready."""
        setup = self.bridging or (self.begun if self.run is not None else self.setup)
        self.end()
        self.run, self.head, self.setup = None, None, setup

    def hold(self) -> None:
        """Pause: what moves stands still."""
        self.playing = False
        if self.head is None and self.going and not self.simulated:
            self.run.pause()  # type: ignore[union-attr]
            self.paused = True

    def go_on(self) -> None:
        """Go on after a pause; a look back is played from where it stands."""
        self._last, self.watched = None, False
        if self.head is None and self.paused and self.going:
            self.run.resume()  # type: ignore[union-attr]
        self.paused = self.paused and self.head is not None
        self.playing = self.going or self.head is not None

    def step(self) -> None:
        """To the next applied update, and stand there: in a look back to the next one recorded, else the run makes one."""
        if self.head is not None:
            self.playing = False
            after = next_apply(self.trace, self.head)
            self.head = after if after is not None else self.trace.watermark()
            return
        if self.run is None:
            self.begin()
        if self.going and self.bridging is None:
            self.playing = False
            self.run.step()  # type: ignore[union-attr]
            self.paused = not self.simulated

    # looking ----------------------------------------------------------------------------------------------------------

    def seek(self, t: int) -> None:
        """Look at the moment `t` (ns). A simulated run stands still meanwhile, a real one goes on unseen."""
        self.head, self.playing = max(0, min(int(t), self.trace.watermark())), False

    def live(self) -> None:
        """Back to now; a simulated run goes on from where it stands."""
        self.head, self._last = None, None
        self.playing = self.going

    def what_if(self) -> None:
        """Go back for real: the run up to the moment that is looked at is repeated exactly, and goes on from there.

        What was is pinned.
        """
        if not self.simulated:
            raise BadInput(
                "What if: a run on real processes cannot be repeated exactly. Choose the engine simulated, run, and go back."
            )
        assert self.run is not None
        at, old = self.moment(), self.run
        if old.done and at >= old.engine.trace.watermark():
            raise BadInput("What if: this is the end of the run; go back to an earlier moment first.")
        fork = old.fork(at / NANO)
        self.pinned = old.engine.trace
        self._leave(old)
        setup = self.shown
        self._on(fork, setup)

    def _leave(self, run: Run) -> None:
        """A run that is not gone on with: it ends where it stands, and stays in the table."""
        if not run.done:
            run.stop()
        self._book()

    def pin(self, number: int | None = None) -> None:
        """What is on (or run `number` of the table) is what later runs are compared with."""
        if number is not None:
            self.pinned = self._entry(number).trace
        elif self.run is None:
            raise BadInput("Nothing has been run yet, so there is nothing to pin.")
        else:
            self.pinned = self.run.engine.trace

    def unpin(self) -> None:
        """Compare with nothing."""
        self.pinned = None

    def show(self, number: int) -> None:
        """Look at the last moment of a run of the table again."""
        entry = self._entry(number)
        self.end()
        self.run, self.shown, self.begun, self.head = entry.run, entry.setup, entry.setup, None

    def _entry(self, number: int) -> Entry:
        kept = [e.number for e in self.entries if e.trace is not None]
        if number not in kept:
            raise BadInput(f"Run {number!r} is not kept; there is {', '.join(map(str, kept)) or 'none yet'}.")
        return next(e for e in self.entries if e.number == number)

    # changing ---------------------------------------------------------------------------------------------------------

    def act_on_run(self, settings: dict[str, Any]) -> None:
        """Live knobs among these settings change the run that goes on, at once."""
        if self.going:
            known = knobs_of(self.run.plan.strategy)  # type: ignore[union-attr]
            live = {name: value for name, value in settings.items() if name in known and known[name].live}
            if live:
                self.run.set(**live)  # type: ignore[union-attr]
                self.shown = self.shown.changed(**live)
                if self.bridging is not None:
                    self.bridging = self.bridging.changed(**live)

    def execute(self, command: Command) -> None:
        """Execute a command on the run that goes on. Before the first run a `Slow` is a setting of the run that comes."""
        slow = {command.role: command.factor} if isinstance(command, Slow) else {}
        if self.going:
            self.run.execute(command)  # type: ignore[union-attr]
            if slow and self.bridging is not None:  # the run on real processes is to begin so
                self.bridging = self.bridging.changed(slow={**self.bridging.cluster.slow, **slow})
        elif slow and self.run is None:
            self.setup = self.setup.changed(slow={**self.setup.cluster.slow, **slow})
        else:
            role = getattr(command, "role", "")
            if slow:
                raise BadInput(f"slow {role}: the run is over. Press Run first, or Reset to prepare the next one.")
            raise BadInput(f"{command.word} {role}: no run goes on.")

    # time passes ------------------------------------------------------------------------------------------------------

    def tick(self) -> float | None:
        """Do what is due. Seconds until there may be more to do; None if nothing goes on."""
        if self.bridging is not None and not self.processes.starting:
            self._cross()
        if self.head is not None and self.playing:
            self._play_back()
        elif self.simulated and self.going and self.playing:
            self._play()
        if self.run is not None and self.run.done and not self._booked:
            self._book()
            if self.head is None:
                self.playing = False
            self.over()
        if self.playing and (self.head is not None or (self.simulated and self.going)):
            return SLICE
        moves = self.watched or not self.simulated or self.playing
        return POLL if self.bridging is not None or (self.going and moves and not self.paused) else None

    def over(self) -> None:
        """The run that was on has come to its end by itself; a teller goes on with its story."""

    def _passed(self) -> float:
        """Seconds of wall time since the last call, at most `LONGEST`."""
        now = self._clock()
        since = 0.0 if self._last is None else min(now - self._last, LONGEST)
        self._last = now
        return since

    def _play(self) -> None:
        since = self._passed()
        if since > 0:
            patience = SLICE * (1 + len(self.trace.roles) / MANY)
            self.run.advance(since * self.setup.speed, timeout=patience)  # type: ignore[union-attr]

    def _play_back(self) -> None:
        assert self.head is not None
        self.head += round(self._passed() * self.setup.speed * NANO)
        if self.head >= self.trace.watermark():
            self.live()

    def _book(self) -> None:
        """A run that is over goes into the table, once."""
        if self.run is None or self._booked or not self.run.done:
            return
        self._booked = True
        trace: Trace = self.run.engine.trace
        number = self.entries[-1].number + 1 if self.entries else 1
        self.entries.append(Entry(number, self.shown, self.run, run_row(trace)))
        for old in self.entries[:-KEPT]:
            if old.trace is not self.pinned:
                old.run = None
