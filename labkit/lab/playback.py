"""The displayed time of a run, and how it advances: with wall time, step by step, or not at all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from ..run import Run
from ..trace.query import next_apply
from ..trace.schema import NANO
from .displayed_run import DisplayedRun
from .next_run import NextRun

SLICE = 0.02  # wall seconds of one slice in which a simulated run is advanced; commands are executed between slices
FINISH_SLICE = 0.2  # wall seconds of one slice of a simulated run that is advanced as fast as possible
ROLES_PER_SLICE = 500  # collecting the reports of this many roles after a slice takes as long as a slice
LONGEST = 0.25  # maximum wall seconds to catch up at once, so that a slow machine plays slower, without jumps
POLL = 0.1  # seconds between two checks of a run on processes


class Playback:
    """The displayed time of the displayed run. `position`: an earlier time in ns; None: the present.

    A simulated run advances only while the present is displayed. A run on processes advances by itself. `seek` and `live` may be
    called by any thread, because they only set values.
    """

    def __init__(
        self, displayed: DisplayedRun, next_run: NextRun, clock: Callable[[], float] = time.monotonic, slice_s: float = SLICE
    ):  # fmt: skip
        self._displayed, self._next_run, self._clock, self._slice = displayed, next_run, clock, slice_s
        self.position: int | None = None
        self._playing = False  # a simulated run, or a replay, advances with wall time
        self._continues = False  # whether the simulated run goes on when the present is shown again
        self._paused = False  # a run on processes was paused
        self._driven_elsewhere = False  # another program may advance this simulated run
        self._last_played: float | None = None

    def begin(self, play: bool = True) -> None:
        """Another run is displayed. `play`: whether it is advanced, if it is simulated; otherwise another program may do it."""
        self.position, self._last_played = None, None
        self._playing, self._paused = play or not self._displayed.simulated, False
        self._driven_elsewhere = not play

    def end(self) -> None:
        """The displayed run was stopped."""
        self._playing = self._paused = False

    @property
    def replaying(self) -> bool:
        """Whether an earlier time is displayed and advances with wall time."""
        return self.position is not None and self._playing

    @property
    def state(self) -> str:
        """`"ready"` (no run yet), `"running"`, `"paused"`, `"over"` or `"failed"`."""
        run = self._displayed.run
        if run is None:
            return "ready"
        if run.done:
            return "failed" if run.engine.error is not None else "over"
        moves = self._playing or self._driven_elsewhere or not self._displayed.simulated
        return "paused" if self._paused or not moves else "running"

    @property
    def can_pause(self) -> bool:
        """Whether there is something to pause: a replay, or a run that is not paused."""
        return self.replaying or self.trains or (self._advanced is not None and not self._paused)

    @property
    def trains(self) -> bool:
        """Whether processes train now."""
        return self._displayed.active and not self._displayed.simulated and not self._paused

    def moment(self) -> int:
        """Return the displayed time in ns."""
        now = self._displayed.trace.watermark()
        return now if self.position is None else min(self.position, now)

    # for a user -------------------------------------------------------------------------------------------------------

    def seek(self, t: int) -> None:
        """Show the time `t` (ns). A simulated run does not advance while an earlier time is displayed, but a run on
        processes continues.
        """
        if self.position is None:
            self._continues = self._playing
        self.position, self._playing = max(0, min(int(t), self._displayed.trace.watermark())), False

    def live(self) -> None:
        """Show the present again. A simulated run continues, unless it was paused."""
        if self.position is not None:
            self._playing = self._displayed.active and self._continues
        self.position, self._last_played = None, None

    def pause(self) -> None:
        """Pause the run, or the replay."""
        self._playing = False
        if self.position is None:
            self._pause_processes()

    def hold(self) -> None:
        """Pause the run, also while an earlier time is displayed, until `resume`."""
        self._playing = self._continues = False
        self._pause_processes()

    def _pause_processes(self) -> None:
        run = self._displayed.active_run
        if run is not None and self.trains:
            run.pause()
            self._paused = True

    def halt(self) -> None:
        """Stop advancing and replaying, after an error."""
        self._playing = False

    def resume(self) -> None:
        """Continue after a pause. If an earlier time is displayed, replay from this time."""
        self._last_played, self._driven_elsewhere = None, False
        run = self._displayed.active_run
        if self.position is None and self._paused and run is not None:
            run.resume()
        self._paused = self._paused and self.position is not None
        self._playing = self._continues = run is not None or self.position is not None

    def step(self) -> None:
        """Go to the next applied update, and pause there.

        If an earlier time is displayed, this is the next recorded update. Otherwise the run continues until it applies an
        update.
        """
        shown, run = self._displayed, self._displayed.active_run
        if self.position is not None:
            self._playing = False
            after = next_apply(shown.trace, self.position)
            self.position = after if after is not None else shown.trace.watermark()
        elif run is not None and not shown.previewing:
            self._playing = False
            run.step()
            self._paused = not shown.simulated

    # advancing --------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Advance the replay, or the simulated run, by the wall time since the last call."""
        run, speed, position = self._advanced, self._next_run.settings.speed, self.position
        if position is not None and self._playing:
            later = position + round(self._elapsed() * speed * NANO)
            if later >= self._displayed.trace.watermark():
                self.live()
            elif self.position == position:  # another thread may have changed it
                self.position = later
        elif run is not None:
            since = self._elapsed()
            if since > 0:
                run.advance(since * speed, timeout=self._slice * self._slices)

    def finish(self) -> None:
        """Advance a simulated run that is being played by one slice, as fast as possible."""
        run = self._advanced
        if run is not None and not self._displayed.previewing:
            with contextlib.suppress(TimeoutError):  # the slice is over
                run.engine.wait(FINISH_SLICE * self._slices)

    def next_advance(self) -> float | None:
        """Return the wall seconds until `advance` may have work, or a run on processes may have ended; None: nothing moves."""
        shown = self._displayed
        if self.replaying or self._advanced is not None:
            return SLICE
        moves = self._driven_elsewhere or not shown.simulated or self._playing
        return POLL if shown.previewing or (shown.active and moves and not self._paused) else None

    @property
    def _advanced(self) -> Run | None:
        """The simulated run that this object advances now."""
        return self._displayed.active_run if self._playing and self._displayed.simulated else None

    @property
    def _slices(self) -> float:
        """How many times longer a slice is for the number of roles."""
        return 1 + len(self._displayed.trace.roles) / ROLES_PER_SLICE

    def _elapsed(self) -> float:
        """Return the seconds of wall time since the last call, at most `LONGEST`."""
        now = self._clock()
        since = 0.0 if self._last_played is None else min(now - self._last_played, LONGEST)
        self._last_played = now
        return since
