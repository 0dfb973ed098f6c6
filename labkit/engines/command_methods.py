"""The methods of `Run` and `Lab` that inject faults, as functions: `kill = command_methods.kill` in a class makes one its method.

Signature, types and docstring are written here only, and type checkers and editors find them.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

from .commands import EVERY, Command, Cut, Delay, Drop, Freeze, Kill, Limit, Reconnect, Restart, Slow, Thaw


class Executes(Protocol):
    """What executes commands."""

    def execute(self, command: Command) -> Self:
        """Execute a command now, and return this object."""


Target = TypeVar("Target", bound=Executes)


def slow(self: Target, role: str, factor: float) -> Target:
    """Make a role compute slower.

    Parameters
    ----------
    role : str
        The role, as "worker-2".
    factor : float
        How many times slower than normal, from 0.001 to 1000; 1 undoes it. For a run, normal is the speed that the cluster
        gives the role (`slow=`); the lab shows and sets factors that contain that of the cluster. The factor replaces that of
        an earlier call, and multiplies those of temporary faults.
    """
    return self.execute(Slow(role, factor))


def kill(self: Target, role: str, restart: bool = True) -> Target:
    """Kill the process of a role without notice (on a cluster, with SIGKILL).

    Parameters
    ----------
    role : str
        The role, as "worker-2".
    restart : bool, default: True
        Whether the role restarts automatically as its next incarnation. Otherwise it is down until `restart(role)` is called,
        as after the button Kill of the lab, so that the effect of its absence can be observed.
    """
    return self.execute(Kill(role, restart=restart))


def restart(self: Target, role: str) -> Target:
    """Restart a role that is down. Its next incarnation restores the last checkpoint.

    Parameters
    ----------
    role : str
        The role, as "worker-2".

    Raises
    ------
    BadInput
        If the role is running.
    """
    return self.execute(Restart(role))


def freeze(self: Target, role: str) -> Target:
    """Suspend the process of a role (on a cluster, with SIGSTOP).

    If it is frozen for longer than the cluster's `heartbeat_timeout`, the role is declared lost.

    Parameters
    ----------
    role : str
        The role, as "worker-2".
    """
    return self.execute(Freeze(role))


def thaw(self: Target, role: str) -> Target:
    """Continue the frozen process of a role.

    If the role was declared lost in the meantime, this process is shut down.

    Parameters
    ----------
    role : str
        The role, as "worker-2".
    """
    return self.execute(Thaw(role))


def cut(self: Target, role: str, peer: str | None = None) -> Target:
    """Block all messages between two roles.

    A role that is cut off from all others is declared lost after the cluster's `heartbeat_timeout`.

    Parameters
    ----------
    role : str
        One end of the link, as "worker-2".
    peer : str, optional
        The other end. By default all links of `role` are cut.
    """
    return self.execute(Cut(role, peer))


def reconnect(self: Target, role: str, peer: str | None = None) -> Target:
    """Undo `cut`, and deliver the messages that were held.

    Parameters
    ----------
    role : str
        One end of the link, as "worker-2".
    peer : str, optional
        The other end. By default all links of `role` are reconnected.
    """
    return self.execute(Reconnect(role, peer))


def limit(self: Target, role: str, bandwidth: float | str | None) -> Target:
    """Limit the bandwidth of the node of a role, in both directions.

    Parameters
    ----------
    role : str
        The role, as "worker-2".
    bandwidth : float or str or None
        The bytes per second that the node can send, and receive, as 10e6 or "10MB/s", at least 1000; None undoes it. Messages
        that are on their way keep their time.
    """
    return self.execute(Limit(role, bandwidth))


def delay(self: Target, role: str, seconds: float, peer: str | None = None) -> Target:
    """Delay all messages between two roles.

    Parameters
    ----------
    role : str
        One end of the link, as "worker-2".
    seconds : float
        The delay of a message, from 0, which undoes it, to 1,000,000 s.
    peer : str, optional
        The other end. By default the messages on all links of `role` are delayed.
    """
    return self.execute(Delay(role, EVERY if peer is None else peer, seconds))


def drop(self: Target, role: str, chance: float, peer: str | None = None) -> Target:
    """Lose transmissions between two roles at random. Lost messages are retransmitted.

    Parameters
    ----------
    role : str
        One end of the link, as "worker-2".
    chance : float
        The probability that a transmission is lost, from 0, which undoes it, to 0.95.
    peer : str, optional
        The other end. By default transmissions on all links of `role` are lost.
    """
    return self.execute(Drop(role, EVERY if peer is None else peer, chance))
