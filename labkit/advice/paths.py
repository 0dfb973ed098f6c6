"""The longest path through a pipeline schedule, or through gossip: the time at which each piece of work is done.

A stage executes its list of work in order. A forward waits for the activation from the previous stage, a backward for the
delta from the next stage; each piece takes its share of a gradient, each message a latency and its bytes' time on the two
links. With deterministic times the result equals the simulator's. (A closed form is known only for equal stages and a
free network: (M + P - 1)(tf + tb) for GPipe and 1F1B.) In gossip, models compete for links, in the order in which they
were sent.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..engines.simulated.network import Links
from ..roles.model_parallel.schedules import BACKWARD, FORWARD, Work
from ..trace.vocabulary import nanoseconds, seconds

__all__ = ["Stage", "gossip", "iterations_of", "period"]

GOSSIPS = 60  # iterations of gossip with constant times; the second half is counted
MOST_GOSSIPS, MESSAGES = 20_000, 100_000  # with random times: maximum numbers of iterations and of messages


@dataclass(frozen=True)
class Stage:
    """One stage. `steps`: for each step its list of work. `cost(work)`: share of a gradient; `sends(work)`: bytes of
    its result. `begins`, `ends`: whether a piece of work is at an end of the network. `after`: seconds of an update, which
    follows a step's work, or, with `always`, every backward.
    """

    steps: Iterable[Iterable[Work]]
    cost: Callable[[Work], float]
    sends: Callable[[Work], int]
    begins: Callable[[Work], bool]
    ends: Callable[[Work], bool]
    after: float = 0.0
    always: bool = False


_OVER: tuple[int, Work | None, bool] = (0, None, False)


class _Walk:
    """The progress of a stage: its next work, when it is free, and when its inputs arrived."""

    def __init__(self, stage: Stage, draw: Iterator[float]):
        self.stage, self.free, self.done, self.arrived = stage, 0, list[int](), dict[Any, int]()
        self.offered = self.waits = False  # its next end is known; it waits for the same stage of other replicas
        self._todo: Iterator[tuple[int, Work | None, bool]] = (
            (k, work, last) for k, step in enumerate(stage.steps) for work, last in _marked(step)
        )
        self._draw = draw
        self.next()

    def next(self) -> None:
        self.step, self.work, self.last = next(self._todo, _OVER)
        if self.work is not None:
            self.lasts = nanoseconds(next(self._draw) * self.stage.cost(self.work))

    def end(self) -> int | None:
        """The end of the next piece of work; None if its input has not been sent yet."""
        work = self.work
        if work is None or self.waits:
            return None
        needs = None
        if (work.kind == FORWARD and not self.stage.begins(work)) or (
            work.kind == BACKWARD and not self.stage.ends(work)
        ):
            needs = self.arrived.get((self.step, work.kind, work.micro, work.chunk))
            if needs is None:
                return None
        return max(self.free, needs or 0) + self.lasts


def _marked(works: Iterable[Work]) -> Iterator[tuple[Work, bool]]:
    """Pairs of (work, whether it is the last)."""
    for work, behind in itertools.pairwise(itertools.chain(works, [None])):
        assert work is not None
        yield work, behind is None


def period(
    stages: list[Stage], latency: float, bandwidth: float, draws: list[Iterator[float]], replicas: int = 1
) -> float:
    """Seconds between two updates of stage 0, over the last half of its updates.

    `draws`: times of a gradient, of every stage of every replica, replica by replica. Corresponding stages of replicas update
    together, when the last of them has done its step's work.
    """
    count = len(stages)
    network = Links(count * replicas, latency, bandwidth)
    walks = [_Walk(stages[i % count], draw) for i, draw in enumerate(draws)]
    ready: list[tuple[int, int]] = []  # (end of its next piece of work, walk): in the order of time, in which links are occupied

    def offer(i: int) -> None:
        end = None if walks[i].offered else walks[i].end()
        if end is not None:
            walks[i].offered = True
            heapq.heappush(ready, (end, i))

    for i in range(len(walks)):
        offer(i)
    while ready:
        now, i = heapq.heappop(ready)
        walk, first, k = walks[i], i - i % count, i % count
        work, stage = walk.work, walk.stage
        assert work is not None
        if work.kind == FORWARD and not stage.ends(work):
            to, chunk = (k + 1) % count, work.chunk + (k + 1 == count)
        elif work.kind == BACKWARD and not stage.begins(work):
            to, chunk = (k - 1) % count, work.chunk - (k == 0)
        else:
            to = k
        if to != k:
            arrival = network.arrival(now, i, first + to, stage.sends(work))
            walks[first + to].arrived[walk.step, work.kind, work.micro, chunk] = arrival
            offer(first + to)
        walk.free, walk.offered = now, False
        updates = work.kind == BACKWARD if stage.always else walk.last
        walk.next()
        if not updates:
            offer(i)
            continue
        walk.waits = True
        equals = range(k, len(walks), count)
        if all(walks[j].waits for j in equals):
            for j in equals:  # all have arrived, this one last
                walks[j].free, walks[j].waits = now + nanoseconds(stage.after), False
                walks[j].done.append(walks[j].free)
                offer(j)
    ends = walks[0].done
    half = len(ends) // 2
    return seconds(ends[-1] - ends[half - 1]) / (len(ends) - half)


def iterations_of(graph: Sequence[Sequence[int]], constant: bool) -> int:
    """The number of iterations of gossip to evaluate."""
    if constant:
        return GOSSIPS
    messages = len(graph) + sum(map(len, graph))
    return max(GOSSIPS, min(MOST_GOSSIPS, MESSAGES // messages))


def gossip(
    graph: Sequence[Sequence[int]], size: int, after: float, latency: float, bandwidth: float,
    draws: list[Iterator[float]], iterations: int = GOSSIPS,
) -> float:  # fmt: skip
    """Seconds per iteration if all workers send `size` bytes to their neighbours, compute, and wait for the neighbours' models:
    the mean over the second half of the iterations.
    """
    network, n, caused = Links(len(graph), latency, bandwidth), len(graph), itertools.count()
    count, ends = [0] * n, [(0, 0)] * n  # (time, number of the event): at equal times in the order of their causes
    heard = [dict[int, list[tuple[int, int]]]() for _ in range(n)]  # by iteration: when the neighbours' models arrived
    ready, total = [(0, 0, i) for i in range(n)], [0, 0]
    while ready:
        now, _, i = heapq.heappop(ready)  # begins its next iteration, in the order of time, in which links are occupied
        if count[i] in (iterations // 2, iterations):
            total[count[i] // iterations] += now
        if count[i] == iterations:
            continue
        for j in graph[i]:
            sent = network.arrival(now, i, j, size), next(caused)
            heard[j].setdefault(count[i], []).append(sent)
        ends[i] = now + nanoseconds(next(draws[i])), next(caused)
        count[i] += 1
        for j in (i, *graph[i]):
            came = heard[j].get(count[j] - 1, [])
            if count[j] and len(came) == len(graph[j]):
                time, number = max([ends[j], *came])
                heapq.heappush(ready, (time + nanoseconds(after), number, j))
                heard[j].pop(count[j] - 1, None)  # None: a worker without neighbours
    return seconds(total[1] - total[0]) / n / (iterations - iterations // 2)
