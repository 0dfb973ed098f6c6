"""Roles as processes on hosts: times computed by hand for cores that are shared, messages, polling, waking and pace."""

import json
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.engines.costs import Costs, Linear, WorkCost, costs_as_text, costs_from_text
from labkit.trace.events import RoleFrozen, RoleKilled
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


def test_workers_of_a_core_take_turns():
    """Four gradients of 10 ms on two cores, in time slices of 4 ms: two workers of a core have it from 0 to 4 and from 4 to 8,
    8 to 12 and 12 to 16, 16 to 18 and 18 to 20 ms."""
    made = run(lk.SyncPS(), 4, costs(10 * MS, cores=2, time_slice=4 * MS, min_slice=4 * MS), updates=3)
    for worker, start, end in (("worker-0", 0, 18), ("worker-1", 0, 18), ("worker-2", 4, 20), ("worker-3", 4, 20)):
        expected = [[start + round_, end + round_] for round_ in (0, 20, 40)]
        np.testing.assert_allclose(spans(made, worker, COMPUTE), expected, atol=1e-5)


def test_short_work_is_not_interrupted():
    """Two gradients of 2 ms on one core: the second begins when the first ends."""
    made = run(lk.SyncPS(), 2, costs(2 * MS, cores=1, time_slice=3 * MS), updates=1)
    assert [spans(made, f"worker-{i}", COMPUTE)[0, 1] for i in (0, 1)] == pytest.approx([2, 4])


def test_workers_are_pinned_to_the_cores_in_turn():
    """Three workers on two cores: workers 0 and 2 share a core. If they are not pinned, a core that becomes idle takes over."""
    pinned = run(lk.SyncPS(), 3, costs(9 * MS, cores=2), updates=1)
    assert [spans(pinned, f"worker-{i}", COMPUTE)[0, 1] for i in (0, 1, 2)] == pytest.approx([15, 9, 18])
    free = run(lk.SyncPS(), 3, costs(9 * MS, cores=2, pinned=False), updates=1)
    # worker 2 gets a core at 3 ms; workers 0 and 2 then take turns until worker 1 ends at 9 ms and leaves its core to one of them
    assert [spans(free, f"worker-{i}", COMPUTE)[0, 1] for i in (0, 1, 2)] == pytest.approx([12, 9, 15])


def test_work_after_another_role_takes_longer():
    """On one core, a worker and the server take turns: gradient 2 ms, update 1 ms, each by a half longer."""
    made = run(lk.AsyncPS(eval_every=1000), 1, costs(2 * MS, cores=1, cold=[(0, 0.5)], update=Linear(1 * MS)))
    np.testing.assert_allclose(np.diff(spans(made, "worker-0", COMPUTE)[:, 0]), 3 + 1.5, atol=1e-5)


def test_how_much_longer_depends_on_the_size_of_the_network():
    given = costs(2 * MS, cores=1, cold=[(80, 0.1), (200, 0.7)])
    assert [given.cold_factor(size) for size in (0, 80, 120, 200, 10**9)] == pytest.approx([0.1, 0.1, 0.3, 0.7, 0.7])
    assert costs().cold_factor(1000) == 0
    made = run(lk.AsyncPS(eval_every=1000), 1, replace(given, update=Linear(1 * MS)))  # 22 parameters of 4 bytes: 0.14
    np.testing.assert_allclose(np.diff(spans(made, "worker-0", COMPUTE)[:, 0]), (2 + 1) * 1.14, atol=1e-5)


def test_work_on_a_core_of_its_own_does_not_take_longer():
    made = run(lk.SyncPS(), 2, costs(9 * MS, cores=8, cold=[(0, 0.5)], time_slice=3 * MS), updates=3)
    np.testing.assert_allclose(np.diff(spans(made, "worker-1", COMPUTE)[:, 0]), 9, atol=1e-5)


def test_other_processes_use_a_share_of_the_cores_while_none_is_idle():
    """Two workers, a server and a chief use 0.05 cores each: together a tenth of each of two cores."""
    made = run(lk.SyncPS(), 2, costs(9 * MS, cores=2, background=0.05), updates=1)
    assert spans(made, "worker-1", COMPUTE)[0, 1] == pytest.approx(9 / 0.9)
    roomy = run(lk.SyncPS(), 2, costs(9 * MS, cores=3, background=0.05), updates=1)
    assert spans(roomy, "worker-1", COMPUTE)[0, 1] == pytest.approx(9)


