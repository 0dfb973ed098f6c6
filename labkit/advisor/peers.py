"""Strategies without servers whose workers compute all layers: how long one update takes.

    all-reduce, ring               2(N-1) a + 2(N-1)/N m
    recursive halving-doubling     2k a + 2(N-1)/N m,  N = 2^k;  N = P + r, P = 2^k: (2k+2) a + (2(P-1)/P + 2) m
    fully sharded                  two all-gathers and a reduce-scatter of each of L layers: 3 L (N-1) a + 3(N-1)/N m

All formulas are exact for deterministic times and equal chunks.
"""

from __future__ import annotations

import math
from typing import Any

from ..roles.graphs import neighbours, two_colouring
from .critical_path import gossip_iterations, gossip_period
from .estimate import Estimate, slots
from .estimate import time_text as t
from .inputs import CostInputs


def all_reduce(algorithm: str, n: int, f: CostInputs) -> tuple[float, float, str]:
    """Return (number of latencies, bytes through a link in sequence as a multiple of the vector, the formula)."""
    if algorithm == "ring":
        return 2 * (n - 1), 2 * (n - 1) / n, "2(N-1) a + 2(N-1)/N m"
    power = 1 << n.bit_length() - 1
    steps, share = 2 * (power.bit_length() - 1), 2 * (power - 1) / power
    if power == n:
        return steps, share, "2 log2(N) a + 2(N-1)/N m"
    return steps + 2, share + 2, "(2 log2(P) + 2) a + (2(P-1)/P + 2) m"


def all_reduce_seconds(f: CostInputs, bytes_: float, n: int, algorithm: str = "ring") -> tuple[float, float]:
    """Return the seconds of (latency, wire) of one all-reduce of `bytes_` bytes."""
    steps, share, _ = all_reduce(algorithm, n, f)
    return steps * f.a, share * f.transfer_seconds(bytes_)


def replicas(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `RingAllReduce` and `HalvingDoubling`: all workers compute, then all-reduce."""
    n = f.n
    steps, share, text = all_reduce(strategy.algorithm, n, f)
    slowest = f.c.slowest(n)
    text = f"c* + s + {text} = {t(slowest)} + {t(f.s)} + {steps:g} x {t(f.a)} + {share:.3g} x {t(f.m)}"
    memory = f.model * (2 + slots(strategy))
    return Estimate(slowest + f.s, steps * f.a, share * f.m, n, share * f.model, memory, 0.0, text)


def local_sgd(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `LocalSGD`: an all-reduce every H steps. In between workers are independent, so slow steps average out."""
    n, h = f.n, strategy.H
    steps, share, text = all_reduce(strategy.algorithm, n, f)
    alone = f.c.slowest_sum(n, h) / h
    text = f"c*(H)/H + s + ({text})/H = {t(alone)} + {t(f.s)} + ({steps:g} x {t(f.a)} + {share:.3g} x {t(f.m)})/{h}"
    memory = f.model * (3 + slots(strategy))
    return Estimate(alone + f.s, steps * f.a / h, share * f.m / h, n, share * f.model / h, memory, 0.0, text)


def dpsgd(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `DPSGD`: models are sent while gradients are computed, so an iteration takes the longer of the two times."""
    graph, n = tuple(neighbours(strategy.graph, f.n)), f.n
    most = max(map(len, graph))

    iterations = gossip_iterations(graph, f.c.constant)

    def path(latency: float, bandwidth: float) -> float:
        return gossip_period(graph, f.model, f.s, latency, bandwidth, [f.c.draws(i) for i in range(n)], iterations)

    free = path(0.0, math.inf)
    late = path(f.a, math.inf) if f.a else free
    whole = path(f.a, f.cluster.bandwidth) if f.m else late
    text = f"longest path: {t(whole)}, at least max(c, a + d m) + s = max({t(f.c.mean)}, {t(f.a)} + {most} x {t(f.m)}) + {t(f.s)}"
    memory = f.model * (3 + most + slots(strategy))
    return Estimate(free, late - free, whole - late, n, most * f.model, memory, 0.0, text)


def adpsgd(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `ADPSGD`: active replicas wait for a neighbour's reply after each gradient; passive replicas never wait."""
    graph, n, side = tuple(neighbours(strategy.graph, f.n)), f.n, two_colouring(strategy.graph, f.n)
    active = [i for i in range(n) if side[i] == 0 and any(side[j] for j in graph[i])]
    alone = max(f.c.mean + f.s, 1e-9)  # one nanosecond, the clock's resolution
    both = alone + 2 * f.a + 2 * f.m
    rate = len(active) / both + (n - len(active)) / alone
    text = f"N / (q/(c + s + 2a + 2m) + (N - q)/(c + s)), q = {len(active)} active: {n} / ({len(active)}/{t(both)} + "
    text += f"{n - len(active)}/{t(alone)})"
    seconds = n / rate
    extra = seconds - alone
    share = f.a / (f.a + f.m) if extra else 0.0
    memory = f.model * (4 + slots(strategy))
    return Estimate(alone, extra * share, extra * (1 - share), n, f.model * (2 if active else 0), memory, None, text)


def fsdp(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `FSDP`: two all-gathers and a reduce-scatter of every layer."""
    n, groups = f.n, f.network.layout.groups()
    layers, largest = len(groups), max(part.stop - part.start for part in groups.values()) * f.itemsize
    slowest, steps, share = f.c.slowest(n), 3 * layers * (n - 1), 3 * (n - 1) / n
    text = f"c* + s + 3 L (N-1) a + 3(N-1)/N m = {t(slowest)} + {t(f.s)} + {steps} x {t(f.a)} + {share:.3g} x {t(f.m)}"
    memory = f.model / n * (2 + slots(strategy)) + 2 * largest
    return Estimate(slowest + f.s, steps * f.a, share * f.m, n, share * f.model, memory, 0.0, text)
