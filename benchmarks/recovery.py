"""Recovery of roles whose processes are killed: of one role, and of all roles of a run at once.

labkit restarts the processes. Two times are measured from the kill: until the last of the roles has started in its next
incarnation, and until a worker among the roles begins to compute. Each measurement has a new client with a new cluster.
"""

from __future__ import annotations

from .rows import Benchmark, Row, Settings, Side, Values, alternate
from .subprocesses import run_program

RUN = "4 workers, 1 server, chief"


def run(settings: Settings) -> list[Row]:
    """Measure both cases in every repetition."""
    return alternate(settings, RUN, [Side("labkit", _restart_times)])


def _restart_times() -> Values:
    result = run_program("benchmarks.programs.restart", 4, 1)
    values: dict[tuple[str, str], float] = {}
    for name, what in (("one", "one worker is killed"), ("all", "all six processes are killed at once")):
        restarted, computes = result[name]
        values[f"{RUN}: {what}, until restarted", "s"] = restarted
        values[f"{RUN}: {what}, until a worker computes again", "s"] = computes
    return values


BENCHMARK = Benchmark("recovery", "the time until roles whose processes were killed have restarted", run)
