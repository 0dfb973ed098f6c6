"""The costs of processes: processor time of work and of messages, latency, waiting, and the hosts whose cores roles share.

`SimulatedCluster(costs=...)` simulates roles that are processes on hosts, as on a `DaskCluster`. The values usually come from
measurements (`labkit.calibrate`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import BadInput, shown
from ..options import as_number
from .distributions import Deterministic, Distribution, Measured, distribution_as_text, distribution_by_name

__all__ = ["Costs", "Linear", "WorkCost", "costs_as_text", "costs_from_text"]

MAX_S = 1e6  # the largest duration, in seconds
MAX_CORES, MAX_HOSTS = 4096, 100_000


def _number(owner: str, name: str, value: Any, low: float = 0.0, high: float = MAX_S) -> float:
    number = as_number(value)
    if number is None or not math.isfinite(number) or not low <= number <= high:
        raise BadInput(f"{owner}: {name}={shown(value)} is not allowed; give a number from {low:g} to {high:g}.")
    return float(number)


@dataclass(frozen=True)
class Linear:
    """The time of an operation on some bytes, in seconds: `fixed + per_byte * bytes`.

    Parameters
    ----------
    fixed : float
        Seconds of every operation.
    per_byte : float
        Seconds per byte.

    Examples
    --------
    >>> lk.Linear(10e-6, 1e-9)(40_000)
    5e-05
    """

    fixed: float = 0.0
    per_byte: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed", "per_byte"):
            object.__setattr__(self, name, _number("Linear", name, getattr(self, name)))

    def __call__(self, size: float) -> float:
        """Return the seconds for `size` bytes.

        Parameters
        ----------
        size : float
            Bytes.

        Returns
        -------
        float
            Seconds.
        """
        return self.fixed + self.per_byte * size


@dataclass(frozen=True)
class WorkCost:
    """The time of a gradient or an evaluation, in seconds.

    It is `fixed + per_parameter * parameters + per_product * parameters * samples`.

    Parameters
    ----------
    fixed : float
        Seconds of every operation.
    per_parameter : float
        Seconds per parameter of the network, as for copying them.
    per_product : float
        Seconds per parameter and sample, as for the matrix products.

    Examples
    --------
    >>> lk.WorkCost(20e-6, per_product=1e-9)(parameters=10_000, samples=32)
    0.00034
    """

    fixed: float = 0.0
    per_parameter: float = 0.0
    per_product: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _number("WorkCost", field.name, getattr(self, field.name)))

    def __call__(self, parameters: int, samples: int) -> float:
        """Return the seconds for a network and a batch.

        Parameters
        ----------
        parameters : int
            The parameters of the network.
        samples : int
            The samples of the batch.

        Returns
        -------
        float
            Seconds.
        """
        return self.fixed + self.per_parameter * parameters + self.per_product * parameters * samples


@dataclass(frozen=True)
class Costs:
    """The costs of processes, for `SimulatedCluster(costs=...)`. All times are in seconds of a core that a process has alone.

    If more processes of a host can run than it has cores, they share the cores equally (processor sharing). A process that waits
    for a message polls for up to `polling` seconds, which occupies a core, and then sleeps.

    Parameters
    ----------
    gradient : WorkCost
        The time of one gradient.
    spread : Distribution
        The factor of each gradient's time, with mean 1.
    update : Linear
        The time of one operation of a server, or of one local update, by the bytes of the parameters of the role.
    evaluation : WorkCost
        The time of one evaluation by the chief, by parameters and held-out samples.
    send, receive : Linear
        Processor time of sending and receiving a message, by the bytes of its payload.
    latency : float
        Time from a process to another on the same host. Between hosts, the latency of the cluster is added.
    polling : float
        The longest time of repeated polling.
    wake : sequence of pairs
        Delay of a process that sleeps, from the arrival of a message until it runs: pairs (seconds for which it has waited,
        seconds of delay), in ascending order; values in between are interpolated.
    cores : int
        Cores of each host.
    hosts : int
        Hosts. Processes are placed on the host with the fewest processes.
    speeds : sequence of float
        The speed of each host relative to the measured one, repeated for further hosts.

    See Also
    --------
    calibrate : Measures the costs of a cluster.

    Examples
    --------
    Four workers share two cores, so each gradient takes twice as long:

    >>> costs = lk.Costs(gradient=lk.WorkCost(0.01), cores=2)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=None, costs=costs)
    >>> run = lk.train("moons", lk.SyncPS(), cluster, lk.Budget(updates=10)).wait()
    >>> print(f"{run.summary()['seconds']:.2f} s")
    0.20 s
    """

    gradient: WorkCost = WorkCost()
    spread: Distribution = Deterministic(1.0)
    update: Linear = Linear()
    evaluation: WorkCost = WorkCost()
    send: Linear = Linear()
    receive: Linear = Linear()
    latency: float = 0.0
    polling: float = 0.0
    wake: Sequence[tuple[float, float]] = ()
    cores: int = 1
    hosts: int = 1
    speeds: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise BadInput(f"Costs: {name}={shown(getattr(self, name))} is not allowed; give a lk.{kind.__name__}.")
        for name in ("latency", "polling"):
            object.__setattr__(self, name, _number("Costs", name, getattr(self, name)))
        for name, most in (("cores", MAX_CORES), ("hosts", MAX_HOSTS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise BadInput(f"Costs: {name}={shown(value)} is not allowed; give a whole number from 1 to {most:,}.")
        speeds, wake = _several("speeds", self.speeds), tuple(_pair(pair) for pair in _several("wake", self.wake))
        object.__setattr__(self, "speeds", tuple(_number("Costs", "speeds", v, 1e-6, 1e6) for v in speeds))
        if not self.speeds:
            raise BadInput("Costs: speeds=() is not allowed; give the speed of at least one host.")
        if any(one[0] >= other[0] for one, other in zip(wake, wake[1:])):
            raise BadInput("Costs: wake: the times of waiting must ascend.")
        object.__setattr__(self, "wake", wake)

    def wake_delay(self, waited: float) -> float:
        """Return the delay of a process that sleeps.

        Parameters
        ----------
        waited : float
            Seconds for which it has waited.

        Returns
        -------
        float
            Seconds.
        """
        if not self.wake:
            return 0.0
        before = (self.wake[0][0], self.wake[0][1])
        for point in self.wake:
            if waited <= point[0]:
                span = point[0] - before[0]
                return point[1] if span <= 0 else before[1] + (point[1] - before[1]) * (waited - before[0]) / span
            before = point
        return before[1]

    def speed(self, host: int) -> float:
        """Return the relative speed of a host.

        Parameters
        ----------
        host : int
            The number of the host.

        Returns
        -------
        float
            The speed; 1 is that of the measured host.
        """
        return self.speeds[host % len(self.speeds)]

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as values for JSON; `from_dict` reads them.

        Returns
        -------
        dict
            Plain values. The distribution `spread` is a text, or, if it was measured, a list of factors.
        """
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Costs:
        """Return the costs that `to_dict` has written.

        Parameters
        ----------
        plain : dict
            The values.

        Returns
        -------
        Costs
            The costs.

        Raises
        ------
        BadInput
            If the values are not costs.
        """
        try:
            made = dict(plain)
            made |= {name: WorkCost(**made[name]) for name in ("gradient", "evaluation")}
            made |= {name: Linear(**made[name]) for name in ("update", "send", "receive")}
            spread = made["spread"]
            made["spread"] = Measured(tuple(spread)) if isinstance(spread, list | tuple) else distribution_by_name(spread)
            return cls(**made)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"costs={shown(plain)} cannot be read: {type(error).__name__}: {error}.") from None


