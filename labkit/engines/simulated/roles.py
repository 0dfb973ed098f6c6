"""A role in virtual time: its coroutine, its inbox, and what it is waiting for."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...roles.context import NOTED, SAVED, SENT, Context, stream
from ...roles.effects import Posted
from ...roles.layout import RoleSpec
from ...roles.messages import Look, Message, Weights, own_copy
from ...trace.recorder import Recorder
from ...trace.vocabulary import EVALUATION, STARTUP, TRAINING, seconds
from ..booking import hand_on, refused
from ..laws import Law, Sampler

__all__ = ["SimulatedContext", "SimulatedRole"]


class SimulatedRole:
    """Everything the clock needs to know about one role."""

    __slots__ = (
        "begin",
        "coroutine",
        "counters",
        "factor",
        "id",
        "inbox",
        "looks",
        "messages",
        "name",
        "node",
        "recorder",
        "resume",
        "samplers",
        "shard",
        "since",
        "spans",
        "spec",
        "state",
        "strategy",
        "token",
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
        self.factor = 1.0  # how many times slower than its law
        self.looks = (0, 0)  # (instant, how often it has looked for a message in it without waiting)
        self.samplers: dict[str, Sampler | None] = {}
        self.shard: Any = None
        self.state: dict[str, Any] | None = None
        self.begin: Any = None  # makes the coroutine
        self.coroutine: Any = None
        self.resume: Any = None  # coroutine.send

    def laws(self, seed: int, gradient: Law, server: Law | None) -> None:
        """The laws of this role's work, each with a stream of its own: server work shifts no gradient's draws."""
        kind, index = self.spec.kind, self.spec.index
        self.samplers = {
            "gradient": Sampler(gradient, stream(seed, kind, index, "time")),
            "server": Sampler(server, stream(seed, kind, index, "service")) if server else None,
            "measure": None,
        }


class SimulatedContext(Context):
    """The posts, performed in virtual time."""

    def __init__(self, engine: Any, role: SimulatedRole, peers: Mapping[str, tuple[str, ...]], seed: int, batches: Any):
        super().__init__(role.name, role.spec.kind, role.spec.index, seed, peers, batches)
        self._engine, self._role = engine, role
        self._allowed = engine.plan.message_set

    def send(self, to: str, message: Message) -> Posted:
        """Say `message` to role `to`."""
        role, engine = self._role, self._engine
        target = engine.by_name.get(to)
        if target is None or message.__class__ not in self._allowed:
            raise refused(role.name, to, message, engine.by_name, engine.plan.strategy)
        counters, category = role.counters, TRAINING
        if message.carries:
            hand_on(role.recorder, engine.now, message)
        elif message.__class__ is Look:
            category = EVALUATION
        elif not counters.computed and not target.counters.computed:
            category = STARTUP
        if message.__class__ is Weights:
            counters.reads[target.id] = message.version  # type: ignore[attr-defined]
        twin, size = own_copy(message, role.name)
        engine.post(role, target, twin, size, category)
        return SENT

    def note(self, text: str, **numbers: float) -> Posted:
        """Write a remark into the trace."""
        self._role.recorder.mark(self._engine.now, "note", text, numbers={k: float(v) for k, v in numbers.items()})
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Keep `state` for this role's next incarnation."""
        self._role.state = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
        return SAVED

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return seconds(self._engine.now)
