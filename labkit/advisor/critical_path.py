"""The critical path through a pipeline schedule, or through gossip: the time at which each piece of work is done.

A stage executes its list of work in order. A forward waits for the activation from the previous stage, a backward for
the delta from the next stage. Each piece of work takes its share of the time of a gradient. Each message takes a
latency and the time for which its bytes occupy the two links. With deterministic times the result equals the
simulator's. (A closed form is known only for equal stages and a free network: (M + P - 1)(tf + tb) for GPipe and 1F1B.)
In gossip, messages with models occupy the links in the order in which they were sent.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..engines.simulated.network import LinkTimes
from ..roles.model_parallel.schedules import BACKWARD, FORWARD, Work
from ..trace.schema import nanoseconds, seconds

GOSSIP_ITERATIONS = 60  # iterations of gossip with constant times; the second half is counted
MAX_GOSSIP_ITERATIONS, MAX_MESSAGES = (
    20_000,
    100_000,
)  # with random times: maximum numbers of iterations and of messages


@dataclass(frozen=True)
class PipelineStage:
    """One stage of a pipeline.

    steps: the list of work of each step. cost(work): its share of the time of a gradient. output_bytes(work): bytes of
    its result. is_first, is_last: whether a piece of work is at the beginning or end of the network. update_seconds:
    the time of an update, which follows each step's work or, with `update_every_backward`, each backward.
    """

    steps: Iterable[Iterable[Work]]
    cost: Callable[[Work], float]
    output_bytes: Callable[[Work], int]
    is_first: Callable[[Work], bool]
    is_last: Callable[[Work], bool]
    update_seconds: float = 0.0
    update_every_backward: bool = False


_FINISHED: tuple[int, Work | None, bool] = (0, None, False)


class _StageProgress:
    """The progress of a stage: its next piece of work, when the stage is free, and when its inputs arrived. Times in ns."""

    def __init__(self, stage: PipelineStage, draw: Iterator[float]):
        self.stage, self.free, self.done, self.arrived = stage, 0, list[int](), dict[Any, int]()
        # scheduled: the end of the next piece of work is known; waiting: for the same stage of other replicas
        self.scheduled = self.waiting = False
        self._remaining: Iterator[tuple[int, Work | None, bool]] = (
            (k, work, last) for k, step in enumerate(stage.steps) for work, last in _with_last_flag(step)
        )
        self._draw = draw
        self.advance()

    def advance(self) -> None:
        self.step, self.work, self.last = next(self._remaining, _FINISHED)
        if self.work is not None:
            self.duration = nanoseconds(next(self._draw) * self.stage.cost(self.work))

    def next_end(self) -> int | None:
        """Return the end of the next piece of work; None if its input has not been sent yet."""
        work = self.work
        if work is None or self.waiting:
            return None
        needs = None
        if (work.kind == FORWARD and not self.stage.is_first(work)) or (
            work.kind == BACKWARD and not self.stage.is_last(work)
        ):
            needs = self.arrived.get((self.step, work.kind, work.micro, work.chunk))
            if needs is None:
                return None
        return max(self.free, needs or 0) + self.duration


def _with_last_flag(works: Iterable[Work]) -> Iterator[tuple[Work, bool]]:
    """Yield pairs of (work, whether it is the last)."""
    for work, behind in itertools.pairwise(itertools.chain(works, [None])):
        assert work is not None
        yield work, behind is None


def pipeline_period(
    stages: list[PipelineStage], latency: float, bandwidth: float, draws: list[Iterator[float]], replicas: int = 1
) -> float:
    """Return the mean seconds between two updates of stage 0, over the last half of its updates.

    `draws`: for every stage of every replica, replica by replica, the times of a gradient. Corresponding stages of all
    replicas update together, when the last of these stages has finished the work of its step.
    """
    count = len(stages)
    network = LinkTimes(count * replicas, latency, bandwidth)
    progress = [_StageProgress(stages[i % count], draw) for i, draw in enumerate(draws)]
    ready: list[
        tuple[int, int]
    ] = []  # (end of the next piece of work, number of its stage), in the order in which links are occupied

    def schedule(i: int) -> None:
        end = None if progress[i].scheduled else progress[i].next_end()
        if end is not None:
            progress[i].scheduled = True
            heapq.heappush(ready, (end, i))

    for i in range(len(progress)):
        schedule(i)
    while ready:
        now, i = heapq.heappop(ready)
        active, first, k = progress[i], i - i % count, i % count
        work, stage = active.work, active.stage
        assert work is not None
        if work.kind == FORWARD and not stage.is_last(work):
            to, chunk = (k + 1) % count, work.chunk + (k + 1 == count)
        elif work.kind == BACKWARD and not stage.is_first(work):
            to, chunk = (k - 1) % count, work.chunk - (k == 0)
        else:
            to = k
        if to != k:
            arrival = network.arrival(now, i, first + to, stage.output_bytes(work))
            progress[first + to].arrived[active.step, work.kind, work.micro, chunk] = arrival
            schedule(first + to)
        active.free, active.scheduled = now, False
        updates = work.kind == BACKWARD if stage.update_every_backward else active.last
        active.advance()
        if not updates:
            schedule(i)
            continue
        active.waiting = True
        group = range(k, len(progress), count)
        if all(progress[j].waiting for j in group):
            for j in group:  # all stages of the group are done, stage i last
                progress[j].free, progress[j].waiting = now + nanoseconds(stage.update_seconds), False
                progress[j].done.append(progress[j].free)
                schedule(j)
    ends = progress[0].done
    half = len(ends) // 2
    return seconds(ends[-1] - ends[half - 1]) / (len(ends) - half)


def gossip_iterations(graph: Sequence[Sequence[int]], constant: bool) -> int:
    """Return the number of iterations of gossip to evaluate."""
    if constant:
        return GOSSIP_ITERATIONS
    messages = len(graph) + sum(map(len, graph))
    return max(GOSSIP_ITERATIONS, min(MAX_GOSSIP_ITERATIONS, MAX_MESSAGES // messages))


def gossip_period(
    graph: Sequence[Sequence[int]], size: int, after: float, latency: float, bandwidth: float,
    draws: list[Iterator[float]], iterations: int = GOSSIP_ITERATIONS,
) -> float:  # fmt: skip
    """Return the mean seconds per iteration of gossip, over the second half of the iterations.

    In an iteration all workers send `size` bytes to their neighbours, compute, and wait for the neighbours' models.
    `after`: the seconds of the averaging that follows.
    """
    network, n, sequence = LinkTimes(len(graph), latency, bandwidth), len(graph), itertools.count()
    count, ends = [0] * n, [(0, 0)] * n  # (time, number of the event): at equal times in the order of their causes
    arrivals = [
        dict[int, list[tuple[int, int]]]() for _ in range(n)
    ]  # by iteration: when the neighbours' models arrived
    ready, total = [(0, 0, i) for i in range(n)], [0, 0]
    while ready:
        now, _, i = heapq.heappop(ready)  # worker i begins its next iteration
        if count[i] in (iterations // 2, iterations):
            total[count[i] // iterations] += now
        if count[i] == iterations:
            continue
        for j in graph[i]:
            sent = network.arrival(now, i, j, size), next(sequence)
            arrivals[j].setdefault(count[i], []).append(sent)
        ends[i] = now + nanoseconds(next(draws[i])), next(sequence)
        count[i] += 1
        for j in (i, *graph[i]):
            received = arrivals[j].get(count[j] - 1, [])
            if count[j] and len(received) == len(graph[j]):
                time, number = max([ends[j], *received])
                heapq.heappush(ready, (time + nanoseconds(after), number, j))
                arrivals[j].pop(count[j] - 1, None)  # a worker without neighbours has no entry
    return seconds(total[1] - total[0]) / n / (iterations - iterations // 2)
