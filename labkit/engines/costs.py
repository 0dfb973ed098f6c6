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
from ..plain_values import NotEncodable, from_plain, to_plain
from .distributions import DISTRIBUTIONS, Deterministic, Distribution, Measured

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

    def __call__(self, parameters: int, samples: float) -> float:
        """Return the seconds for a network and a batch.

        Parameters
        ----------
        parameters : int
            The parameters of the network.
        samples : float
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

    If more processes of a host have work than it has cores, they take turns, each for at most `time_slice` seconds. A process
    that waits for a message first polls for up to `polling` seconds, leaving its core to others that have work, and then sleeps.

    Parameters
    ----------
    gradient : WorkCost
        The time of one gradient.
    spread : Distribution
        The factor of each gradient's time, with mean 1.
    drift : Distribution
        The factor of the time of all work on a core, with mean 1, which is constant for `drift_time` seconds: a core of a virtual
        machine is slower while others use the same physical core.
    drift_time : float
        Seconds for which such a factor is valid. 0: no drift.
    update : Linear
        The time of an update of a server, or of a local update, by the bytes of the parameters of the role. An update with
        several gradients takes as long as that many updates.
    evaluation : WorkCost
        The time of one evaluation by the chief, by parameters and held-out samples.
    send, receive : Linear
        Processor time of sending and receiving a message, by the bytes of its payload.
    remote_send : Linear, optional
        Processor time of sending a message to another host. None: as within a host.
    latency : float
        Time from a process to another on the same host. Between hosts, the latency of the cluster is added.
    polling : float
        The longest time of repeated polling.
    wake : sequence of pairs
        Additional time of the first work of a process that has slept: pairs (seconds for which it has slept, additional seconds),
        in ascending order. Values in between are interpolated, from no additional time without sleep; the last one is valid for
        all longer sleeps.
    time_slice : float
        The longest time for which a process has a core while others wait for it.
    min_slice : float
        The time for which a process has a core although another one, which has slept, now has work.
    cold : sequence of pairs
        Additional time of the work of a process on a core that another process has used before, whose data are in the caches,
        relative to the time of the work: pairs (bytes of the parameters of the network, relative additional time), in ascending
        order. Values in between are interpolated; the first and the last one are valid for all smaller and larger networks.
    background : float
        Cores that the client, which monitors the run, uses for each process of the run on the same host.
    pinned : bool
        Whether processes that compute are pinned to the cores in turn, if there is one host, and more processes than cores.
    cores : int
        Cores of each host.
    hosts : int
        Hosts. The nodes of a run are placed on them in turn.
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
    drift: Distribution = Deterministic(1.0)
    drift_time: float = 0.0
    update: Linear = Linear()
    evaluation: WorkCost = WorkCost()
    send: Linear = Linear()
    receive: Linear = Linear()
    remote_send: Linear | None = None
    latency: float = 0.0
    polling: float = 0.0
    wake: Sequence[tuple[float, float]] = ()
    time_slice: float = 0.003
    min_slice: float = 0.003
    cold: Sequence[tuple[float, float]] = ()
    background: float = 0.0
    pinned: bool = True
    cores: int = 1
    hosts: int = 1
    speeds: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise BadInput(f"Costs: {name}={shown(getattr(self, name))} is not allowed; give a lk.{kind.__name__}.")
        if not isinstance(self.remote_send, Linear | None):
            raise BadInput(f"Costs: remote_send={shown(self.remote_send)} is not allowed; give a lk.Linear or None.")
        for name in ("latency", "polling", "time_slice", "min_slice", "background", "drift_time"):
            low = 1e-6 if name in ("time_slice", "min_slice") else 0.0
            object.__setattr__(self, name, _number("Costs", name, getattr(self, name), low))
        if not isinstance(self.pinned, bool):
            raise BadInput(f"Costs: pinned={shown(self.pinned)} is not allowed; give True or False.")
        for name, most in (("cores", MAX_CORES), ("hosts", MAX_HOSTS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise BadInput(f"Costs: {name}={shown(value)} is not allowed; give a whole number from 1 to {most:,}.")
        speeds = _several("speeds", self.speeds)
        object.__setattr__(self, "speeds", tuple(_number("Costs", "speeds", v, 1e-6, 1e6) for v in speeds))
        if not self.speeds:
            raise BadInput("Costs: speeds=() is not allowed; give the speed of at least one host.")
        for name, (one, other), largest in _PAIRS:
            pairs = tuple(_pair(name, pair, one, other, largest) for pair in _several(name, getattr(self, name)))
            if any(pair[0] >= after[0] for pair, after in zip(pairs, pairs[1:])):
                raise BadInput(f"Costs: {name}: the {one} must ascend.")
            object.__setattr__(self, name, pairs)

    def wake_delay(self, waited: float) -> float:
        """Return the additional time of the first work of a process that has slept.

        Parameters
        ----------
        waited : float
            Seconds for which it has slept.

        Returns
        -------
        float
            Seconds.
        """
        return _interpolated(((0.0, 0.0), *self.wake), waited)

    def cold_factor(self, size: float) -> float:
        """Return the relative additional time of work after another process has used the core.

        Parameters
        ----------
        size : float
            Bytes of the parameters of the network.

        Returns
        -------
        float
            The time relative to that of the work; 0.5 means that it takes half as much longer.
        """
        return _interpolated(self.cold or ((0.0, 0.0),), size)

    @property
    def take_time(self) -> bool:
        """Whether any work or message of a role takes time."""
        work = (self.gradient, self.update, self.send, self.receive)
        return bool(self.latency) or any(any(vars(each).values()) for each in work)

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


CLASSES: dict[str, type] = {
    kind.__name__: kind for kind in (Costs, Linear, WorkCost, Measured, *DISTRIBUTIONS.values())
}
"""What costs are made of, by name."""


def costs_from_text(text: str) -> Costs | None:
    """Return the costs that `costs_as_text` has written. "none" and "" mean no costs. Raises `BadInput` for other texts."""
    if text in ("", "none"):
        return None
    try:
        found = from_plain(json.loads(text), CLASSES)
    except ValueError as error:
        raise (
            error if isinstance(error, BadInput) else BadInput(f"costs={shown(text)} cannot be read: it is not JSON.")
        ) from None
    if not isinstance(found, Costs):
        raise BadInput(f"costs={shown(text)} are no costs, as lk.calibrate measures them.")
    return found


def costs_as_text(costs: Costs | None) -> str | None:
    """Return costs as text, a JSON object without spaces; None if a distribution is of a user's class."""
    plain = costs_as_plain(costs)
    return "none" if costs is None else None if plain is None else json.dumps(plain, separators=(",", ":"))


