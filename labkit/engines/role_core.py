"""The part of a role instance that is the same on every engine: matching, incarnations, accounting and membership.

`RoleCore` has no clock, no network and no control flow. Each engine has a driver, a subclass that drives the coroutine, lets
time pass, and transports messages (`transmit`, `deliver`).

- **Matching.** A coroutine waits for certain kinds of message, possibly from one sender. It receives the first matching message
  in order of arrival; the other messages stay in the inbox. A role with tasks has several waits, possibly for a tag; a message
  belongs to the first wait that accepts it.
- **Incarnations.** When a peer is restarted, a role that receives `Joined` has to repeat what it sent to the lost instance.
  Until the role has received `Joined`, or a message of the new instance, its messages to this peer are addressed to the lost
  instance and are not delivered (`unacknowledged`). The reply to a message is sent to the instance that sent the message; if
  this instance is gone, the reply is lost.
- **Accounting.** Bytes are payload bytes. The sender counts them when it sends, even if the receiving instance is gone.
  Messages between two roles of which neither has begun to compute gradients are start-up traffic. Snapshots and requests for
  snapshots are evaluation traffic. All other messages are training traffic.
- **Membership.** A `KnownMembers`, which the engine updates, lists the roles that take part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..errors import RoleError, shown
from ..roles.effects import Posted, TaskWait
from ..roles.layout import RoleSpec
from ..roles.messages import Joined, Left, Message, SnapshotRequest, payload_bytes
from ..roles.part import Part
from ..roles.shard import Shard
from ..trace.recorder import COMMUNICATION, Recorder
from ..trace.schema import ALL, APPLY, COMPUTE, EVALUATE, EVALUATION, STARTUP, TRAINING, UNUSED, nanoseconds

if TYPE_CHECKING:
    from ..strategies import Strategy

SENT = Posted("send")
PHASE = {"gradient": COMPUTE, "server": APPLY, "measure": EVALUATE}  # of each kind of work


@dataclass
class KnownMembers:
    """The roles that take part in a run. `peers`: {kind or group: names of its members, in the order of the layout}.
    `incarnations`: {role: the newest incarnation}. `absent`: roles of which no instance is present.

    In virtual time all roles share one object, which the engine changes in place. On processes each role has a copy, which is
    updated by the client's broadcasts.
    """

    peers: dict[str, tuple[str, ...]]
    incarnations: dict[str, int]
    absent: set[str] = field(default_factory=set)

    def is_current(self, role: str, incarnation: int) -> bool:
        return role not in self.absent and self.incarnations[role] == incarnation


class GradientMessage(Protocol):
    """A message that carries gradients (`Message.carries`), numbered `step - count + 1` to `step` of its sender."""

    @property
    def step(self) -> int:
        """The number of the newest gradient."""

    @property
    def count(self) -> int: ...


def described(waits: Sequence[TaskWait]) -> tuple[tuple[str, ...], str | None]:
    """Return (names of all kinds of message that tasks of a role wait for, the senders if every wait names one)."""
    received = [wait for wait in waits if wait.kinds]
    kinds = tuple(dict.fromkeys(kind.__name__ for wait in received for kind in wait.kinds))
    senders = dict.fromkeys(wait.sender for wait in received)
    return kinds, None if None in senders else ", ".join(map(str, senders))


class Communication:
    """The block of `Context.communication` of a role."""

    __slots__ = ("_computed", "_entry", "_role")

    def __init__(self, role: RoleCore, number: int):
        if number.__class__ is not int or not 0 <= number <= 1 << 31:
            raise RoleError(
                f"ctx.communication({shown(number)}): give a whole number from 0 to 2**31, as that of a bucket."
            )
        self._role, self._entry = role, [number, 0]

    def __enter__(self) -> None:
        role, entry = self._role, self._entry
        entry[1] = now = role.clock()
        self._computed = role.computed_until(now)
        role.counters.communicating = role.counters.communicating + entry

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        role, (number, since) = self._role, self._entry
        flat = iter(role.counters.communicating)
        others = [pair for pair in zip(flat, flat) if pair != (number, since)]
        role.counters.communicating = [value for pair in others for value in pair]
        if kind is None:
            now = role.clock()
            role.recorder.communications += COMMUNICATION(number, since, now, role.computed_until(now) - self._computed)


class RoleCore(ABC):
    """One role instance.

    `ids`: {role: its number in the trace}. `kinds`: the kinds of message that may be sent. Other objects may read, but not
    change:

    - `inbox`: the messages that were not received by the coroutine yet;
    - `awaited_kinds`: the kinds of message for which the role waited last;
    - `unacknowledged`: the peers that were lost or restarted, and from whose present instance the role has no message yet;
    - `trained`: the peers whose present instance is known to have computed a gradient.
    """

    __slots__ = (
        "awaited_kinds",
        "counters",
        "ids",
        "inbox",
        "kinds",
        "members",
        "name",
        "recorder",
        "shard",
        "spec",
        "strategy",
        "trained",
        "unacknowledged",
    )  # fmt: skip

    def __init__(
        self, spec: RoleSpec, recorder: Recorder, ids: Mapping[str, int], kinds: frozenset[type], members: KnownMembers,
        strategy: Strategy,
    ):  # fmt: skip
        self.spec, self.name, self.strategy = spec, spec.name, strategy
        self.recorder, self.counters = recorder, recorder.counters
        self.ids, self.kinds, self.members = ids, kinds, members
        self.inbox: deque[Message] = deque()
        self.awaited_kinds: tuple[type, ...] = ()
        self.unacknowledged: set[str] = set()
        self.trained: set[str] = set()
        self.shard: Shard | None = None

    # implemented by drivers -------------------------------------------------------------------------------------------

    @abstractmethod
    def clock(self) -> int:
        """Engine time, ns."""

    @abstractmethod
    def transmit(self, to: str, message: Message, category: int, /) -> int:
        """Send `message` to role `to`, without blocking; returns its payload bytes. The receiver shares no memory with it."""

    @abstractmethod
    def deliver(self, message: Message) -> None:
        """Process a message that has arrived: pass it to the coroutine if the coroutine waits for it; otherwise put it into the
        inbox.
        """

    def has_computed(self, peer: str) -> bool:
        """Return whether the present instance of `peer`, which is not in `trained`, has computed a gradient. False if
        unknown.
        """
        return False

    # work -------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def computed_until(self, now: int) -> int:
        """Return how long (ns) the role has been in the phase `COMPUTE`, the work in progress included."""

    def kind_of_work(self, part: object) -> str:
        """Return the kind of work of the methods of `part`: "gradient", "server" or "measure", as declared by a `Part`. For
        other objects: "gradient" if the role computes gradients, else "server". Raises `RoleError` if a `Part` declares no
        valid kind.
        """
        usual = "gradient" if self.spec.computes else "server"
        work: object = getattr(part, "work", None) if isinstance(part, Part) else usual
        if isinstance(work, str) and work.__class__ is str and work in PHASE:
            return work
        allowed = ", ".join(map(repr, PHASE))
        raise RoleError(f"{type(part).__name__}.work is {shown(work)}; allowed: {allowed}.")

    # sending ----------------------------------------------------------------------------------------------------------

    def send(self, to: str | Message, message: Message) -> Posted:
        """Send `message` to role `to`, or to the instance that sent the message `to`. See `Context.send`.

        Raises `RoleError` if there is no such role, or if the strategy does not list this kind of message.
        """
        kind, asked = message.__class__, -1
        if to.__class__ is not str:
            to, asked = to.sender, to.incarnation  # type: ignore[union-attr]
        if to not in self.ids or kind not in self.kinds:
            raise self._send_error(to, message)  # type: ignore[arg-type]
        counters, category = self.counters, TRAINING
        if message.carries:
            if message.count == 1 and message.step == counters.released:  # type: ignore[attr-defined]
                counters.released += 1
            else:
                self._account_released(message)  # type: ignore[arg-type]
        elif kind is SnapshotRequest:
            category = EVALUATION
        elif to not in self.trained and not (counters.computed or counters.steps or counters.activations):
            if self.has_computed(to):  # type: ignore[arg-type]
                self.trained.add(to)  # type: ignore[arg-type]
            else:
                category = STARTUP
        if kind.reads:
            counters.reads[self.ids[to]] = message.version  # type: ignore[attr-defined, index]
        counters.messages += 1
        # A message to an instance that is lost, or a reply to a request of an earlier instance, counts as sent, and is lost.
        # Its sender repeats it once, after `Joined`. Without these two rules a server can answer a worker twice for one push.
        if (self.unacknowledged and to in self.unacknowledged) or (
            asked >= 0 and asked != self.members.incarnations[to]
        ):  # type: ignore[index]
            size = payload_bytes(message)
        else:
            size = self.transmit(to, message, category)  # type: ignore[arg-type]
        counters.bytes[category] += size
        return SENT

    def _account_released(self, message: GradientMessage) -> None:
        """Account for sent gradients up to `message.step`; those that were skipped are recorded as unused."""
        counters, recorder = self.counters, self.recorder
        first = message.step - message.count + 1
        if first > counters.released:
            skipped = first - counters.released
            recorder.drop(ALL, self.clock(), recorder.role, recorder.incarnation, first - 1, skipped, UNUSED)
        counters.released = max(counters.released, message.step + 1)

    def _send_error(self, to: str, message: object) -> RoleError:
        if to not in self.ids:
            there = ", ".join(list(self.ids)[:8])
            return RoleError(f"{self.name} sends to {to!r}; there is no such role in this run (there is {there}).")
        if hasattr(message, "send") or hasattr(message, "__await__"):
            return RoleError(f"{self.name} sends a {type(message).__name__}, not a message: is an `await` missing?")
        listed = ", ".join(k.__name__ for k in self.strategy.messages)
        return RoleError(
            f"{self.name} sends {type(message).__name__}, which {self.strategy.name} does not list: messages = ({listed})."
        )

    # receiving --------------------------------------------------------------------------------------------------------

    def take(self, kinds: tuple[type, ...], sender: str | None) -> Message | None:
        """Remove the first message of these kinds (from `sender`) from the inbox; None if there is none."""
        inbox = self.inbox
        for i, message in enumerate(inbox):
            if message.__class__ in kinds and (sender is None or message.sender == sender):
                if i:
                    del inbox[i]
                else:
                    inbox.popleft()
                if message.carries or self.unacknowledged:
                    self.received(message)
                return message
        return None

    def take_first(self, waits: Sequence[TaskWait]) -> TaskWait | None:
        """Remove the first message from the inbox that one of the `waits` accepts, and store it as the result of the first such
        wait, which is returned; None if there is none.
        """
        for i, message in enumerate(self.inbox):
            for wait in waits:
                if wait.accepts(message):
                    del self.inbox[i]
                    self.received(message)
                    wait.result = message
                    return wait
        return None

    def begin_waits(self, waits: Sequence[TaskWait], now: int) -> TaskWait | None:
        """Set the ends of the timeouts of `waits` that begin at `now` (ns), and `awaited_kinds`. Returns the wait whose timeout
        ends first; at the same time, sleeps end first.
        """
        for wait in waits:
            if wait.until < 0 and wait.timeout is not None:
                wait.until = now + max(0, nanoseconds(wait.timeout))
        self.awaited_kinds = tuple(dict.fromkeys(kind for wait in waits for kind in wait.kinds))
        limited = [wait for wait in waits if wait.until >= 0]
        return min(limited, key=lambda wait: (wait.until, bool(wait.kinds)), default=None)

    def received(self, message: Message) -> None:
        """Account for a message that is about to be passed to the coroutine."""
        if message.carries:
            instance = self.ids[message.sender] + message.incarnation * len(self.ids)
            self.counters.last_received[instance] = message.step  # type: ignore[attr-defined]
        if self.unacknowledged:
            name = message.name if message.__class__ is Joined else message.sender  # type: ignore[attr-defined]
            if name in self.unacknowledged and self.members.is_current(name, message.incarnation):
                self.unacknowledged.discard(name)

    # evaluation -------------------------------------------------------------------------------------------------------

    def snapshot_requested(self, request: SnapshotRequest) -> None:
        """Handle a snapshot request of the chief: send a snapshot of the shard now, or when it reaches a certain version."""
        assert self.shard is not None
        if self.shard.requested(request.at, request.final):
            self.send_snapshot(request.final)

    def send_snapshot(self, final: bool = False) -> None:
        """Send a snapshot of the shard to the chief. Nothing is sent while the chief is lost, because a restarted chief
        requests snapshots again.
        """
        if "chief" not in self.members.absent:
            assert self.shard is not None
            size = self.transmit("chief", self.shard.evaluation(final, self.clock()), EVALUATION)
            self.counters.bytes[EVALUATION] += size
            self.counters.messages += 1

    # membership -------------------------------------------------------------------------------------------------------

    def peer_joined(self, name: str) -> None:
        """Process a membership event: the newest instance of `name` takes part from now on."""
        self.trained.discard(name)
        if Joined in self.awaited_kinds:
            self._deliver_membership(Joined(name))
        else:  # nothing to repeat: messages are addressed to the new instance at once
            self.unacknowledged.discard(name)

    def peer_left(self, name: str) -> None:
        """Process a membership event: `name` no longer takes part, and the other roles continue."""
        if Left in self.awaited_kinds:
            self._deliver_membership(Left(name))

    def _deliver_membership(self, event: Left | Joined) -> None:
        """Deliver a membership event. An earlier event of the same member that is still in the inbox is removed."""
        for old in [m for m in self.inbox if isinstance(m, Left | Joined) and m.name == event.name]:
            self.inbox.remove(old)
        event.__dict__.update(sender=event.name, incarnation=self.members.incarnations[event.name])
        self.deliver(event)
