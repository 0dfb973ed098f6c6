"""What a person, a program or a schedule can do to a run that goes on: workers that come and go, and faults.

Each verb is a command of the engine, which writes a mark; what an engine cannot do is refused, and the run goes on.
"""

from __future__ import annotations

from typing import Any, Self

from .engines.faults import schedule_faults
from .engines.parts import Plan, find_role
from .errors import BadInput, shown

__all__ = ["Verbs", "check_allowed"]

_SIGNALS = ("kill", "freeze", "thaw")


def check_allowed(commands: Any, cluster: Any) -> None:
    """`BadInput` if a fault needs signals, and the processes are not ours to send them to."""
    verb = next((verb for _, verb, *_ in commands if verb in _SIGNALS), None)
    if verb is not None and not getattr(cluster, "may_kill", True):
        raise BadInput(
            f"faults: labkit did not start these processes, and others may need them, so it may not {verb} them; "
            "lk.DaskCluster(..., may_kill=True) allows it."
        )


class Verbs:
    """The part of a `Run` that breaks things, and mends them."""

    plan: Plan
    engine: Any

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.engine.stopped_by is not None

    @property
    def stopped_by(self) -> str | None:
        """Why the run ended ("accuracy", "updates", "seconds", "user", "diverged", "error", ...); None while it goes
        on.
        """
        stopped_by: str | None = self.engine.stopped_by
        return stopped_by

    def scale(self, workers: int) -> Self:
        """From now on so many workers take part: those that are missing join, the last ones leave.

        Only on a cluster with `max_workers`, which is the most there can be.
        """
        everybody = [role.name for role in self.plan.layout.roles if role.kind == "worker"]
        if self.plan.elastic is None:
            raise BadInput("scale: the workers of this run are fixed; give the cluster max_workers=8, for example.")
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= len(everybody):
            raise BadInput(f"scale({shown(workers)}): from 1 to max_workers={len(everybody)} workers.")
        present = self.engine.present
        missing = [name for name in everybody if name not in present]
        for name in missing[: max(0, workers - len(present))]:
            self._do("join", name)
        for name in present[workers:]:
            self._do("leave", name)
        return self

    # what goes wrong --------------------------------------------------------------------------------------------------

    def inject(self, faults: Any) -> Self:
        """Let these faults happen, one or several, as `lk.Freeze("worker-1", during=(1, 3))`: their times are seconds from
        now on."""
        commands = schedule_faults(faults, self.plan, self.engine.seconds)
        check_allowed(commands, self.engine.cluster)
        for _, verb, *_ in commands:
            self._check_can(verb)
        return self._do("inject", commands)

    def slow(self, role: str, factor: float) -> Self:
        """Make `role` compute `factor` times slower than it would; 1 undoes it."""
        return self._do("slow", role, factor, roles=(role,))

    def kill(self, role: str, restart: bool = True) -> Self:
        """End the process that plays `role`, at once and without a word to it: on a cluster with SIGKILL.

        Its next incarnation begins by itself; `restart=False`: it stays away until `restart(role)`.
        """
        if not isinstance(restart, bool):
            raise BadInput(f"kill: restart={shown(restart)} is not allowed; restart is True or False.")
        return self._do("kill", role, restart, roles=(role,))

    def restart(self, role: str) -> Self:
        """Let `role`, which is away, come back. `BadInput` if it is not away."""
        return self._do("restart", role, roles=(role,))

    def freeze(self, role: str) -> Self:
        """Let the process that plays `role` stand still: on a cluster with SIGSTOP. After the cluster's `patience` it counts
        as lost."""
        return self._do("freeze", role, roles=(role,))

    def thaw(self, role: str) -> Self:
        """Let a frozen process go on. Who has been given up meanwhile is told to leave."""
        return self._do("thaw", role, roles=(role,))

    def cut(self, role: str, peer: str | None = None) -> Self:
        """Let nothing pass between `role` and `peer`; None: between it and everybody. After the cluster's `patience` who is
        cut off from everybody counts as lost."""
        return self._do("cut", role, peer, roles=(role, peer))

    def reconnect(self, role: str, peer: str | None = None) -> Self:
        """Undo `cut`: what was held passes now. None: all links of `role`."""
        return self._do("reconnect", role, peer, roles=(role, peer))

    def delay(self, role: str, seconds: float, peer: str | None = None) -> Self:
        """Let what `role` and `peer` (None: everybody) say to each other come `seconds` later; 0 undoes it."""
        return self._do("delay", role, seconds, peer, roles=(role, peer))

    def drop(self, role: str, chance: float, peer: str | None = None) -> Self:
        """Lose every transmission between `role` and `peer` (None: everybody) with this chance; 0 undoes it. What is lost is
        sent again."""
        return self._do("drop", role, chance, peer, roles=(role, peer))

    def _do(self, verb: str, *arguments: Any, roles: tuple[Any, ...] = ()) -> Self:
        """Carry a command out. `roles`: the names among its arguments; the second may be None, which is every role."""
        self._check_goes_on()
        self._check_can(verb)
        for name in roles[:1] if roles and roles[-1] is None else roles:
            find_role(name, self.plan.role_ids)
        getattr(self.engine, verb)(*arguments)
        return self

    def _check_can(self, verb: str) -> None:
        if not hasattr(self.engine, verb):
            verbs = ", ".join(self.engine.verbs)
            raise BadInput(f"{verb}: the engine of this run cannot do that; it can {verbs}. The run goes on.")

    def _check_goes_on(self) -> None:
        if self.done:
            raise BadInput(f"The run is over (stopped by {self.stopped_by}): nothing can be changed any more.")
