"""The scenarios of the lab. Each scenario shows one effect in about 20 seconds, with a formula for the size of the
effect.

A scenario is a value (`labkit.lab.scenarios.scenario`). Its formula is in the comment above it, and is checked by
`tests/lab/test_scenarios.py`. The start notebook uses the first scenario. The next seven scenarios show the main effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import nearest
from .failures import SERVER_FAILS, WORKER_FAILS
from .links import BUCKETS, FEWER_BYTES, FULL_LINK, LOCAL_STEPS, SPARSE
from .models import BUBBLE, SKEWED_DATA
from .scenario import Scenario
from .staleness import RUNAWAY, STALE_AND_FAST, STALENESS
from .waiting import BACKUP_WORKERS, FIRST_MINUTE, RANDOM_TIMES, SLOW_WORKER

__all__ = ["SCENARIOS", "scenario_by_name"]

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({
    scenario.name: scenario
    for scenario in (
        FIRST_MINUTE,
        SLOW_WORKER, STALENESS, STALE_AND_FAST, RUNAWAY, FULL_LINK, BUCKETS, BUBBLE,
        WORKER_FAILS, SERVER_FAILS,
        RANDOM_TIMES, BACKUP_WORKERS, SPARSE, SKEWED_DATA, LOCAL_STEPS, FEWER_BYTES,
    )
})  # fmt: skip


def scenario_by_name(name: str) -> Scenario:
    """Return the scenario of this name. Raises `BadInput`, with the nearest name and a list of all names, if there is
    none.
    """
    if name not in SCENARIOS:
        raise nearest("scenario", name, SCENARIOS)
    return SCENARIOS[name]
