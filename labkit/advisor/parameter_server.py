"""Strategies with parameter servers: how long one update takes.

Synchronous step with one server: The server sends the model N times in sequence, which takes N m. Each worker pushes as
soon as it has computed. These pushes overlap with the sends, except the last push, which adds m. Each direction adds
one latency. With S shards every message is S times shorter, which gives c* + s + 2a + m (1 + N/S), c* = E[slowest of
N]. This is exact for deterministic times.

Asynchronous: One cycle of a worker takes c + s + 2a + m (1 + 1/S). A gradient takes 1/N of a cycle or, if that is
longer, the time for which it occupies one server's link (m/S) or processor (s). This is exact for deterministic times.
For random times it is a lower bound; if links and workers are equally busy, it is too low by up to a tenth (by a fifth
for K-batch-sync, whose late gradients congest the links; see `accuracy`).
"""

from __future__ import annotations

import math
from typing import Any

from .estimate import Estimate, slots
from .estimate import time_text as t
from .inputs import CostInputs


def sync_ps(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `SyncPS`, in which an update waits for all workers."""
    n, servers, a, m = f.n, f.servers, f.a, f.m
    slowest = f.c.expected_last_end([k * m / servers for k in range(n)]) - (n - 1) * m / servers
    text = f"c* + s + 2a + m (1 + N/S) = {t(slowest)} + {t(f.s)} + 2 x {t(a)} + {t(m)} x (1 + {n}/{servers})"
    return Estimate(
        slowest + f.s, 2 * a, m * (1 + n / servers), n, f.model * max(1.0, n / servers),
        _memory(strategy, f, waiting=n), 0.0, text,
    )  # fmt: skip


def async_ps(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `AsyncPS`, in which workers do not wait for each other."""
    return _asynchronous(strategy, f, f.c.mean, "c", strategy.mean_staleness(f.n))


def downpour(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `Downpour`: a worker pushes every n_push steps, fetches every n_fetch steps, and makes local steps in between.

    In a step with both, the acknowledgement of the push waits behind the weights that the server sends to the previous
    worker. This takes m/S - 2a, if that is positive.
    """
    push, fetch, servers = strategy.n_push, strategy.n_fetch, f.servers
    compute = f.c.mean + f.s / push + (f.s if fetch > 1 else 0.0)
    behind = max(0.0, f.m / servers - 2 * f.a) / math.lcm(push, fetch) if f.n > 1 else 0.0
    latency, wire = 2 * f.a * (1 / push + 1 / fetch), f.m * (1 / push + 1 / fetch) + behind
    bound = max(f.m / servers * max(1 / push, 1 / fetch), f.s / push)
    text = (
        f"max((c + local s + (s + 2a + m)/n_push + (2a + m)/n_fetch + w)/N, server), w = {t(behind)} behind the weights of other "
        f"workers: max({t((compute + latency + wire) / f.n)}, "
        f"{t(bound)})"
    )
    local = f.model * (3 + slots(strategy))
    return _server_bound(f, compute, latency, wire, bound, f.model, local, None, text)


def ssp(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `SSP`: the time of `async_ps`, plus the waiting time of workers that are s iterations ahead of the slowest."""
    n, s = f.n, strategy.s
    mean = f.c.bounded_staleness_period(n, s) if s else f.c.slowest(n)
    return _asynchronous(strategy, f, mean, f"c(s={s})", None if not f.c.constant else n - 1.0)


def backup_workers(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `BackupWorkers`, in which an update waits for all workers except the last b."""
    return _first_k(strategy, f, f.n - strategy.b, f"E[number {f.n - strategy.b} of N]")


def k_sync(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `KSync`, in which an update waits for the first K workers."""
    return _first_k(strategy, f, strategy.K, f"E[number {strategy.K} of N]")


def k_batch_sync(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `KBatchSync`, in which an update waits for the first K mini-batches, from any workers."""
    return _first_k(strategy, f, strategy.K, f"E[{strategy.K} mini-batches]", max_gradients=strategy.K)


def _first_k(strategy: Any, f: CostInputs, k: int, name: str, max_gradients: int = 1) -> Estimate:
    """Estimate a step that waits for the first k gradients and then sends the new weights to all N workers.

    max_gradients: the largest number of gradients that a worker sends in a step. If it is above 1, a worker continues
    until it is notified of the update, and occupies the servers' links with late gradients.
    """
    n, servers, a, m, after = f.n, f.servers, f.a, f.m, min(k, f.n)
    starts = [i * m / servers for i in range(n)]
    wait = f.c.order(after, n)
    if m or max_gradients > 1:  # measured from the time when the first k workers have received their weights
        wait = f.c.expected_kth_end(starts, k, min(max_gradients, -(-k // n) + 8)) - starts[after - 1]
    free = wait + f.s + 2 * a + m * (1 + after / servers)
    alone = (free - m * (1 - 1 / servers)) / f.c.mean if f.c.mean else max_gradients
    sent = min(max_gradients, max(1, int(alone) if f.c.constant else alone))
    sends = n * sent * m / servers  # the messages of the next step queue behind those of this step
    text = f"max(ck + s + 2a + m (1 + K/S), {'' if sent == 1 else f'{sent:.3g} '}N m/S), ck = {name}: max({t(max(wait, 0.0))} + "
    text += f"{t(f.s)} + 2 x {t(a)} + {t(m)} x (1 + {after}/{servers}), {t(sends)})"
    compute = max(wait, 0.0) + f.s  # `wait` is negative if k gradients are done before the k-th worker has its weights
    wire = max(free, sends) - compute - 2 * a
    moved = f.model * max(1.0, n / servers)
    return Estimate(compute, 2 * a, wire, k, moved, _memory(strategy, f, waiting=k), 0.0, text)


def k_async(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `KAsync`, in which the K workers of an update continue together."""
    n, k, servers = f.n, strategy.K, f.servers
    latency, wire = 2 * f.a, f.m * (1 + k / servers)
    update = f.c.group_period(n, k, f.s + latency + f.m * (1 + 1 / servers), f.m / servers)
    bound, free = max(k * f.m / servers, f.s), update - (latency + wire) * k / n
    text = f"max((ck + s + 2a + m (1 + K/S)) K/N, K m/S, s), ck with waiting for {k}: max({t(update)}, {t(bound)})"
    if bound > update:
        parts = (f.s if f.s >= bound else 0.0, 0.0, 0.0 if f.s >= bound else bound)
    else:
        parts = (free, latency * k / n, wire * k / n)
    return Estimate(*parts, k, k * f.model / servers, _memory(strategy, f, waiting=k), None, text)


def k_batch_async(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `KBatchAsync`: every gradient gets a reply, and the reply to every K-th gradient waits for the update."""
    k, servers = strategy.K, f.servers
    compute, cycle_wire = f.c.mean + f.s / k, f.m * (1 + 1 / servers)
    bound = max(f.m / servers, f.s / k)
    text = f"K max((c + s/K + 2a + m (1 + 1/S))/N, m/S, s/K) = {k} x max({t((compute + 2 * f.a + cycle_wire) / f.n)}, "
    text += f"{t(bound)})"
    one = _server_bound(
        f, compute, 2 * f.a, cycle_wire, bound, f.model, _memory(strategy, f, waiting=k), (f.n - 1) / k, text
    )
    return Estimate(k * one.compute, k * one.latency, k * one.wire, k, k * one.busiest, one.memory, one.staleness, text)


def easgd(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `EASGD`: a worker communicates every tau steps, and these tau gradients count as one update."""
    tau, servers, n = strategy.tau, f.servers, f.n
    alone = tau * (f.c.mean + f.s)
    latency, wire = 2 * f.a, f.m * (1 + 1 / servers)
    bound = max(f.m / servers, f.s)
    text = f"max((tau (c + s) + 2a + m (1 + 1/S))/N, m/S, s) = max({t((alone + latency + wire) / n)}, {t(bound)})"
    local = f.model * (2 + slots(strategy))
    one = _server_bound(f, alone, latency, wire, bound, f.model, local, None, text)
    return Estimate(one.compute, one.latency, one.wire, tau, one.busiest, one.memory, None, text)


def _asynchronous(strategy: Any, f: CostInputs, c: float, name: str, staleness: float | None) -> Estimate:
    servers, wire = f.servers, f.m * (1 + 1 / f.servers)
    compute, latency = c + f.s, 2 * f.a
    bound = max(f.m / servers, f.s)
    text = (
        f"max(({name} + s + 2a + m (1 + 1/S))/N, m/S, s) = max(({t(c)} + {t(f.s)} + 2 x {t(f.a)} + {t(f.m)} x "
        f"(1 + 1/{servers}))/{f.n}, {t(f.m / servers)}, {t(f.s)})"
    )
    return _server_bound(f, compute, latency, wire, bound, f.model, _memory(strategy, f), staleness, text)


def _server_bound(
    f: CostInputs, compute: float, latency: float, wire: float, bound: float, moved: float, memory: float,
    staleness: float | None, text: str,
) -> Estimate:  # fmt: skip
    """Estimate one gradient if N workers cycle independently, and each gradient occupies a server for `bound` seconds.

    What is occupied is the link or the processor of the server.
    """
    n = f.n
    parts = (compute / n, latency / n, wire / n)
    if bound > sum(parts):  # the server is never idle, and its work overlaps everything else
        parts = (bound, 0.0, 0.0) if bound == f.s else (0.0, 0.0, bound)
    return Estimate(*parts, 1, moved * max(1 / n, 1 / f.servers), memory, staleness, text)


def _memory(strategy: Any, f: CostInputs, waiting: int = 1) -> float:
    """Return the memory of the fullest node.

    A worker has weights and a gradient; a server has its part of the weights, the optimizer's state, and the queued pushes.
    """
    return f.model * max(2.0, (1 + slots(strategy) + waiting) / f.servers)
