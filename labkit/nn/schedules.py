"""Schedules: the learning rate of an update is `learning_rate * schedule(update)`.

`update` is the number of updates that were applied before. Schedules count updates, not epochs or seconds, because only
the meaning of updates does not depend on the number of workers. A schedule is a pure function of `update`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import BadInput, nearest, shown
from ..options import HasOptions, option
from .named_objects import make_by_name, name_as_text


class Schedule(Protocol):
    """A function from the number of updates applied so far to a factor of the learning rate."""

    def __call__(self, update: int, /) -> float:
        """Return the factor, at least 0."""


@dataclass(frozen=True)
class Constant:
    """The factor 1 for all updates.

    See Also
    --------
    Step, Cosine : Schedules that reduce the rate.

    Examples
    --------
    >>> lk.schedules.Constant()(1000)
    1.0
    """

    def __call__(self, update: int) -> float:
        return 1.0


@dataclass(frozen=True)
class StepDecay(HasOptions):
    """Step decay, factor^floor(update / every): the learning rate is multiplied by `factor` once every `every` updates.

    See Also
    --------
    Cosine : Reduces the rate smoothly.
    Warmup : Increases the rate at the start.

    Examples
    --------
    >>> schedule = lk.schedules.StepDecay(every=100, factor=0.5)
    >>> [schedule(update) for update in (0, 99, 100, 200)]
    [1.0, 1.0, 0.5, 0.25]
    """

    every: int = field(metadata=option(low=1, high=10**15, help="updates between two steps").metadata)
    factor: float = option(0.5, low=0.0, high=1.0, help="what a step multiplies the rate with")

    def __call__(self, update: int) -> float:
        return float(self.factor ** (update // self.every))


@dataclass(frozen=True)
class Cosine(HasOptions):
    """Cosine decay (Loshchilov and Hutter 2017, eq. 5).

    The factor is floor + (1 - floor) (1 + cos(pi update / total)) / 2 until update `total`, and then `floor`.

    See Also
    --------
    Step : Reduces the rate in steps.
    Warmup : Increases the rate at the start.

    Examples
    --------
    >>> schedule = lk.schedules.Cosine(total=1000, floor=0.1)
    >>> [round(schedule(update), 3) for update in (0, 500, 1000, 2000)]
    [1.0, 0.55, 0.1, 0.1]
    """

    total: int = field(metadata=option(low=1, high=10**15, help="updates until the floor is reached").metadata)
    floor: float = option(0.0, low=0.0, high=1.0, help="what remains of the rate")

    def __call__(self, update: int) -> float:
        done = min(update, self.total) / self.total
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class Warmup(HasOptions):
    """Linear warm-up (Goyal et al. 2017, section 2.2), followed by another schedule.

    The factor is (update + 1) / updates for the first `updates` updates. Then it is the factor of the schedule `after`,
    whose updates are counted from the end of the warm-up. The first factor is 1/updates, because 0 would waste a gradient.

    Parameters
    ----------
    after : Schedule, default: Constant()
        The schedule of the later updates.

    See Also
    --------
    Step, Cosine : Schedules that can follow.

    Examples
    --------
    >>> schedule = lk.schedules.Warmup(4, after=lk.schedules.StepDecay(10))
    >>> [schedule(update) for update in (0, 1, 3, 4, 14)]
    [0.25, 0.5, 1.0, 1.0, 0.5]
    """

    updates: int = field(metadata=option(low=1, high=10**15, help="updates until the full rate is reached").metadata)
    after: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.after) or isinstance(self.after, type):
            raise BadInput(f"Warmup: after={shown(self.after)} is not a schedule; give one, such as Cosine(1000).")

    def __call__(self, update: int) -> float:
        return (update + 1) / self.updates if update < self.updates else self.after(update - self.updates)


SCHEDULES: dict[str, type] = {"constant": Constant, "step": StepDecay, "cosine": Cosine, "warmup": Warmup}


def schedule_by_name(text: str) -> Schedule:
    """Make a schedule from text: `"constant"`, `"step:100:0.5"`, `"cosine:1000"`, `"warmup:50"`, `"warmup:50+cosine:1000"`.

    Raises `BadInput` for other text, with the nearest name if the name is unknown.
    """
    first, plus, rest = text.partition("+")
    schedule: Schedule = make_by_name("schedule", first, SCHEDULES)
    if not plus:
        return schedule
    if not isinstance(schedule, Warmup):
        raise BadInput(
            f"{shown(text)}: only a warm-up can be followed by another schedule, as in warmup:50+cosine:1000."
        )
    if not rest.strip():
        raise nearest("schedule", rest, SCHEDULES)
    return Warmup(schedule.updates, schedule_by_name(rest))


def schedule_as_text(schedule: Schedule) -> str | None:
    """Return the text that `schedule_by_name` reads as this schedule; None for a user-defined schedule."""
    text = name_as_text(schedule, SCHEDULES)
    if text is None or not isinstance(schedule, Warmup) or schedule.after == Constant():
        return text
    after = schedule_as_text(schedule.after)
    return None if after is None else f"{text}+{after}"
