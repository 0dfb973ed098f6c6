"""Roles as processes on hosts: times computed by hand for cores that are shared, messages, polling, waking and pace."""

import numpy as np
import pytest

import labkit as lk
from labkit.engines.costs import Costs, Linear, WorkCost
from labkit.trace.schema import APPLY, COMPUTE

MS = 0.001


def costs(gradient=0.0, **more):
    return Costs(gradient=WorkCost(fixed=gradient), **more)


def run(strategy, workers, given, compute=None, updates=6, problem=None, **more):
    cluster = lk.SimulatedCluster(workers=workers, compute=compute, costs=given, **more)
    problem = problem or lk.Problem("moons", hidden=(4,), timing_only=True)
    made = lk.train(problem, strategy, cluster, lk.Budget(updates=updates)).wait()
    assert made.summary()["ledger"]["closes"]
    return made


def spans(run, role, phase):
    """(start, end) of the spans of a role in ms, shape (n, 2)."""
    who, kind, start, end = run.trace.column("spans", "role", "phase", "start", "end")
    mine = (who == run.plan.role_ids[role]) & (kind == phase)
    return np.stack([start[mine], end[mine]], axis=1) / 1e6


def test_workers_share_the_cores_of_their_host_equally():
    """Four gradients of 10 ms of one core each, on two cores, all at once: each takes 20 ms."""
    made = run(lk.SyncPS(), 4, costs(10 * MS, cores=2), updates=3)
    for worker in range(4):
        np.testing.assert_allclose(spans(made, f"worker-{worker}", COMPUTE), [[0, 20], [20, 40], [40, 60]], atol=1e-5)


def test_a_host_with_enough_cores_slows_nobody_down():
    made = run(lk.SyncPS(), 4, costs(10 * MS, cores=4), updates=2)
    np.testing.assert_allclose(spans(made, "worker-3", COMPUTE), [[0, 10], [10, 20]], atol=1e-5)


def test_a_worker_alone_computes_one_gradient_after_the_other():
    given = costs(10 * MS, cores=1)
    made = run(lk.AsyncPS(), 1, given, updates=3)
    np.testing.assert_allclose(spans(made, "worker-0", COMPUTE), [[0, 10], [10, 20], [20, 30]], atol=1e-5)


def test_hosts_have_their_own_cores_and_speeds():
    """Nodes are placed in turn: server, worker 0, worker 1, ... on two hosts, the second twice as fast."""
    made = run(lk.SyncPS(), 2, costs(10 * MS, cores=1, hosts=2, speeds=(1.0, 2.0)), updates=2)
    hosts = {name: made.engine.roles[name].node for name in ("worker-0", "worker-1")}
    assert sorted(hosts.values()) == [0, 1]
    for worker, host in hosts.items():
        start, end = spans(made, worker, COMPUTE)[0]
        assert end - start == pytest.approx(10 if host == 0 else 5)


def test_messages_cost_the_time_of_sender_and_receiver_and_the_latency():
    """One worker and one server on two cores. A cycle is: gradient 10, worker sends 1, latency 0.5, server receives 2, applies 3,
    sends 1, latency 0.5, worker receives 2."""
    given = costs(10 * MS, cores=2, send=Linear(1 * MS), receive=Linear(2 * MS), update=Linear(3 * MS), latency=0.5 * MS)
    made = run(lk.AsyncPS(), 1, given)
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts), 10 + 1 + 0.5 + 2 + 3 + 1 + 0.5 + 2, atol=1e-5)
    applied = spans(made, "server-0", APPLY)
    np.testing.assert_allclose(applied[:, 1] - applied[:, 0], 3, atol=1e-5)
    np.testing.assert_allclose(applied[:, 0], spans(made, "worker-0", COMPUTE)[:6, 1] + 1 + 0.5 + 2, atol=1e-5)


def test_costs_grow_with_bytes_and_with_the_network_and_the_batch():
    problem = lk.Problem("moons", hidden=(4,), batch_size=8, timing_only=True)
    parameters = problem.objective().size
    size = parameters * problem.objective().dtype.itemsize
    given = Costs(gradient=WorkCost(1 * MS, 1e-5, 1e-6), send=Linear(0, 1e-6), update=Linear(0, 2e-6), cores=2)
    made = run(lk.AsyncPS(), 1, given, problem=problem)
    gradient = 1 + 0.01 * parameters + 0.001 * parameters * 8
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts), gradient + size * 0.001 * 2 + size * 0.002, atol=1e-5)


