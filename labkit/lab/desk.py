"""Commands to the stage: called by a program, which waits and is told what went wrong, or pressed by a person, who sees
what is being done at once and what went wrong on the page.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..errors import LabkitError
from .conductor import Conductor
from .stage import MANY
from .teller import Teller

__all__ = ["Desk"]

HURRY = 0.2  # seconds of wall time that a hurried run is moved in one go


class Desk:
    """`fresh()` is called, on any thread, when there may be something new to see. `busy`: what is being done, or "".
    `problem`: what went wrong last, for a person to read.
    """

    def __init__(self, name: str, stage: Teller, fresh: Callable[[], None]):
        self.stage, self._fresh = stage, fresh
        self.busy, self.problem = "", ""
        self.error: Exception | None = None  # of something that nobody called: a story's next act, a cluster's start
        self._quiet = threading.Condition()
        self._moving = False
        self._held = False  # a person has pressed Pause: whoever waits for the end goes on waiting
        self._conductor = Conductor(name, self._tick)
        stage.on_ready = self._conductor.nudge  # type: ignore[method-assign]

    def call(self, busy: str, command: Callable[[], Any]) -> Any:
        """Carry out a command and wait for it; raises what it raises."""
        self._held, self.error, self.problem = False, None, ""
        return self._conductor.call(partial(self._carry_out, busy, command))

    def press(self, busy: str, command: Callable[[], Any], once: bool = False) -> None:
        """Carry out a command as soon as possible. What goes wrong is shown and not raised. `once`: not if the same is
        being done already, as after a double click.
        """
        if once and busy == self.busy:
            return
        self._held = busy == "pausing"
        self.problem, self.error, self.busy = "", None, busy
        self._moves(True)
        self._conductor.do(partial(self._carry_out, busy, command)).add_done_callback(self._look_for_trouble)
        self._fresh()

    def tell(self, problem: str) -> None:
        """Something was refused before it came to be a command."""
        self.problem = problem
        self._fresh()

    @property
    def held(self) -> bool:
        """Whether a person has pressed Pause."""
        return self._held

    def nudge(self) -> None:
        """Look whether there is something to do."""
        self._conductor.nudge()
        self._fresh()

    def rest(self, timeout: float | None, hurried: bool) -> None:
        """Until nothing moves any more. `hurried`: a simulated run is not played but finished at once."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._conductor.call(lambda: None)  # what was handed over before has been done
        while True:
            if hurried:
                self._conductor.call(self._hurry)
            with self._quiet:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                patience = min(0.02, left or 0.02) if hurried else left
                if self._quiet.wait_for(lambda: not self._moving and not self._held, patience):
                    return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"The lab is not at rest after {timeout:g} s; it goes on.")

    def close(self) -> None:
        """End the thread, after what was handed over."""
        self._conductor.close()
        self._moves(False)

    # on the conductor's thread ----------------------------------------------------------------------------------------

    def _carry_out(self, busy: str, command: Callable[[], Any]) -> Any:
        self.busy = busy
        self._moves(True)
        self._fresh()
        try:
            return command()
        finally:
            self.busy = ""
            self._fresh()

    def _tick(self) -> float | None:
        try:
            pause = self.stage.tick()
        except Exception as error:  # nobody called this: it is shown, and told to whoever waits
            self.error, self.problem = error, _said(error)
            self.stage.playing = False
            self.stage.quiet()
            pause = None
        self._moves(pause is not None)
        if pause is None:
            self._fresh()
        return pause

    def _hurry(self) -> None:
        stage = self.stage
        if stage.run is not None and stage.simulated and stage.going and stage.playing and stage.bridging is None:
            with contextlib.suppress(TimeoutError):  # a run that would wait for ever for a role is ended, and says so
                stage.run.engine.wait(HURRY * (1 + len(stage.trace.roles) / MANY))

    def _look_for_trouble(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self.tell(_said(error))

    def _moves(self, moving: bool) -> None:
        with self._quiet:
            self._moving = moving
            if not moving:
                self._quiet.notify_all()


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
