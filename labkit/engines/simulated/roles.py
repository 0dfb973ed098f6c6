"""A role in virtual time: its coroutine, its inbox, and what it is waiting for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from ...roles.context import NOTED, SAVED, SENT, Context, stream
from ...roles.effects import Posted
from ...roles.layout import RoleSpec
from ...roles.messages import Look, Message, own_copy
from ...trace.events import Note
from ...trace.recorder import Counters, Recorder
from ...trace.vocabulary import APPLY, EVALUATE, EVALUATION, STARTUP, TRAINING, seconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ..booking import hand_on, refused
from ..laws import Deterministic, Law, Sampler

__all__ = ["SimulatedContext", "SimulatedRole"]

# (draws how long it takes, None: no time; phase; whether it is an update, which ends a turn)
Job = tuple[Callable[[], int] | None, int, bool]


class SimulatedRole:
    """Everything the clock needs to know about one role."""

    __slots__ = (
        "begin",
        "coroutine",
        "counters",
        "down",
        "factor",
        "held",
        "holds",
        "id",
        "inbox",
        "jobs",
        "latest",
        "listens",
        "looks",
        "messages",
        "name",
        "node",
        "recorder",
        "resume",
        "returned",
        "shard",
        "since",
        "spans",
        "spec",
        "state",
        "strategy",
        "token",
        "touched",
        "unaware",
        "unless",
        "wait_sender",
        "waiting",
        "working",
    )

    def __init__(self, id: int, spec: RoleSpec, node: int, recorder: Recorder, strategy: Any):
        self.id, self.spec, self.name, self.node, self.recorder, self.strategy = (
            id,
            spec,
            spec.name,
            node,
            recorder,
            strategy,
        )
        self.counters = recorder.counters
        self.inbox: deque[Message] = deque()
        self.waiting: tuple[type, ...] | None = None  # kinds of message it waits for
        self.wait_sender: str | None = None
        self.since = 0  # when the wait, the work or the sleep began
        self.unless: Any = None  # the kind that makes it give up its work
        self.working: Any = None  # (fn, args) under way
        self.token = 0  # events that carry another number are void
        self.touched = True  # it may have rows or counts that the trace does not know
        self.factor = 1.0  # how many times slower than its law
        self.looks = (0, 0)  # (instant, how often it has looked for a message in it without waiting)
        self.jobs: dict[str, Job] = {}  # by kind of work
        self.latest: tuple[Any, Any] = (
            self,
            None,
        )  # whose work came last, and its job: most roles do one kind of work only
        self.shard: Any = None
        self.state: dict[str, Any] | None = None
        self.begin: Any = None  # makes the coroutine
        self.coroutine: Any = None
        self.resume: Any = None  # coroutine.send
        self.down = ""  # why it is away; "": it is here
        self.returned = False  # its coroutine has come to its end
        self.holds = 0  # how many reasons there are for it to stand still
        self.held: Any = None  # what it was about to do then
        self.listens: tuple[type, ...] = ()  # kinds of message that it waited for last
        self.unaware: set[str] = (
            set()
        )  # roles that are away, or whose next incarnation it has not heard of: it talks to nobody

    def laws(self, seed: int, gradient: Law, server: Law | None, evaluation: Law) -> None:
        """The laws of this role's work, each with a stream of its own: server work shifts no gradient's draws."""
        kind, index = self.spec.kind, self.spec.index

        def draw(law: Law, purpose: str) -> Callable[[], int]:
            luck = None if isinstance(law, Deterministic) else stream(seed, kind, index, purpose)
            return Sampler(law, luck).next

        self.jobs = {
            "gradient": (draw(gradient, "time"), COMPUTING, False),
            "server": (draw(server, "service") if server else None, APPLY, True),
            "measure": (draw(evaluation, "time"), EVALUATE, False),
        }

    def job_of(self, fn: Any) -> Job:
        """What kind of work `fn` is: the object whose method it is says so, or else the role's kind."""
        part = getattr(fn, "__self__", None)
        job = self.jobs[getattr(part, "work", "gradient" if self.spec.computes else "server")]
        if part is not None:
            self.latest = part, job
        return job

    def report(self, now: int) -> dict[str, Any]:
        """A batch for the trace: what has happened since the last one. Counters are copied: whoever looks at the trace
        may be another thread, and the role goes on meanwhile."""
        self.touched = False
        self.counters.open = [] if self.working is None else [self.working[2], self.since]
        return self.recorder.take(now, plain=False) | {"counters": _copied(self.counters)}


def _copied(counters: Counters) -> Counters:
    made = Counters.__new__(Counters)
    for name, value in zip(_COUNTED, _COUNTS(counters)):
        setattr(made, name, value)
    for name in _COLLECTED:
        setattr(made, name, getattr(made, name).copy())
    return made


# Which of the counters are numbers and which collections does not change, and copying is done often.
_COUNTED = Counters.__slots__
_COUNTS = attrgetter(*_COUNTED)
_COLLECTED = tuple(name for name in _COUNTED if isinstance(getattr(Counters(), name), dict | list))


class SimulatedContext(Context):
    """The posts, performed in virtual time."""

    def __init__(self, engine: Any, role: SimulatedRole, peers: Mapping[str, tuple[str, ...]], seed: int, batches: Any):
        super().__init__(role.name, role.spec.kind, role.spec.index, seed, peers, batches)
        self._engine, self._role = engine, role
        self._roles, self._allowed, self._post = engine.by_name, engine.plan.message_set, engine.post

    def send(self, to: str | Message, message: Message) -> Posted:
        """Say `message` to role `to`, or to the sender of that message."""
        role, kind, asked = self._role, message.__class__, -1
        if to.__class__ is not str:
            to, asked = to.sender, to.incarnation  # type: ignore[union-attr]
        target = self._roles.get(to)  # type: ignore[arg-type]
        if target is None or kind not in self._allowed:
            raise refused(role.name, to, message, self._roles, self._engine.plan.strategy)
        counters, category = role.counters, TRAINING
        if message.carries:
            if message.count == 1 and message.step == counters.handed:  # type: ignore[attr-defined]
                counters.handed += 1
            else:
                hand_on(role.recorder, self._engine.now, message)
        elif kind is Look:
            category = EVALUATION
        elif not (counters.computed or target.counters.computed or counters.steps or target.counters.steps):
            category = STARTUP
        if kind.reads:
            counters.reads[target.id] = message.version  # type: ignore[attr-defined]
        have = message.__dict__
        size, incarnation = have.get("weightless"), role.recorder.incarnation
        if size is None or incarnation or have.setdefault("sender", role.name) != role.name:
            message, size = own_copy(message, role.name, incarnation)
        if (role.unaware and to in role.unaware) or (asked >= 0 and asked != target.recorder.incarnation):
            counters.bytes[category] += size  # said to somebody who is not there any more
            counters.messages += 1
            return SENT
        self._post(role, target, message, size, category)
        return SENT

    def note(self, text: str, **numbers: float) -> Posted:
        """Write a remark into the trace."""
        self._role.recorder.event(Note(self._engine.now, text, {k: float(v) for k, v in numbers.items()}))
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Keep `state` for this role's next incarnation."""
        self._role.state = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
        return SAVED

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return seconds(self._engine.now)
