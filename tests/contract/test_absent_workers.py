"""Workers that never join, join later, or leave: the numbers of the run are those of the workers that take part."""

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import Join, Leave
from labkit.lessons import largest_lead
from labkit.narrative.sentence import sentence
from labkit.strategies import STRATEGIES
from labkit.trace import query
from labkit.trace.clocks import leads
from labkit.trace.role_states import absent, conditions
from labkit.trace.stragglers import stragglers
from tests.accounts import balanced
from tests.chaos import indicator

BATCH = 10
PROBLEM = lk.Problem("moons", hidden=(8,), batch_size=BATCH, partition="shared", options={"samples": 500})
WORKERS = 3


def accepted(kind):
    """Whether workers of this strategy may join and leave."""
    try:
        lk.train(PROBLEM, kind(), cluster(kind, 5), lk.Budget(updates=1))
    except lk.BadInput:
        return False
    return True


def cluster(kind, most, **more):
    servers = 2 if kind.uses_servers else None
    return lk.SimulatedCluster(
        workers=WORKERS, max_workers=most, servers=servers, compute=lk.distributions.LogNormal(0.02, 0.3), **more
    )


ELASTIC = [kind for name, kind in sorted(STRATEGIES.items()) if accepted(kind)]
LOCAL = [lk.LocalSGD, lk.DPSGD, lk.ADPSGD]
WITHOUT_SERVERS = [lk.RingAllReduce, lk.HalvingDoubling, lk.BucketedAllReduce, *LOCAL]
each = pytest.mark.parametrize("kind", ELASTIC, ids=lambda kind: kind.__name__)


def test_the_strategies_that_can_change_their_workers():
    assert set(WITHOUT_SERVERS) <= set(ELASTIC)
    assert len(ELASTIC) == 16


def numbers(run):
    """What the trace says about an ended run, now and half-way."""
    trace, end = run.trace, run.trace.ending["time"]
    names, counted, lead = trace.roles, query.Cumulative(), leads(trace, end)
    edges = np.array([end // 2, end])
    return {
        "summary": run.summary().to_dict(), "text": str(run.summary()), "then": lk.ledger(trace, end // 2),
        "gross": counted.gross(trace, end).total.tolist(), "net": counted.net(trace, end // 2).total.tolist(),
        "by worker": query.Cumulative().by_worker(trace, edges).tolist(), "rates": query.rates(trace, end)[1].tolist(),
        "reported": query.last_reported(trace, end), "samples": query.samples_applied(trace),
        "computed": {names[role]: count for role, count in query.computed_by_worker(trace).items()},
        "theory": query.expected_staleness(trace), "sentence": sentence(trace), "largest lead": largest_lead(trace),
        "stragglers": [found._replace(role=names[found.role]) for found in stragglers(trace, end)],
        "leads": {names[role]: mine.tolist() for role, mine in zip(lead.roles, lead.lead)},
    }  # fmt: skip


@pytest.mark.sample(8, slow=16)  # together each strategy once or twice, the limits in turn
@each
@pytest.mark.parametrize(
    "limit", [{"updates": 30}, {"samples": 900}, {"seconds": 0.5}], ids=lambda limit: next(iter(limit))
)
def test_workers_that_never_join_change_no_number(kind, limit):
    budget = lk.Budget(**limit)
    slow = {"worker-1": 3.0}
    alone, wide = (
        lk.train(PROBLEM, kind(eval_every=4), cluster(kind, most, slow=slow), budget).wait() for most in (None, 5)
    )
    assert numbers(wide) == numbers(alone)
    outside = {"worker-3", "worker-4"} | ({"replica-3", "replica-4"} if kind is lk.ADPSGD else set())
    assert {wide.trace.roles[role] for role in absent(wide.trace)} == outside
    assert set(conditions(wide.trace, 0).values()) == {"not joined"}
    balanced(wide)


CHANGES = {
    "joins": [(0.2, Join("worker-3"))], "leaves": [(0.2, Leave("worker-1"))], "the first leaves": [(0.2, Leave("worker-0"))],
    "joins and leaves": [(0.1, Join("worker-3")), (0.2, Leave("worker-3"))],
    "another takes its place": [(0.1, Join("worker-4")), (0.2, Leave("worker-0")), (0.3, Join("worker-0"))],
}  # fmt: skip


@pytest.mark.sample(16, slow=8)
@each
@pytest.mark.parametrize("change", CHANGES)
def test_workers_that_join_and_leave_are_counted_while_they_take_part(kind, change, tmp_path):
    """The parameters show which gradients they hold; every mini-batch has one sample."""
    servers = 2 if kind.uses_servers else 1
    problem = indicator.problem_for(kind, servers, 2000)
    marked = indicator.indicated(kind(), tmp_path)
    run = lk.train(problem, marked, cluster(kind, 5), lk.Budget(samples=150))
    for at, command in CHANGES[change]:
        run.advance(at - run.engine.seconds).execute(command)
    run.wait()
    found, entries = indicator.held_by_model(run, run.result().parameters, tmp_path), balanced(run)
    assert run.stopped_by == "samples"
    held = found.somewhere if kind in LOCAL else found.everywhere
    assert entries["applied"] == len(held) == run.trace.ending["samples"] == query.samples_applied(run.trace)
    assert 150 <= len(held) < 150 + 5 * (4 if kind is lk.EASGD else 1)
    assert query.computed_gradients(run.trace) == indicator.computed(tmp_path) == entries["computed"]
    assert entries["partly_applied"] == 0


@pytest.mark.parametrize("kind", WITHOUT_SERVERS, ids=lambda kind: kind.__name__)
def test_another_replica_counts_after_the_first_has_left(kind):
    """The rate is counted while the run goes on, too; the result does not depend on when."""
    run = lk.train(PROBLEM, kind(), cluster(kind, 5), lk.Budget(updates=50))
    counted = query.Cumulative()
    for command in (Join("worker-3"), Leave("worker-0"), Join("worker-0"), Leave("worker-3")):
        run.advance(0.2)
        counted.gross(run.trace, run.trace.now)
        run.execute(command)
    run.wait()
    end, entries = run.trace.ending["time"], balanced(run)
    now, later = counted.gross(run.trace, end), query.Cumulative().gross(run.trace, end)
    assert now.total.tolist() == later.total.tolist()
    assert later.total[-1] >= entries["applied"]
    assert later.total[-1] == entries["applied"] or kind in LOCAL  # what a replica has applied last may leave with it


@pytest.mark.parametrize("kind", LOCAL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
@pytest.mark.parametrize("back", [False, True])
def test_the_samples_of_lost_replicas_are_those_of_the_model(kind, on_loss, back):
    """Every mini-batch has 10 samples. A replica that is restarted begins with the mean, but has not trained on its samples."""
    run = lk.train(PROBLEM, kind(on_loss=on_loss), cluster(kind, None), lk.Budget(samples=900)).advance(0.2)
    run.kill("worker-1", restart=back or on_loss == "wait").wait()
    assert run.stopped_by == "samples"
    assert query.samples_applied(run.trace) == run.trace.ending["samples"] == BATCH * balanced(run)["applied"]
    assert 900 <= run.trace.ending["samples"] < 900 + 2 * WORKERS * BATCH
