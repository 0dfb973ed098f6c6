"""Primary-backup replication of shards: the server sends each update to its backup and waits for the acknowledgement.

    server: forever: ... apply;  send what was applied to the backup;  wait for its acknowledgement;  reply ...
    backup: forever: receive what was applied;  apply it, too;  acknowledge

All state that a worker has seen is therefore on two nodes. If the server is lost, its next incarnation restores the copy and no
update is lost: unanswered pushes are retransmitted, and the table of applied pushes is part of the copy. If the backup is lost,
the server continues alone; the next backup requests the whole shard. The cost is one round trip per update. Strategies need no
change, because replication is done in the server's `ctx.compute`.

Chain replication of the same kind: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput
from .context import Context
from .group_restart import restarts_as_group
from .layout import Layout, RoleSpec
from .messages import Message, field_names

__all__ = ["BACKUP_KINDS", "Applied", "Copy", "Logged", "Want", "backed", "keep_copy", "with_backups"]

LOOK_S = 0.05  # seconds between two checks that the peer is still present


@dataclass(frozen=True)
class Want(Message):
    """server <-> backup: request for the whole shard."""


@dataclass(frozen=True)
class Copy(Message):
    """server <-> backup: a whole shard. `plain`: JSON; `names` of `arrays`. Empty if the sender has no copy."""

    plain: str
    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    number: int
    header: ClassVar[tuple[str, ...]] = ("plain", "names", "arrays", "number")


@dataclass(frozen=True)
class Applied(Message):
    """server -> backup: a call of the shard's method `name` with `pushes`, each (kind, sender, incarnation, fields ...), and
    further arguments `rest`. `several`: the first argument is a list of pushes, not one push.
    """

    name: str
    pushes: tuple[tuple[Any, ...], ...]
    several: bool
    rest: tuple[Any, ...]
    number: int
    header: ClassVar[tuple[str, ...]] = ("name", "pushes", "several", "rest", "number")


@dataclass(frozen=True)
class Logged(Message):
    """backup -> server: acknowledgement of `Applied` or `Copy` number `number`."""

    number: int
    header: ClassVar[tuple[str, ...]] = ("number",)


BACKUP_KINDS = (Want, Copy, Applied, Logged)


def with_backups(layout: Layout, replicas: int, strategy: str) -> Layout:
    """The layout with a backup for every server, each on a separate node; `BadInput` if there are no servers to back up."""
    if not replicas:
        return layout
    servers = [role for role in layout.roles if role.kind == "server" and role.shard is not None]
    if not servers or restarts_as_group(layout):
        raise BadInput(f"replicas={replicas}: {strategy} has no servers that could be kept twice; leave replicas out.")
    backups = [
        RoleSpec(f"backup-{s.index}", "backup", s.index, f"backup-{s.index}", backs=layout.roles.index(s))
        for s in servers
    ]
    return replace(layout, roles=(*layout.roles, *backups))


async def keep_copy(ctx: Context, shard: Any) -> None:
    """The backup: applies all updates of the server."""
    server = ctx.name.replace("backup", "server")
    whole = not ctx.incarnation  # at the start of a run both have the initial weights
    if not whole:
        ctx.send(server, Want())
    async for message in ctx.inbox(Applied, Copy, Want):
        if isinstance(message, Want):
            ctx.send(message, _copy_of(shard, 0) if whole else Copy("", (), (), 0))
        elif isinstance(message, Copy):
            _take(shard, message)
            ctx.send(message, Logged(message.number))
            if not whole:
                ctx.note(f"{ctx.name} holds a copy of {server} again, of update {shard.version}")
            whole = True
        elif whole:
            pushes = [_push(shard, *said) for said in message.pushes]
            first: Any = pushes if message.several else pushes[0]
            await ctx.compute(getattr(shard, message.name), first, *message.rest)
            ctx.send(message, Logged(message.number))
        else:  # the server was absent at the first request
            ctx.send(message, Want())


async def backed(play: Callable[..., Any], ctx: Context, shard: Any, backup: str) -> None:
    """The server's coroutine `play(ctx, shard)`, with replication to `backup`."""
    twin = _Twin(ctx, shard, backup)
    if ctx.incarnation:
        await twin.take_over()
    await play(twin, shard)


class _Twin:
    """The context of a server with a backup."""

    def __init__(self, ctx: Context, shard: Any, backup: str):
        self._ctx, self._shard, self._backup = ctx, shard, backup
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    async def compute(self, fn: Callable[..., Any], *args: Any, **how: Any) -> Any:
        """See `Context.compute`. A method of the shard completes when the backup has acknowledged it."""
        value = await self._ctx.compute(fn, *args, **how)
        if getattr(fn, "__self__", None) is self._shard and self._there():
            self._number += 1
            several = isinstance(args[0], (list, tuple))
            pushes = tuple(map(_said, args[0] if several else args[:1]))
            self._ctx.send(self._backup, Applied(fn.__name__, pushes, several, args[1:], self._number))
            await self._acknowledged()
        return value

    def _there(self) -> bool:
        return self._backup in self._ctx.peers("backup")

    async def _acknowledged(self) -> None:
        """Wait until the backup acknowledges the update or is absent. A restarted backup is sent the whole shard."""
        while self._there():
            answer = await self._ctx.recv(Logged, Want, timeout=LOOK_S)
            if isinstance(answer, Want):
                self._ctx.send(answer, _copy_of(self._shard, self._number))
            elif answer is not None and answer.number == self._number:
                return

    async def take_over(self) -> None:
        """Restore the shard of a restarted server from its backup, if there is a copy."""
        if self._there():
            self._ctx.send(self._backup, Want())
        while self._there():
            answer = await self._ctx.recv(Copy, timeout=LOOK_S)
            if answer is None:
                continue
            if answer.plain:
                _take(self._shard, answer)
                self._ctx.note(f"{self._ctx.name} was restored from its backup, at update {self._shard.version}")
            return


def _said(push: Message) -> tuple[Any, ...]:
    """A push as a tuple of plain values and arrays, as in `Applied`."""
    fields = (getattr(push, name) for name in field_names(type(push)))
    return (type(push).__name__, push.sender, push.incarnation, *fields)


def _push(shard: Any, kind: str, sender: str, incarnation: int, *fields: Any) -> Any:
    """The inverse of `_said`."""
    push = shard.pushes[kind](*fields)
    push.__dict__.update(sender=sender, incarnation=incarnation)
    return push


def _copy_of(shard: Any, number: int) -> Copy:
    state: Mapping[str, Any] = shard.to_state()
    arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
    plain = json.dumps({k: v for k, v in state.items() if k not in arrays})
    return Copy(plain, tuple(arrays), tuple(arrays.values()), number)


def _take(shard: Any, copy: Copy) -> None:
    shard.restore(json.loads(copy.plain) | dict(zip(copy.names, copy.arrays)), same=True)
