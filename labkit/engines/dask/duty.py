"""What a role does when it is told to: begin, pause, change a knob, learn who is there, hand in its books, leave.

Commands are carried out between two effects, in the role's own thread. Orders about who takes part carry a number and
say everything, so that one which is late, or comes twice, does no harm.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from ...nn import SparseParameters
from ...roles.messages import Joined, Left
from ...roles.regroup import leave_in_hand
from ...trace.events import ConnectionRefused
from ...trace.vocabulary import seconds
from .station import Station

__all__ = ["Ended", "Obedient"]

ROW_BYTES = 16_384  # of rows in one report
LAST_BYTES = 4_000_000  # of rows in the last report
TEND_S = 0.05  # seconds between two looks of a role that stands still at its connections
GOODBYE_S = 2.0  # seconds for saying goodbye, and for reading what is under way
LINGER_S = 30.0  # seconds that a role which has said goodbye waits for the others to do so


class Ended(BaseException):
    """The role was told to end, by the command it holds. Raised inside its thread, never seen by a strategy."""


class Obedient(Station):
    """The part of a role's thread that carries out commands and reports."""

    context: Any
    coroutine: Any
    judge: Any
    factor: float
    step_to: int
    waiting: tuple[tuple[type, ...], str | None] | None
    interrupt: bool
    change = -1  # the number of the newest order about who takes part
    impaired = 0  # the same of orders about links
    repeated = 0  # frames that had come before, as far as they are in the books
    known: dict[str, int]  # the newest life of each role that has been here
    links: dict[str, dict[str, Any]]  # how links behave, of those that are in trouble

    # who is there -----------------------------------------------------------------------------------------------------

    def begin(self, command: dict[str, Any]) -> None:
        """The role begins: who is where, and when is zero."""
        self.zero = command["zero"]
        if command.get("frozen") is not None:
            self.frozen, self.slot.flag = command["frozen"], True
        self._do_set({"knobs": command.get("knobs", {})})
        self._learn(command)
        self.known = {name: life for name, (*_, life) in command["here"].items()}
        self.unaware = {name for name in command["lives"] if name not in command["here"]}
        self.links = {}
        for order in command.get("orders", ()):
            getattr(self, f"_do_{order['do']}")(order)

    def _learn(self, command: dict[str, Any]) -> None:
        self.change, self.lives = command["change"], command["lives"]
        for name, life in command["lives"].items():
            if name in command["here"]:
                self.endpoint.add_peer(name, *command["here"][name])
            elif name != self.spec.name:  # it is lost: what it still says is refused from now on
                self.endpoint.fence(name, life)
        self.context._peers = {kind: tuple(names) for kind, names in command["peers"].items()}

    def _do_members(self, command: dict[str, Any]) -> None:
        """Who takes part has changed. First `ctx.peers` does, then those who asked for it are told."""
        if command["change"] <= self.change:
            return
        if command["lives"][self.spec.name] > self.incarnation:
            raise Ended({"do": "leave", "fenced": True})
        before = {name for names in self.context._peers.values() for name in names}
        self._learn(command)
        now = {name for names in self.context._peers.values() for name in names}
        here = command["here"]
        self.unaware |= {name for name in command["lives"] if name not in here and name != self.spec.name}
        for name in command["lives"]:
            if name in before and name not in now:
                self._announce(Left, name)
        for name, (*_, life) in here.items():
            if name != self.spec.name and self.known.get(name, -1) < life:
                self.known[name] = life
                if name == "chief" and self.shard is not None and self.shard.finished:
                    self._show(False)  # who is full says so once, and the chief's next life has not heard it
                self._announce(Joined, name)

    def _announce(self, kind: type[Left] | type[Joined], name: str) -> None:
        """News of a member. Who did not listen for it last has nothing to say again, and is aware of it at once."""
        if kind in self.listens:
            for old in [m for m in self.inbox if isinstance(m, Left | Joined) and m.name == name]:
                self.inbox.remove(old)
            message = kind(name)
            message.__dict__.update(sender=name, incarnation=self.lives[name])
            self.inbox.append(message)
            if kind is Joined:
                self.unaware.add(name)
        elif kind is Joined:
            self.unaware.discard(name)

    # commands ---------------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Carry out what has been asked for, and report if it is time."""
        for command in self.slot.take():
            getattr(self, f"_do_{command['do']}")(command)
        if self.slot.tick:
            self.slot.tick = False
            if not self.ticket.together:
                self.keeper.look(self.shard, self.clock())
            self._report()
        while self.frozen is not None:
            self.slot.arrived.wait(TEND_S)
            self.endpoint.progress()
            if self.slot.flag:
                self._attend_frozen()

    def _attend_frozen(self) -> None:
        for command in self.slot.take():
            getattr(self, f"_do_{command['do']}")(command)
        self.slot.tick = False
        self._report()

    def _do_end(self, command: dict[str, Any]) -> None:
        raise Ended(command)

    def _do_begin(self, command: dict[str, Any]) -> None:
        """It was said twice."""

    _do_leave = _do_drain = _do_regroup = _do_depart = _do_end

    def _do_impair(self, command: dict[str, Any]) -> None:
        """How every link behaves, the whole of it; what has not changed is left alone."""
        if command["number"] > self.impaired:
            self.impaired, before, self.links = command["number"], self.links, command["links"]
            for peer in before.keys() | self.links.keys():
                if before.get(peer) != self.links.get(peer):
                    self.endpoint.set_link_fault(peer, **self.links.get(peer, {}))

    def _do_pause(self, command: dict[str, Any]) -> None:
        self._freeze()

    def _freeze(self) -> None:
        if self.frozen is None:
            self.frozen = self.clock()

    def _do_resume(self, command: dict[str, Any]) -> None:
        self.zero = command["zero"]
        if self.frozen is not None:  # long work that ended during the pause is ahead of the others: they catch up first
            ahead = self.frozen - (time.monotonic_ns() - self.zero)
            time.sleep(max(0.0, seconds(ahead)))
        self.frozen = None
        self.step_to = command["goals"].get(self.spec.name, -1)

    def _do_version(self, command: dict[str, Any]) -> None:
        if self.shard is not None:
            self.slot.report("version", version=self.counters.version)

    def _do_slow(self, command: dict[str, Any]) -> None:
        self.factor = command["factor"]

    def _do_set(self, command: dict[str, Any]) -> None:
        for name, value in command["knobs"].items():
            object.__setattr__(self.strategy, name, value)

    def _do_acknowledge(self, command: dict[str, Any]) -> None:
        self.recorder.acknowledged(command["number"])

    def _do_hurry(self, command: dict[str, Any]) -> None:
        if self.judge is not None and self.judge.hurry is None:
            self.judge.hurry = command["reason"]
            self.interrupt, self.waiting = True, None  # the report that may follow at once does not say that it waits

    def _report(self) -> None:
        """Rows since the last report, counters, and what the role is waiting for."""
        if self.frozen is None:
            self.endpoint.flush()
        self._count_repeated()
        kinds, sender = self.waiting or ((), None)
        busy = self.waiting is None or self.frozen is not None
        self.slot.report(
            "batch", change=self.change, batch=self.recorder.take(self.clock(), ROW_BYTES), only=sender,
            waiting=None if busy else [k.__name__ for k in kinds],
            sent=sum(self.endpoint.sent.values()), received=sum(self.endpoint.received.values()),
        )  # fmt: skip

    def _count_repeated(self) -> None:
        repeated = sum(self.endpoint.repeated.values())
        self.counters.duplicates += repeated - self.repeated
        self.repeated = repeated

    def _farewell(self, command: dict[str, Any]) -> dict[str, Any]:
        """Close in order: say goodbye; when everybody has said so, read what is still under way; count it."""
        ended = self.frozen = self.clock()
        with contextlib.suppress(Exception):  # a role that goes on after it was told to end: nobody drives it any more
            self.coroutine.close()
        if not command.get("fenced"):
            self.keeper.finish(self.shard, ended)
        gone = set(command.get("lost", ()))
        for name in gone:
            self.endpoint.remove_peer(name)
        late = set()
        if command["do"] == "end":
            late = self.endpoint.finish_sending(GOODBYE_S)
            self.slot.report("ended")
            if self._all_have_ended():
                late |= self.endpoint.drain(set(self.ids) - gone, GOODBYE_S)
        elif command["do"] == "depart" and self.elastic:
            late = self.endpoint.finish_sending(GOODBYE_S)
            leave_in_hand(self.recorder, ended, self.ids[self.spec.name], len(self.ids), None)
        report = self._last_report(command, ended, late)
        if command["do"] == "depart":
            retired = bool(command.get("retired"))
            self.slot.report("departed", report={**report, "parameters": None}, retired=retired)
        return report

    @property
    def elastic(self) -> bool:
        """Whether the run goes on without this role if it leaves."""
        return self.plan.elastic is not None and self.spec.kind == "worker"

    def _last_report(self, command: dict[str, Any], ended: int, late: set[str]) -> dict[str, Any]:
        """All counts, and what was still under way."""
        shard = -1 if self.shard is None else self.shard.index
        in_flight = [
            [shard, self.ids[m.sender], m.incarnation, m.step, m.count]  # type: ignore[attr-defined]
            for m in self.inbox
            if m.carries
        ]
        shards = {s.name: -1 if s.shard is None else s.shard for s in self.plan.layout.roles}
        for to, step, count in self.endpoint.unsent_gradients():
            in_flight.append([shards[to], self.ids[self.spec.name], self.incarnation, step, count])
        self._count_repeated()
        for refusal in self.endpoint.refused:
            self.recorder.event(ConnectionRefused(ended, refusal))
        judge = self.judge
        return {
            "role": self.spec.name, "time": ended, "in_flight": in_flight,
            "batch": self.recorder.take(ended, LAST_BYTES), "late": sorted(late),
            "verdict": judge.verdict if judge else None,
            "update": judge.update if judge else None, "samples": judge.samples if judge else None,
            "loss": judge.loss if judge else None,
            "accuracy": judge.accuracy if judge else None, "held": judge.held if judge else None,
            "parameters": None if judge is None else _whole(judge.parameters), "incarnation": self.incarnation,
            "state": self.shard.to_state() if command["do"] == "regroup" and self.shard is not None else None,
        }  # fmt: skip

    def _all_have_ended(self) -> bool:
        """Read on until the client says that every role has said goodbye; False if nobody will say so any more."""
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            for command in self.slot.take():
                if command["do"] in ("drain", "leave"):
                    return bool(command["do"] == "drain")
            self.endpoint.poll(0.25)
        return False


def _whole(values: Any) -> Any:
    if isinstance(values, SparseParameters):
        return values
    return None if values is None or values.strides == (0,) else np.array(values)
