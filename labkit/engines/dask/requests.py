"""Requests to Dask workers and schedulers, with timeouts.

Methods of Dask wait without limit: `Client.run` waits for all workers, even if one of them is frozen, and `Client` itself
waits for a server that accepts a connection and then sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import Client
from distributed.core import rpc
from distributed.security import Security

from .dask_private import identity

LOOK_S = 0.1  # interval between two calls of `cancelled`, seconds


def run_on_workers(
    client: Client, addresses: Iterable[str], limit: float, fn: Any, arguments: Callable[[str], tuple[Any, ...]],
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:  # fmt: skip
    """Call `fn(*arguments(address))` on all Dask workers in `addresses` concurrently. Returns {address: result}.

    The result of a failed call is its exception. It is `TimeoutError` if the Dask worker does not answer within `limit`
    seconds, or if `cancelled()` returns True first. No exception is raised.
    """
    asked = list(addresses)

    async def one(address: str) -> Any:
        try:
            call = client.run(fn, *arguments(address), workers=[address], on_error="return")
            return (await asyncio.wait_for(call, limit)).get(address, OSError(f"{address} is not there"))
        except Exception as error:
            return error

    async def all_calls() -> list[Any]:
        calls = [asyncio.ensure_future(one(address)) for address in asked]
        waiting = set(calls)
        while waiting and not cancelled():
            _, waiting = await asyncio.wait(waiting, timeout=LOOK_S)
        for call in waiting:
            call.cancel()
        return [TimeoutError("the request was cancelled") if call in waiting else call.result() for call in calls]

    try:
        if client.status != "running":
            raise OSError(f"the client is {client.status}")
        return dict(zip(asked, client.sync(all_calls, callback_timeout=limit + 2)))
    except Exception as error:  # the client is being closed by another thread
        return dict.fromkeys(asked, error)


def run_on_scheduler(client: Client, limit: float, fn: Any, *arguments: Any) -> Any:
    """Call `fn(*arguments)` in the scheduler's process, and return its result.

    Raises the error of a failed call, or `TimeoutError` after `limit` seconds.
    """
    return _in_time(client, limit, lambda: client.run_on_scheduler(fn, *arguments))


def heartbeats(client: Client, limit: float) -> dict[str, float]:
    """Return {address of each Dask worker: time of its last heartbeat, by the scheduler's clock}.

    Raises the error of a failed request, or `TimeoutError` after `limit` seconds.
    """
    found = _in_time(client, limit, lambda: identity(client))
    return {address: float(about["last_seen"]) for address, about in found["workers"].items()}


def _in_time(client: Client, limit: float, call: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of the coroutine `call()`. Raises `TimeoutError` after `limit` seconds.

    Without a timeout, `Client.sync` and `Client.scheduler_info` wait for a scheduler that is gone.
    """
    if client.status != "running":
        raise OSError(f"the client is {client.status}")

    async def one() -> Any:
        return await asyncio.wait_for(call(), limit)

    return client.sync(one, callback_timeout=limit + 1)


def server_type(address: str, limit: float) -> str:
    """Return the type of the server at `address`: "Scheduler", "Worker" or "Nanny".

    Raises the error of a failed request, or `TimeoutError` after `limit` seconds.
    """

    async def asked() -> str:
        peer = rpc(address, timeout=limit, connection_args=Security().get_connection_args("client"))
        try:
            return str((await peer.identity()).get("type"))
        finally:
            await peer.close_rpc()

    async def in_time() -> str:
        return await asyncio.wait_for(asked(), limit)

    # in a separate thread, because a notebook's main thread already runs an event loop
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, in_time()).result()
