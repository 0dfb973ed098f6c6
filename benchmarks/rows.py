"""Measurements: alternating sides, and rows of medians.

`Side.measure` makes one measurement and returns values by (name, unit). `alternate` measures all sides in one turn,
then in the opposite order in the next turn, and so on, so that a change of the machine's speed or load affects all
sides equally. Ratios are formed within one turn. The result is the median of these ratios, not a ratio of times
measured minutes apart.
"""

from __future__ import annotations

import gc
import importlib.util
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Values = Mapping[tuple[str, str], float]  # (what was measured, unit) -> how much


@dataclass(frozen=True)
class Row:
    """A line of a table: `median`, `low` and `high` of `repetitions` measurements.

    All three are None if the side was skipped; `skipped` is the reason.
    """

    name: str
    side: str
    unit: str
    median: float | None
    low: float | None
    high: float | None
    repetitions: int
    skipped: str | None = None


class Unmeasured(Exception):
    """Raised by a side that cannot be measured. The row of the side contains the reason, and the other sides continue."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    measure: a function that makes one repetition. The side is skipped if one of the modules `needs` or one of the
    commands `programs` is missing.
    """

    name: str
    measure: Callable[[], Values]
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """Why this side cannot be measured on this machine; None if it can."""
        absent = [module for module in self.needs if importlib.util.find_spec(module) is None]
        absent += [program for program in self.programs if shutil.which(program) is None]
        return f"not installed: {', '.join(absent)}" if absent else None


@dataclass(frozen=True)
class Pair:
    """A ratio `over` / `under`, which is formed in each turn. Both are (side, what was measured), in `unit`."""

    name: str
    over: tuple[str, str]
    under: tuple[str, str]
    unit: str

    def values(self, turn: Mapping[str, Values]) -> tuple[float, float]:
        """Return both numbers of a turn. Raises `KeyError` if a number was not measured."""
        return turn[self.over[0]][self.over[1], self.unit], turn[self.under[0]][self.under[1], self.unit]


@dataclass(frozen=True)
class Settings:
    """Settings of all benchmarks. `quick`: tiny sizes and one repetition, to test that benchmarks run; results have no meaning.

    `report_progress`: a function that reports what is being measured.
    """

    quick: bool = False
    report_progress: Callable[[str], None] = lambda text: None

    def choose(self, full: int | float, quick: int | float) -> int | float:
        """Return `quick` if the setting `quick` is on, else `full`."""
        return quick if self.quick else full

    @property
    def repetitions(self) -> int:
        """The number of measurements of each side."""
        return 1 if self.quick else 5


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. `name`: the name for `--only`; `what`: a description of one sentence; `note`: a note on the results."""

    name: str
    what: str
    run: Callable[[Settings], list[Row]]
    note: str = ""


def alternate(
    settings: Settings, name: str, sides: Sequence[Side], baseline: str | None = None, *,
    repetitions: int | None = None, pairs: Sequence[Pair] = (),
) -> list[Row]:  # fmt: skip
    """Measure `sides` in turns. Returns a row for each name, unit and side, with comparable rows next to each other.

    baseline: the name of a side. Every other side also gets a row with its ratio to this side, under the same name, in
    the unit "x". pairs: further ratios, at the end. name: the name in the row of a skipped side. repetitions: overrides
    the settings.
    """
    skipped = {side.name: side.missing for side in sides if side.missing}
    turns = _measure_turns(settings, name, sides, skipped, repetitions or settings.repetitions)
    measurable = [side.name for side in sides if side.name not in skipped]
    rows = [_row(key, side, [t[side][key] for t in turns]) for side in measurable for key in turns[0][side]]
    rows += _ratios(turns, measurable, baseline)
    names, units = list(dict.fromkeys(row.name for row in rows)), list(dict.fromkeys(row.unit for row in rows))
    rows.sort(key=lambda row: (names.index(row.name), units.index(row.unit)))
    rows += [_skipped(name, side.name, skipped[side.name]) for side in sides if side.name in skipped]
    return rows + [_pair(turns, pair, skipped) for pair in pairs]


def _measure_turns(
    settings: Settings, name: str, sides: Sequence[Side], skipped: dict[str, str | None], repetitions: int
) -> list[dict[str, Values]]:
    """Return the measurements of each side in each turn. A side that fails is skipped in all later turns, with the reason."""
    turns: list[dict[str, Values]] = []
    for turn in range(repetitions):
        measured: dict[str, Values] = {}
        for side in sides if turn % 2 == 0 else reversed(sides):
            if side.name in skipped:
                continue
            settings.report_progress(f"{name}: {side.name} ({turn + 1} of {repetitions})")
            gc.collect()  # so that the garbage of one side is not collected during the next
            try:
                measured[side.name] = side.measure()
            except Unmeasured as why:
                skipped[side.name] = str(why)
        turns.append(measured)
    return turns


def _pair(turns: Sequence[Mapping[str, Values]], pair: Pair, skipped: Mapping[str, str | None]) -> Row:
    text = f"{pair.over[0]} / {pair.under[0]}"
    for side, _ in (pair.over, pair.under):
        if side in skipped:
            return _skipped(pair.name, text, skipped[side])
    return _row((pair.name, "x"), text, [over / under for over, under in map(pair.values, turns)])


def _skipped(name: str, side: str, why: str | None) -> Row:
    return Row(name, side, "", None, None, None, 0, why)


def _row(key: tuple[str, str], side: str, values: Sequence[float]) -> Row:
    return Row(*(key[0], side, key[1]), median(values), min(values), max(values), len(values))


def _ratios(turns: Sequence[Mapping[str, Values]], sides: Sequence[str], baseline: str | None) -> list[Row]:
    if baseline is None or baseline not in sides:
        return []
    return [
        _row(
            (name, "x"), f"{side} / {baseline}", [turn[side][name, unit] / turn[baseline][name, unit] for turn in turns]
        )
        for side in sides
        if side != baseline
        for name, unit in turns[0][side]
        if (name, unit) in turns[0][baseline]
    ]
