"""Commands to a run, as values. Each command is a class with a text form and a dict form.

    lk.Kill("worker-1", at=2.0)                             kill:worker-1@2
    lk.Kill("worker-1", at=2.0, restart=False)              kill:worker-1:for-good@2
    lk.Slow("worker-2", 5, during=(2, 4))                   slow:worker-2:5@2-4
    lk.Drop("worker", "server", 0.05)                       drop:worker:server:0.05
    lk.Limit("worker-1", "10MB/s")                          limit:worker-1:10MB/s
    Restart("worker-1", at=8.0)                             restart:worker-1@8
    Cut("worker-0", "server-0", at=3.0)                     cut:worker-0:server-0@3
    SetOptions({"learning_rate": 0.2}, at=7.25)             set:learning_rate:0.2@7.25

Fault schedules (`faults.py`), the methods of `Run`, the buttons of the lab, the command log of a run and its saved files use
these values. A text is `word:part:part@start-stop`. The stop is omitted if there is none, and the start if it is 0. A log entry
of a run in virtual time also has the turn of the event loop: `slow:worker-2:5@5#731`.

A command is primitive if it concerns one role or one link. Engines execute only primitive commands; `commands(plan)` expands all
other commands into primitive commands. A temporary fault, one with a stop, is followed by an `End`, which restores what was there
before (`active_faults.py`). Values are checked on construction. `check(roles)` raises `BadInput` for roles that a run does not
have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from ..errors import BadInput, nearest, shown
from ..options import Converted, HasOptions, option
from ..trace.schema import nanoseconds
from .plan import Plan, find_role

RESEND_S = 0.05  # retransmission timeout, seconds, of a lost or unacknowledged transmission (see `Drop`)

Who = str | tuple[str, ...]
During = tuple[float, float | None] | None

EVERY = "*"
FOR_GOOD = "for-good"
NONE = "none"  # of a part that is None
LATEST = 1e10  # engine seconds; virtual time ends earlier
NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
TIMES = re.compile(rf"({NUMBER})(?:-({NUMBER})?)?")


def at_option() -> float:
    """Declare the field `at` of a command: the time, in engine seconds, at which it is executed."""
    return option(0.0, low=0.0, high=LATEST, help="when it is executed, in engine seconds")


def until_option() -> float | None:
    """Declare the field `until` of a command: the time, in engine seconds, at which it ends; None: never."""
    return option(None, low=0.0, high=LATEST, help="when it ends, in engine seconds; None: never")


class Command(HasOptions):
    """The base class of all commands, and of the faults that expand into commands.

    Attributes
    ----------
    at : float
        The time, in engine seconds, at which the command is executed.
    word : str
        The first word of its text.
    parts : tuple of str
        The fields that follow it in the text, separated by colons.
    example : str
        An example text.
    """

    word: ClassVar[str] = ""
    parts: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""
    at: float

    def commands(self, plan: Plan) -> list[Command]:
        """Return the primitive commands into which this command expands.

        Parameters
        ----------
        plan : Plan
            The plan of the run, which has the roles.

        Returns
        -------
        list of Command
            The commands, in order of time.

        Raises
        ------
        BadInput
            If a role does not exist.
        """
        self.check(plan.role_ids)
        return [self]

    def check(self, roles: Mapping[str, Any]) -> None:
        """Check that this command is primitive, and that the roles that it names exist.

        Parameters
        ----------
        roles : mapping
            The roles of the run, by name.

        Raises
        ------
        BadInput
            If this is not so.
        """
        role, peer = getattr(self, "role", None), getattr(self, "peer", None)
        for name in (role, peer):
            if name is not None:
                find_role(name, roles)
        if role is not None and role == peer:
            raise BadInput(f"{self.word}({shown(role)}, peer={shown(peer)}): nothing lies between a role and itself.")

    def later(self, seconds: float) -> Self:
        """Return a copy whose times are later.

        Parameters
        ----------
        seconds : float
            The time that is added.

        Returns
        -------
        Command
            The copy.
        """
        return self.changed(at=seconds + self.at)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values.

        Parameters
        ----------
        **values : object
            New values of fields. They are not checked: the caller guarantees that they are allowed.

        Returns
        -------
        Command
            The copy.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **values)
        return made

    # text -------------------------------------------------------------------------------------------------------------

    def text(self, timed: bool = False) -> str:
        """Return the text form, as in `--fault` of the command line.

        Parameters
        ----------
        timed : bool, default: False
            Whether a start at 0 is written, too.

        Returns
        -------
        str
            The text, from which an equal command is read.
        """
        until = getattr(self, "until", None)
        when = f"@{_number(self.at)}" if timed or self.at or until is not None else ""
        return ":".join([self.word, *self._words()]) + when + ("" if until is None else f"-{_number(until)}")

    def _words(self) -> list[str]:
        return [_word(getattr(self, part)) for part in self.parts]

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        """Return the values of the fields, parsed from the words of a text; None if the words do not describe this command."""
        if len(words) != len(cls.parts):
            return None
        kinds = {f.name: f.type for f in fields(cls)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for part, word in zip(cls.parts, words):
            if kinds[part] == "float":
                if not _is_number(word):
                    return None
                values[part] = float(word)
            elif kinds[part] == "Who":
                values[part] = tuple(word.split(","))
            else:
                values[part] = None if word == NONE else word
        return values

    # dict -------------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the dict form.

        Returns
        -------
        dict
            {"command": its word, its fields ...}, from which an equal command is made.
        """
        names = [f.name for f in fields(self) if f.name != "during"]  # type: ignore[arg-type]
        return {"command": self.word} | {name: _plain(getattr(self, name)) for name in names}

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        return cls(**values)