def test_with_enough_cores_no_role_is_slowed_down():
    made = run(lk.SyncPS(), 4, costs(10 * MS, cores=4), updates=2)
    np.testing.assert_allclose(spans(made, "worker-3", COMPUTE), [[0, 10], [10, 20]], atol=1e-5)


def test_a_worker_alone_computes_one_gradient_after_the_other():
    given = costs(10 * MS, cores=1)
    made = run(lk.AsyncPS(), 1, given, updates=3)
    np.testing.assert_allclose(spans(made, "worker-0", COMPUTE), [[0, 10], [10, 20], [20, 30]], atol=1e-5)


def test_hosts_have_their_own_cores_and_speeds():
    """Nodes are placed in turn: server, worker 0, worker 1, ... on two hosts, the second twice as fast."""
    made = run(lk.SyncPS(), 2, costs(10 * MS, cores=1, hosts=2, speeds=(1.0, 2.0)), updates=2)
    hosts = {name: made.engine.roles[name].host.number for name in ("worker-0", "worker-1")}
    assert sorted(hosts.values()) == [0, 1]
    for worker, host in hosts.items():
        start, end = spans(made, worker, COMPUTE)[0]
        assert end - start == pytest.approx(10 if host == 0 else 5)


def test_messages_cost_the_time_of_sender_and_receiver_and_the_latency():
    """One worker and one server on two cores. A cycle is: gradient 10, worker sends 1, latency 0.5, server receives 2, applies 3,
    sends 1, latency 0.5, worker receives 2."""
    given = costs(
        10 * MS, cores=2, send=Linear(1 * MS), receive=Linear(2 * MS), update=Linear(3 * MS), latency=0.5 * MS
    )
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


def test_a_role_that_polls_leaves_its_core_to_others():
    """On one core a worker polls for the answer while the server applies for 3 ms."""
    polls = run(lk.AsyncPS(), 1, costs(1 * MS, cores=1, update=Linear(3 * MS), polling=100 * MS))
    assert spans(polls, "server-0", APPLY)[1] @ [-1, 1] == pytest.approx(3)


def test_a_role_that_has_slept_needs_longer_for_its_first_work():
    """In a cycle the server sleeps for the 20 ms of the gradient and for the worker's additional time w, and the worker sleeps
    for the 2 ms of the update and for the server's additional time s. The fixed point is computed here by repetition."""
    given = costs(20 * MS, cores=4, update=Linear(2 * MS), wake=((1 * MS, 0.0), (11 * MS, 1 * MS), (21 * MS, 2 * MS)))
    made = run(lk.AsyncPS(), 1, given)
    server, worker = 0.0, 0.0
    for _ in range(200):
        worker = given.wake_delay((server + 2) * MS) / MS
        server = given.wake_delay((20 + worker) * MS) / MS
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts)[3:], 20 + server + 2 + worker, atol=1e-4)


