"""Primary-backup replication of shards: the server sends each update to its backup and waits for the acknowledgement.

    server: forever: ... apply;  send what was applied to the backup;  wait for its acknowledgement;  reply ...
    backup: forever: receive what was applied;  apply it, too;  acknowledge

All state that a worker has received is therefore on two nodes. If the server is lost, its next incarnation restores the copy.
No update is lost, because unanswered pushes are retransmitted. No push is applied twice, because the copy contains the table of
applied pushes. If the backup is lost, the server continues alone; the next incarnation of the backup requests the whole shard.
The cost is one round trip per update. Strategies need no change, because replication is part of the server's `ctx.compute`.

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

CHECK_INTERVAL_S = 0.05  # seconds between two checks that the peer is still present


@dataclass(frozen=True)
class CopyRequest(Message):
    pass


@dataclass(frozen=True)
class Copy(Message):
    """server <-> backup: a whole shard. `json_text`: the plain values of the shard as JSON. `array_names`: the names of
    `arrays`. All three are empty if the sender has no copy.
    """

    json_text: str
    array_names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    number: int
    header: ClassVar[tuple[str, ...]] = ("json_text", "array_names", "arrays", "number")


@dataclass(frozen=True)
class Applied(Message):
    """server -> backup: a call of the shard's method `name` with `pushes`, each (kind, sender, incarnation, fields ...), and
    further arguments `rest`. `is_list`: the first argument is a list of pushes, not one push.
    """

    name: str
    pushes: tuple[tuple[Any, ...], ...]
    is_list: bool
    rest: tuple[Any, ...]
    number: int
    header: ClassVar[tuple[str, ...]] = ("name", "pushes", "is_list", "rest", "number")


@dataclass(frozen=True)
class ReplicaAck(Message):
    """backup -> server: acknowledgement of `Applied` or `Copy` number `number`."""

    number: int
    header: ClassVar[tuple[str, ...]] = ("number",)


BACKUP_KINDS = (CopyRequest, Copy, Applied, ReplicaAck)


def with_backups(layout: Layout, replicas: int, strategy: str) -> Layout:
    """Return the layout with a backup for every server, each on a separate node. Raises `BadInput` if there are no servers."""
    if not replicas:
        return layout
    servers = [role for role in layout.roles if role.kind == "server" and role.shard is not None]
    if not servers or restarts_as_group(layout):
        raise BadInput(f"replicas={replicas}: {strategy} has no servers that could be replicated; leave replicas out.")
    backups = [
        RoleSpec(f"backup-{s.index}", "backup", s.index, f"backup-{s.index}", backs=layout.roles.index(s))
        for s in servers
    ]
    return replace(layout, roles=(*layout.roles, *backups))


async def run_backup(ctx: Context, shard: Any) -> None:
    """Run the role of a backup: apply all updates of the server."""
    server = ctx.name.replace("backup", "server")
    has_copy = not ctx.incarnation  # at the start of a run both have the initial weights
    if not has_copy:
        ctx.send(server, CopyRequest())
    async for message in ctx.inbox(Applied, Copy, CopyRequest):
        if isinstance(message, CopyRequest):
            ctx.send(message, _copy_of(shard, 0) if has_copy else Copy("", (), (), 0))
        elif isinstance(message, Copy):
            _restore_copy(shard, message)
            ctx.send(message, ReplicaAck(message.number))
            if not has_copy:
                ctx.note(f"{ctx.name} holds a copy of {server} again, of update {shard.version}")
            has_copy = True
        elif has_copy:
            pushes = [_decode_push(shard, *encoded) for encoded in message.pushes]
            first: Any = pushes if message.is_list else pushes[0]
            await ctx.compute(getattr(shard, message.name), first, *message.rest)
            ctx.send(message, ReplicaAck(message.number))
        else:  # the server was absent at the first request
            ctx.send(message, CopyRequest())


async def run_with_backup(method: Callable[..., Any], ctx: Context, shard: Any, backup: str) -> None:
    """Run the server's coroutine `method(ctx, shard)`, with replication to `backup`."""
    replicating = _ReplicatingContext(ctx, shard, backup)
    if ctx.incarnation:
        await replicating.restore_from_backup()
    await method(replicating, shard)


class _ReplicatingContext:
    def __init__(self, ctx: Context, shard: Any, backup: str):
        self._ctx, self._shard, self._backup = ctx, shard, backup
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    async def compute(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run `fn`, as `Context.compute`. If `fn` is a method of the shard, wait until the backup has acknowledged the
        update.
        """
        value = await self._ctx.compute(fn, *args, **options)
        if getattr(fn, "__self__", None) is self._shard and self._backup_is_present():
            self._number += 1
            is_list = isinstance(args[0], (list, tuple))
            pushes = tuple(map(_encode_push, args[0] if is_list else args[:1]))
            self._ctx.send(self._backup, Applied(fn.__name__, pushes, is_list, args[1:], self._number))
            # Before the server replies: what a worker has received is on two nodes, so a restored server never lacks it.
            await self._wait_for_ack()
        return value

    def _backup_is_present(self) -> bool:
        return self._backup in self._ctx.peers("backup")

    async def _wait_for_ack(self) -> None:
        """Wait until the backup has acknowledged the update or is absent. If it was restarted, send it the whole shard."""
        while self._backup_is_present():
            answer = await self._ctx.recv(ReplicaAck, CopyRequest, timeout=CHECK_INTERVAL_S)
            if isinstance(answer, CopyRequest):
                self._ctx.send(answer, _copy_of(self._shard, self._number))
            elif answer is not None and answer.number == self._number:
                return

    async def restore_from_backup(self) -> None:
        """Restore the shard of a restarted server from its backup, if there is a copy."""
        if self._backup_is_present():
            self._ctx.send(self._backup, CopyRequest())
        while self._backup_is_present():
            answer = await self._ctx.recv(Copy, timeout=CHECK_INTERVAL_S)
            if answer is None:
                continue
            if answer.json_text:
                _restore_copy(self._shard, answer)
                self._ctx.note(f"{self._ctx.name} was restored from its backup, at update {self._shard.version}")
            return


def _encode_push(push: Message) -> tuple[Any, ...]:
    """Return a push as a tuple of plain values and arrays, as in `Applied`."""
    fields = (getattr(push, name) for name in field_names(type(push)))
    return (type(push).__name__, push.sender, push.incarnation, *fields)


def _decode_push(shard: Any, kind: str, sender: str, incarnation: int, *fields: Any) -> Any:
    push = shard.pushes[kind](*fields)
    push.__dict__.update(sender=sender, incarnation=incarnation)
    return push


def _copy_of(shard: Any, number: int) -> Copy:
    state: Mapping[str, Any] = shard.to_state()
    arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
    json_text = json.dumps({k: v for k, v in state.items() if k not in arrays})
    return Copy(json_text, tuple(arrays), tuple(arrays.values()), number)


def _restore_copy(shard: Any, copy: Copy) -> None:
    shard.restore(json.loads(copy.json_text) | dict(zip(copy.array_names, copy.arrays)), same=True)