class Lasting(Command):
    """A command whose effect may end, at `until`. `during=(start, stop)` is equivalent to `at=start, until=stop`."""

    until: float | None
    during: During

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.during is not None:
            if self.at or self.until is not None:
                raise BadInput(
                    f"{name}: during={shown(self.during)} and at= or until= say one thing twice; give one of them."
                )
            if not isinstance(self.during, (tuple, list)) or len(self.during) != 2:
                raise BadInput(f"{name}: during={shown(self.during)} is not allowed; give (start, stop) in seconds.")
            for field_, value in zip(("at", "until"), self.during):
                object.__setattr__(self, field_, value)
            object.__setattr__(self, "during", None)  # one canonical form, for comparison
        super().__post_init__()
        if self.until is not None and self.until <= self.at:
            raise BadInput(f"{name}(at={self.at:g}, until={self.until:g}): it has to end after it has begun.")

    def commands(self, plan: Plan) -> list[Command]:
        begin = self._begin(plan)
        return [*begin, *(End(command, self.until) for command in begin if self.until is not None)]

    def _begin(self, plan: Plan) -> Sequence[Lasting]:
        self.check(plan.role_ids)
        return [self]

    def later(self, seconds: float) -> Self:
        return self.changed(at=seconds + self.at, until=None if self.until is None else seconds + self.until)


class OnLinks(Lasting):
    """A command that affects the links between roles, in both directions.

    Attributes
    ----------
    a, b : str or tuple of str
        The name of a role, a kind of role ("worker": all workers), a tuple of these, or "*" (every other role).
    """

    a: Who
    b: Who

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            object.__setattr__(self, name, check_who(type(self).__name__, name, getattr(self, name)))
        super().__post_init__()

    @property
    def role(self) -> str:
        """The role whose links a primitive command affects."""
        return _word(self.a)

    @property
    def peer(self) -> str | None:
        """The role at the other end of a primitive command's link; None: every other role."""
        return None if self.b == EVERY else _word(self.b)

    def _begin(self, plan: Plan) -> Sequence[Lasting]:
        return [self.changed(a=role, b=peer) for role, peer in self._ends(plan)]

    def _ends(self, plan: Plan) -> list[tuple[str, str]]:
        """Return (role, peer) of each link, without repetition; peer "*": every other role."""
        if EVERY in (self.a, self.b):
            near = self.b if self.a == EVERY else self.a
            return [(role, EVERY) for role in named(near, plan)]
        pairs: dict[frozenset[str], tuple[str, str]] = {}
        far = named(self.b, plan)
        for role in named(self.a, plan):
            for peer in far:
                if role != peer:
                    pairs.setdefault(frozenset((role, peer)), (role, peer))
        if not pairs:
            raise BadInput(f"{self!r}: nothing lies between a role and itself; name two.")
        return list(pairs.values())

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        if len(words) == len(cls.parts) - 1:
            words = [words[0], EVERY, *words[1:]]
        return super()._read(words)


# roles ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnRole(Command):
    role: str = option("worker-0", help="the role")
    at: float = at_option()

    parts = ("role",)


