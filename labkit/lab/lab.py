"""`lk.Lab()`: the laboratory. Everything that a person can press is a method here, and does the same without a browser.

The lab holds a stage (what is on), a desk (through which it is commanded, by one thread) and a page (widgets, drawn by
one thread). What is shown is a function of the trace and the moment that is looked at, and of nothing else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import count
from typing import Any, Self

from ..engines.commands import (
    Command,
    Cut,
    Executed,
    Freeze,
    Kill,
    Reconnect,
    Restart,
    Slow,
    Thaw,
    log_text,
    parse_log,
)
from ..engines.dask import DaskCluster
from ..errors import BadInput, LabkitError
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run
from ..strategies import Strategy
from ..trace.vocabulary import NANO
from .cells import forget, remember, this_cell
from .desk import Desk
from .opening import first_setup, in_kernel, inherited
from .page import Page
from .processes import Processes
from .reading import Reading
from .share_text import read_share_text, share_text
from .stories import story_by_name
from .teller import Teller
from .view import View, make_view

__all__ = ["Lab"]

_numbers = count(1)

# What is shown while a button's work is being done.
DOING: dict[str | type[Command], str] = {
    "run": "starting", "pause": "pausing", "resume": "going on", "stop": "stopping", "reset": "resetting",
    "step": "stepping", "what_if": "going back", "pin": "pinning", "unpin": "unpinning",
    "answer": "committing", "tell": "starting", "look_at": "looking", "set": "setting",
    Slow: "slowing", Kill: "killing", Restart: "restarting", Freeze: "freezing", Thaw: "thawing", Cut: "cutting",
    Reconnect: "reconnecting",
}  # fmt: skip


class Lab(Reading):
    """A live laboratory in a notebook: the last expression of a cell shows it.

    `lk.Lab()` has everything, ready to run. `problem`, `strategy`, `cluster`, `budget`: begin with these. `run`: look at
    a run that goes on, or is over (`run.watch()`). `story`: a prepared one, by name (`lk.Lab.stories()`). `controls`:
    which settings can be turned (names; None: all; empty: none). `panels`: which pictures, in order (None: the first
    view). `speed`: seconds of virtual time a second at which simulated runs are played (1); a run that was given is
    played only if it is said how fast, or when somebody presses Resume: until then whoever made it may move it.

    Nothing here needs a browser: `lk.Lab().run().wait()` does the same in a script. Raises `BadInput` for what does not
    fit together, at once.
    """

    def __init__(
        self, problem: Problem | str | None = None, strategy: Strategy | str | None = None, cluster: Any = None,
        budget: Budget | None = None, *, run: Run | None = None, story: str | None = None,
        controls: Iterable[str] | str | None = None, panels: Iterable[str] | str | None = None, speed: float | None = None,
    ):  # fmt: skip
        setup = first_setup(problem, strategy, cluster, budget, run).changed(speed=1.0 if speed is None else speed)
        self._story = story_by_name(story) if story is not None else None
        self._faults: tuple[Command | Executed, ...] = ()
        self._closed = self._shown = False
        self._lock = threading.Lock()
        names = (panels,) if isinstance(panels, str) else tuple(panels) if panels is not None else None
        chosen = (controls,) if isinstance(controls, str) else tuple(controls) if controls is not None else None
        where = this_cell()
        given = cluster if isinstance(cluster, DaskCluster) else getattr(getattr(run, "engine", None), "cluster", None)
        self._processes = Processes(given) if isinstance(given, DaskCluster) else inherited(where)
        self.stage = Teller(setup, self._processes)
        self._guest = run  # a run that somebody else has started is left alone
        self._desk = Desk(f"labkit-lab-{next(_numbers)}", self.stage, self._fresh)
        if run is not None:
            self.stage.receive(run, setup, play=speed is not None)
        self._page: Page | None = None
        shown = names if names is not None or self._story is None else self._story.panels
        self._page = Page(self, shown, chosen, awake=in_kernel())
        remember(self, where)
        if run is not None:
            self._desk.nudge()

    # running ----------------------------------------------------------------------------------------------------------

    def run(self) -> Self:
        """Start: the story, if there is one, else a run with the present settings. Returns at once; see `wait`."""
        return self._do("run")

    def pause(self) -> Self:
        """Hold the run (or the look back)."""
        return self._do("pause")

    def resume(self) -> Self:
        """Let it go on."""
        return self._do("resume")

    def stop(self) -> Self:
        """End the run now, with a last evaluation; a story ends with it."""
        return self._do("stop")

    def reset(self) -> Self:
        """Back to the beginning: the same settings and the same seed, standing at 0."""
        return self._do("reset")

    def step(self) -> Self:
        """To the next applied update, and stand there."""
        return self._do("step")

    def seek(self, seconds: float) -> Self:
        """Look at an earlier moment of the run; every panel follows."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise BadInput(f"seek({seconds!r}): a moment of the run in seconds, 0 or more.")
        self.stage.seek(round(min(seconds, 1e9) * NANO))
        self._fresh()
        return self

    def live(self) -> Self:
        """Back to now."""
        self.stage.live()
        self._desk.nudge()
        return self

    def what_if(self) -> Self:
        """Repeat a simulated run up to the moment that is looked at and go on from there; what was is pinned."""
        return self._do("what_if")

    def wait(self, timeout: float | None = None, *, fast: bool = False) -> Self:
        """Until nothing goes on any more (a question that nobody answers is not waited for, nor is a run that a program
        has paused). Shows the lab first, if no cell has.

        `fast`: simulated runs are not played at their speed but finished at once, as they always are in a script.
        Raises what ended the run if that was an error; `TimeoutError` after `timeout` seconds. Ctrl-C stops the run.
        """
        self._show()
        if self.stage.run is self._guest and self.stage.simulated and not self._desk.held:
            self._do("resume")
        try:
            self._desk.rest(timeout, fast or not in_kernel())
        except KeyboardInterrupt:
            self.press("stop")
            raise
        run = self.stage.run
        error: Exception | None = run.engine.error if run is not None else None
        if error is None:
            error = self._desk.error
        if error is not None:
            raise error
        self._settle()
        return self

    # changing ---------------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> Self:
        """Change settings by name: live knobs act on the run that goes on, everything else on the next one."""
        self._change(settings)
        return self._do("set", settings)

    def answer(self, answer: int | str) -> Self:
        """Commit to an answer of the story's question, by its number (0 is the first) or its text."""
        self._commit(answer)
        return self._do("answer")

    def tell(self, story: str) -> Self:
        """Play a story by its name (`lk.Lab.stories()`)."""
        return self._do("tell", story)

    def pin(self, number: int | None = None) -> Self:
        """Draw later runs over this one (or over run `number` of the table)."""
        return self._do("pin", number)

    def unpin(self) -> Self:
        """Compare with nothing."""
        return self._do("unpin")

    def look_at(self, number: int) -> Self:
        """Show run `number` of the table again."""
        return self._do("look_at", number)

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Self:
        """Execute a command on the run that goes on, at once, as `run.execute` does: `lab.execute(lk.Kill("worker-1"))`.

        Before the first run a `Slow` is a setting of the run that comes; else `BadInput` if no run goes on.
        """
        return self._do("execute", command)

    def slow(self, role: str, factor: float) -> Self:
        """Make a role compute `factor` times slower; 1 undoes it."""
        return self.execute(Slow(role, factor))

    def kill(self, role: str, restart: bool = True) -> Self:
        """Kill a role: on a cluster its process, with SIGKILL. It comes back by itself; `restart=False`: it stays away
        until `restart(role)`, as after the lab's Kill button, so that one can see what its absence does.
        """
        return self.execute(Kill(role, restart=restart))

    def restart(self, role: str) -> Self:
        """Let a role that is away come back: its next incarnation begins with what its last one had saved."""
        return self.execute(Restart(role))

    def freeze(self, role: str) -> Self:
        """Let a role's process stand still (SIGSTOP); after the cluster's `patience` it counts as lost."""
        return self.execute(Freeze(role))

    def thaw(self, role: str) -> Self:
        """Let a frozen process go on; one that has been given up meanwhile is told to leave."""
        return self.execute(Thaw(role))

    def cut(self, role: str, peer: str | None = None) -> Self:
        """Let nothing pass between a role and `peer`; None: every other role."""
        return self.execute(Cut(role, peer))

    def reconnect(self, role: str, peer: str | None = None) -> Self:
        """Undo `cut`: what was held passes now."""
        return self.execute(Reconnect(role, peer))

    # its state as a text -------------------------------------------------------------------------------------------------

    def code(self) -> str:
        """The lab as a short text that `Lab.from_code` opens again: settings, story, panels, and what was done to the run
        (in virtual time it is then the same run, to the last bit). `BadInput` if something was made by hand.
        """
        stage, story = self.stage, self.stage.story or self._story
        same = hasattr(stage.run, "plan") and stage.bridging is None and stage.setup == stage.shown
        done = log_text(list(stage.run.engine.commands)) if same and stage.run is not None and story is None else ""
        panels = self._page.chosen if self._page is not None else None
        more = {"story": story.name if story else "", "panels": ",".join(panels or ()), "done": done}
        given = {name: text for name, text in more.items() if text}
        return share_text(stage.begun if done else stage.setup, **given)

    @classmethod
    def from_code(cls, code: str, **options: Any) -> Lab:
        """The lab that `code()` of another one described, ready to run."""
        setup, more = read_share_text(code, ("story", "panels", "done"))
        if "panels" in more:
            options.setdefault("panels", tuple(more["panels"].split(",")))
        faults = parse_log(more.get("done", ""))
        lab = cls(story=more.get("story"), **options)
        lab.stage.setup = setup
        lab._faults = faults if setup.cluster.virtual_time else _without_turns(faults)
        lab._fresh()
        return lab

    # for the page -----------------------------------------------------------------------------------------------------

    def press(self, name: str, *arguments: Any) -> None:
        """Somebody pressed something: carried out as soon as possible; what goes wrong is shown and not raised."""
        if self._closed:
            return
        try:
            if name in ("seek", "live"):
                getattr(self, name)(*arguments)
                return
            if name == "set":
                arguments = (self._meant(arguments[0]),)
                self._change(arguments[0])
            elif name == "answer":
                self._commit(*arguments)
                arguments = ()
        except LabkitError as error:
            self._desk.tell(str(error))
            return
        once = name in ("run", "reset", "what_if", "tell")
        self._desk.press(_doing(name, arguments), partial(self._does[name], *arguments), once)

    def view(self) -> View:
        """Everything that the page shows, now."""
        return make_view(self.stage, self._story, self._desk.busy, self._desk.problem)

    def _fresh(self) -> None:
        """Something has changed: draw it, if there can be anybody who sees it."""
        if self._page is not None and (self._shown or in_kernel()):
            self._page.wake()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        assert self._page is not None
        self._shown = True
        bundle = self._page.box._repr_mimebundle_(include=include, exclude=exclude)
        data, more = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        self._fresh()
        return {**data, "text/plain": repr(self)}, more

    def __repr__(self) -> str:
        return "<labkit Lab>"

    def close(self, keep_processes: bool = False) -> None:
        """End the lab's run and threads, take it off the page, end its own processes. Twice is as good as once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._guest is None or self.stage.run is not self._guest:
            with contextlib.suppress(LabkitError, RuntimeError):
                self._desk.call("closing", self.stage.end)
        self._desk.close()
        if self._page is not None:
            self._page.close()
        forget(self)
        if not keep_processes:
            self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # how --------------------------------------------------------------------------------------------------------------

    @cached_property
    def _does(self) -> dict[str, Callable[..., Any]]:
        """What carries out each command."""
        stage = self.stage
        return {
            "run": self._start, "pause": stage.hold, "resume": stage.go_on, "stop": stage.stop, "reset": stage.reset,
            "step": stage.step, "what_if": stage.what_if, "execute": stage.execute, "answer": stage.show_truth,
            "tell": self._tell, "pin": stage.pin, "unpin": stage.unpin, "look_at": stage.show, "set": stage.act_on_run,
        }  # fmt: skip

    def _do(self, name: str, *arguments: Any) -> Self:
        if self._closed:
            raise BadInput("This lab is closed; make a new one.")
        self._desk.call(_doing(name, arguments), partial(self._does[name], *arguments))
        self._fresh()
        return self

    def _start(self) -> None:
        if self._story is not None:
            self.stage.tell(self._story)
        else:
            self.stage.begin(None, self._faults)

    def _tell(self, name: str) -> None:
        self._story = story_by_name(name) if name else None
        if self._story is None:
            self.stage.quiet()
            return
        if self._page is not None:
            self._page.choose(self._story.panels)
        self.stage.tell(self._story)

    def _commit(self, answer: int | str) -> None:
        story = self.stage.story or self._story
        answers = story.question.answers if story is not None and story.question is not None else ()
        if isinstance(answer, str) and answer not in answers:
            there = "the answers are " + ", ".join(answers) if answers else "nothing is asked"
            raise BadInput(f"answer {answer!r}: {there}.")
        if self.stage.story is None and story is not None:
            self.stage.story = story
        self.stage.commit(answers.index(answer) if isinstance(answer, str) else answer)

    def _meant(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What was typed or chosen, as values: `"8"` is a seed; a field that was emptied is left as it was."""
        given = {name: value for name, value in settings.items() if value != ""}
        return {n: self.stage.setup.read(n, v) if isinstance(v, str) else v for n, v in given.items()}

    def _change(self, settings: dict[str, Any]) -> None:
        with self._lock:
            self.stage.setup = self.stage.setup.changed(**settings)
            self._faults = _without_turns(self._faults)  # it is another run: times still hold

    def _show(self) -> None:
        from IPython.display import display

        if not self._shown and not self._closed and in_kernel():
            display(self)

    def _settle(self) -> None:
        """Let the last picture be drawn."""
        self._fresh()
        if self._page is not None:
            self._page.join(10)


def _doing(name: str, arguments: tuple[Any, ...]) -> str:
    """What is shown while this is being done."""
    return DOING.get(type(arguments[0]), "working") if name == "execute" else DOING[name]


def _without_turns(faults: tuple[Command | Executed, ...]) -> tuple[Command, ...]:
    return tuple(fault.command if isinstance(fault, Executed) else fault for fault in faults)
