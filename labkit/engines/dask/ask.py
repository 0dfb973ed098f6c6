"""Asking others with a limit: `Client.run` waits for all workers, and for a frozen one for ever; `Client` itself waits
for ever for whoever accepts a connection and then says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import Client
from distributed.core import rpc
from distributed.security import Security

__all__ = ["ask", "who_is"]


def ask(
    client: Client, addresses: Iterable[str], limit: float, fn: Any, arguments: Callable[[str], tuple[Any, ...]]
) -> dict[str, Any]:  # fmt: skip
    """{address: what `fn(*arguments(address))` returned there}, asked at the same time.

    An exception stands for its answer where it failed: `TimeoutError` if nobody answered within `limit` seconds. Never
    raises.
    """
    asked = list(addresses)

    async def one(address: str) -> Any:
        try:
            call = client._run(fn, *arguments(address), workers=[address], on_error="return")
            return (await asyncio.wait_for(call, limit)).get(address, OSError(f"{address} is not there"))
        except Exception as error:
            return error

    async def everyone() -> list[Any]:
        return list(await asyncio.gather(*map(one, asked)))

    try:
        if client.status != "running":
            raise OSError(f"the client is {client.status}")
        return dict(zip(asked, client.sync(everyone, callback_timeout=limit + 2)))
    except Exception as error:  # the client is being closed under us
        return dict.fromkeys(asked, error)


def who_is(address: str, limit: float) -> str:
    """What answers at `address`: "Scheduler", "Worker", "Nanny". Raises whatever went wrong within `limit` seconds."""

    async def identity() -> str:
        peer = rpc(address, timeout=limit, connection_args=Security().get_connection_args("client"))
        try:
            return str((await peer.identity()).get("type"))
        finally:
            await peer.close_rpc()

    async def in_time() -> str:
        return await asyncio.wait_for(identity(), limit)

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a loop already
        return thread.submit(asyncio.run, in_time()).result()