def test_a_role_that_polls_is_not_delayed_and_polls_only_if_its_last_wait_was_short():
    """The worker's first wait, 10 ms, is longer than it polls, so it sleeps then, and at once in all later waits."""
    given = costs(0.1 * MS, cores=2, update=Linear(10 * MS), polling=2 * MS, wake=((0.0, 1 * MS),))
    short = costs(0.1 * MS, cores=2, update=Linear(1 * MS), polling=2 * MS, wake=((0.0, 1 * MS),))
    starts = spans(run(lk.AsyncPS(), 1, given), "worker-0", COMPUTE)[:, 0]
    # the server waits for 1.1 ms, which is short; the worker waits for 10 ms and then needs 1 ms more for its first work
    np.testing.assert_allclose(np.diff(starts)[1:], 0.1 + 10 + 1, atol=1e-5)
    starts = spans(run(lk.AsyncPS(), 1, short), "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts)[1:], 0.1 + 1, atol=1e-5)


def test_paced_work_takes_the_drawn_time_if_the_cores_allow_it():
    made = run(lk.AsyncPS(), 2, costs(10 * MS, cores=1), compute=lk.distributions.Deterministic(50 * MS))
    for worker in ("worker-0", "worker-1"):
        np.testing.assert_allclose(
            spans(made, worker, COMPUTE)[:, 1] - spans(made, worker, COMPUTE)[:, 0], 50, atol=1e-5
        )
    crowded = run(lk.AsyncPS(), 8, costs(10 * MS, cores=1), compute=lk.distributions.Deterministic(50 * MS), updates=16)
    np.testing.assert_allclose(spans(crowded, "worker-7", COMPUTE)[0], [21, 80], atol=1e-5)


def test_after_a_paced_gradient_the_worker_has_slept():
    """The gradient takes 1 of 10 ms; after 9 ms of sleep, sending takes 1 ms instead of 0.5 ms."""
    given = costs(1 * MS, cores=2, send=Linear(0.5 * MS), wake=((8 * MS, 0.0), (10 * MS, 1 * MS)), polling=100 * MS)
    made = run(lk.AsyncPS(), 1, given, compute=lk.distributions.Deterministic(10 * MS))
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    # the worker sends, then the server, which has polled
    np.testing.assert_allclose(np.diff(starts), 10 + 1 + 0.5, atol=1e-5)


def test_a_slow_worker_sleeps_and_leaves_the_core_to_others():
    """Slowed down three times, a worker computes for 3 ms and sleeps for 6 ms."""
    made = run(lk.AsyncPS(), 2, costs(3 * MS, cores=1, time_slice=3 * MS), slow={"worker-1": 3.0}, updates=12)
    one, other = (spans(made, f"worker-{i}", COMPUTE) for i in (0, 1))
    assert one[0] @ [-1, 1] == pytest.approx(3)
    assert other[0] @ [-1, 1] == pytest.approx(9)
    assert one[2] @ [-1, 1] == pytest.approx(3)  # it has the core while the other sleeps


def test_the_wait_for_a_core_is_no_part_of_the_work_of_a_slow_worker():
    """One core; gradients and updates of 1 ms, time slices of 3 ms. Worker 1, three times slower, computes from 3 to 4 ms and
    sleeps until 6. Its timer has ended, but it waits until 7 for the core; its update then lasts 3 ms, less 0.25 ms of lateness.
    """
    given = costs(1 * MS, cores=1, update=Linear(1 * MS), time_slice=3 * MS)
    made = run(lk.LocalSGD(), 2, given, slow={"worker-1": 3.0}, updates=8)
    assert spans(made, "worker-1", COMPUTE)[0, 1] == pytest.approx(6)
    assert spans(made, "worker-1", APPLY)[0, 1] == pytest.approx(7 + 3 - 0.25)


def test_messages_between_hosts_have_their_own_costs():
    given = costs(10 * MS, hosts=3, cores=1, send=Linear(1 * MS), receive=Linear(3 * MS), remote_send=Linear(2 * MS))
    made = run(lk.AsyncPS(), 1, given)
    np.testing.assert_allclose(np.diff(spans(made, "worker-0", COMPUTE)[:, 0]), 10 + 2 * (2 + 3), atol=1e-5)


def test_pieces_of_a_gradient():
    """Two stages and two micro-batches of one sample: 1 ms, 22 parameters of 0.1 ms, 44 products of 0.05 ms. A pass takes half of
    the 1 ms. The first stage has half of the weights, thus of the rest: a third in a forward, two thirds in a backward pass,
    and of the products a half for each micro-batch."""
    given = Costs(gradient=WorkCost(1 * MS, 0.1 * MS, 0.05 * MS), cores=4)
    problem = lk.Problem("moons", hidden=(4,), batch_size=2, timing_only=True)
    made = run(lk.Pipeline(micro_batches=2), 2, given, updates=3, problem=problem)
    durations = np.diff(spans(made, "worker-0", COMPUTE)[:4]).ravel()
    assert durations == pytest.approx([0.5 + 0.5 * k / 3 * (2.2 + 2.2 / 2) for k in (1, 1, 2, 2)], abs=1e-5)


def test_an_update_with_two_gradients_takes_as_long_as_two_updates():
    made = run(lk.SyncPS(), 2, costs(1 * MS, cores=4, update=Linear(3 * MS)), updates=2)
    assert np.diff(spans(made, "server-0", APPLY)).ravel() == pytest.approx([6, 6])


def test_a_role_that_has_slept_gets_the_core_after_a_minimal_slice():
    """One core. Worker 1, three times slower, computes from 5 to 7 ms, and sleeps until 11; worker 0 has had the core since 7.
    With a minimal slice of 1 ms it gets the core at once, else when the time slice of worker 0 ends at 12."""
    for shortest, at in ((1 * MS, 11), (5 * MS, 12)):
        given = costs(2 * MS, cores=1, update=Linear(2 * MS), time_slice=5 * MS, min_slice=shortest)
        made = run(lk.LocalSGD(), 2, given, slow={"worker-1": 3.0}, updates=8)
        assert spans(made, "worker-1", COMPUTE)[0, 1] == pytest.approx(11)
        assert spans(made, "worker-1", APPLY)[0, 1] == pytest.approx(at + 6 - min(at - 11, 0.25))


def test_a_short_sleep_costs_less_than_a_long_one():
    """From no additional time without sleep to 1 ms after 4 ms and longer."""
    given = costs(wake=((4 * MS, 1 * MS),))
    assert [given.wake_delay(slept * MS) / MS for slept in (0, 1, 4, 10)] == pytest.approx([0, 0.25, 1, 1])
    assert costs().wake_delay(1.0) == 0.0


def test_links_between_hosts_are_the_clusters():
    """The server is on one host, the worker on another; a message takes 5 ms and 1 ms per kB."""
    problem = lk.Problem("moons", hidden=(4,), timing_only=True)
    size = problem.objective().size * problem.objective().dtype.itemsize
    made = run(lk.AsyncPS(), 1, costs(10 * MS, hosts=3, cores=1), problem=problem, latency=5 * MS, bandwidth=1e6)
    roles = made.engine.roles
    assert roles["server-0"].host is not roles["worker-0"].host
    starts = spans(made, "worker-0", COMPUTE)[:, 0]
    np.testing.assert_allclose(np.diff(starts), 10 + 2 * (5 + size / 1e3), atol=1e-5)


@pytest.mark.parametrize("fault", [lk.Kill("worker-1", at=0.02), lk.Freeze("worker-1", during=(0.02, 0.03))])
def test_a_fault_of_one_process_leaves_the_others_of_its_host_alone(fault):
    cluster = lk.SimulatedCluster(workers=3, compute=None, costs=costs(1 * MS, cores=2), restart_after=0.01)
    made = lk.train(
        lk.Problem("moons", hidden=(4,)), lk.AsyncPS(), cluster, lk.Budget(updates=90), faults=[fault]
    ).wait()
    hit = [event.name for event in made.trace.events if isinstance(event, RoleKilled | RoleFrozen)]
    assert hit == ["worker-1"]


def test_a_delayed_link_is_slower_within_a_host_and_the_others_keep_their_latency():
    """A cycle takes 10 ms, and twice 2 ms of latency; with a delay of 5 ms between worker 0 and the server, 10 ms more."""
    faults = [lk.Delay("worker-0", "server-0", seconds=5 * MS, at=0)]
    cluster = lk.SimulatedCluster(workers=2, compute=None, costs=costs(10 * MS, cores=8, latency=2 * MS))
    problem = lk.Problem("moons", hidden=(4,), timing_only=True)
    made = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=20), faults=faults).wait()
    for worker, cycle in (("worker-0", 10 + 2 * (2 + 5)), ("worker-1", 10 + 2 * 2)):
        np.testing.assert_allclose(np.diff(spans(made, worker, COMPUTE)[:, 0])[1:], cycle, atol=1e-5)


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_limited_role_is_slower_within_a_host_and_between_hosts(hosts):
    """A cycle takes 10 ms, and two messages; on several hosts each of them takes 5 ms and 1 ms per kB, or the limit."""
    problem = lk.Problem("moons", hidden=(4,), timing_only=True)
    size = problem.objective().size * problem.objective().dtype.itemsize
    for limit, slower in ((10e3, 10e3), (1e9, 1e6 if hosts > 1 else 1e9)):
        cluster = lk.SimulatedCluster(
            workers=1,
            compute=None,
            costs=costs(10 * MS, hosts=hosts, cores=8, latency=2 * MS),
            latency=5 * MS,
            bandwidth=1e6,
        )
        faults = lk.Limit("worker-0", limit)
        made = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=20), faults=faults).wait()
        cycle = 10 + 2 * (2 + 5 * (hosts > 1) + 1000 * size / slower)
        np.testing.assert_allclose(np.diff(spans(made, "worker-0", COMPUTE)[:, 0])[1:], cycle, atol=1e-5)


