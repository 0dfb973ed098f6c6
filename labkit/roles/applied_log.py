"""The applied log of a shard: which gradients were applied to its parameters, exactly once, and which were dropped.

A gradient is identified by (sender, incarnation, step). A push may arrive more than once. The log has a table of the last step
of each role instance that pushes, by which duplicates are detected. A duplicate is answered but not applied, so every gradient
is applied at most once. The table is saved and restored with the parameters.

In the trace, a role instance's gradients up to its last applied step count as applied, except those listed in drop rows. If the
shard is lost, its newest drop rows may be missing in the trace, so the dropped gradients would count as applied. These rows are
therefore part of the saved state (`unreported_drops`), and the next incarnation reports them again.

Gradients that a shard loses by a restore are rolled back. Their senders have continued with later steps. The drop rows of
rolled back gradients are therefore written at the next push of each sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..trace.events import GradientRefused
from ..trace.recorder import Recorder
from ..trace.schema import ALL, IGNORED, REFUSED, ROLLED_BACK, UNKNOWN
from .gradient import Contribution, Gradient
from .messages import Position, Push

Served = Callable[[int, int, int | None], None]


class AppliedLog:
    """The gradients applied, dropped and refused by shard number `shard`; written to `recorder`.

    `role_ids`: {name of a role: its number in the trace}. `clock` returns the time in ns. `served(sender, version, newest)` is
    called for each applied push. `version`: the version on which the gradient was computed; `newest`: the last version that the
    sender has read, if a gradient computed on it is outstanding, else None. `cumulative`: a push contains all earlier steps of
    its sender, so no step before it is missing (positions of elastic averaging).

    `ledger`: whether mixed parameters pass on which steps of other roles they contain. Without it vector clocks are empty: with a
    number for every role, they take most of the time of a timing-only run of a thousand workers.
    """

    def __init__(
        self, shard: int, recorder: Recorder, clock: Callable[[], int], role_ids: Mapping[str, int],
        served: Served | None = None, cumulative: bool = False, ledger: bool = True,
    ):  # fmt: skip
        self._shard, self._recorder, self._clock, self._ids = shard, recorder, clock, role_ids
        self._served, self._cumulative, self._ledger = served, cumulative, ledger
        self._last: dict[tuple[str, int], int] = {}  # (sender, incarnation) -> last step applied
        self._dropped: dict[tuple[str, int], set[int]] = {}  # the same -> steps dropped since then
        self._seen: set[tuple[str, int]] | None = None  # after a restore: the senders that have pushed since
        recorder.counters.shard = shard

    # applied once -----------------------------------------------------------------------------------------------------

    def without_duplicates(self, gradients: Sequence[Contribution]) -> Sequence[Contribution]:
        """Return the gradients that were neither applied nor dropped before, without repetition. All others are counted as
        duplicates.
        """
        # An asynchronous server applies one push at a time, so this is the path of nearly every push.
        if len(gradients) == 1:
            g = gradients[0]
            if (
                not self._dropped
                and not isinstance(g, Gradient)
                and g.step > self._last.get((g.sender, g.incarnation), -1)
            ):
                return gradients  # fast path
            return () if self._is_duplicate(g) else gradients
        first: dict[Any, Contribution] = {}
        for g in gradients:
            if not self._is_duplicate(g):
                first.setdefault(id(g) if isinstance(g, Gradient) else (g.sender, g.incarnation, g.step), g)
        return list(first.values())

    def _is_duplicate(self, g: Contribution) -> bool:
        if isinstance(g, Gradient):
            return False
        key = (g.sender, g.incarnation)
        if g.step > self._last.get(key, -1) and not (self._dropped and g.step in self._dropped.get(key, ())):
            return False
        self._recorder.counters.duplicates += 1
        return True

    def record(self, gradients: Sequence[Contribution], before: int, generation: int, now: int) -> int:
        """Record gradients applied at `now` (ns) in one update of version `before` of `generation`. Returns their samples."""
        recorder, version, samples = self._recorder, before + 1, 0
        counters, served = recorder.counters, self._served
        counters.updates = counters.version = version
        for g in gradients:
            if isinstance(g, Gradient):
                g.check_complete()
                read_generation, read = g.read[self._shard if len(g.read) > 1 else 0]
                sender, incarnation = self._computed_here(g), recorder.incarnation
            else:
                read_generation, read, sender, incarnation = g.generation, g.version, self._ids[g.sender], g.incarnation
                key = (g.sender, incarnation)
                if self._dropped or self._last.get(key, -1) != g.step - g.count:
                    self._record_skipped(g, key, sender, now)
                if self._seen is not None:
                    self._seen.add(key)
                self._last[key] = g.step
                newest = counters.reads.pop(sender, None)
                if served is not None:
                    served(sender, read, newest)
            samples += g.samples
            # a restore takes versions back, so those of two generations cannot be compared
            staleness = before - read if read_generation == generation else UNKNOWN
            recorder.apply(self._shard, now, sender, g.step, g.count, g.samples, staleness, version, incarnation)
        counters.outstanding += len(counters.reads)
        return samples

    def _computed_here(self, g: Gradient) -> int:
        """Return the sender of a gradient that was computed in this role: the role, or all workers. Counts it as released."""
        counters = self._recorder.counters
        counters.released = max(counters.released, g.step + 1)
        if g.all_workers and counters.reads:
            counters.reads.clear()  # a server with a replica: one step serves all workers that have read
        return ALL if g.all_workers else self._recorder.role

    def _record_skipped(self, g: Push, key: tuple[str, int], sender: int, now: int) -> None:
        """Record the steps before `g` that were neither applied nor dropped here: never sent to this shard or discarded by
        its strategy (ignored), or applied before a restore (rolled back).
        """
        dropped = self._dropped.pop(key, ())
        # a position brings back what a restored centre has lost, so nothing is rolled back or ignored
        if self._cumulative:
            return
        # Only the first push of a sender after a restore can follow steps that this shard had applied and has lost.
        why = ROLLED_BACK if self._seen is not None and key not in self._seen else IGNORED
        for step in range(self._last.get(key, -1) + 1, g.step - g.count + 1):
            if step not in dropped:
                self._recorder.drop(self._shard, now, sender, g.incarnation, step, 1, why)

    # never applied ----------------------------------------------------------------------------------------------------

    def drop(self, g: Contribution, why: int, version: int) -> None:
        """Record that a gradient will not be applied to this shard, which is at `version`; `why`: an index of `trace.REASONS`."""
        now, recorder = self._clock(), self._recorder
        counters = recorder.counters
        if isinstance(g, Gradient):
            sender, incarnation = ALL if g.all_workers else recorder.role, recorder.incarnation
            counters.released = max(counters.released, g.step + 1)
        else:
            if self._is_duplicate(g):
                return
            sender, incarnation = self._ids[g.sender], g.incarnation
            self._dropped.setdefault((g.sender, incarnation), set()).update(range(g.step - g.count + 1, g.step + 1))
            counters.residual += version - counters.reads.pop(sender, version)
        recorder.drop(self._shard, now, sender, incarnation, g.step, g.count, why)

    def refuse(self, push: Push, reason: str, version: int) -> None:
        self._recorder.event(GradientRefused(self._clock(), push.sender, push.step, reason))
        self.drop(push, REFUSED, version)

    # mixed parameters -------------------------------------------------------------------------------------------------

    def vector_clock(self, workers: Iterable[str]) -> tuple[int, ...]:
        """Return the last applied step of each worker's instance of the same incarnation as this shard; -1 for none. Empty
        without a ledger.
        """
        if not self._ledger:
            return ()
        applied, ids, first = self._recorder.counters.applied, self._ids, self._first_instance
        return tuple([applied[i][1] if (i := ids[worker] + first) in applied else -1 for worker in workers])

    def merge(self, workers: Sequence[str], clock: Sequence[int]) -> None:
        """Record that the parameters were mixed with others that contain the workers' gradients up to the steps in `clock`."""
        applied, ids, first = self._recorder.counters.applied, self._ids, self._first_instance
        for worker, step in zip(workers, clock):
            if step < 0:
                continue
            instance = ids[worker] + first
            count, last = applied.get(instance, (0, -1))
            if step > last:
                applied[instance] = [count + step - last, step]

    def all_steps(self) -> tuple[int, ...]:
        """Return (role instance, its last applied step, the next role instance, ...), as in `Position.clock`. Empty without a
        ledger.
        """
        if not self._ledger:
            return ()
        applied = self._recorder.counters.applied
        return tuple(number for instance, (_, last) in applied.items() for number in (instance, last))

    def merge_position(self, position: Position) -> None:
        """Add the gradients that `position` contains, except those computed since the sender's last position, which are
        recorded separately. Of each role instance, a position contains all steps up to some step.
        """
        counters, recorder = self._recorder.counters, self._recorder
        applied, clock = counters.applied, position.clock
        own = self._ids[position.sender] + position.incarnation * recorder.roles
        before = position.step - position.count
        for instance, step in {i: step for i, step in zip(clock[::2], clock[1::2]) if i != own}.items():
            count, last = applied.get(instance, (0, -1))
            if step > last:
                counters.gradients += step + 1 - count
                applied[instance] = [step + 1, step]
        count = applied.get(own, (0, -1))[0]
        if count != before + 1:
            counters.gradients += before + 1 - count
            applied[own] = [before + 1, before]

    @property
    def _first_instance(self) -> int:
        """The number of the first role's instance of the shard's incarnation (replicas are restarted together)."""
        return self._recorder.incarnation * self._recorder.roles

    # checkpoints ------------------------------------------------------------------------------------------------------

    def contained(self) -> dict[str, Any]:
        """Return the gradients that the parameters contain now, as JSON values. `unreported_drops`: drop rows whose report may be
        lost.
        """
        recorder, counters = self._recorder, self._recorder.counters
        contained: dict[str, Any] = {
            "incarnation": recorder.incarnation, "rounds": counters.rounds,
            "rounds_by_incarnation": [[era, rounds] for era, rounds in counters.rounds_by_incarnation.items()],
            "applied": [[instance, *count] for instance, count in counters.applied.items()],
        }  # fmt: skip
        return (
            contained
            if recorder.unacknowledged is None
            else contained | {"unreported_drops": recorder.unreported_drops()}
        )

    def to_state(self) -> dict[str, Any]:
        return self.contained() | {
            "gradients": self._recorder.counters.gradients,
            "last": [[sender, incarnation, step] for (sender, incarnation), step in self._last.items()],
            "dropped": [[sender, incarnation, sorted(steps)] for (sender, incarnation), steps in self._dropped.items()],
        }

    def restore(self, state: Mapping[str, Any] | None, same: bool) -> None:
        """Restore the log from a shard's `to_state()`; None: the log of the initial parameters. `same`: `state` is the newest
        state.
        """
        if state is not None:
            counters = self._recorder.counters
            counters.updates = counters.version = int(state["version"])
            counters.samples, counters.gradients = int(state["samples"]), int(state["gradients"])
            counters.rounds_by_incarnation = {int(era): int(rounds) for era, rounds in state["rounds_by_incarnation"]}
            if state["rounds"]:
                counters.rounds_by_incarnation[int(state["incarnation"])] = int(state["rounds"])
            counters.applied = {int(instance): [int(count), int(last)] for instance, count, last in state["applied"]}
            self._last = {(sender, int(era)): int(step) for sender, era, step in state["last"]}
            self._dropped = {(sender, int(era)): set(steps) for sender, era, steps in state["dropped"]}
            rows = state.get("unreported_drops", ())  # may be those of another replica
            self._recorder.repeat_drops([[row[0] if row[0] == ALL else self._shard, *row[1:]] for row in rows])
        self._seen = None if same else set()
