"""A pipeline with a schedule given as a function, for the assignment about pipeline schedules.

`ScheduledPipeline.from_function(order, stages=4, micro_batches=8)` calls `order(stages, micro_batches, stage)` for every
stage, and each stage executes the list of ("forward", i) and ("backward", i) that `order` returns for it. Backward
passes must be in the order of the micro-batches, as in all schedules of labkit, because their gradients are summed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..options import option
from ..roles.context import Context
from ..roles.model_parallel.schedules import BACKWARD, FORWARD, Work
from ..roles.model_parallel.stages import pipeline_pass
from ..strategies import Pipeline

__all__ = ["ScheduledPipeline"]

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