def test_costs_that_take_no_time_are_refused_without_a_limit_of_updates():
    cluster = lk.SimulatedCluster(compute=None, costs=Costs(evaluation=WorkCost(1.0)))
    with pytest.raises(lk.BadInput, match="virtual time would stand still"):
        lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(seconds=1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"other": 1}, "no option 'other'"), ({"min_slice": None}, "min_slice=None"), ({"gradient": 1}, "gradient=1"),
        ({"lk": "Linear"}, "no option"), ({"spread": {"lk": "Costs"}}, "spread="), ({"wake": [[1]]}, "wake="),
        ({"lk": "os"}, "no os"),
    ],
)  # fmt: skip
def test_texts_that_are_no_costs_are_refused(change, why):
    plain = json.loads(costs_as_text(costs())) | change
    with pytest.raises(lk.BadInput, match=why):
        costs_from_text(json.dumps(plain))
    for text in ("{", "5", "[]", '{"lk": "Linear"}'):
        with pytest.raises(lk.BadInput, match="costs="):
            costs_from_text(text)


@pytest.mark.sample(7)
@pytest.mark.parametrize("strategy", [
    lk.AsyncPS(), lk.SyncPS(), lk.SSP(s=1), lk.RingAllReduce(), lk.LocalSGD(), lk.Pipeline(), lk.BackupWorkers(),
    lk.ADPSGD(), lk.KAsync(), lk.EASGD(), lk.FSDP(), lk.TensorParallel(), lk.BucketedAllReduce(),
], ids=lambda s: s.name)  # fmt: skip
def test_every_strategy_runs_with_costs_and_repeats_exactly(strategy):
    given = costs(
        0.1 * MS, cores=2, send=Linear(20e-6, 1e-10), receive=Linear(20e-6, 1e-10), update=Linear(10e-6), latency=5e-6,
        polling=1 * MS, wake=((1 * MS, 50e-6), (10 * MS, 200e-6)), spread=lk.distributions.LogNormal(1.0, 0.3),
        evaluation=WorkCost(1e-4),
    )  # fmt: skip
    problem = lk.Problem("digits", **{**{"hidden": (16, 16)}, **strategy.suggested_problem})
    cluster = lk.SimulatedCluster(workers=4, compute=None, costs=given)
    runs = [lk.train(problem, strategy, cluster, lk.Budget(updates=40), seed=1).wait() for _ in range(2)]
    one, other = (made.summary().to_dict() for made in runs)
    assert one == other
    assert one["ledger"]["closes"] is True
    assert one["updates"] >= 40
    assert one["parameters_sha256"]


