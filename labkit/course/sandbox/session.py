"""The grader's side of one student process: the objects to which the process has references, and its requests.

A student process refers to the grader's objects by numbers, and may read the attributes and call the methods that
`PROXIED` lists. `request_validation` compares the gradients and weights that the process sends with the grader's records.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Hashable, Iterator
from types import MethodType
from typing import Any

import numpy as np

from ...data.batches import Batch
from ...errors import BadInput, LabkitError, RoleError
from ...models.numpy_model import DataShape
from ...roles.effects import Posted
from ...roles.gradient import Gradient, Model, Parameters
from ...roles.messages import Message, Weights
from ...roles.shard import Shard
from .processes import ForkServer, ProcessEnded, StudentConnection
from .request_validation import RequestValidator, python_number, size_of

MAX_REFERENCES = 20_000  # objects to which one process may have references
MAX_MEMORY = 256 << 20  # the most bytes that the grader holds at a time for a submission, see `MemoryBudget`
MAX_ITERATORS = 100  # iterators over mini-batches of one process; each holds an order of all samples
OVERHEAD = 512  # bytes counted for an object besides its content
MAX_ERROR_TEXT = 800  # characters of the text of an error
RENEW_AT = 0.4  # a process that only answers calls is replaced when it has used this fraction of one of its limits


class BatchIterator:
    """The mini-batches of one call of `ctx.batches()`."""

    def __init__(self, batches: Iterator[Batch]):
        self._batches = batches

    def next(self) -> Batch:
        return next(self._batches)


# What a role may use of the grader's objects: (class, name, attributes sent with the reference, attributes on request, methods)
PROXIED: tuple[tuple[type, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (Model, "model", (), (), ("gradient",)),
    (
        Gradient,
        "gradient",
        ("step", "samples", "count", "loss", "complete"),
        ("values",),
        ("push", "of_all_workers", "plus"),
    ),
    (Parameters, "weights", (), ("values",), ()),
    (BatchIterator, "batches", (), (), ("next",)),
    (Shard, "shard", ("index",), ("version", "generation", "samples", "values"), ("weights", "apply", "drop", "fresh")),
)


class MemoryBudget:
    """The bytes that the grader holds for one submission (`used`), and their limit.

    They are the objects to which the submission's processes have references, and what the processes have sent, saved
    and noted. The bytes of a process are counted until its role has ended.
    """

    def __init__(self, limit: int = 0):
        self.limit, self.used = limit or MAX_MEMORY, 0


class SubmittedCode:
    """The cells of a submission, the fork server of its processes, and the tools of labkit that it may use.

    `ask` uses one process for all requests of a purpose. All calls of functions have one, so that globals and default arguments
    keep what a function stores in them, as in a notebook; but another process for the calls of hidden tests, so that a function
    cannot raise their arguments as an error in a later visible test. `cells`: {"id", "source"}, or {"id", "defines": {name:
    kind}} where the reference's answer replaces the student's. The reference's functions run in processes of `reference`, and
    only arguments and results are exchanged. `secret`: if an error is raised in these cells, only its class is shown.
    """

    def __init__(
        self, server: ForkServer, cells: tuple[dict[str, Any], ...], tools: tuple[str, ...], *,
        reference: SubmittedCode | None = None, secret: bool = False, memory: MemoryBudget | None = None,
    ):  # fmt: skip
        self.server, self.tools, self.reference, self.secret = server, tools, reference, secret
        self.memory = memory or MemoryBudget()
        self._cells, self._prepared = cells, False
        self._sessions: dict[tuple[Hashable, ...], StudentSession] = {}  # by purpose
        self.unused: list[Hashable] = []  # the first items of purposes that are not needed any more
        self.reference_functions: frozenset[str] = frozenset()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The cells as they are sent to a student process. For an answer of the reference only names of functions and values
        are sent.
        """
        if not self._prepared:
            self._cells = tuple(self._without_source(cell) for cell in self._cells)
            self._prepared = True
        return list(self._cells)

    def _without_source(self, cell: dict[str, Any]) -> dict[str, Any]:
        if "defines" not in cell:
            return cell
        assert self.reference is not None
        functions = [name for name, kind in cell["defines"].items() if kind == "function"]
        values = {
            name: self.reference.request("value", name) for name, kind in cell["defines"].items() if kind == "value"
        }
        self.reference_functions |= set(functions)
        return {"id": cell["id"], "functions": functions, "values": values}

    def request(self, *request: Any) -> Any:
        """Return the answer of a new process that has run the cells. Raises `BadInput`, with the text, if it raises an error."""
        session = StudentSession(self, None, {})
        try:
            return session.answer(*request)
        finally:
            session.close()

    def ask(self, purpose: tuple[Hashable, ...], *request: Any) -> Any:
        """Return the answer of the process for this purpose to a request. Raises what `StudentSession.answer` raises."""
        while self.unused:
            unused = self.unused.pop()
            self._end(*(each for each in self._sessions if each[0] == unused))
        session = self._sessions.get(purpose)
        if session is not None and session.connection.used_share() > RENEW_AT:
            self._end(purpose)
            session = None
        if session is None:
            session = self._sessions[purpose] = StudentSession(self, None, {})
        try:
            return session.answer(*request)
        except ProcessEnded:
            self._end(purpose)
            raise

    def _end(self, *purposes: tuple[Hashable, ...]) -> None:
        for purpose in purposes:
            self._sessions.pop(purpose).close()

    def close(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1].close()
        if self.reference is not None:
            self.reference.close()


