"""A pipeline with a schedule given as a function, for the assignment about pipeline schedules.

`ScheduledPipeline.from_function(order, stages=4, micro_batches=8)` calls `order(stages, micro_batches, stage)` for every
stage, and each stage executes the list of ("forward", i) and ("backward", i) that `order` returns for it. Backward
passes must be in the order of the micro-batches, as in all schedules of labkit, because their gradients are summed in place.

`activations_held` and `schedule_seconds` compute the memory and the duration of a schedule without running it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..options import option
from ..roles.context import Context
from ..roles.model_parallel.schedules import BACKWARD, FORWARD, Work
from ..roles.model_parallel.stages import pipeline_pass
from ..strategies import Pipeline
from .testing import CheckFailed

WORDS = {"forward": FORWARD, "backward": BACKWARD}


@dataclass(frozen=True)
class ScheduledPipeline(Pipeline):
    """`lk.Pipeline` with another schedule: `orders[k]` has the passes of stage k in order."""

    orders: tuple[tuple[tuple[str, int], ...], ...] = option((), help="for each stage its list of work, in order")
    description: ClassVar[str] = "pipeline with a schedule defined by the user."

    @classmethod
    def from_function(
        cls, order: Callable[[int, int, int], Any], stages: int, micro_batches: int, **options: Any
    ) -> ScheduledPipeline:
        """Make the strategy from a function of (stages, micro_batches, stage).

        Raises `BadInput` if the list that the function returns for a stage is not a schedule.
        """
        orders = tuple(_checked(order(stages, micro_batches, k), k, micro_batches) for k in range(stages))
        return cls(micro_batches=micro_batches, orders=orders, **options)

    async def worker(self, ctx: Context, stage: Any, shard: Any) -> None:
        """Pass each mini-batch through the stages in the given order and apply the gradient."""
        order = tuple(Work(WORDS[word], micro, 0) for word, micro in self.orders[stage.index])
        for batch in ctx.batches():
            gradient = await pipeline_pass(ctx, stage, shard.weights(), batch, order)
            await ctx.compute(shard.apply, gradient, self.learning_rate)


def activations_held(work: Sequence[tuple[str, int]]) -> int:
    """Return the largest number of micro-batches of which a stage keeps the activations at one time: their forward is done
    and their backward is not. `work`: the list of the stage.
    """
    held = most = 0
    for word, _ in work:
        held += 1 if word == "forward" else -1
        most = max(most, held)
    return most


def schedule_seconds(
    orders: Sequence[Sequence[tuple[str, int]]], forward_seconds: float = 1, backward_seconds: float = 2
) -> float:
    """Return the duration of one mini-batch in a pipeline whose messages take no time.

    Parameters
    ----------
    orders : sequence of sequences of (str, int)
        For each stage its list of work, in order.
    forward_seconds, backward_seconds : float
        The time for one micro-batch, equal for all stages.

    Returns
    -------
    float
        The duration in seconds.

    Raises
    ------
    CheckFailed
        If the stages wait for each other (a deadlock).
    """
    # when each piece of work is done; None: needs no other work
    done: dict[tuple[int, str, int] | None, float] = {None: 0}
    last, left = [0.0] * len(orders), [list(order) for order in orders]
    while any(left):
        ready = [stage for stage, work in enumerate(left) if work and _required(stage, len(orders), *work[0]) in done]
        if not ready:
            raise CheckFailed("deadlock: the stages wait for each other")
        for stage in ready:
            word, micro = left[stage].pop(0)
            took = forward_seconds if word == "forward" else backward_seconds
            last[stage] = took + max(last[stage], done[_required(stage, len(orders), word, micro)])
            done[stage, word, micro] = last[stage]
    return max(last)


def _required(stage: int, stages: int, word: str, micro: int) -> tuple[int, str, int] | None:
    """Return the work that must be done before: that of the stage before (forward) or after (backward). None at the ends."""
    neighbour = stage - 1 if word == "forward" else stage + 1
    return (neighbour, word, micro) if 0 <= neighbour < stages else None


def _checked(schedule: Any, stage: int, micro_batches: int) -> tuple[tuple[str, int], ...]:
    """Return the schedule of a stage. Raises `BadInput` unless each micro-batch goes once forward and then once backward."""
    try:
        work = tuple((str(word), int(micro)) for word, micro in schedule)
    except (TypeError, ValueError):
        raise BadInput(f'stage {stage}: a schedule is a list of ("forward", i) and ("backward", i).') from None
    for word, _ in work:
        if word not in WORDS:
            raise BadInput(f"stage {stage}: {word!r} is not allowed; allowed: {', '.join(WORDS)}.")
    every = list(range(micro_batches))
    for word in WORDS:
        if sorted(micro for name, micro in work if name == word) != every:
            raise BadInput(f"stage {stage}: {word} must occur once for every micro-batch 0 to {micro_batches - 1}.")
    if [micro for word, micro in work if word == "backward"] != every:
        raise BadInput(
            f"stage {stage}: the backward passes must be in the order of the micro-batches, 0 to {micro_batches - 1}."
        )
    for micro in every:
        if work.index(("backward", micro)) < work.index(("forward", micro)):
            raise BadInput(f"stage {stage}: micro-batch {micro} goes backward before it has gone forward.")
    return work
