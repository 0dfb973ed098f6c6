"""What a measurement is: sides that take turns, and rows of medians.

A `Side` measures itself once when called and returns values by (name, unit). `alternate` lets all sides measure once,
then once more in the opposite order, and so on: a machine that grows slower, or busy, meets all of them alike. A ratio
is formed within one turn, and only then the median over the turns: of ratios, not of times taken minutes apart.
"""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Benchmark", "Row", "Settings", "Side", "Values", "alternate"]

Values = Mapping[tuple[str, str], float]  # (what was measured, unit) -> how much


@dataclass(frozen=True)
class Row:
    """A line of a table. `median`, `low`, `high` over `repetitions`; all None where the side was `skipped`, and why."""

    name: str
    side: str
    unit: str
    median: float | None
    low: float | None
    high: float | None
    repetitions: int
    skipped: str | None = None


@dataclass(frozen=True)
class Side:
    """One side of a comparison. `measure` is one repetition; `needs`: modules without which the side is skipped."""

    name: str
    measure: Callable[[], Values]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """Why this side cannot be measured here; None if it can."""
        absent = [module for module in self.needs if importlib.util.find_spec(module) is None]
        return f"not installed: {', '.join(absent)}" if absent else None


@dataclass(frozen=True)
class Settings:
    """`quick`: tiny sizes, one repetition, numbers without worth. `say` tells what is being measured now."""

    quick: bool = False
    say: Callable[[str], None] = lambda text: None

    def choose(self, full: int | float, quick: int | float) -> int | float:
        """A size: `full`, or what is enough to see that it runs."""
        return quick if self.quick else full

    @property
    def repetitions(self) -> int:
        """How often each side is measured."""
        return 1 if self.quick else 5


@dataclass(frozen=True)
class Benchmark:
    """`name` is what `--only` takes, `what` one sentence, `note` what a reader of the numbers must know."""

    name: str
    what: str
    run: Callable[[Settings], list[Row]]
    note: str = ""


def alternate(settings: Settings, name: str, sides: Sequence[Side], against: str | None = None) -> list[Row]:
    """Measure `sides` in turns; a row for each name, unit and side: what can be compared stands together.

    `against`: a side's name; every other side also gets a row of its ratio to that one, under the same name, unit "x".
    `name` stands in the row of a side that is skipped.
    """
    turns: list[dict[str, Values]] = []
    able = [side for side in sides if side.missing is None]
    for turn in range(settings.repetitions):
        taken: dict[str, Values] = {}
        for side in able if turn % 2 == 0 else reversed(able):
            settings.say(f"{name}: {side.name} ({turn + 1} of {settings.repetitions})")
            gc.collect()  # what one side left behind is not the next one's to clear up
            taken[side.name] = side.measure()
        turns.append(taken)
    rows = [_row(key, side.name, [t[side.name][key] for t in turns]) for side in able for key in turns[0][side.name]]
    rows += _ratios(turns, [side.name for side in able], against)
    names, units = list(dict.fromkeys(row.name for row in rows)), list(dict.fromkeys(row.unit for row in rows))
    rows.sort(key=lambda row: (names.index(row.name), units.index(row.unit)))
    return rows + [Row(name, side.name, "", None, None, None, 0, side.missing) for side in sides if side.missing]


def _row(key: tuple[str, str], side: str, values: Sequence[float]) -> Row:
    return Row(*(key[0], side, key[1]), median(values), min(values), max(values), len(values))


def _ratios(turns: Sequence[Mapping[str, Values]], sides: Sequence[str], against: str | None) -> list[Row]:
    if against is None or against not in sides:
        return []
    return [
        _row((name, "x"), f"{side} / {against}", [turn[side][name, unit] / turn[against][name, unit] for turn in turns])
        for side in sides
        if side != against
        for name, unit in turns[0][side]
        if (name, unit) in turns[0][against]
    ]
