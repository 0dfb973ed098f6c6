"""What a person can do to the roles of a run, and what undoes it: slow, kill and restart, freeze and thaw, cut and
reconnect. As methods of the lab, and as what the stage does about them.

Law: all of it acts at once, on the run that goes on, and leaves a mark; nothing of it ends the run.
"""

from __future__ import annotations

from typing import Any, Self

from ..errors import BadInput
from ..run import Run
from .settings import Settings

__all__ = ["DOING", "Harm", "Harmed"]

# The words for each while it is being done.
DOING = {
    "slow": "slowing", "kill": "killing", "restart": "restarting", "freeze": "freezing", "thaw": "thawing",
    "cut": "cutting", "reconnect": "reconnecting",
}  # fmt: skip


class Harm:
    """The part of a `Lab` that makes trouble."""

    def _do(self, name: str, *arguments: Any) -> Self:
        raise NotImplementedError("a lab carries out commands")

    def slow(self, role: str, factor: float) -> Self:
        """Make a role compute `factor` times slower; 1 undoes it."""
        return self._do("slow", role, factor)

    def kill(self, role: str, restart: bool = True) -> Self:
        """Kill a role: on a cluster its process, with SIGKILL. It comes back by itself; `restart=False`: it stays away
        until `restart(role)`, as after the lab's Kill button, so that one can see what its absence does.
        """
        return self._do("kill", role, restart)

    def restart(self, role: str) -> Self:
        """Let a role that is away come back: its next incarnation begins with what its last one had saved."""
        return self._do("restart", role)

    def freeze(self, role: str) -> Self:
        """Let a role's process stand still (SIGSTOP); after the cluster's `patience` it counts as lost."""
        return self._do("freeze", role)

    def thaw(self, role: str) -> Self:
        """Let a frozen process go on; one that has been given up meanwhile is told to leave."""
        return self._do("thaw", role)

    def cut(self, role: str, peer: str | None = None) -> Self:
        """Let nothing pass between a role and `peer`; None: everybody."""
        return self._do("cut", role, peer)

    def reconnect(self, role: str, peer: str | None = None) -> Self:
        """Undo `cut`: what was held passes now."""
        return self._do("reconnect", role, peer)


class Harmed:
    """The part of a `Stage` to which it is done."""

    run: Run | None
    setup: Settings
    bridging: Settings | None

    @property
    def going(self) -> bool:
        """Whether a run is on and not over."""
        raise NotImplementedError("a stage knows its run")

    def slow(self, role: str, factor: float) -> None:
        """Make a role slower in the run that goes on; before the first one, in the run that comes."""
        if self.going:
            self.run.slow(role, factor)  # type: ignore[union-attr]
            if self.bridging is not None:  # the run on real processes is to begin so
                self.bridging = self.bridging.changed(slow={**self.bridging.cluster.slow, role: factor})
        elif self.run is None:
            self.setup = self.setup.changed(slow={**self.setup.cluster.slow, role: factor})
        else:
            raise BadInput(f"slow {role}: the run is over. Press Run first, or Reset to prepare the next one.")

    def harm(self, verb: str, role: str, *more: Any) -> None:
        """Do one of the others to a role of the run that goes on."""
        if not self.going:
            raise BadInput(f"{verb} {role}: no run goes on.")
        getattr(self.run, verb)(role, *more)