def test_a_role_that_polls_occupies_a_core():
    """On one core a worker that polls for the answer takes half of the core from the server, which applies for 3 ms."""
    alone = run(lk.AsyncPS(), 1, costs(1 * MS, cores=1, update=Linear(3 * MS)))
    polls = run(lk.AsyncPS(), 1, costs(1 * MS, cores=1, update=Linear(3 * MS), polling=100 * MS))
    applied = spans(polls, "server-0", APPLY)
    assert spans(alone, "server-0", APPLY)[1] @ [-1, 1] == pytest.approx(3)
    assert applied[1] @ [-1, 1] == pytest.approx(3 * polling_roles(polls), rel=1e-4)


def polling_roles(made):
    """The server itself, the worker, and the chief, which waits for snapshots all the time."""
    return 3 if made.engine.roles["chief"].host is made.engine.roles["server-0"].host else 2


def test_a_role_stops_polling_after_its_time_and_then_sleeps_at_once():
    """The server applies for 10 ms. The worker polls for the first 2 ms of its first wait, and does not poll in later waits."""
    made = run(lk.AsyncPS(), 1, costs(0.1 * MS, cores=1, update=Linear(10 * MS), polling=2 * MS), updates=4)
    applied = spans(made, "server-0", APPLY)
    took = applied[:, 1] - applied[:, 0]
    assert took[0] > 10.5
    np.testing.assert_allclose(took[2:], 10, atol=1e-5)


def test_a_sleeping_role_is_woken_with_a_delay_that_depends_on_how_long_it_has_waited():
    given = costs(20 * MS, cores=4, update=Linear(2 * MS), wake=((1 * MS, 0.0), (11 * MS, 1 * MS), (21 * MS, 2 * MS)))
    made = run(lk.AsyncPS(), 1, given)
    gradient = spans(made, "worker-0", COMPUTE)
    # the worker waits for w = d + 2 ms, where d is the delay of the server that has waited for 20 ms plus the worker's own
    # delay; the fixed point is computed here by repetition
    server, worker = 0.0, 0.0
    for _ in range(200):
        worker = given.wake_delay((server + 2) * MS) / MS
        server = given.wake_delay((20 + worker) * MS) / MS
    np.testing.assert_allclose(np.diff(gradient[:, 0])[2:], 20 + server + 2 + worker, atol=1e-4)


def test_paced_work_takes_the_drawn_time_if_the_cores_allow_it():
    made = run(lk.AsyncPS(), 2, costs(10 * MS, cores=1), compute=lk.Deterministic(50 * MS))
    for worker in ("worker-0", "worker-1"):
        np.testing.assert_allclose(spans(made, worker, COMPUTE)[:, 1] - spans(made, worker, COMPUTE)[:, 0], 50, atol=1e-5)
    crowded = run(lk.AsyncPS(), 8, costs(10 * MS, cores=1), compute=lk.Deterministic(50 * MS), updates=16)
    np.testing.assert_allclose(spans(crowded, "worker-0", COMPUTE)[0], [0, 80], atol=1e-5)


def test_late_timers_are_made_up_for_by_the_next_gradient():
    given = costs(1 * MS, cores=2, wake=((0.0, 0.1 * MS),))
    made = run(lk.AsyncPS(), 1, given, compute=lk.Deterministic(10 * MS), updates=20)
    ends = spans(made, "worker-0", COMPUTE)
    assert ends[0] @ [-1, 1] == pytest.approx(10.1)
    np.testing.assert_allclose(ends[1:, 1] - ends[1:, 0], 10, atol=1e-5)


def test_a_slow_worker_sleeps_and_leaves_the_core_to_others():
    """Slowed down three times, a worker computes for 10 ms and sleeps for 20 ms."""
    made = run(lk.AsyncPS(), 2, costs(10 * MS, cores=1), slow={"worker-1": 3.0}, updates=12)
    one, other = (spans(made, f"worker-{i}", COMPUTE) for i in (0, 1))
    assert one[0] @ [-1, 1] == pytest.approx(20)  # it shares the core
    assert other[0] @ [-1, 1] == pytest.approx(60)  # three times the 20 ms that it took


