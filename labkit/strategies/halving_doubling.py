"""All-reduce by recursive halving and doubling: as many bytes as a ring, in 2 log2 N steps instead of 2(N-1).

    worker r: forever: g <- gradient on the next mini-batch at w
                       d = N/2, N/4 ... 1: swap halves with worker r xor d, keep and add up one     (reduce-scatter)
                       d = 1, 2 ... N/2:   swap all finished chunks with worker r xor d             (all-gather)
                       w <- w - rate * g / N

For a model of M bytes, each worker sends M/2, M/4, M/8 ... bytes, and then the same amounts in reverse order. The sum is
2(N-1)/N M, the minimum for any all-reduce. Compared with the ring, the algorithm saves steps, which matters if messages are
short or the latency is high. The price: partners are far apart, and N should be a power of two. If N = 2^k + m, m workers
first send their whole gradient to a neighbour and finally receive the sum. This takes two more steps, and the time of 2M more
bytes.

Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .ring_all_reduce import RingAllReduce


@dataclass(frozen=True, kw_only=True)
class HalvingDoubling(RingAllReduce):
    """No server: workers exchange halves, then quarters ... of their gradients, and all take the same step.

    See Also
    --------
    RingAllReduce : As many bytes, in 2(N-1) steps.

    Examples
    --------
    With a latency of 10 ms, a step of 8 workers has 6 latencies, and 14 with a ring, besides the gradient of 10 ms.

    >>> cluster = lk.SimulatedCluster(workers=8, latency=0.01)
    >>> for strategy in (lk.HalvingDoubling(), lk.RingAllReduce()):
    ...     summary = lk.train("moons", strategy, cluster, lk.Budget(updates=20)).wait().summary()
    ...     print(f"{summary['seconds'] / 20:.2f} s")
    0.07 s
    0.15 s
    """

    algorithm: ClassVar[str] = "halving-doubling"
    summary: ClassVar[str] = "no server: workers sum gradients in 2 log2 N exchanges; no staleness"
    description: ClassVar[str] = "halves are swapped, without a server: all wait for the slowest."