class StudentSession:
    """One student process, which has run the cells of `code`. `ctx`: the context of the role that it runs, or None."""

    def __init__(self, code: SubmittedCode, ctx: Any, kinds: dict[str, type[Message]]):
        self.code, self.ctx, self.kinds = code, ctx, kinds
        self.validator = RequestValidator()
        self._objects: dict[int, Any] = {}  # by the number of the reference
        self._sizes: dict[int, int] = {}
        self._shards: dict[int, Shard] = {}  # by identity
        self._iterators: set[int] = set()  # the numbers of references to iterators over mini-batches
        self._number = self._counted = 0
        self._reference_calls: StudentSession | None = None  # a process of the reference that this one calls
        cells = code.cells
        self.connection: StudentConnection = code.server.fork(self._find, self._refer)
        try:
            self.answer("load", cells, list(code.tools))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.connection.close()
        self.code.memory.used -= self._counted
        self._counted = 0
        self._objects.clear()
        self._sizes.clear()
        calls, self._reference_calls = self._reference_calls, None
        if calls is not None:
            calls.close()

    # references -------------------------------------------------------------------------------------------------------

    def _register(self, value: object) -> int:
        if len(self._objects) >= MAX_REFERENCES:
            raise self.connection.stop(f"it refers to more than {MAX_REFERENCES:,} objects")
        self._number += 1
        size = self._sizes[self._number] = OVERHEAD + size_of(value)
        self._count(size)
        self._objects[self._number] = value
        self.validator.record(value)
        if isinstance(value, Shard):
            self._shards[id(value)] = value
        if isinstance(value, BatchIterator):
            self._iterators.add(self._number)
        return self._number

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Message):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return ["message", self._register(value), type(value).__name__, fields, value.sender, value.incarnation]
        if isinstance(value, Batch):
            return ["batch", self._register(value), list(value)]
        if isinstance(value, np.random.Generator):
            return ["generator", value.bit_generator.state]
        if isinstance(value, DataShape):
            return ["data shape", dataclasses.astuple(value)]
        proxied = _proxied(value)
        if proxied is None:
            return None
        name, sent, _, methods = proxied
        attributes = {key: getattr(value, key) for key in sent}
        if isinstance(value, Gradient):
            attributes["_parts"] = [[part.start, part.stop] for part in value.parts if isinstance(part, slice)]
        return ["object", self._register(value), name, attributes, list(methods)]

    def _find(self, reference: Any) -> Any:
        what, *more = reference
        if what == "context":
            return self.ctx
        if what == "kind":
            return self.kinds[more[0]]
        if what == "message":
            return self._new_message(*more)
        value = self._objects[more[0]]
        if what == "object":
            return self._changed(value, *more[1:])
        return _method(self._changed(value, *more[2:]), more[1])

    def _changed(self, held: Any, changes: Any = None) -> Any:
        """Return `held` with the role's changes to its arrays. A message is copied, because it may have been sent already."""
        if changes is None:
            return held
        own = isinstance(held, (Gradient, Parameters))  # objects of the role, whose values it may replace
        for name, value in changes.items():
            old = getattr(held, name, None)
            if not isinstance(old, np.ndarray) or not isinstance(value, np.ndarray) or value.shape != old.shape:
                raise self.connection.stop(f"it changed {str(name)[:40]!r} to an array that does not fit")
            if value.itemsize > old.itemsize or (not own and value.dtype != old.dtype):
                raise self.connection.stop(f"it changed {str(name)[:40]!r} to an array that does not fit")
        if isinstance(held, Weights):
            self._record_shards()
            self.validator.check(held)
        if isinstance(held, Message):
            message: Any = object.__new__(type(held))
            message.__dict__.update(held.__dict__, **changes)
            return message
        if isinstance(held, Batch):
            return held._replace(**changes)
        if not own or set(changes) != {"values"}:
            raise self.connection.stop(f"it changed a {type(held).__name__}")
        held.values = changes["values"]
        return held

    def _new_message(self, name: Any, fields: Any) -> Message:
        """Make the message that the process has constructed. The engine checks the values when the message is used."""
        try:
            if name not in self.kinds:
                raise RoleError(f"It sent {str(name)[:60]}, a kind of message that its `messages` do not list.")
            self._record_shards()
            return self.validator.check(self.kinds[name](**{str(k): python_number(v) for k, v in fields.items()}))
        except (LabkitError, TypeError, ValueError, AttributeError) as why:
            raise self.connection.stop(str(why).rstrip(".")) from None

    def _record_shards(self) -> None:
        for shard in self._shards.values():
            self.validator.record_shard(shard)

    # frames -----------------------------------------------------------------------------------------------------------

    def answer(self, *request: Any) -> Any:
        """Return the answer of the process to a frame. If the process raises an error, raise it as `BadInput`."""
        frame = self.exchange(list(request))
        if frame[0] == "raise":
            raise self.raised(frame, BadInput)
        if frame[0] != "done":
            raise self.connection.stop("it sent a frame of the wrong kind")
        return frame[1]

    def raised(self, frame: list[Any], kind: type[LabkitError]) -> LabkitError:
        """Return the error of a "raise" frame: a `kind`, and if the error's class is built in, also an instance of that class."""
        text, name = str(frame[1])[:MAX_ERROR_TEXT], frame[2] if len(frame) > 2 else ""
        if self.code.secret:
            text = f"a correct answer that was used in place of this student's raised {name if name in RAISED else 'an error'}"
        of = RAISED.get(name) if type(name) is str else None
        if of is None or issubclass(kind, of):
            return kind(text)
        return type(kind.__name__, (kind, of), {"__str__": LabkitError.__str__, "raised": name})(text)

    def exchange(self, frame: Any) -> list[Any]:
        """Send a frame, answer the process's requests, and return the first frame that is not a request."""
        self.connection.send(frame)
        while True:
            received, freed = self.connection.receive()
            for number in freed:
                self._objects.pop(number, None)
                self._iterators.discard(number)
                self._count(-self._sizes.pop(number, 0))
            if received[0] != "request":
                if received[0] not in FRAMES or len(received) < FRAMES[received[0]]:
                    raise self.connection.stop("it sent a frame of the wrong kind")
                return received
            self.connection.send(self._reply(received[1:]))

    def _reply(self, request: Any) -> list[Any]:
        try:
            what, *arguments = request
            if what not in REQUESTS or (self.ctx is None and what != "reference"):
                raise BadInput(f"{what!r} is no request that a function may make")
            answer = getattr(self, "_" + what)(*arguments)
            return ["answer", None if isinstance(answer, Posted) else answer]
        except ProcessEnded:
            raise
        except ERRORS as error:
            return ["error", getattr(error, "raised", type(error).__name__), str(error)]

    def _count(self, size: int) -> None:
        memory = self.code.memory
        self._counted += size
        memory.used += size
        if memory.used > memory.limit:
            raise self.connection.stop(
                f"messages, saved states and objects of all processes take more than {memory.limit >> 20} MB"
            )

    def count(self, *values: object) -> None:
        """Count the bytes of values that the grader holds from now on. Raises `ProcessEnded` if the memory budget is exceeded."""
        self._count(OVERHEAD + size_of(values))

    # requests of a role -----------------------------------------------------------------------------------------------

    def _send(self, to: Any, message: Any) -> Any:
        self.count(message)
        return self.ctx.send(to, message)

    def _note(self, text: str, numbers: dict[str, float]) -> Any:
        text, numbers = str(text)[:200], {str(k)[:40]: float(v) for k, v in list(numbers.items())[:10]}
        self.count(text, numbers)
        return self.ctx.note(text, **numbers)

    def _save(self, state: dict[str, Any]) -> Any:
        self.count(state)
        return self.ctx.save(state)

    def _now(self) -> float:
        return float(self.ctx.now)

    def _rng(self) -> Any:
        # the role's own stream, so that it draws the numbers that it draws in the student's notebook
        return self.ctx.rng

    def _batches(self) -> Any:
        if len(self._iterators) >= MAX_ITERATORS:
            raise BadInput(
                f"ctx.batches() begins anew at every call; a role may keep {MAX_ITERATORS} of them at a time"
            )
        return BatchIterator(self.ctx.batches())

    def _peers(self, kind: str) -> Any:
        return self.ctx.peers(str(kind))

    def _get(self, value: Any, name: str) -> Any:
        proxied = _proxied(value)
        if proxied is None or name not in (*proxied[1], *proxied[2]):
            raise AttributeError(f"a {proxied[0] if proxied else type(value).__name__} has no {name!r} for a role")
        return getattr(value, name)

    def _call(self, value: Any, name: str, args: list[Any], keywords: dict[str, Any]) -> Any:
        method = _method(value, name)
        self.validator.check_call(method, (*args, *keywords.values()))
        return method(*args, **keywords)

    def _reference(self, name: str, args: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a function of the reference in a separate process. The student's process does not get the texts of its errors."""
        if name not in self.code.reference_functions or self.code.reference is None:
            raise BadInput("there is no such function")
        if self._reference_calls is None:
            self._reference_calls = StudentSession(self.code.reference, None, {})
        try:
            frame = self._reference_calls.exchange(["call", name, args, keywords])
        except ProcessEnded:
            calls, self._reference_calls = self._reference_calls, None
            calls.close()
            raise RoleError(
                f"{name}, a correct answer, did not end, or was called with unsuitable arguments."
            ) from None
        if frame[0] == "raise":
            raise self._reference_calls.raised(frame, RoleError)
        return frame[1]


FRAMES = {"done": 2, "raise": 2, "effect": 2}  # the frames that are not requests, with their minimum length
RAISED = {
    of.__name__: of
    for of in vars(builtins).values()
    if isinstance(of, type) and issubclass(of, (ArithmeticError, AssertionError, AttributeError, LookupError, NameError,
                                                NotImplementedError, RecursionError, TypeError, ValueError))
    and not issubclass(of, UnicodeError)
}  # fmt: skip
ERRORS = (LabkitError, TypeError, ValueError, AttributeError, IndexError, KeyError, ArithmeticError, MemoryError)
REQUESTS = ("send", "note", "save", "now", "rng", "batches", "peers", "get", "call", "reference")


def _proxied(value: object) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
    for kind, *rest in PROXIED:
        if isinstance(value, kind):
            return tuple(rest)  # type: ignore[return-value]
    return None


def _method(value: object, name: str) -> MethodType:
    proxied = _proxied(value)
    if proxied is None or name not in proxied[3]:
        raise AttributeError(f"a {proxied[0] if proxied else type(value).__name__} has no method {name!r} for a role")
    return getattr(value, name)