def test_links_between_hosts_are_the_clusters():
    """The server is on one host, the worker on another; a message takes 5 ms and 1 ms per kB."""
    problem = lk.Problem("moons", hidden=(4,), timing_only=True)
    size = problem.objective().size * problem.objective().dtype.itemsize
    made = run(lk.AsyncPS(), 1, costs(10 * MS, hosts=3, cores=1), problem=problem, latency=5 * MS, bandwidth=1e6)
    roles = made.engine.roles
    assert roles["server-0"].node != roles["worker-0"].node
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts), 10 + 2 * (5 + size / 1e3), atol=1e-5)


@pytest.mark.parametrize("strategy", [
    lk.AsyncPS(), lk.SyncPS(), lk.SSP(s=1), lk.RingAllReduce(), lk.LocalSGD(), lk.Pipeline(), lk.BackupWorkers(),
    lk.ADPSGD(), lk.KAsync(), lk.EASGD(), lk.FSDP(), lk.TensorParallel(),
], ids=lambda s: s.name)  # fmt: skip
def test_every_strategy_runs_with_costs_and_repeats_exactly(strategy):
    given = costs(
        0.1 * MS, cores=2, send=Linear(20e-6, 1e-10), receive=Linear(20e-6, 1e-10), update=Linear(10e-6), latency=5e-6,
        polling=1 * MS, wake=((1 * MS, 50e-6), (10 * MS, 200e-6)), spread=lk.LogNormal(1.0, 0.3), evaluation=WorkCost(1e-4),
    )  # fmt: skip
    problem = lk.Problem("digits", **{**{"hidden": (16, 16)}, **strategy.suggested_problem})
    cluster = lk.SimulatedCluster(workers=4, compute=None, costs=given)
    runs = [lk.train(problem, strategy, cluster, lk.Budget(updates=40), seed=1).wait() for _ in range(2)]
    one, other = (made.summary().to_dict() for made in runs)
    assert one == other
    assert one["ledger"]["closes"] is True
    assert one["updates"] >= 40
    assert one["parameters_sha256"]


@pytest.mark.parametrize("fault", [
    lk.Kill("worker-1", at=0.02), lk.Kill("server-0", at=0.02), lk.Freeze("worker-1", during=(0.01, 0.03)),
    lk.Slow("worker-0", 5, during=(0.01, 0.02)), lk.Partition("worker-1", "*", during=(0.01, 0.03)),
    lk.Drop("worker", "server", 0.2), lk.Delay("worker-0", "server-0", 0.01),
], ids=lambda f: type(f).__name__)  # fmt: skip
@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_the_ledger_closes_under_faults(strategy, fault):
    given = costs(0.4 * MS, cores=2, send=Linear(50e-6), receive=Linear(50e-6), polling=1 * MS, wake=((1 * MS, 50e-6),))
    if not strategy.uses_servers and "server" in str(vars(fault)):
        fault = lk.Kill("worker-0", at=0.02)
    cluster = lk.SimulatedCluster(workers=3, compute=None, costs=given, restart_after=0.01)
    made = lk.train(lk.Problem("moons", hidden=(4,)), strategy, cluster, lk.Budget(updates=150), faults=[fault]).wait()
    entries = made.summary().book
    assert entries["closes"], entries
    assert made.stopped_by == "updates"


def test_a_fork_repeats_a_run_with_costs():
    given = costs(1 * MS, cores=1, send=Linear(50e-6), receive=Linear(50e-6), polling=1 * MS, wake=((1 * MS, 50e-6),))
    cluster = lk.SimulatedCluster(workers=3, compute=None, costs=given)
    made = lk.train(lk.Problem("moons", hidden=(4,)), lk.AsyncPS(), cluster, lk.Budget(updates=60)).wait()
    forked = made.fork(at=made.engine.seconds / 2)
    forked.wait()
    assert forked.summary().to_dict() == made.summary().to_dict()


@pytest.mark.parametrize(("change", "message"), [
    ({"cores": 0}, "cores=0"), ({"hosts": True}, "hosts=True"), ({"latency": -1}, "latency=-1"), ({"speeds": ()}, "speeds"),
    ({"wake": ((1, 1), (1, 2))}, "must ascend"), ({"gradient": 3}, "gradient=3"), ({"polling": float("nan")}, "polling=nan"),
])  # fmt: skip
def test_costs_that_cannot_be_are_refused(change, message):
    with pytest.raises(lk.BadInput, match=message):
        Costs(**change)


def test_without_costs_a_simulated_cluster_needs_a_distribution():
    with pytest.raises(lk.BadInput, match="virtual time needs a distribution"):
        lk.SimulatedCluster(compute=None)
    assert "costs" not in lk.SimulatedCluster().describe()