@dataclass(frozen=True)
class Kill(OnRole):
    """Fault: kills the process of a role, without notice.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4)
    >>> fault = lk.Kill("worker-1", at=1.0)
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(seconds=3), faults=fault).wait()
    >>> print(run.log)
    0.03 s ...
    1.00 s w1 was killed...
    """

    restart: bool = option(
        True, help="whether the role is restarted automatically; otherwise it stays away until `Run.restart`"
    )

    word, example = "kill", "kill:worker-1@2.0"

    def _words(self) -> list[str]:
        return [self.role] if self.restart else [self.role, FOR_GOOD]

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        stays = len(words) == 2 and words[1] == FOR_GOOD
        values = super()._read(words[:1] if stays else words)
        return None if values is None else values | {"restart": not stays}


@dataclass(frozen=True)
class Restart(OnRole):
    """Starts the next incarnation of a lost role."""

    word, example = "restart", "restart:worker-1@8"


@dataclass(frozen=True)
class Freeze(Lasting):
    """Fault: suspends the process of a role.

    If it is suspended for longer than the cluster's `heartbeat_timeout`, the role is declared lost.

    Parameters
    ----------
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.freeze : Suspend a role now.

    Examples
    --------
    >>> freeze = lk.Freeze("worker-1", during=(1, 3))
    >>> freeze.at, freeze.until, freeze.text()
    (1.0, 3.0, 'freeze:worker-1@1-3')
    """

    role: str = option("worker-0", help="the role")
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "freeze", ("role",), "freeze:worker-1@1-3"


@dataclass(frozen=True)
class Thaw(OnRole):
    """Resumes a frozen process."""

    word, example = "thaw", "thaw:worker-1@3"


@dataclass(frozen=True)
class Slow(Lasting):
    """Fault: makes a role compute slower.

    The factor multiplies that of the cluster (`slow=`) and, during a temporary fault, those of all other faults that act.

    Parameters
    ----------
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.slow : Slow a role now.

    Examples
    --------
    All workers wait for the slowest one. A step takes 10 ms, and 50 ms while it is slowed:

    >>> slow = lk.Slow("worker-2", 5, during=(1, 2))
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=3)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, budget, faults=slow)
    >>> [run.advance(1.0).summary()["updates"] for _ in range(3)]
    [100, 120, 220]
    """

    role: str = option("worker-0", help="the role")
    factor: float = option(2.0, low=0.001, high=1000.0, help="how many times slower than normal it computes")
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "slow", ("role", "factor"), "slow:worker-2:5@2.0-4.0"


@dataclass(frozen=True)
class Limit(Lasting):
    """Fault: limits the bandwidth of the nodes of roles.

    The node sends its messages one after the other, in the order of sending, and receives them one after the other, each for
    bytes / bandwidth seconds, and latencies are added. If both ends of a link are limited, or the cluster has a `bandwidth`, too,
    the slower one counts. A message that is on its way when the limit changes keeps its time, also if that is long. Links within
    a node, and the messages of the evaluation, are not limited.

    Parameters
    ----------
    roles : str or tuple of str
        The name of a role, a kind of role ("worker": all workers), a tuple of these, or "*", every role.
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.limit : Limit the bandwidth of a role from now on.

    Examples
    --------
    All workers of a ring wait for the slowest link. A step computes for 10 ms, and each worker sends and receives 58 kB:

    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=1)
    >>> for fault in (), lk.Limit("worker-1", "10MB/s"), lk.Limit("worker-1", "1MB/s"):
    ...     run = lk.train("digits", lk.RingAllReduce(), cluster, budget, faults=fault).wait()
    ...     print(run.summary()["updates"])
    100
    67
    17
    """

    roles: Who
    bandwidth: Converted[float | None, str] = option(
        10e6, low=1e3, high=math.inf, unit="bytes/s",
        help='what a node can send, and receive: a number, or a text, as "10MB/s"; None: unlimited',
    )  # fmt: skip
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "limit", ("roles", "bandwidth"), "limit:worker-1:10MB/s@2-4"

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", check_who("Limit", "roles", self.roles))
        super().__post_init__()
        if self.bandwidth is not None and math.isinf(self.bandwidth):
            object.__setattr__(self, "bandwidth", None)  # one canonical form

    @property
    def role(self) -> str:
        """The role that a primitive command affects."""
        return _word(self.roles)

    def _begin(self, plan: Plan) -> Sequence[Lasting]:
        return [self.changed(roles=role) for role in named(self.roles, plan)]


