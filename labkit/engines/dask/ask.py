"""Asking Dask workers, each with a limit of its own: `Client.run` waits for all, and for a frozen one for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from distributed import Client

__all__ = ["ask"]


def ask(client: Client, addresses: Iterable[str], limit: float, fn: Any, arguments: Callable[[str], tuple[Any, ...]]) -> dict[str, Any]:
    """{address: what `fn(*arguments(address))` returned there}, asked at the same time.

    An exception stands for its answer where it failed: `TimeoutError` if nobody answered within `limit` seconds. Never raises.
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