@pytest.mark.sample(11)
@pytest.mark.parametrize("fault", [
    lk.Kill("worker-1", at=0.02), lk.Kill("server-0", at=0.02), lk.Freeze("worker-1", during=(0.01, 0.03)),
    lk.Slow("worker-0", 5, during=(0.01, 0.02)), lk.Partition("worker-1", "*", during=(0.01, 0.03)),
    lk.Drop("worker", "server", 0.2), lk.Delay("worker-0", "server-0", 0.01),
    lk.Limit("worker-0", 50e3),
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
    ({"wake": ((1, 1), (1, 2))}, "must ascend"), ({"time_slice": 0}, "time_slice=0"), ({"cold": -1}, "cold=-1"),
    ({"cold": ((1, -1),)}, "cold=-1"), ({"cold": ((2, 1), (1, 1))}, "must ascend"),
    ({"pinned": 1}, "pinned=1"), ({"remote_send": 2}, "remote_send=2"), ({"background": "x"}, "background='x'"),
    ({"gradient": 3}, "gradient=3"), ({"polling": float("nan")}, "polling=nan"),
])  # fmt: skip
def test_costs_that_cannot_be_are_refused(change, message):
    with pytest.raises(lk.BadInput, match=message):
        Costs(**change)


def test_without_costs_a_simulated_cluster_needs_a_distribution():
    with pytest.raises(lk.BadInput, match="virtual time needs a distribution"):
        lk.SimulatedCluster(compute=None)
    assert "costs" not in lk.SimulatedCluster().describe()