def costs_as_plain(costs: Costs | None) -> dict[str, Any] | None:
    """Return costs as plain values; None if there are none, or a distribution is of a user's class."""
    try:
        return to_plain(costs, CLASSES)
    except NotEncodable:
        return None


_PAIRS = (  # fields that are pairs, what the numbers of a pair are, and the largest first number
    ("wake", ("seconds of waiting", "seconds of delay"), MAX_S),
    ("cold", ("bytes of the parameters", "relative additional time"), math.inf),
)
_KINDS: Mapping[str, type] = {
    "gradient": WorkCost, "spread": Distribution, "drift": Distribution, "update": Linear, "evaluation": WorkCost,
    "send": Linear, "receive": Linear,
}  # fmt: skip


def _several(name: str, given: Any) -> tuple[Any, ...]:
    """Return a list or a tuple as a tuple. Raises `BadInput` for anything else."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"Costs: {name}={shown(given)} is not allowed; give a list.")
    return tuple(given)


def _pair(name: str, given: Any, one: str, other: str, most: float) -> tuple[float, float]:
    """Return a pair of numbers. Raises `BadInput` for anything else. `most`: the largest first number."""
    pair = _several(name, given)
    if len(pair) != 2:
        raise BadInput(f"Costs: {name}={shown(given)} is not allowed; give pairs ({one}, {other}).")
    return _number("Costs", name, pair[0], high=most), _number("Costs", name, pair[1])


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Return the value at `at` between points in ascending order; before the first and after the last one, their values."""
    before = points[0]
    for point in points:
        if at <= point[0]:
            span = point[0] - before[0]
            return point[1] if span <= 0 else before[1] + (point[1] - before[1]) * (at - before[0]) / span
        before = point
    return before[1]
