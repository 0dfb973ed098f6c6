"""Measurements of runs that lessons compare with formulas: the costs of a step, leads, and staleness by worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import BadInput
from ..trace import RunOrTrace, Trace
from ..trace.query import sampled
from ..trace.role_states import FAR_FUTURE, absences, workers_of
from ..trace.schema import ALL, NANO, TRAINING, UNKNOWN
from ..trace.trace import check_trace


@dataclass(frozen=True)
class StepCosts:
    """The costs of a step, as returned by `step_costs`.

    Parameters
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

    Examples
    --------
    >>> problem, cluster = lk.Problem("digits", timing_only=True), lk.SimulatedCluster(workers=4, compute=0.1)
    >>> costs = lk.lessons.step_costs(lk.train(problem, lk.SyncPS(), cluster, lk.Budget(updates=3)).wait())
    >>> costs.gradients, costs.stored, costs.server_sent / costs.sent
    (4, 0, 4.0)
    """

    seconds: float
    gradients: int
    sent: int
    messages: int
    server_sent: int
    stored: int


def step_costs(run: RunOrTrace) -> StepCosts:
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
        Seconds, gradients, bytes and messages.

    Raises
    ------
    BadInput
        If the run has fewer than two updates, or does not keep all messages.

    Examples
    --------
    In a ring of 4 workers each worker sends 2 (N - 1) = 6 messages, together 2 (N - 1)/N = 1.5 times the model:

    >>> problem = lk.Problem("quadratic", options={"dimension": 1000}, timing_only=True)
    >>> cluster, budget = lk.SimulatedCluster(workers=4, compute=0.1), lk.Budget(updates=3)
    >>> ring = lk.train(problem, lk.RingAllReduce(), cluster, budget).wait()
    >>> costs = lk.lessons.step_costs(ring)
    >>> costs.messages, costs.sent / costs.stored, costs.seconds
    (6, 1.5, 0.1)
    """
    trace = _trace(run)
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


def message_bytes(run: RunOrTrace, kind: str) -> np.ndarray:
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

    Examples
    --------
    >>> problem, cluster = lk.Problem("digits", timing_only=True), lk.SimulatedCluster(workers=2, compute=0.1)
    >>> run = lk.train(problem, lk.SyncPS(), cluster, lk.Budget(updates=3)).wait()
    >>> lk.lessons.message_bytes(run, "Push")
    array([38440, 38440, 38440, 38440, 38440, 38440])
    """
    trace = _trace(run)
    names, (number, size) = trace.header.messages, trace.column("messages", "kind", "bytes")
    seen = [names[k] for k in np.unique(number).tolist()]
    if kind not in seen:
        raise BadInput(f"The run has no message {kind!r}. Its messages are {', '.join(seen)}.")
    return size[number == names.index(kind)].astype(np.int64)


def staleness_by_worker(run: RunOrTrace) -> dict[str, np.ndarray]:
    """Return the staleness of each gradient that the first shard has applied, by the worker that computed it.

    Parameters
    ----------
    run : Run or Trace
        The run, or its trace.

    Returns
    -------
    dict of str to ndarray, shape (gradients,)
        {worker: staleness, in updates}, in the order of application, without gradients whose staleness is unknown. The
        array of a worker of which no gradient was applied is empty.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=3, compute=0.1)
    >>> run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=6)).wait()
    >>> lk.lessons.staleness_by_worker(run)["worker-1"]
    array([1, 2])
    """
    trace = _trace(run)
    role, sender, stale, count = trace.column("applies", "role", "sender", "staleness", "count")
    known = (role == trace.observed[0]) & (stale != UNKNOWN)
    return {
        trace.roles[worker]: np.repeat(stale[known & (sender == worker)], count[known & (sender == worker)])
        for worker in workers_of(trace)
    }


def largest_lead(run: RunOrTrace) -> int:
    """Return the largest lead of a worker over the slowest worker.

    The clock of a worker is the number of its gradients that the first shard has applied. Leads are measured when the shard
    applies a gradient of the worker that leads, independently of the times at which workers began their gradients, from
    which the panel of progress computes leads.

    Parameters
    ----------
    run : Run or Trace
        The run, or its trace.

    Returns
    -------
    int
        The lead, in gradients.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=3, compute=0.1, slow={"worker-1": 5})
    >>> run = lk.train("moons", lk.SSP(s=3), cluster, lk.Budget(updates=100)).wait()
    >>> lk.lessons.largest_lead(run)
    3
    """
    trace = _trace(run)
    role, sender, time = trace.column("applies", "role", "sender", "time")
    mine = role == trace.observed[0]
    clocks, largest, missed, away = dict.fromkeys(workers_of(trace), 0), 0, absences(trace, FAR_FUTURE), set[int]()
    for worker, now in zip(sender[mine].tolist(), time[mine].tolist()):  # in order of time
        if worker == ALL:  # no worker leads
            continue
        gone = {one for one, gaps in missed.items() if any(gap.contains(now) for gap in gaps)}
        slowest = min((clock for one, clock in clocks.items() if one not in gone | away), default=clocks[worker])
        clocks |= {one: max(clocks[one], slowest) for one in away - gone if one in clocks}  # they are back
        away = gone
        largest = max(largest, clocks[worker] - slowest)
        clocks[worker] += 1
    return largest


def updates_to_accuracy(run: RunOrTrace, accuracy: float = 0.95) -> int | None:
    """Return the number of updates at the first evaluation that reached an accuracy.

    Parameters
    ----------
    run : Run or Trace
        The run, or its trace.
    accuracy : float, default: 0.95
        The accuracy on the test data, from 0 to 1.

    Returns
    -------
    int or None
        The number of updates, or None if no evaluation has reached the accuracy.

    Examples
    --------
    >>> run = lk.train("digits", lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=200)).wait()
    >>> lk.lessons.updates_to_accuracy(run, 0.8) < 200
    True
    """
    update, reached = _trace(run).column("evaluations", "update", "accuracy")
    hits = np.flatnonzero(reached >= accuracy)
    return int(update[hits[0]]) if len(hits) else None


def _trace(run: RunOrTrace) -> Trace:
    return check_trace(getattr(run, "trace", run), "run")


def _stored(trace: Trace) -> int:
    """Return the bytes of the largest part of the parameters that a worker owns."""
    parts = [role.parameters for role in trace.header.layout.roles if role.kind == "worker"]
    return max(parts, default=0) * np.dtype(trace.header.problem.dtype).itemsize
