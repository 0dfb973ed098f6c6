"""Starts a run, and retries if a process is lost before its roles begin. At that time no role has computed anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ....errors import BadInput, ClusterError
from ....interrupts import raise_if_interrupted
from ....packed import LIMIT_BYTES, Packed
from ....roles.layout import RoleSpec
from ....trace.events import Note
from ...base import Cluster
from ...commands import Command, Executed
from ...plan import Plan, find_role
from ...storage.store import Store, open_store
from ..cluster.dask_connection import DaskConnection
from ..cluster.placement import check_checkpoint_location, host_of
from ..timeouts import LOOK_S, REPORT_S
from .run import DaskRun
from .supervisor import LostWhileStarting, Supervisor, present_roles


def start_run(
    cluster: Cluster, connection: DaskConnection, place: Callable[[Sequence[RoleSpec]], Mapping[str, str]], plan: Plan,
    commands: Iterable[Command | Executed], checkpoint: Any, resume: Store | None,
) -> DaskRun:  # fmt: skip
    """Start a run of `plan`. Returns when all its roles run. Raises `ClusterError` if they cannot.

    `place(roles)`: {node: address of a Dask worker}. `commands`: each is executed at its time. `resume`: the `Store`
    with the checkpoints of an earlier run that this run resumes, in the location `checkpoint`.
    """
    began = time.monotonic()
    commands = tuple(commands)
    store = open_store(checkpoint)  # invalid input is rejected before any process starts
    for role in cluster.spec.slow or ():
        find_role(role, plan.role_ids)
    spec = cluster.spec
    common = {
        "plan": plan.without_data(), "objective": plan.problem.objective(), "pace": spec.compute,
        "server_time": spec.server_time,
    }  # fmt: skip
    packed = Packed.of(
        common, plan.strategy.name, LIMIT_BYTES
    )  # once, so that roles that restart have the code of the start
    where = store.location if store is not None and not store.local else checkpoint

    def attempt() -> DaskRun:
        raise_if_interrupted()
        placed = place(present_roles(plan))
        check_checkpoint_location(where, {host_of(address) for address in placed.values()})
        supervisor = Supervisor(connection.client(), plan, list(placed.values()), connection, packed)
        keep: Store | Literal[False] | None = False if checkpoint is False else store
        try:
            return DaskRun(plan, cluster, connection, supervisor, commands, keep, began, resume)
        except BaseException:
            supervisor.cancel_start()
            raise

    return start_with_retries(attempt)


def start_with_retries(
    attempt: Callable[[], DaskRun], clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> DaskRun:  # fmt: skip
    """Return the result of `attempt()`. Retries after `LostWhileStarting`, for up to `REPORT_S` seconds from the first loss.

    After a loss there may be too few Dask workers for a short time, which is not the caller's error. So `BadInput` and
    `ClusterError` after a loss are retried, too, within the same limit. After the limit, raises `ClusterError` with the
    losses and the last error. Errors before the first loss are raised at once.
    """
    losses: list[LostWhileStarting] = []
    until = 0.0
    while True:
        try:
            run = attempt()
        except LostWhileStarting as loss:
            until = until or clock() + REPORT_S
            losses.append(loss)
            if clock() >= until:
                raise ClusterError(_loss_text(losses)) from loss
        except (BadInput, ClusterError) as error:
            if not losses:
                raise
            if clock() >= until:
                raise ClusterError(f"{_loss_text(losses)} Then: {error}") from error
        else:
            for text in map(str, losses):
                run.event(Note, f"{text} The start was retried.")
            return run
        sleep(LOOK_S)


def _loss_text(losses: list[LostWhileStarting]) -> str:
    return " ".join(dict.fromkeys(str(loss) for loss in losses))
