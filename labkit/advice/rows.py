"""The sparse parameter server: how long one update takes.

A batch with U distinct ids asks for U rows (8 U bytes), gets them (r U), pushes their gradients ((8 + r) U), r the bytes
of a row; D are the bytes of the layers behind the table. The dense strategies move the whole table instead.

    dense="all-reduce"   c* + s + [pull 2a + 8U + r U max(1, N/S)] + [push (8 + r) U] + [ring 2(N-1) a + 2(N-1)/N D]
    dense="server"       c* + s + 2a + [push and pull] (16 + r) U + D + N/S (r U + D)

U changes from batch to batch, so this is right on average only. Rows are taken to be spread evenly over the servers; the
hottest row's server has more (its share is in the trace).
"""

from __future__ import annotations

from typing import Any

from .estimate import Estimate, slots
from .estimate import time_text as t
from .facts import Facts
from .peers import summed

__all__ = ["sparse_ps"]

ID = 8  # bytes


def sparse_ps(strategy: Any, f: Facts) -> Estimate:
    """Rows to and from servers; the rest with them, or by a ring."""
    table = f.table
    assert table is not None  # the layout has refused a model without one
    n, servers, used = f.n, f.servers, table.used
    ids, rows = ID * used, table.row_bytes * used
    slowest = f.c.slowest(n)
    keeps = 1 + slots(strategy)
    server_memory = table.rows * table.row_bytes * keeps / servers + n * (rows + ids) / servers
    worker_memory = 2 * (rows + ids) + table.dense * (1 + keeps)
    memory = max(server_memory, worker_memory)
    if strategy.dense == "server":
        return _all_served(strategy, f, ids, rows, float(table.dense), memory)
    ring_latency, ring_wire = summed(f, table.dense, n)
    wire = f.held(ids + rows * max(1, n / servers) + ids + rows)
    text = (
        f"c* + s + pull {t(2 * f.a + f.held(ids + rows * max(1, n / servers)))} + push {t(f.held(ids + rows))} + ring of "
        f"D {t(ring_latency + ring_wire)} + {t(slowest)} + {t(f.s)}, U = {used:,.0f} of {table.rows:,} rows"
    )
    busiest = max((rows + 2 * ids) * n / servers, rows + 2 * ids + 2 * (n - 1) / n * table.dense)
    return Estimate(slowest + f.s, 2 * f.a + ring_latency, wire + ring_wire, n, busiest, memory, 0.0, text)


def _all_served(strategy: Any, f: Facts, ids: float, rows: float, dense: float, memory: float) -> Estimate:
    """Dense layers on the servers, too; waiting for all, or for nobody."""
    n, servers = f.n, f.servers
    push, pull = ids + rows + dense, rows + dense
    used = f"U = {ids / ID:,.0f}"
    if strategy.synchronous:
        slowest, wire = f.c.slowest(n), f.held(push + ids + pull * n / servers)
        text = (
            f"c* + s + 2a + (16 + r) U + D + N/S (r U + D) = {t(slowest)} + {t(f.s)} + 2 x {t(f.a)} + {t(wire)}, {used}"
        )
        busiest = max(push + ids, pull) * max(1.0, n / servers)
        return Estimate(slowest + f.s, 2 * f.a, wire, n, busiest, memory, 0.0, text)
    wire, bound = f.held(push + ids + pull / servers), max(f.held(push + ids) / servers, f.s)
    one = (f.c.mean + f.s + 2 * f.a + wire) / n
    text = f"max((c + s + 2a + (16 + r) U + D + (r U + D)/S)/N, server) = max({t(one)}, {t(bound)}), {used}"
    parts = (bound, 0.0, 0.0) if bound == f.s else (0.0, 0.0, bound)
    parts = parts if bound > one else ((f.c.mean + f.s) / n, 2 * f.a / n, wire / n)
    return Estimate(*parts, 1, (push + ids) * max(1 / n, 1 / servers), memory, None, text)