# links ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delay(OnLinks):
    """Fault: delays the messages between roles.

    Parameters
    ----------
    a : str or tuple of str
        One end of the links: the name of a role, a kind of role ("worker": all workers), a tuple of these, or "*", every role
        that is not at the other end.
    b : str or tuple of str, default: '*'
        The other end, in the same way.
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.delay : Delay messages from now on.

    Examples
    --------
    >>> lk.Delay("worker", "server", 0.1, during=(2, 4)).text()
    'delay:worker:server:0.1@2-4'
    """

    a: Who
    b: Who = EVERY
    seconds: float = option(0.1, low=0.0, high=1e6, help="the delay of each message, in seconds")
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "delay", ("a", "b", "seconds"), "delay:worker-1:server-0:0.1@2-4"


@dataclass(frozen=True)
class Drop(OnLinks):
    """Fault: loses messages between roles at random.

    Every transmission and every acknowledgement can be lost. A transmission is repeated every 0.05 s until it is acknowledged, so
    messages arrive late, but they do arrive.

    Parameters
    ----------
    a : str or tuple of str
        One end of the links: the name of a role, a kind of role ("worker": all workers), a tuple of these, or "*", every role
        that is not at the other end.
    b : str or tuple of str, default: '*'
        The other end, in the same way.
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.drop : Lose messages from now on.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=1)
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, budget)
    >>> lossy = run.fork().inject(lk.Drop("worker", "server", 0.2))
    >>> run.wait().summary()["updates"], lossy.wait().summary()["updates"]
    (400, 119)
    """

    a: Who
    b: Who = EVERY
    # a higher loss rate would hardly differ from a cut
    chance: float = option(0.1, low=0.0, high=0.95, help="the probability that a transmission is lost")
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "drop", ("a", "b", "chance"), "drop:worker:server:0.05"


class OnLink(Command):
    """A command that affects the link between two roles, or all links of one role (`peer` None)."""

    role: str
    peer: str | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.peer, str | None):
            raise BadInput(
                f"{self.word}: peer={shown(self.peer)} is not allowed; give a role ('worker-1'), or None: every other role."
            )

    def _words(self) -> list[str]:
        return [self.role] if self.peer is None else [self.role, self.peer]

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        return {"role": words[0], "peer": None} if len(words) == 1 else super()._read(words)


@dataclass(frozen=True)
class Cut(OnLink, Lasting):
    """Cuts the link between `role` and `peer`; `peer=None`: its links to all other roles and to the client."""

    role: str = option("worker-0")
    peer: str | None = None
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "cut", ("role", "peer"), "cut:worker-1:server-0@3"


@dataclass(frozen=True)
class Reconnect(OnLink):
    """Undoes `Cut` and delivers the messages that were held. `peer=None`: on all links of `role`."""

    role: str = option("worker-0")
    peer: str | None = None
    at: float = at_option()

    word, parts, example = "reconnect", ("role", "peer"), "reconnect:worker-1:server-0@4"


# the end of a temporary fault -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End(Command):
    """Ends a temporary fault: what was there before is restored. `fault`: the primitive command that began it, with `at=0`."""

    fault: Lasting = Freeze(until=1.0)
    at: float = at_option()

    word, parts, example = "end", ("fault",), "end:slow:worker-2:5:4@4"

    @property
    def role(self) -> str:
        """The role that the fault affects."""
        return self.fault.role  # type: ignore[attr-defined, no-any-return]

    @property
    def peer(self) -> str | None:
        """The role at the other end of the link; None: every other role, or the fault does not affect a link."""
        return getattr(self.fault, "peer", None)

    def __post_init__(self) -> None:
        if not isinstance(self.fault, Slow | Freeze | Limit | Delay | Drop | Cut) or self.fault.until is None:
            raise BadInput(f"end: {shown(self.fault)} has no end; give for example lk.Slow('worker-1', 5, until=4.0).")
        object.__setattr__(self, "fault", self.fault.changed(at=0.0))
        super().__post_init__()

    def later(self, seconds: float) -> Self:
        return self.changed(at=seconds + self.at, fault=self.fault.later(seconds).changed(at=0.0))

    def _words(self) -> list[str]:
        return [self.fault.word, *self.fault._words(), _word(self.fault.until)]

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        kind, until = COMMANDS.get(words[0]), words[-1]
        values = kind._read(words[1:-1]) if kind is not None and issubclass(kind, Lasting) and len(words) > 2 else None
        if kind is None or values is None or not _is_number(until):
            return None
        return {"fault": kind(**values, until=float(until))}  # type: ignore[call-arg]

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        return cls(**(values | {"fault": from_dict(values.get("fault"))}))


