"""The constants of the network model, measured on a real cluster: the times of a worker, a server and a message."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput
from ..trace.schema import APPLY, COMPUTE, NANO, WAIT
from ..trace.trace import Trace, check_trace

__all__ = ["LEAST_LATENCY", "MOST_BANDWIDTH", "calibrate"]

LEAST_LATENCY = 1e-6  # seconds; shorter times cannot be measured between two processes
MOST_BANDWIDTH = 20e9  # bytes per second, about that of memory; a larger one cannot be measured with small models


def calibrate(small: Any, large: Any) -> dict[str, float]:
    """Return the times and rates of a cluster, measured with two models of different size.

    The time for which a worker waits for a reply consists of two messages and the work of the server. The wait with the small
    model gives the latency of a message, and the difference between both models gives the bandwidth.

    Parameters
    ----------
    small, large : Run or Trace
        Two runs of `AsyncPS` with one worker and one server, without pace, of a model of a few parameters and of a model that
        is large enough for its transfer to be measured (about a megabyte).

    Returns
    -------
    dict of str to float
        The arguments of `SimulatedCluster`: ``compute`` and ``server_time``, the median times of a gradient and of the
        server's work with the large model (seconds), ``latency`` (seconds, at least 1e-6) and ``bandwidth`` (bytes per second, at
        most 20e9).

    Raises
    ------
    BadInput
        If a run does not have one worker and one server, or has applied no gradient, or if the models are of equal size.

    Examples
    --------
    Simulated runs return the values with which they were simulated:

    >>> import labkit as lk
    >>> from labkit.advisor.calibration import calibrate
    >>> cluster = lk.SimulatedCluster(workers=1, servers=1, compute=0.01, server_time=1e-3, latency=1e-4, bandwidth=1e8)
    >>> problems = [lk.Problem("digits", hidden=hidden, timing_only=True) for hidden in ((), (512,))]
    >>> runs = [lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait() for problem in problems]
    >>> {name: float(f"{value:.2g}") for name, value in calibrate(*runs).items()}
    {'compute': 0.01, 'server_time': 0.001, 'latency': 0.0001, 'bandwidth': 100000000.0}
    """
    traces = [check_trace(getattr(run, "trace", run), name) for name, run in (("small", small), ("large", large))]
    sizes = [_model_bytes(trace) for trace in traces]
    if sizes[0] >= sizes[1]:
        given = f"{sizes[0]:,} bytes and the large one {sizes[1]:,}"
        raise BadInput(f"calibrate: the small model has {given}; give the small one first.")
    times = [_times(trace) for trace in traces]
    messages = [wait - apply for _, wait, apply in times]  # a request and its reply
    per_byte = max((messages[1] - messages[0]) / (2 * (sizes[1] - sizes[0])), 1 / MOST_BANDWIDTH)
    latency = max(messages[0] / 2 - sizes[0] * per_byte, LEAST_LATENCY)
    compute, _, server = times[1]
    return {"compute": compute, "server_time": server, "latency": latency, "bandwidth": 1 / per_byte}


def _model_bytes(trace: Trace) -> int:
    """Return the bytes of the model of a run with one server."""
    if trace.kinds.count("worker") != 1 or trace.kinds.count("server") != 1:
        raise BadInput("calibrate: give runs with one worker and one server.")
    ((start, stop),) = (role["part"] for role in trace.header["layout"]["roles"] if role["kind"] == "server")
    return int(stop - start) * np.dtype(trace.header["problem"]["dtype"]).itemsize


def _times(trace: Trace) -> tuple[float, float, float]:
    """Return the median seconds of a gradient, of a wait for the reply, and of the server's work on a gradient (0 if it takes
    no time). A median does not contain the first wait, in which no gradient is sent, and rare pauses of the machine.
    """
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    medians = []
    for kind, what in (("worker", COMPUTE), ("worker", WAIT), ("server", APPLY)):
        these = np.isin(role, trace.role_ids(kind)) & (phase == what)
        if what == COMPUTE and not these.any():
            raise BadInput("calibrate: a run has applied no gradient; give it more time.")
        medians.append(float(np.median((end - start)[these])) / NANO if these.any() else 0.0)
    return medians[0], medians[1], medians[2]
