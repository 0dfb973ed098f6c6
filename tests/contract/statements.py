"""Statements about finished runs that hold for every strategy, on both engines."""

import numpy as np
import pytest

from labkit.trace import query
from tests.accounts import balanced


def closed(run):
    """The ledger of a finished run; it balances, and agrees with the workers' counters."""
    entries = balanced(run)
    parts = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    assert sum(entries[p] for p in parts) + sum(entries["dropped"].values()) == entries["computed"]
    if not run.trace.ending["lost_instances"]:  # a restarted role counts from 0
        assert entries["computed"] == sum(c.computed for c in run.trace.counters.values())
    return entries


def stopped_after(run, updates, gradients, budget="updates", whole=True):
    """The run has ended because of its budget, with this number of updates of so many gradients each; returns its ledger.

    `whole`: each gradient is applied by all shards or none (else each shard may use other gradients).
    """
    summary, entries = run.summary(), closed(run)
    assert run.stopped_by == summary["stopped_by"] == budget
    assert summary["updates"] == run.trace.ending["update"] == updates
    shards = [c for c in run.trace.counters.values() if c.shard >= 0]
    assert [c.version for c in shards] == [updates] * len(shards) != []
    assert summary["gradients"] == entries["applied"]
    assert entries["applied"] + entries["partly_applied"] >= updates * gradients
    if whole:
        assert (entries["applied"], entries["partly_applied"]) == (updates * gradients, 0)
    assert set(entries["dropped"]) <= {
        "after the end",
        "late",
        "cancelled",
    }  # the last two where a step does not wait for all
    return entries


def evaluated(run):
    """The returned model has the reported loss and accuracy, and its predictions are the last that were recorded."""
    summary, data, model = run.summary(), run.plan.problem.dataset, run.result()
    assert np.isfinite(summary["loss"])
    if run.plan.strategy.name == "SparsePS":
        assert (model.predict(data.x_test) == data.y_test).mean() == summary["accuracy"]
        return
    loss, accuracy = model.network.evaluate(model.parameters, data.x_test, data.y_test)
    assert (loss, accuracy) == (pytest.approx(summary["loss"], rel=1e-5), pytest.approx(summary["accuracy"], abs=1e-6))
    last = list(run.trace.predictions)[-1]
    assert last.update == run.trace.ending["update"]
    first = data.raw(data.x_test[: len(last.samples)])  # those in the trace are rounded
    assert list(last.samples) == model.predict(first).tolist()


def staleness_is_conserved(run):
    """The sum of staleness over the updates equals that from the reads, for every shard, without an assumption about time."""
    role, stale = run.trace.column("applies", "role", "staleness")
    for shard in range(run.trace.kinds.count("server")):
        left, right = query.staleness_identity(run.trace, shard)
        assert left == right == stale[role == shard].sum()


def sent(run):
    """{(sender, receiver, kind): the size of each message of training that was sent, in order} of all workers."""
    columns = run.trace.column("messages", "sender", "role", "kind", "bytes", "category", "sent")
    rows, workers = {}, set(run.trace.role_ids("worker"))
    for sender, receiver, kind, size, category, _ in sorted(
        zip(*(c.tolist() for c in columns)), key=lambda row: row[-1]
    ):
        if sender in workers and category == 0:
            rows.setdefault((sender, receiver, kind), []).append(size)
    return rows


def computed_the_same(run, other):
    """Equal parameters but for the order of sums, and equal messages on every link, up to the end of the shorter run.

    A role that sends more messages than fit into a report leaves out rows, which is recorded: then each link has the same sizes.
    """
    one, two = (np.asarray(getattr(r.result().parameters, "values", r.result().parameters)) for r in (run, other))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-10)
    assert run.trace.header.samples == other.trace.header.samples
    assert run.trace.header.shares == other.trace.header.shares
    mine, others = sent(run), sent(other)
    assert mine.keys() == others.keys()
    assert sum(map(len, others.values())) > 20
    whole = run.trace.tables["messages"].skipped == 0
    for link in others:
        one, two = mine[link], others[link]
        if whole:
            assert len(one) >= 0.8 * len(two), link
            assert one[: len(two)] == two[: len(one)], link
        else:
            assert set(one) == set(two), link