# the run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Join(OnRole):
    """Adds a worker to an elastic run; it takes part once it has started."""

    word, example = "join", "join:worker-3@5"


@dataclass(frozen=True)
class Leave(OnRole):
    """Removes a worker from an elastic run: its work in progress is dropped, the messages that it has sent are delivered."""

    word, example = "leave", "leave:worker-3@6"


@dataclass(frozen=True)
class SetOptions(Command):
    """Changes live options of the strategy, {name: value}, in all roles."""

    options: dict[str, Any] = field(default_factory=dict)
    at: float = at_option()

    word, parts, example = "set", ("options",), "set:learning_rate:0.05@8"

    def __post_init__(self) -> None:
        if not isinstance(self.options, Mapping) or not all(isinstance(n, str) and n for n in self.options):
            raise BadInput(f"set: {shown(self.options)} is not allowed; give {{'learning_rate': 0.05}}, for example.")
        object.__setattr__(self, "options", dict(self.options))
        super().__post_init__()

    def _words(self) -> list[str]:
        return [word for name, value in self.options.items() for word in (name, str(value))]

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        values = {name: value_of_text(text) for name, text in zip(words[::2], words[1::2])}
        return {"options": values} if 2 * len(values) == len(words) else None


@dataclass(frozen=True)
class Pause(Command):
    """Suspends all roles, each at its next effect. Engine time stops."""

    at: float = at_option()

    word, example = "pause", "pause@5"


@dataclass(frozen=True)
class Resume(Command):
    """Continues a paused run. Engine time stops in a pause, so the times of a scheduled `Resume` or `Stop` after a scheduled
    pause are counted in wall time.
    """

    at: float = at_option()

    word, example = "resume", "resume@6"


@dataclass(frozen=True)
class Stop(Command):
    """Stops the run, with a final evaluation. `reason`: the value of its `stopped_by`."""

    reason: str = option("user")
    at: float = at_option()

    word, parts, example = "stop", ("reason",), "stop:user@9"


@dataclass(frozen=True)
class Inject(Command):
    """Schedules primitive commands, each at its time (engine seconds). It has no text form."""

    scheduled: tuple[Command, ...] = ()
    at: float = at_option()

    word = "inject"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scheduled", tuple(self.scheduled))
        if not all(isinstance(command, Command) and not isinstance(command, Inject) for command in self.scheduled):
            raise BadInput(
                f"inject: {shown(self.scheduled)} is not allowed; give commands, as (lk.Kill('worker-1', at=2.0),)."
            )
        super().__post_init__()

    def check(self, roles: Mapping[str, Any]) -> None:
        """Raise `BadInput` unless these commands are primitive, all roles that they name are in `roles`, and faults end."""
        for command in self.scheduled:
            command.check(roles)
            check_has_end(command, self.scheduled)

    def text(self, timed: bool = False) -> str:
        """Raise `BadInput`, because this command has no text form."""
        raise BadInput("Faults were injected into this run by a program: what was done to it has no short text.")

    @classmethod
    def _read(cls, words: list[str]) -> dict[str, Any] | None:
        return None

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        return cls(**(values | {"scheduled": tuple(from_dict(plain) for plain in values.get("scheduled", ()))}))


COMMANDS: dict[str, type[Command]] = {
    kind.word: kind
    for kind in (
        Slow, Kill, Restart, Freeze, Thaw, Limit, Delay, Drop, Cut, Reconnect, End, Join, Leave, SetOptions, Pause, Resume, Stop,
        Inject,
    )
}  # fmt: skip


def check_supported(command: Any, supported: frozenset[type[Command]]) -> None:
    """Raise `BadInput` unless `command` is an instance of one of the supported classes."""
    if not isinstance(command, Command):
        raise BadInput(f"{shown(command)} is not a command; give for example lk.Kill('worker-1').")
    if type(command) not in supported:
        words = ", ".join(word for word, kind in COMMANDS.items() if kind in supported)
        raise BadInput(f"{command.word}: the engine of this run cannot do that; it can {words}. The run goes on.")


