"""The longest path through a pipeline schedule, or through gossip: when is each piece of work done?

A stage does its list of work in order. A forward waits for the activation from the stage before, a backward for the
delta from the stage after; each piece takes its share of a gradient, each message a latency and its bytes' time on the
two links. Nothing else is in it, so with deterministic times it ends when the simulator does. (A closed form is known
only for equal stages and a free network: (M + P - 1)(tf + tb) for GPipe and 1F1B.) In gossip models cross each other's
way on the links, and who is first is decided by the order in which they were sent.
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

GOSSIPS = 60  # iterations of gossip without chance that are followed; the second half is counted
MOST_GOSSIPS, MESSAGES = 20_000, 100_000  # with chance: so many iterations, or as many as make so many messages


@dataclass(frozen=True)
class Stage:
    """One stage. `steps`: for each step its list of work. `cost(work)`: share of a gradient; `sends(work)`: bytes of
    what comes of it. `begins`, `ends`: whether a piece of work is at an end of the network. `after`: seconds for which
    the update takes the stage. It comes at the end of a step's work, or, with `always`, after every backward.
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
    """Where a stage is in its work: what is next, when it is free, when what it needs has come."""

    def __init__(self, stage: Stage, draw: Iterator[float]):
        self.stage, self.free, self.done, self.arrived = stage, 0, list[int](), dict[Any, int]()
        self.offered = self.waits = False  # its next end is known; it waits for its equals in other replicas
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
        """When the next piece can be done; None if what it needs has not been sent yet."""
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
    """Each with whether it is the last."""
    for work, behind in itertools.pairwise(itertools.chain(works, [None])):
        assert work is not None
        yield work, behind is None


def period(
    stages: list[Stage], latency: float, bandwidth: float, draws: list[Iterator[float]], replicas: int = 1
) -> float:
    """Seconds between two updates of stage 0, over the last half of its updates.

    `draws`: times of a gradient, of every stage of every replica, replica by replica. Equal stages of replicas update together:
    when the last of them has done its step's work.
    """
    count = len(stages)
    network = Links(count * replicas, latency, bandwidth)
    walks = [_Walk(stages[i % count], draw) for i, draw in enumerate(draws)]
    ready: list[tuple[int, int]] = []  # (end of its next piece of work, walk): in the order of time, as links are taken

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
            for j in equals:  # all have come, this one last
                walks[j].free, walks[j].waits = now + nanoseconds(stage.after), False
                walks[j].done.append(walks[j].free)
                offer(j)
    ends = walks[0].done
    half = len(ends) // 2
    return seconds(ends[-1] - ends[half - 1]) / (len(ends) - half)


def iterations_of(graph: Sequence[Sequence[int]], constant: bool) -> int:
    """How many iterations of gossip are followed."""
    if constant:
        return GOSSIPS
    messages = len(graph) + sum(map(len, graph))
    return max(GOSSIPS, min(MOST_GOSSIPS, MESSAGES // messages))


def gossip(
    graph: Sequence[Sequence[int]], size: int, after: float, latency: float, bandwidth: float,
    draws: list[Iterator[float]], iterations: int = GOSSIPS,
) -> float:  # fmt: skip
    """Seconds an iteration if all send `size` bytes to the neighbours, compute, and wait for what those sent: the mean over the
    second half of so many iterations.
    """
    network, n, caused = Links(len(graph), latency, bandwidth), len(graph), itertools.count()
    count, ends = [0] * n, [(0, 0)] * n  # (time, number of the event): of one instant, what was caused first is first
    heard = [dict[int, list[tuple[int, int]]]() for _ in range(n)]  # by iteration: when the neighbours' models came
    ready, total = [(0, 0, i) for i in range(n)], [0, 0]
    while ready:
        now, _, i = heapq.heappop(ready)  # begins its next iteration: in the order of time, as links are taken
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
