"""Recovery of roles whose processes are killed: of one, and of all roles of a run at once.

labkit restarts the processes. Measured from the kill until the last of the roles is up in its next incarnation, and until a
worker among them begins to compute; each time in a new client with a new cluster.
"""

from __future__ import annotations

from .children import fresh
from .rows import Benchmark, Row, Settings, Side, Values, alternate

__all__ = ["BENCHMARK"]

RUN = "4 workers, 1 server, chief"


def run(settings: Settings) -> list[Row]:
    """All in every repetition."""
    return alternate(settings, RUN, [Side("labkit", _ways_back)])


def _ways_back() -> Values:
    told = fresh("benchmarks.programs.way_back", 4, 1)
    values: dict[tuple[str, str], float] = {}
    for name, what in (("one", "one worker is killed"), ("all", "all six processes are killed at once")):
        back, computes = told[name]
        values[f"{RUN}: {what}, until back", "s"] = back
        values[f"{RUN}: {what}, until a worker computes again", "s"] = computes
    return values


BENCHMARK = Benchmark("recovery", "the way back of roles whose processes are killed", run)