def check_has_end(command: Command, ends: Iterable[Command] = ()) -> None:
    """Raise `BadInput` if `command` begins a temporary fault whose `End` is not among `ends`."""
    if isinstance(command, Lasting) and command.until is not None and End(command, command.until) not in ends:
        raise BadInput(
            f"{command.text()} is two commands, one at its start and one at its end: inject it into the run."
        )


# names of roles -------------------------------------------------------------------------------------------------------


def check_who(owner: str, name: str, who: Any) -> Who:
    """Return one name as a string, or several names as a tuple. Raises `BadInput` if `who` is anything else."""
    several = tuple(who) if isinstance(who, (tuple, list)) else (who,)
    if (
        not several
        or not all(isinstance(one, str) and one for one in several)
        or (len(several) > 1 and EVERY in several)
    ):
        raise BadInput(
            f"{owner}: {name}={shown(who)} is not allowed; give a role ('worker-1'), a kind ('worker'), a tuple of them, or '*'."
        )
    return several[0] if len(several) == 1 else several


def named(who: Who, plan: Plan) -> tuple[str, ...]:
    """Return the roles that `who` refers to, without repetition; "*": all roles. Raises `BadInput`, with the most similar
    name, if a name is unknown.
    """
    if who == EVERY:
        return tuple(plan.role_ids)
    kinds: dict[str, list[str]] = {}
    for role in plan.layout.roles:
        kinds.setdefault(role.kind, []).append(role.name)
    meant: dict[str, None] = {}
    for one in (who,) if isinstance(who, str) else who:
        if one not in plan.role_ids and one not in kinds:
            raise nearest("role", one, {*plan.role_ids, *kinds})
        meant |= dict.fromkeys([one] if one in plan.role_ids else kinds[one])
    return tuple(meant)


# text -----------------------------------------------------------------------------------------------------------------


def parse_command(text: str, kinds: Mapping[str, type[Command]] = COMMANDS, what: str = "command") -> Command:
    """Convert the text form of a command: `slow:worker-2:5@2-4` is `Slow("worker-2", 5, at=2, until=4)`.

    "worker-0,worker-1" means two roles, "*" means every other role, and `kill:worker-1:for-good@2` is a loss without a restart.
    `kinds`: {word: class} of the allowed commands; `what`: their name in errors. Raises `BadInput`, with an example, if the
    text is not a command.
    """
    head, at, when = text.strip().partition("@")
    word = head.split(":")[0].strip()
    if word not in kinds:
        examples = ", ".join(kind.example for kind in kinds.values() if kind.example)
        raise BadInput(f"{nearest(what, word, kinds)} They are written as {examples}.")
    if at and not when.strip():
        raise BadInput(f"{shown(text)}: give a time after the @, as in {kinds[word].example!r}.")
    command = _parsed(text, kinds)
    if command is None:
        raise BadInput(f"{shown(text)} is not a {what} as {kinds[word].example!r}.")
    return command


def _parsed(text: str, kinds: Mapping[str, type[Command]]) -> Command | None:
    """Return the command of a text; None if the text does not describe a command. Raises `BadInput` if a value is not
    allowed.
    """
    head, _, when = text.strip().partition("@")
    word, *words = (part.strip() for part in head.split(":"))
    kind = kinds.get(word)
    times = TIMES.fullmatch(when.strip()) if when else None
    values = kind._read(words) if kind is not None and all(words) else None
    if kind is None or values is None or (when and times is None):
        return None
    if times is not None:
        values["at"] = float(times[1])
        if times[2] is not None:
            if not issubclass(kind, Lasting):
                return None
            values["until"] = float(times[2])
    return kind(**values)