def costs_from_text(text: str) -> Costs | None:
    """Return the costs that `costs_as_text` has written. "none" and "" mean no costs. Raises `BadInput` for other texts."""
    if text in ("", "none"):
        return None
    try:
        plain = json.loads(text)
    except ValueError:
        raise BadInput(f"costs={shown(text)} cannot be read: it is not JSON.") from None
    return Costs.from_dict(plain)


def costs_as_text(costs: Costs | None) -> str | None:
    """Return costs as text, a JSON object without spaces; None if `spread` is of a user's class."""
    if costs is None:
        return "none"
    plain = costs.to_dict()
    return None if plain["spread"] is None else json.dumps(plain, separators=(",", ":"))


_KINDS: Mapping[str, type] = {
    "gradient": WorkCost, "spread": Distribution, "update": Linear, "evaluation": WorkCost, "send": Linear, "receive": Linear,
}  # fmt: skip


def _several(name: str, given: Any) -> tuple[Any, ...]:
    """Return a list or a tuple as a tuple. Raises `BadInput` for anything else."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"Costs: {name}={shown(given)} is not allowed; give a list.")
    return tuple(given)


def _pair(given: Any) -> tuple[float, float]:
    """Return a pair of times. Raises `BadInput` for anything else."""
    pair = _several("wake", given)
    if len(pair) != 2:
        raise BadInput(f"Costs: wake={shown(given)} is not allowed; give pairs (seconds of waiting, seconds of delay).")
    return _number("Costs", "wake", pair[0]), _number("Costs", "wake", pair[1])


def _plain(value: Any) -> Any:
    if isinstance(value, Linear | WorkCost):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Measured):
        return list(value.durations)
    if isinstance(value, Distribution):
        return distribution_as_text(value)
    return [list(each) if isinstance(each, tuple) else each for each in value] if isinstance(value, tuple) else value
