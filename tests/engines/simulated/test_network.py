"""Links and link faults in virtual time: arrivals by hand, distributions of random faults, order, ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import RESEND_S
from labkit.engines.simulated.network import transmissions
from labkit.trace.schema import TRAINING

pytestmark = pytest.mark.sample(4, slow=4)

MOONS = lk.Problem("moons", hidden=(4,), batch_size=8)
NANO = 10**9


@dataclass(frozen=True)
class Note(lk.Message):
    """`values` of 8 bytes each."""

    values: np.ndarray
    number: int
    header = ("number",)


class Talk(lk.AsyncPS):
    """Each worker sends a note of 800 bytes to the server every 0.1 s from 0.1 s on."""

    messages = (*lk.AsyncPS.messages, Note)

    async def worker(self, ctx, model):
        for number in range(1, 1000):
            await ctx.sleep(0.1)
            ctx.send("server-0", Note(np.zeros(100), number))

    async def server(self, ctx, shard):
        async for note in ctx.inbox(Note):
            ctx.note(note.sender, number=note.number)


def talk(*faults, seconds=0.95, workers=1, **network):
    """({worker: [(number, when)]}, the run)."""
    cluster = lk.SimulatedCluster(workers=workers, **network)
    run = lk.train(MOONS, Talk(), cluster, lk.Budget(seconds=10_000), faults=faults).advance(seconds)
    return received_in(run), run


def received_in(run):
    """{worker: [(number, when)]}."""
    delivered = {}
    for event in run.trace.events:
        if event.kind == "note":
            delivered.setdefault(str(event), []).append((int(event.numbers["number"]), round(event.time / NANO, 6)))
    return delivered


def times(delivered, worker="worker-0"):
    return [when for _, when in delivered[worker]]


# arrivals by hand -----------------------------------------------------------------------------------------------------


def test_a_delay_is_added_and_messages_stay_in_order():
    delivered, _ = talk("delay:worker-0:server-0:0.25@0.15-0.25", latency=0.01, seconds=0.65)
    assert delivered["worker-0"] == [(1, 0.11), (2, 0.46), (3, 0.46), (4, 0.46), (5, 0.51), (6, 0.61)]


def test_a_delay_is_added_to_latency_and_transmission_time():
    # 800 bytes at 8,000 bytes/s occupy the link for 0.1 s
    delivered, _ = talk("delay:*:*:0.05", latency=0.01, bandwidth=8_000.0, seconds=0.5)
    assert times(delivered) == [0.26, 0.36, 0.46]


def test_a_delay_of_one_link_does_not_affect_the_others():
    delivered, _ = talk("delay:worker-0:server-0:0.25", workers=2, latency=0.01, seconds=0.6)
    assert times(delivered) == [0.36, 0.46, 0.56]
    assert times(delivered, "worker-1") == [0.11, 0.21, 0.31, 0.41, 0.51]


def test_the_newest_setting_of_a_link_holds():
    delivered, _ = talk("delay:worker-0:server-0:0.25", "delay:worker-0:0.02@0.05", latency=0.01, seconds=0.25)
    assert times(delivered) == [0.13, 0.23]


@pytest.mark.parametrize("fault", ["partition:worker-0:*@0.15-0.55", "partition:server-0:worker@0.15-0.55"])
def test_a_cut_holds_what_is_sent_until_it_is_mended(fault):
    delivered, run = talk(fault, latency=0.08, seconds=0.75)
    assert delivered["worker-0"] == [(1, 0.18), (2, 0.63), (3, 0.63), (4, 0.63), (5, 0.63), (6, 0.68)]
    sent, received, size = run.trace.column("messages", "sent", "received", "bytes")
    rows = sorted(zip(sent[size == 800] / NANO, received[size == 800] / NANO))
    assert rows[:4] == [(0.1, 0.18), (0.2, 0.63), (0.3, 0.63), (0.4, 0.63)]


def test_a_free_network_can_be_cut_and_delayed_too():
    delivered, _ = talk("partition:worker-0:server-0@0.15-0.35", "delay:worker-0:0.07@0.45-0.55", seconds=0.75)
    assert delivered["worker-0"] == [(1, 0.1), (2, 0.35), (3, 0.35), (4, 0.4), (5, 0.57), (6, 0.6), (7, 0.7)]


def test_reconnecting_a_role_restores_its_links_except_to_isolated_roles():
    _, run = talk(workers=2, seconds=0.05)
    run.cut("worker-0", "server-0").cut("worker-1").advance(0.2)
    run.reconnect("server-0")
    run.advance(0.1)
    assert set(received_in(run)) == {"worker-0"}
    run.reconnect("worker-1").advance(0.06)
    assert [number for number, _ in received_in(run)["worker-1"]] == [1, 2, 3, 4]


# limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "network", "worker_0", "worker_1"),
    [
        (["limit:worker-0:8kB/s"], {}, [0.21, 0.31, 0.41, 0.51, 0.61], [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
        (["limit:worker-0:4kB/s"], {}, [0.31, 0.51], [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
        # the server receives one message at a time
        (["limit:server-0:8kB/s"], {}, [0.21, 0.41, 0.61], [0.31, 0.51]),
        # the slower end of a link counts
        (["limit:server-0:40kB/s", "limit:worker-0:8kB/s"], {}, [0.21, 0.31, 0.41, 0.51, 0.61],
         [0.15, 0.25, 0.35, 0.45, 0.55]),
        # and of the limit and the cluster
        (["limit:worker-0:4kB/s"], {"bandwidth": 80e3}, [0.31, 0.51], [0.13, 0.23, 0.33, 0.43, 0.53, 0.63]),
        (["limit:*:80kB/s"], {"bandwidth": 8e3}, [0.21, 0.41, 0.61], [0.31, 0.51]),
        # a message keeps the time that it had when it was sent, and a link its order
        (["limit:worker-0:4kB/s@0.15-0.35"], {}, [0.11, 0.41, 0.61, 0.61, 0.61, 0.61], [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
        (["limit:worker-0:4kB/s", "limit:worker-0:none@0.25"], {}, [0.31, 0.51, 0.51, 0.51, 0.51, 0.61],
         [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
        (["limit:worker-0:8kB/s", "delay:worker-0:0.05"], {}, [0.26, 0.36, 0.46, 0.56], [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
        # messages that a cut holds are sent one after the other
        (["limit:worker-0:16kB/s", "partition:worker-0:server-0@0.15-0.45"], {}, [0.16, 0.51, 0.56, 0.61],
         [0.11, 0.21, 0.31, 0.41, 0.51, 0.61]),
    ],
)  # fmt: skip
def test_a_limited_node_sends_and_receives_one_message_at_a_time(faults, network, worker_0, worker_1):
    delivered, _ = talk(*faults, workers=2, latency=0.01, seconds=0.64, **network)
    assert (times(delivered), times(delivered, "worker-1")) == (worker_0, worker_1)


LIMITED, COMPUTE = 1e5, 0.01  # bytes/s, seconds


def seconds_per_step(strategy, **network):
    """The time of a step whose gradient takes 10 ms, and the seconds for which its largest message occupies worker-1."""
    run = trained(strategy, lk.Limit("worker-1", LIMITED), compute=COMPUTE, **network)
    size, category = run.trace.column("messages", "bytes", "category")
    applied = np.unique(run.trace.column("applies", "time"))
    return (applied[-1] - applied[0]) / NANO / (len(applied) - 1), size[category == TRAINING].max() / LIMITED


@pytest.mark.parametrize("latency", [0.0, 0.002])
def test_all_wait_for_one_limited_worker(latency):
    # the weights travel to the worker, and its gradient to the server
    step, message = seconds_per_step(lk.SyncPS(), workers=3, latency=latency)
    assert step == pytest.approx(COMPUTE + 2 * message + 2 * latency, rel=1e-6)
    # a ring of two exchanges halves twice, in both directions at once
    step, message = seconds_per_step(lk.RingAllReduce(), workers=2, latency=latency)
    assert step == pytest.approx(COMPUTE + 2 * message + 2 * latency, rel=1e-6)


def test_others_do_not_wait_for_a_limited_worker_that_is_asynchronous():
    run = trained(lk.AsyncPS(), lk.Limit("worker-1", LIMITED), compute=COMPUTE, latency=0.0, updates=400)
    size = run.trace.column("messages", "bytes").max()
    sender = run.trace.column("applies", "sender")
    counts = [np.sum(sender == role) for role in run.trace.role_ids("worker")]
    slow = COMPUTE + 2 * size / LIMITED
    assert abs(counts[0] - counts[2]) <= 1
    assert counts[1] == pytest.approx(counts[0] * COMPUTE / slow, abs=1)


@pytest.mark.parametrize("latency", [0.0, 0.002])
@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.BucketedAllReduce(bucket_size=1), lk.LocalSGD(H=4)],
    ids=lambda s: s.name,
)  # fmt: skip
def test_limits_of_all_roles_are_the_bandwidth_of_the_cluster(strategy, latency):
    limited = trained(strategy, lk.Limit("*", "100kB/s"), latency=latency)
    cluster = trained(strategy, latency=latency, bandwidth=LIMITED)
    assert limited.trace.now > trained(strategy, latency=latency).trace.now
    assert limited.trace.ending["parameters_sha256"] == cluster.trace.ending["parameters_sha256"]
    for table in ("messages", "spans", "applies"):
        columns = run_columns(limited, table), run_columns(cluster, table)
        for one, other in zip(*columns):
            np.testing.assert_array_equal(one, other)


def run_columns(run, table):
    return run.trace.column(table, *run.trace.tables[table].columns)


# chance ---------------------------------------------------------------------------------------------------------------


def test_transmission_counts_follow_their_distributions():
    chance, samples, rng = 0.3, 20_000, np.random.default_rng(7)
    drawn = np.array([transmissions(rng, chance) for _ in range(samples)])
    sent, lost, again = drawn.T

    def geometric(values, stop):
        """P(k) = (1 - stop)^k stop, each within five standard deviations."""
        seen = Counter(values.tolist())
        for k in range(8):
            p = (1 - stop) ** k * stop
            assert abs(seen[k] - samples * p) < 5 * np.sqrt(samples * p * (1 - p)) + 1

    geometric(sent - 1, (1 - chance) ** 2)  # until both a transmission and its acknowledgement come through
    geometric(lost, 1 - chance)
    geometric(again, 1 - chance)  # each arrival is acknowledged, and the acknowledgement lost with the same chance
    assert (sent >= lost + again + 1).all()


def test_dropped_messages_arrive_in_order_after_a_whole_number_of_retransmissions():
    chance, seconds = 0.3, 100.05
    delivered, run = talk(lk.Drop("worker-0", "server-0", chance), latency=0.01, seconds=seconds)
    found = delivered["worker-0"]
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    assert [when for _, when in found] == sorted(when for _, when in found)
    late = np.array([round((when - 0.01 - 0.1 * number) / RESEND_S, 6) for number, when in found])
    assert (late == np.round(late)).all()
    assert late.min() == 0
    assert late.max() > 2

    size, server, worker = 800, *(run.trace.counters[run.plan.role_ids[n]] for n in ("server-0", "worker-0"))
    total = sum(worker.bytes) / size  # transmissions of 1,000 notes
    assert total == int(total)
    assert abs(total / worker.messages - 1 / (1 - chance) ** 2) < 0.2
    assert abs(server.duplicates / worker.messages - chance / (1 - chance)) < 0.1
    sender, bytes_ = run.trace.column("messages", "sender", "bytes")
    assert bytes_[sender == run.plan.role_ids["worker-0"]].sum() == sum(worker.bytes)


def test_every_link_has_its_own_random_stream():
    alone, _ = talk(lk.Drop("*", "*", 0.3), latency=0.01, seconds=20)
    together, _ = talk(lk.Drop("*", "*", 0.3), workers=3, latency=0.01, seconds=20)
    assert alone["worker-0"] == together["worker-0"]
    assert len({tuple(times(together, worker)) for worker in together}) == 3


# runs -----------------------------------------------------------------------------------------------------------------


def trained(strategy, *faults, updates=120, wait=True, **more):
    settings = {"workers": 3, "compute": lk.distributions.Exponential(0.01), "latency": 0.001} | more
    run = lk.train(MOONS, strategy, lk.SimulatedCluster(**settings), lk.Budget(updates=updates), faults=faults)
    return run.wait() if wait else run


EVERY = [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.SSP(s=1), lk.LocalSGD(H=4)]


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
def test_budgets_are_met_and_the_ledger_balances_with_a_fifth_of_the_frames_lost(strategy):
    run = trained(strategy, lk.Drop("*", "*", 0.2))
    assert (run.stopped_by, run.summary()["updates"]) == ("updates", 120)
    assert lk.ledger(run.trace)["closes"]
    assert sum(c.duplicates for c in run.trace.counters.values()) > 10


def test_losses_change_when_a_synchronous_run_steps_but_not_what_it_learns():
    undisturbed, poor = trained(lk.SyncPS()), trained(lk.SyncPS(), lk.Drop("*", "*", 0.2))
    assert undisturbed.trace.ending["parameters_sha256"] == poor.trace.ending["parameters_sha256"]
    assert poor.trace.now > undisturbed.trace.now


@pytest.mark.parametrize("network", [{"latency": 0.0}, {"latency": 0.002, "bandwidth": 1e6}], ids=["free", "limited"])
@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
def test_link_faults_of_strength_zero_change_nothing(strategy, network):
    undisturbed = trained(strategy, **network)
    nothing = trained(strategy, lk.Delay("*", "*", 0.0), lk.Drop("*", "*", 0.0), lk.Limit("*", None), **network)
    assert undisturbed.trace.ending["parameters_sha256"] == nothing.trace.ending["parameters_sha256"]
    for table in ("messages", "spans", "applies"):
        for one, other in zip(run_columns(undisturbed, table), run_columns(nothing, table)):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("strategy", EVERY, ids=lambda s: s.name)
def test_a_run_with_link_faults_is_repeated_exactly(strategy):
    faults = [
        "drop:*:*:0.1@0.05-0.4",
        "partition:worker-1:*@0.1-0.3",
        "partition:worker-2:*@0.5-1.5",
        "slow:worker-0:2@0.7",
        "limit:worker-0:50kB/s@0.05-0.6",
    ]
    run = trained(strategy, *faults, heartbeat_timeout=0.3, restart_after=0.2)
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)
    again.wait()
    assert [str(m) for m in run.trace.events] == [str(m) for m in again.trace.events]
    assert run.trace.now == again.trace.now
    assert run.trace.ending["parameters_sha256"] == again.trace.ending["parameters_sha256"]


# unreachable roles ----------------------------------------------------------------------------------------------------


def kinds(run, name):
    return [event.kind for event in run.trace.events if getattr(event, "name", None) == name]


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_an_isolated_role_is_either_reconnected_or_fenced(strategy):
    soon = trained(strategy, "partition:worker-1:*@0.1-0.3", heartbeat_timeout=0.3)
    assert kinds(soon, "worker-1") == ["cut", "reconnected"]
    late = trained(strategy, "partition:worker-1:*@0.1-1.0", heartbeat_timeout=0.3, restart_after=0.2, updates=400)
    found = [kind for kind in kinds(late, "worker-1") if kind not in ("left", "joined")]
    assert found == ["cut", "lost", "restarted", "reconnected", "fenced"]
    lost = next(event for event in late.trace.events if event.kind == "lost")
    assert lost.time == 0.4 * NANO
    for run in (soon, late):
        assert lk.ledger(run.trace)["closes"]
        assert run.stopped_by == "updates"


def test_the_successor_of_an_isolated_role_is_not_isolated():
    run = trained(lk.AsyncPS(), "partition:worker-1:*@0.1", heartbeat_timeout=0.2, restart_after=0.2, updates=400)
    time, sender = run.trace.column("applies", "time", "sender")
    mine = time[sender == run.plan.role_ids["worker-1"]]
    assert mine.max() > 0.5 * NANO
    assert not ((mine > 0.11 * NANO) & (mine < 0.5 * NANO)).any()


def test_gradients_that_a_cut_holds_are_in_flight():
    run = trained(lk.AsyncPS(), "partition:worker-1:server-0@0.1", heartbeat_timeout=5.0)
    entries = lk.ledger(run.trace)
    assert (entries["in_flight"], entries["closes"]) == (1, True)


def test_the_chief_receives_no_reports_through_a_cut():
    run = trained(lk.AsyncPS(eval_every=10), "partition:chief:*@0.1-0.3", heartbeat_timeout=5.0)
    time, update = run.trace.column("evaluations", "time", "update")
    assert not ((time > 0.1 * NANO) & (time < 0.3 * NANO)).any()
    assert len(time[time <= 0.1 * NANO]) > 1
    assert update[-1] == 120


def test_a_run_blocked_by_a_cut_reports_it_and_can_be_stopped():
    run = trained(lk.SyncPS(), "partition:worker-1:server-0@0.1", wait=False)
    with pytest.raises(lk.ClusterError, match="it waits for worker-1, which is cut off from server-0"):
        run.wait()
    run = trained(lk.SyncPS(), "partition:worker-1:server-0@0.1", wait=False).advance(5)
    assert [str(event) for event in run.trace.events if event.kind == "waits"] == [
        "waits for worker-1, which is cut off from server-0"
    ]
    run.stop()
    assert run.stopped_by == "user"
    assert lk.ledger(run.trace)["closes"]


# refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (
            lambda run: run.limit("worker-1", 0),
            "bandwidth=0 is not allowed; bandwidth is a number from 1,000 to inf bytes/s",
        ),
        (lambda run: run.limit("worker", 1e6), "There is no role 'worker'"),
        (lambda run: run.delay("worker-1", -1), "seconds=-1 is not allowed; seconds is a number from 0"),
        (lambda run: run.delay("worker-1", "x"), "seconds='x' is not allowed"),
        (lambda run: run.drop("worker-1", 1.0), "chance=1.0 is not allowed; chance is a number from 0 to 0.95"),
        (lambda run: run.cut("worker-9"), "There is no role 'worker-9'"),
        (lambda run: run.cut("worker-1", "server"), "There is no role 'server'. Did you mean 'server-0'"),
        (lambda run: run.cut("worker-1", "worker-1"), "nothing lies between a role and itself"),
    ],
)
def test_invalid_link_faults_are_refused_and_the_run_continues(does, message):
    run = trained(lk.AsyncPS(), wait=False)
    with pytest.raises(lk.BadInput, match=message):
        does(run)
    assert not run.trace.events
    assert run.wait().stopped_by == "updates"


def test_faults_have_no_effect_between_roles_of_one_node():
    strategy = lk.AsyncPS(chief_works=True, eval_every=10)
    run = trained(strategy, "partition:worker-0:chief@0.05", "delay:chief:worker-0:9")
    assert run.stopped_by == "updates"
    assert run.trace.now < NANO
