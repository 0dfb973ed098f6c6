"""Costs of one step, measured from a trace: its time, and the messages and bytes that a role sends in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadInput
from .query import sampled
from .schema import NANO, TRAINING
from .trace import Trace, check_trace


@dataclass(frozen=True)
class StepCosts:
    """The costs of a step, as returned by `step_costs`.

    Attributes
    ----------
    seconds : float
        The engine time from the update before to the update of the step.
    gradients : int
        The number of gradients that the update applies.
    sent, messages : int
        Payload bytes and messages that a worker sends: the largest number of all workers.
    server_sent : int
        Payload bytes that a server sends: the largest number of all servers. 0 without servers.
    stored : int
        Bytes of the parameters that a worker stores between two steps: the largest number of all workers. 0 if servers store
        the parameters.
    """

    seconds: float
    gradients: int
    sent: int
    messages: int
    server_sent: int
    stored: int


def step_costs(run: Any) -> StepCosts:
    """Return the costs of the last step of a run.

    A step is the time between two updates of the first shard. Messages of a role that applies updates itself, as a worker of a
    ring, are counted between two updates of this role. Evaluations, checkpoints and heartbeats are not counted.

    Parameters
    ----------
    run : Run or Trace
        A run with at least two updates that keeps all messages.

    Returns
    -------
    StepCosts

    Raises
    ------
    BadInput
        If the run has fewer than two updates, or does not keep all messages.

    Examples
    --------
    In a ring of 4 workers each worker sends 2 (N - 1) = 6 messages, together 2 (N - 1)/N = 1.5 times the model:

    >>> import labkit as lk
    >>> from labkit.trace.step_costs import step_costs
    >>> problem = lk.Problem("quadratic", options={"dimension": 1000}, timing_only=True)
    >>> cluster, budget = lk.SimulatedCluster(workers=4, compute=0.1), lk.Budget(updates=3)
    >>> ring = lk.train(problem, lk.RingAllReduce(), cluster, budget).wait()
    >>> costs = step_costs(ring)
    >>> costs.messages, costs.sent / costs.stored, costs.seconds
    (6, 1.5, 0.1)
    """
    trace = check_trace(getattr(run, "trace", run), "run")
    first = trace.observed[0]
    role, time, count = trace.column("applies", "role", "time", "count")
    ends = {who: np.unique(time[role == who])[-2:] for who in np.unique(role).tolist()}
    if len(ends.get(first, ())) < 2:
        raise BadInput("step_costs: the run has fewer than two updates; give it a longer budget.")
    if sampled(trace, "messages"):
        raise BadInput("step_costs: the run does not keep all messages; use record=True and fewer updates.")
    start, end = ends[first].tolist()
    sender, size, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    totals = {}
    for who in range(len(trace.roles)):
        begin, stop = ends.get(who, ends[first]) if len(ends.get(who, ())) == 2 else ends[first]
        mine = size[(sender == who) & (category == TRAINING) & (begin < sent) & (sent <= stop)]
        totals[who] = int(mine.sum()), len(mine)
    workers, servers = trace.role_ids("worker"), trace.role_ids("server")
    return StepCosts(
        (end - start) / NANO, int(count[(role == first) & (time == end)].sum()), max(totals[w][0] for w in workers),
        max(totals[w][1] for w in workers), max((totals[s][0] for s in servers), default=0), _stored(trace),
    )  # fmt: skip


def message_bytes(run: Any, kind: str) -> np.ndarray:
    """Return the payload size of every recorded message of one kind, in bytes, int64 of shape (messages,).

    Parameters
    ----------
    run : Run or Trace
        The run, or its trace.
    kind : str
        The name of the message's class, for example ``"Push"``.

    Returns
    -------
    ndarray, shape (messages,)
        One size per message, in the order in which the messages were recorded.

    Raises
    ------
    BadInput
        If the run has no message of this kind.
    """
    trace = check_trace(getattr(run, "trace", run), "run")
    names, (number, size) = trace.header.messages, trace.column("messages", "kind", "bytes")
    seen = [names[k] for k in np.unique(number).tolist()]
    if kind not in seen:
        raise BadInput(f"The run has no message {kind!r}. Its messages are {', '.join(seen)}.")
    return size[number == names.index(kind)].astype(np.int64)


def _stored(trace: Trace) -> int:
    """Return the bytes of the largest part of the parameters that a worker owns."""
    parts = [role.parameters for role in trace.header.layout.roles if role.kind == "worker"]
    return max(parts, default=0) * np.dtype(trace.header.problem.dtype).itemsize
