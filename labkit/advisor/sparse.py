"""The sparse parameter server: how long one update takes.

With U distinct ids in a batch, rows of r bytes and D bytes in the layers after the table, a worker pushes P = (8 + r) U
bytes, requests rows with I = 8 U bytes, and receives R = r U bytes. If the servers have the dense part, P and R include
D. As times on a link:

    dense="server"       c* + s + 2a + (N-1)(P + I/S) + P + R/S
    the same, async      the largest of (c + s + 2a + P + I/S + R)/N, P + I/S and s
    dense="all-reduce"   c* + s + 2a + R + (1 + N/2S) I + (1 - 1/S) P + max(ring of D, N/S P + ring/2)

A worker's pull follows its pushes immediately, and a server's ingress is reserved for the pull until then, so P is not
divided by S in the first two formulas. The last formula was fitted to the simulator, not derived. All formulas are
averages, because U varies between batches. With deterministic times they are within 4%, the last formula within 6%.
Rows are assumed to be spread evenly over the servers; in fact the server of the most frequent row has more traffic.
"""

from __future__ import annotations

from typing import Any

from .estimate import Estimate, slots
from .estimate import time_text as t
from .inputs import CostInputs, EmbeddingTable
from .peers import all_reduce_seconds

ID = 8  # bytes


def sparse_ps(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `SparsePS`: rows are exchanged with servers, and the dense part with servers or by a ring all-reduce."""
    table = f.table
    assert table is not None  # for a model without a table, the layout has raised `BadInput`
    ids, rows = ID * table.used, table.row_bytes * table.used
    memory = _memory(strategy, f, table, ids, rows)
    if strategy.dense == "server":
        return _dense_on_servers(strategy, f, ids, ids + rows + table.dense, rows + table.dense, memory)
    n, servers, slowest = f.n, f.servers, f.c.slowest(f.n)
    late, wide = all_reduce_seconds(f, table.dense, n)
    pushes = f.transfer_seconds((ids + rows) * n / servers)  # half of the ring is done when the last push arrives
    hidden = (late + wide) / 2 >= pushes
    wire = f.transfer_seconds(rows + ids * (1 + n / servers / 2) + (ids + rows) * (1 - 1 / servers))
    text = (
        "c* + s + 2a + R + (1 + N/2S) I + (1 - 1/S) P + max(ring of D, N/S P + ring/2) = "
        f"{t(slowest)} + {t(f.s)} + 2 x {t(f.a)} + {t(wire)} + max({t(late + wide)}, "
        f"{t(pushes + (late + wide) / 2)}), {_used(table)}"
    )
    moved = max((rows + 2 * ids) * n / servers, rows + 2 * ids + 2 * (n - 1) / n * table.dense)
    part = 1.0 if hidden else 0.5
    latency, wire = 2 * f.a + part * late, wire + part * wide + (0.0 if hidden else pushes)
    return Estimate(slowest + f.s, latency, wire, n, moved, memory, 0.0, text)


def _dense_on_servers(
    strategy: Any, f: CostInputs, requested: float, pushed: float, received: float, memory: float
) -> Estimate:
    """Estimate `SparsePS` with the dense part on the servers, synchronous or asynchronous."""
    assert f.table is not None
    n, servers = f.n, f.servers
    blocked, used = (
        f.transfer_seconds(pushed + requested / servers),
        _used(f.table),
    )  # blocked: seconds for which a server's ingress is occupied by each worker
    if strategy.synchronous:
        slowest, wire = f.c.slowest(n), (n - 1) * blocked + f.transfer_seconds(pushed + received / servers)
        text = f"c* + s + 2a + (N-1)(P + I/S) + P + R/S = {t(slowest)} + {t(f.s)} + 2 x {t(f.a)} + {t(wire)}, {used}"
        moved = max(pushed + requested, received) * max(1.0, n / servers)
        return Estimate(slowest + f.s, 2 * f.a, wire, n, moved, memory, 0.0, text)
    wire, bound = blocked + f.transfer_seconds(received), max(blocked, f.s)
    one = (f.c.mean + f.s + 2 * f.a + wire) / n
    text = f"max((c + s + 2a + P + I/S + R)/N, P + I/S, s) = max({t(one)}, {t(blocked)}, {t(f.s)}), {used}"
    parts = ((f.c.mean + f.s) / n, 2 * f.a / n, wire / n)
    if bound > one:
        parts = (bound, 0.0, 0.0) if bound == f.s else (0.0, 0.0, bound)
    return Estimate(*parts, 1, (pushed + requested) * max(1 / n, 1 / servers), memory, None, text)


def _memory(strategy: Any, f: CostInputs, table: EmbeddingTable, ids: float, rows: float) -> float:
    """Return the memory of the fullest node.

    A server has rows, their optimizer state and the queued pushes; a worker has the rows of a batch and the dense part.
    """
    vectors = 1 + slots(strategy)
    server = (table.rows * table.row_bytes * vectors + f.n * (rows + ids)) / f.servers
    return max(server, 2 * (rows + ids) + table.dense * (1 + vectors))


def _used(table: EmbeddingTable) -> str:
    return f"U = {table.used:,.0f} of {table.rows:,} rows"
