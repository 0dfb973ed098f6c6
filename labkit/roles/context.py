"""`ctx`: the interface between a role and its engine.

`compute`, `recv`, `sleep` and `inbox` are traps, i.e. they are awaited, and time may pass. `send`, `note` and `save` are posts,
i.e. they take effect at once and never block. The traps are the same on every engine (`effects`). Each engine has a subclass of
`Context` that performs the posts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ..random_streams import ROLE, role_stream
from . import effects
from .effects import Posted
from .messages import Message
from .tasks import TaskGroup

if TYPE_CHECKING:
    from ..data.batches import Batch

SENT, NOTED, SAVED = Posted("send"), Posted("note"), Posted("save")


class Context(ABC):
    """The interface between a role and its engine: 15 names.

    Engines make one context for each role, and pass it to the role method as `ctx`. `compute`, `recv`, `sleep` and `inbox` are
    awaited, and time may pass. `send`, `note` and `save` take effect at once and are not awaited.

    Parameters
    ----------
    name : str
        The name of the role.
    kind : str
        The kind of the role: "worker", "server" or "chief".
    index : int
        The number of the role within its kind.
    seed : int
        The seed of the run.
    peers : mapping of str to tuple of str
        The names of the roles by kind and group.
    batches : callable or None
        Returns the iterator over the role's mini-batches; None if it has no data.

    Attributes
    ----------
    name : str
        The name of the role.
    incarnation : int
        How often the role has been restarted.
    restored : dict or None
        The state that the role saved before it was restarted; None on the first start.

    See Also
    --------
    Strategy : Its async methods are the roles.
    pull, push_pull, all_reduce : Communication of several roles.

    Examples
    --------
    >>> class Polling(lk.AsyncPS):
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         gradient = await ctx.compute(model.gradient, weights, next(ctx.batches()))
    ...         print(ctx.name, ctx.peers("server"), f"{ctx.now:.2f} s")
    ...         await ctx.sleep(1.5)
    ...         ctx.send("server-0", gradient.push(0))
    ...         print(await ctx.recv(lk.Ack, timeout=0.5), f"{ctx.now:.2f} s")
    >>> run = lk.train("moons", Polling(), lk.SimulatedCluster(workers=1), lk.Budget(seconds=5)).wait()
    worker-0 ('server-0',) 0.01 s
    None 2.01 s
    """

    name: str
    restored: Any = None
    incarnation: int = 0

    def __init__(
        self, name: str, kind: str, index: int, seed: int, peers: Mapping[str, tuple[str, ...]],
        batches: Callable[[], Iterator[Batch]] | None,
    ):  # fmt: skip
        self.name, self._kind, self._index, self._seed = name, kind, index, seed
        self._peers, self._batches = peers, batches
        self._rng: np.random.Generator | None = None

    # traps ------------------------------------------------------------------------------------------------------------

    compute = effects.compute
    recv = effects.recv
    sleep = effects.sleep
    inbox = effects.inbox

    # posts ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, to: str | Message, message: Message) -> Posted:
        """Send a message, without blocking. Its arrays are copied and may be overwritten afterwards.

        Parameters
        ----------
        to : str or Message
            The name of the receiver. If it is a message, the new message is the reply to its sender. It is discarded if the
            sender was restarted in the meantime.
        message : Message
            The message.

        Returns
        -------
        Posted
            An object that raises `TypeError` if it is awaited.
        """

    @abstractmethod
    def note(self, text: str, **numbers: float) -> Posted:
        """Add a note to the trace.

        Parameters
        ----------
        text : str
            The text of the note.
        **numbers : float
            Numbers, by name.

        Returns
        -------
        Posted
            An object that raises `TypeError` if it is awaited.
        """

    @abstractmethod
    def save(self, state: Mapping[str, Any]) -> Posted:
        """Save a state durably, for the next incarnation of this role.

        Parameters
        ----------
        state : mapping of str to object
            Arrays and plain values, by name. The next incarnation has them as `restored`.

        Returns
        -------
        Posted
            An object that raises `TypeError` if it is awaited.
        """

    def communication(self, number: int) -> AbstractContextManager[None]:
        """Record in the trace that the role communicates during a `with` block, and how long it computes meanwhile.

        A communication during which a task of the role computes is hidden, and the rest of it is exposed. One that ends with
        an error, or with the role, is not recorded, and neither is one of graded code.

        Parameters
        ----------
        number : int
            Which communication of a step it is, as the number of a bucket. From 0 to 2**31.

        Returns
        -------
        context manager
            For one `with` block, in which the role may await.

        Raises
        ------
        RoleError
            If `number` is not such a number.
        """
        return nullcontext()

    @property
    @abstractmethod
    def now(self) -> float:
        """Engine time: seconds since the start of the run."""

    # plain ------------------------------------------------------------------------------------------------------------

    def tasks(self) -> TaskGroup:
        """Return a group of tasks of this role: `async with ctx.tasks() as tasks`.

        Tasks compute and communicate at the same time. The block ends when all its tasks have ended.

        Returns
        -------
        TaskGroup
            The group, which starts tasks: `tasks.start(coroutine)`.

        See Also
        --------
        TaskGroup : With an example.
        """
        return TaskGroup()

    @property
    def rng(self) -> np.random.Generator:
        """The role's random stream."""
        if self._rng is None:
            self._rng = role_stream(self._seed, self._kind, self._index, ROLE, self.incarnation)
        return self._rng

    def batches(self) -> Iterator[Batch]:
        """Return the role's mini-batches as an infinite iterator. The loop is a `for`, not an `async for`.

        Returns
        -------
        iterator of Batch
            The mini-batches, with the arrays `x` and `y`.

        Raises
        ------
        TypeError
            If the layout gives the role no data.
        """
        if self._batches is None:
            raise TypeError(f"{self.name} has no data: its strategy's layout gives {self._kind}s none.")
        return self._batches()

    def peers(self, role: str) -> tuple[str, ...]:
        """Return the names of all roles of a kind that take part now, in order.

        A lost role is included while the other roles wait for it.

        Parameters
        ----------
        role : str
            The kind ("worker", "server", "chief") or the name of a group of the layout.

        Returns
        -------
        tuple of str
            The names; empty if there is no such kind.
        """
        return self._peers.get(role, ())


def discard_posts(ctx: Context) -> None:
    """Let posts have no effect from now on, also those in `finally` blocks, because the instance of `ctx` has ended."""
    ctx.__dict__.update(send=_discarded_send, note=_discarded_note, save=_discarded_save)


def _discarded_send(to: str | Message, message: Message) -> Posted:
    return SENT


def _discarded_note(text: str, **numbers: float) -> Posted:
    return NOTED


def _discarded_save(state: Mapping[str, Any]) -> Posted:
    return SAVED
