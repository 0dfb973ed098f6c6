"""The options of a cluster as rows of name and value, with units, for its display."""

from __future__ import annotations

import math

from ..errors import shown
from ..formatting import bytes_text, count_text, speed, time_text
from ..options import options_of
from .cluster_spec import GRADIENT, ClusterSpec
from .distributions import Deterministic, Distribution, Measured, distribution_name, mean_seconds

NUMBERS = ("sigma", "alpha")  # parameters of distributions that are not seconds


def distribution_text(distribution: Distribution) -> str:
    """Return a distribution with its parameters and, if it is none of these, its mean: `100 ms`, `exponential, mean 100 ms`."""
    if isinstance(distribution, Deterministic):
        return time_text(distribution.seconds)
    name = distribution_name(distribution)
    if name is None or isinstance(distribution, Measured):
        return distribution.describe() if isinstance(distribution, Measured) else shown(distribution)
    values = {option: getattr(distribution, option) for option in options_of(distribution)}
    texts = [
        f"{option} {value:g}" if option in NUMBERS else f"{option} {time_text(value)}"
        for option, value in values.items()
    ]
    mean = mean_seconds(distribution)
    if mean is not None and "mean" not in values:
        texts.append(f"mean {time_text(mean)}")
    return ", ".join([name, *texts])


def cluster_rows(spec: ClusterSpec) -> list[tuple[str, str]]:
    """Return the rows for the options of a cluster. Options that are off are left out."""
    rows = [("roles", _roles(spec)), ("gradient", _gradient(spec))]
    if spec.server_time is not None:
        rows.append(("server work", distribution_text(spec.server_time)))
    if spec.slow:
        rows.append(("slow", ", ".join(f"{role} {speed(factor)}" for role, factor in spec.slow.items())))
    if spec.virtual_time:
        rows.append(("links", _links(spec)))
        if spec.cores > 1:
            rows.append(("cores", f"{spec.cores} per node"))
        if spec.evaluation_time:
            rows.append(("evaluation", f"{time_text(spec.evaluation_time)}, on the chief"))
    rows += [("lost roles", _losses(spec)), ("checkpoints", _checkpoints(spec))]
    if not spec.record:
        rows.append(("trace", "counters only"))
    return rows


def _roles(spec: ClusterSpec) -> str:
    workers = count_text(spec.workers, "worker")
    if spec.max_workers is not None:
        workers += f" at the start, at most {spec.max_workers:,}"
    servers = "as many servers as the strategy needs" if spec.servers is None else count_text(spec.servers, "server")
    return f"{workers}, {servers}" + (", each with a backup" if spec.replicas else "")


def _gradient(spec: ClusterSpec) -> str:
    if spec.virtual_time:
        return distribution_text(spec.compute or GRADIENT)
    return "full speed" if spec.compute is None else f"{distribution_text(spec.compute)} (pace)"


def _links(spec: ClusterSpec) -> str:
    if not spec.latency and math.isinf(spec.bandwidth):
        return "messages take no time"
    sends = (
        "unlimited bandwidth" if math.isinf(spec.bandwidth) else f"{bytes_text(spec.bandwidth)}/s in and out of a node"
    )
    return f"latency {time_text(spec.latency)}, {sends}"


def _losses(spec: ClusterSpec) -> str:
    lost = f"lost after {time_text(spec.heartbeat_timeout)} of silence"
    if not spec.virtual_time:
        return f"{lost}, then restarted"
    if spec.restart_after is None:
        return f"{lost}, not restarted automatically"
    return f"{lost}, restarted {time_text(spec.restart_after)} later"


def _checkpoints(spec: ClusterSpec) -> str:
    every = (
        "every second, at most 5% of the time"
        if spec.checkpoint_every is None
        else f"every {time_text(spec.checkpoint_every)}"
    )
    return every + (f", {time_text(spec.checkpoint_time)} each" if spec.virtual_time and spec.checkpoint_time else "")
