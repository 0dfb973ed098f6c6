"""Pipeline schedules: the order in which each stage processes the micro-batches of one mini-batch.

A schedule is a pure function that returns the list of `Work` of stage k. It does not determine start times: a stage performs
its list in order, and waits until its neighbours have sent the inputs of an item. There are P stages and M micro-batches; tf
and tb are the times of a forward and of a backward of one stage on one micro-batch. The duration of a mini-batch and the
memory are:

    gpipe        all forwards, then all backwards           (M + P - 1)(tf + tb); M micro-batches are held
    1f1b         P - 1 - k forwards ahead, then by turns    the same time; min(M, P - k) are held at stage k
    interleaved  v chunks per stage, each 1/v of its work   M (tf + tb) + (P - 1)(tf + tb) / v
    zb-h1        1f1b; weight gradients fill the gaps       M (tf + tb) + (P - 1)(tf + tb - 2 tw)

In zb-h1 a backward has two parts: the gradient of the inputs, and then the gradient of the weights, which takes tw of the time
tb. Other stages wait only for the first part. In every schedule, the backwards of a chunk are in the order of the micro-
batches, so gradients are summed in the same order, and all schedules give bitwise equal results. (In the figures of the GPipe
paper the backwards are in reverse order, which takes the same time.)

Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019 (1F1B), and "Efficient large-scale language model
training on GPU clusters using Megatron-LM", 2021 (interleaved); Qi et al., "Zero bubble pipeline parallelism", 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"


class Work(NamedTuple):
    """One item of work of a stage: its kind, the micro-batch, and the chunk of blocks.

    `split`: this backward does not compute the gradient of the weights; a separate `WEIGHTS` item does.
    """

    kind: str
    micro: int
    chunk: int = 0
    split: bool = False


def gpipe(stages: int, micro_batches: int, stage: int, chunks: int = 1) -> tuple[Work, ...]:
    """Return all forwards, then all backwards."""
    return tuple(Work(kind, m) for kind in (FORWARD, BACKWARD) for m in range(micro_batches))


def one_forward_one_backward(stages: int, micro_batches: int, stage: int, chunks: int = 1) -> tuple[Work, ...]:
    """First one forward for each later stage, then alternately one forward and one backward."""
    ahead = min(stages - 1 - stage, micro_batches)
    return _alternate([Work(FORWARD, m) for m in range(micro_batches)], ahead, _backwards(micro_batches))


def interleaved(stages: int, micro_batches: int, stage: int, chunks: int = 2) -> tuple[Work, ...]:
    """1F1B over `chunks` chunks per stage: chunk c of stage k is piece c x stages + k of the network.

    Micro-batches are processed in groups of `stages`, each group through one chunk after the other; `micro_batches` is a
    multiple of `stages`.
    """
    pieces = [
        (group + m, chunk)
        for group in range(0, micro_batches, stages)
        for chunk in range(chunks)
        for m in range(stages)
    ]
    ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, len(pieces))
    backwards = [Work(BACKWARD, m, chunks - 1 - chunk) for m, chunk in pieces]
    return _alternate([Work(FORWARD, m, chunk) for m, chunk in pieces], ahead, backwards)


def zero_bubble(stages: int, micro_batches: int, stage: int, chunks: int = 1) -> tuple[Work, ...]:
    """1F1B with split backwards: a backward computes only the gradient of the inputs, and stage k computes the gradient of the
    weights k micro-batches later.

    The deferred work fills the time in which a stage would wait.
    """
    order: list[Work] = []
    for work in one_forward_one_backward(stages, micro_batches, stage):
        if work.kind == FORWARD:
            order.append(work)
            continue
        order.append(Work(BACKWARD, work.micro, split=True))
        if work.micro >= stage:
            order.append(Work(WEIGHTS, work.micro - stage))
    deferred = range(max(0, micro_batches - stage), micro_batches)
    return (*order, *(Work(WEIGHTS, m) for m in deferred))


def pipe_dream(stages: int, stage: int) -> Iterator[Work]:
    """Infinite 1F1B: `micro` numbers whole mini-batches, of which `stages` are in progress at once."""
    for m in range(stages - 1 - stage):
        yield Work(FORWARD, m)
    for m in count():
        yield Work(FORWARD, m + stages - 1 - stage)
        yield Work(BACKWARD, m)


SCHEDULES: dict[str, Callable[..., tuple[Work, ...]]] = {
    "1f1b": one_forward_one_backward, "gpipe": gpipe, "interleaved": interleaved, "zb-h1": zero_bubble,
}  # fmt: skip


def _backwards(micro_batches: int) -> list[Work]:
    return [Work(BACKWARD, m) for m in range(micro_batches)]


def _alternate(forwards: list[Work], ahead: int, backwards: list[Work]) -> tuple[Work, ...]:
    """Return `ahead` forwards, then alternately a forward and a backward, then the remaining backwards."""
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards):
        order += [forward, backward]
    return (*order, *backwards[len(forwards) - ahead :])
