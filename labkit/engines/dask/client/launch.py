"""Starts role instances: creates their assignments, prepares their data, and submits their tasks to Dask.

In-memory data are sent with the task; Dask arrays are assembled on the Dask worker that needs them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from distributed import Client, Future

from ....interrupts import raise_if_interrupted
from ....options import options_of
from ....packed import Packed
from ....roles.layout import RoleSpec
from ...plan import Plan, split
from ..dask_private import call_when_done
from ..timeouts import LOOK_S
from ..worker.task import run_role

LOAD_S = 600.0  # limit for a share of the data to be assembled


class Launcher:
    """Starts the role instances of one run. `packed`, `settings`: fields that the assignments of all roles have in common; those
    with a user's code are packed.

    `factors`: {role: slowdown factor} of instances that start from now on. `restored`: {role: initial state}, for a run
    that resumes another. Both are taken from `settings`.
    """

    def __init__(self, client: Client, plan: Plan, run: str, packed: Packed, settings: dict[str, Any]):
        self.client, self._full, self.run = client, plan, run
        self.factors: dict[str, float] = settings.pop("factors")
        self.restored: dict[str, Any] = settings.pop("restored", {})
        self.plan = plan.without_data()
        self._packed, self._settings = packed, settings
        self._shares: Any = None
        self._test: Any = None
        self._lazy = not plan.problem.timing_only and hasattr(plan.problem.dataset, "shares")

    def load(self, where: dict[str, str]) -> None:
        """Prepare the data of all roles. `where`: {role: Dask worker}."""
        problem, layout = self._full.problem, self._full.layout
        if problem.timing_only:
            return
        if not self._lazy:
            dataset = problem.dataset
            self._shares = split(dataset, problem, layout.shares, self._full.elastic)
            self._test = dataset.evaluated
            return
        first = {spec.data: spec.name for spec in reversed(layout.roles) if spec.data is not None}
        # None: the role is absent, see `_move`
        addresses = [where.get(first[number]) for number in range(layout.shares)]
        lazy = self._lazy_shares([address or where["chief"] for address in addresses])
        self._shares = [address and self._compute(part, address) for part, address in zip(lazy, addresses)]
        self._test = self._compute(self._lazy_test(where["chief"]), where["chief"])
        for future in (*filter(None, self._shares), self._test):  # wait now, because roles may occupy the only thread
            until = time.monotonic() + LOAD_S
            while not future.done() and time.monotonic() < until:
                raise_if_interrupted()
                time.sleep(LOOK_S / 5)
            error = future.exception(timeout=LOOK_S)
            if error is not None:
                raise error

    def forget(self) -> None:
        """Release the data. Called when no more roles will start."""
        self._shares = self._test = None

    def _lazy_shares(self, addresses: list[str]) -> Any:
        problem = self._full.problem
        with self.client.as_current():
            dataset: Any = problem.dataset
            return dataset.shares(len(addresses), problem.partition, problem.seed, addresses=addresses)

    def _lazy_test(self, address: str) -> Any:
        with self.client.as_current():
            dataset: Any = self._full.problem.dataset
            return dataset.test(address)

    def _compute(self, part: Any, address: str) -> Future:
        return self.client.compute(part, workers=[address], allow_other_workers=False)

    def _move(self, spec: RoleSpec, address: str) -> None:
        """Assemble the data (Dask arrays) of a role that restarts, on its new Dask worker."""
        if spec.data is not None:
            self._shares[spec.data] = self._compute(
                self._lazy_shares([address] * len(self._shares))[spec.data], address
            )
        if spec.kind == "chief":
            self._test = self._compute(self._lazy_test(address), address)

    def start(
        self, role: str, incarnation: int, address: str, done: Callable[[Future], None], strategy: Any = None,
        restored: Any = None,
    ) -> Future:  # fmt: skip
        """Submit the task of one role instance to the Dask worker `address`. Does not wait.

        `strategy`: the strategy with changed options; None: the plan's. `done`: called with the future when the task
        has ended, on any thread. `restored`: see `RoleAssignment`.
        """
        index = self.plan.role_ids[role]
        spec = self.plan.layout.roles[index]
        if self._lazy and incarnation:
            self._move(spec, address)
        own = {**self._settings, "run": self.run, "index": index, "incarnation": incarnation, "restored": restored}
        own["factor"] = self.factors.get(role, 1.0)
        if not (spec.computes or spec.shard is not None or spec.backs is not None or spec.kind == "chief"):
            own["objective"] = None
        changed = {} if strategy is None else _changed_options(self.plan.strategy, strategy)
        share = self._shares[spec.data] if self._shares and spec.data is not None else None
        future = self.client.submit(
            run_role, self._packed, changed, own, share, self._test if spec.kind == "chief" else None,
            key=f"{role}#{incarnation}-labkit-{self.run}", workers=[address], allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip

        def ended(its: Future) -> None:  # on Dask's event loop, and for an error on a thread: `done` fetches its text
            if its.status == "error":
                threading.Thread(target=done, args=(its,), name="labkit-fetch", daemon=True).start()
            else:
                done(its)

        call_when_done(self.client, future, ended)
        return future


def _changed_options(before: Any, now: Any) -> dict[str, Any]:
    return {name: getattr(now, name) for name in options_of(before) if getattr(now, name) is not getattr(before, name)}
