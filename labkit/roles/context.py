"""`ctx`: the interface between a role and its engine.

`compute`, `recv`, `sleep` and `inbox` are traps, i.e. they are awaited, and time may pass. `send`, `note` and `save` are posts,
i.e. they take effect at once and never block. The traps are the same on every engine (`effects`). Each engine has a subclass of
`Context` that performs the posts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..random_streams import ROLE, role_stream
from . import effects
from .effects import Posted
from .messages import Message

if TYPE_CHECKING:
    from ..data.batches import Batch

__all__ = ["Context"]

SENT, NOTED, SAVED = Posted("send"), Posted("note"), Posted("save")


class Context(ABC):
    """The interface between a role and its engine: 13 names.

    `name`: the role's name. `restored`: the state that the role saved before it was restarted (None on the first start).
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
        """Send `message` to role `to`, without blocking. Its arrays are copied and may be overwritten afterwards.

        If `to` is a message, `message` is the reply to its sender. The reply is discarded if the sender was restarted in the
        meantime.
        """

    @abstractmethod
    def note(self, text: str, **numbers: float) -> Posted:
        """Add a note to the trace."""

    @abstractmethod
    def save(self, state: Mapping[str, Any]) -> Posted:
        """Save `state` (names to arrays and plain values) durably, for the next incarnation of this role."""

    @property
    @abstractmethod
    def now(self) -> float:
        """Engine time: seconds since the start of the run."""

    # plain ------------------------------------------------------------------------------------------------------------

    @property
    def rng(self) -> np.random.Generator:
        """The role's random stream."""
        if self._rng is None:
            self._rng = role_stream(self._seed, self._kind, self._index, ROLE, self.incarnation)
        return self._rng

    def batches(self) -> Iterator[Batch]:
        """Return the role's mini-batches as an infinite iterator. The loop is a `for`, not an `async for`."""
        if self._batches is None:
            raise TypeError(f"{self.name} has no data: its strategy's layout gives {self._kind}s none.")
        return self._batches()

    def peers(self, role: str) -> tuple[str, ...]:
        """Return the names of all roles of a kind ("worker", "server", "chief") that take part now, in order.

        A lost role is included while the other roles wait for it.
        """
        return self._peers.get(role, ())