def value_of_text(text: str) -> Any:
    """Parse a bool, int or float. Other text is returned unchanged; it is rejected later if a number is needed."""
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    kinds: tuple[Callable[[str], Any], ...] = (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _word(value: Any) -> str:
    """Return one part of a text; several names are separated by commas."""
    if isinstance(value, float):
        return _number(value)
    if value is None:
        return NONE
    return ",".join(value) if isinstance(value, tuple) else str(value)


# dicts ----------------------------------------------------------------------------------------------------------------


def from_dict(plain: Any, kinds: Mapping[str, type[Command]] = COMMANDS) -> Command:
    """Return the command that `Command.to_dict` has encoded. Raises `BadInput` if it is not one of `kinds` ({word: class})."""
    word = plain.get("command") if isinstance(plain, Mapping) else None
    kind = kinds.get(word) if isinstance(word, str) else None
    if kind is None:
        raise BadInput(f"{shown(plain)} is not a command; allowed: {', '.join(kinds)}.")
    values = {name: value for name, value in plain.items() if name != "command"}
    unknown = values.keys() - {f.name for f in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise BadInput(f"{shown(plain)} is not a command: {word} has no {shown(min(map(str, unknown)))}.")
    try:
        return kind._made(values)
    except TypeError as error:
        raise BadInput(f"{shown(plain)} is not a command: {error}.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.to_dict() if isinstance(value, Command) else value


# logs -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Executed:
    """An entry of a run's command log: a primitive command whose `at` is the time (engine seconds) of its execution.

    `turn`: in virtual time, the turn of the event loop before which it was executed. If such an entry is among the faults or
    commands of another run, that run executes the command before the same turn.
    """

    command: Command
    turn: int | None = None

    @property
    def at(self) -> float:
        """The time of execution, in engine seconds."""
        return self.command.at

    def commands(self, plan: Plan) -> list[Executed]:
        """Return the primitive commands into which this command expands, in order of time."""
        self.command.check(plan.role_ids)
        return [self]

    def text(self) -> str:
        """Always with the time; the inverse is `parse_log`."""
        return self.command.text(timed=True) + ("" if self.turn is None else f"#{self.turn}")

    def to_dict(self) -> dict[str, Any]:
        """The inverse is `read_entry`."""
        return {**self.command.to_dict(), "turn": self.turn}


NOT_REPEATED = (Pause, Resume, Stop)  # not part of a repetition of a run
REPEATED = {word: kind for word, kind in COMMANDS.items() if kind not in NOT_REPEATED and kind is not Inject}


def log_text(log: Iterable[Executed]) -> str:
    """Return a command log as a short text: `slow:worker-2:5@5#731,kill:worker-1:for-good@6.5#902`.

    Raises `BadInput` if the log of a run in virtual time contains an `Inject`, which has no text. (The log of a run in real
    time contains the injected commands that were executed.)
    """
    entries = [entry for entry in log if not isinstance(entry.command, NOT_REPEATED)]
    return ",".join(e.text() for e in entries if e.turn is not None or not isinstance(e.command, Inject))


def parse_log(text: str) -> tuple[Command | Executed, ...]:
    """Return the entries of a text made by `log_text`: log entries if they have a turn, otherwise commands."""
    return tuple(_parsed_entry(part) for part in filter(None, text.split(",")))


def _parsed_entry(text: str) -> Command | Executed:
    head, mark, turn = text.partition("#")
    command = _parsed(head, REPEATED) if "@" in head else None
    if command is None or (mark and not turn.isdecimal()):
        raise BadInput(f"{text!r} is not something that is done to a run; one reads slow:worker-2:5@5.0.")
    return Executed(command, int(turn)) if mark else command


def read_entry(plain: Any, kinds: Mapping[str, type[Command]] = COMMANDS) -> Command | Executed:
    """Return the command or log entry that `to_dict` has encoded. Raises `BadInput` if it is anything else. `kinds`: {word:
    class} of the allowed commands.
    """
    if not isinstance(plain, Mapping) or "turn" not in plain:
        return from_dict(plain, kinds)
    command, turn = from_dict({name: value for name, value in plain.items() if name != "turn"}, kinds), plain["turn"]
    if isinstance(turn, bool) or not isinstance(turn, int | None):
        raise BadInput(f"{shown(plain)} is not an entry of a log: turn is a whole number, or None.")
    return Executed(command, turn)


def not_executed(planned: Iterable[Command | Executed], log: Iterable[Executed]) -> list[Command | Executed]:
    """Return the planned commands that are not in `log`. Each log entry accounts for at most one planned command."""
    happened = [_identity(entry) for entry in log]
    left = []
    for entry in planned:
        if _identity(entry) in happened:
            happened.remove(_identity(entry))
        else:
            left.append(entry)
    return left


def _identity(entry: Command | Executed) -> tuple[int, Command]:
    """Return (the time of execution in whole ns, the command without its time), for comparison."""
    command = entry.command if isinstance(entry, Executed) else entry
    return nanoseconds(command.at), command.changed(at=0.0)
