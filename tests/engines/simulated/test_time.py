"""Virtual time: exactness, reproducibility, queues for cores, cut-through networks, manual advance and replay."""

import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import Stop
from labkit.engines.plan import make_plan
from labkit.engines.simulated.network import LinkTimes
from labkit.trace.ledger import ledger
from labkit.trace.schema import EVALUATE

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 200})
TIMING = lk.Problem("moons", hidden=(), timing_only=True)
RANDOM = {
    "compute": lk.distributions.LogNormal(0.01, 0.6),
    "server_time": lk.distributions.Exponential(0.001),
    "latency": 0.0005,
    "bandwidth": 1e6,
}


def contents(trace, in_order=True):
    """The content of a trace, as bytes and plain values. `in_order=False`: rows sorted (they come in the order of
    flushes).
    """
    rows = {name: table.rows() for name, table in trace.tables.items()}
    if not in_order:
        rows = {name: values[np.lexsort(values.T[::-1])] for name, values in rows.items()}
    events = sorted(trace.events, key=lambda m: (m.time, m.recorder))
    counters = {role: c.to_dict() for role, c in trace.counters.items()}
    return {name: values.tobytes() for name, values in rows.items()}, events, counters, trace.ending, trace.header


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_equal_seeds_give_equal_runs(strategy):
    cluster = lk.SimulatedCluster(workers=3, slow={"worker-1": 2.0}, **RANDOM)

    def made(seed):
        run = lk.train(MOONS, strategy, cluster, lk.Budget(updates=60), seed=seed).wait()
        return contents(run.trace), run.result().parameters.tobytes(), str(run.summary())

    first = made(5)
    assert made(5) == first
    other = made(6)
    assert other[0] != first[0]
    assert other[1] != first[1]


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS()], ids=lambda s: s.name)
def test_one_more_worker_does_not_change_the_batches_and_times_of_the_others(strategy):
    """With partition="shared". Compared: durations and samples of the gradients of workers 0, 1, 2."""

    class Notes(type(strategy)):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                ctx.note("batch", first=float(batch.x[0, 0]), last=float(batch.x[-1, 1]), draw=ctx.rng.random())
                weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))

    problem = replace(MOONS, partition="shared")

    def seen(workers):
        cluster = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Exponential(0.01))
        trace = lk.train(problem, Notes(), cluster, lk.Budget(seconds=1.0)).wait().trace
        phase, role, start, end = trace.column("spans", "phase", "role", "start", "end")
        made = {}
        for i in trace.role_ids("worker")[:3]:
            mine = (phase == 0) & (role == i)
            took = (end - start)[mine][np.argsort(start[mine])]
            batches = [m.numbers for m in trace.events if m.recorder == i]
            made[trace.roles[i]] = (took[:30].tolist(), batches[:30])
        return made

    three, four = seen(3), seen(4)
    assert three == four
    assert three["worker-0"] != three["worker-1"]
    assert len(three["worker-2"][0]) == 30


@pytest.mark.slow
def test_ten_thousand_workers():
    run = lk.train(
        TIMING,
        lk.AsyncPS(),
        lk.SimulatedCluster(workers=10_000, compute=lk.distributions.Exponential(1.0)),
        lk.Budget(updates=300),
    ).wait()
    assert run.summary()["updates"] == 300
    assert ledger(run.trace)["closes"]


# cores ----------------------------------------------------------------------------------------------------------------


class OneNode(lk.AsyncPS):
    """Workers and server share a node."""

    def layout(self, problem, cluster):
        plan = super().layout(problem, cluster)
        roles = tuple(lk.RoleSpec(**{**vars(r), "node": r.node if r.kind == "chief" else "box"}) for r in plan.roles)
        return lk.Layout(roles, plan.observed, plan.parts)


def work(trace):
    """[(role, start, end) in ms] of all work, in the order in which it began."""
    phase, role, start, end = trace.column("spans", "phase", "role", "start", "end")
    busy = np.isin(phase, (0, 2))
    return sorted(
        (int(s) // 10**6, int(e) // 10**6, trace.roles[r]) for s, e, r in zip(start[busy], end[busy], role[busy])
    )


def test_roles_on_one_node_queue_for_its_core():
    """By hand: three gradients of 10 ms one after the other; the server's 2 ms are queued when requested, in turn."""
    cluster = lk.SimulatedCluster(workers=3, compute=0.010, server_time=0.002)
    trace = lk.train(TIMING, OneNode(), cluster, lk.Budget(updates=3)).wait().trace
    assert work(trace)[:5] == [
        (0, 10, "worker-0"), (10, 20, "worker-1"), (20, 30, "worker-2"),
        (30, 32, "server-0"),  # worker-0 pushed at 10, when worker-1 and worker-2 were already in the queue
        (32, 42, "worker-0") if work(trace)[4][2] == "worker-0" else (32, 34, "server-0"),
    ]  # fmt: skip
    busy = work(trace)
    assert all(before[1] <= after[0] for before, after in pairwise(busy))  # one core: never two at once


def test_several_cores_compute_in_parallel():
    cluster = lk.SimulatedCluster(workers=3, compute=0.010, cores=3)
    trace = lk.train(TIMING, OneNode(), cluster, lk.Budget(updates=3)).wait().trace
    assert work(trace)[:3] == [(0, 10, "worker-0"), (0, 10, "worker-1"), (0, 10, "worker-2")]


def test_evaluation_is_free_with_chief_works():
    """Worker 0 on the chief's node is not slowed: in virtual time evaluation takes no time and no bytes of
    training.
    """
    cluster = lk.SimulatedCluster(workers=2, compute=0.010, bandwidth=1e6, latency=0.001)

    def summary(chief_works):
        strategy = lk.SyncPS(chief_works=chief_works, eval_every=1)
        run = lk.train(MOONS, strategy, cluster, lk.Budget(updates=20)).wait()
        assert len(run.trace.nodes) == 4
        assert len(set(run.trace.nodes)) == (3 if chief_works else 4)
        return run.summary()

    with_chief, alone = summary(True), summary(False)
    assert with_chief["seconds"] == alone["seconds"]
    assert with_chief["bytes_sent"] == alone["bytes_sent"]
    assert alone["bytes_sent"]["chief"] == {"training": 0, "startup": 0, "evaluation": 0}
    assert alone["bytes_sent"]["server"]["evaluation"] > 0


STEP, EVALUATION = 100_000_000, 30_000_000  # ns


def evaluated(strategy, seconds=None, updates=40, workers=2, **cluster):
    shape = lk.SimulatedCluster(workers=workers, compute=0.1, evaluation_time=0.03, **cluster)
    run = lk.train(MOONS, strategy, shape, lk.Budget(updates=updates, seconds=seconds)).wait()
    applied = sorted(set(run.trace.column("applies", "time").tolist()))
    return run, applied, run.trace.column("evaluations", "time").astype(int).tolist()


@pytest.mark.parametrize("chief_works", [True, False])
@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.RingAllReduce])
def test_evaluation_takes_its_time_and_a_worker_on_the_chiefs_node_waits(strategy, chief_works):
    """By hand: a step takes 100 ms, an evaluation 30 ms. After an evaluation the chief requests the core again after nineteen
    times its duration (including the wait for the core), and at once for the last update. On a shared core the first
    request is served first: at time zero the chief's, if workers have to pull weights from servers.
    """
    run, applied, evaluations = evaluated(strategy(chief_works=chief_works, eval_every=1))
    ends, expected_times, now, asks = [], [], 0, 0
    for update in range(41):
        if update:
            now += STEP
            ends.append(now)
        if update == 40:
            asks = min(asks, now)
        if not chief_works and asks < now + STEP:
            expected_times.append(asks + EVALUATION)
            asks += 20 * EVALUATION
        elif chief_works and (asks < now or (asks == now and (update or strategy is lk.SyncPS))):
            now += EVALUATION
            expected_times.append(now)
            asks = now + 19 * (now - asks)
    assert applied == ends
    assert evaluations == expected_times
    assert len(expected_times) > 3
    assert run.trace.ending["time"] == ends[-1] + EVALUATION
    spans = run.trace.tables["spans"].rows()
    chief = spans[spans[:, 0] == run.trace.roles.index("chief")]
    busy = chief[chief[:, 1] == EVALUATE]
    assert (busy[:, 3] - busy[:, 2]).tolist() == [EVALUATION] * len(expected_times)
    assert ledger(run.trace)["closes"]


def test_with_two_cores_a_worker_on_the_chiefs_node_does_not_wait():
    _, applied, _ = evaluated(lk.SyncPS(chief_works=True, eval_every=1), cores=2)
    assert applied == [STEP * i for i in range(1, 41)]


def test_a_slow_chief_evaluates_slowly():
    _, _, evaluations = evaluated(lk.SyncPS(eval_every=1), slow={"chief": 2.0})
    assert evaluations[0] == 2 * EVALUATION


def test_training_goes_on_while_the_last_evaluation_lasts():
    """The budget's second is over at 1.05 s; the model of that moment is evaluated until 1.08 s."""
    run, _, evaluations = evaluated(lk.AsyncPS(eval_every=10**6), seconds=1.05, updates=None)
    assert run.stopped_by == "seconds"
    assert evaluations == [EVALUATION, 1_080_000_000]
    assert run.trace.ending["time"] == 1_080_000_000
    assert ledger(run.trace)["closes"]


def test_a_run_with_an_evaluation_time_is_repeated_forked_and_resumed(tmp_path):
    cluster = lk.SimulatedCluster(workers=3, evaluation_time=0.02, **RANDOM)
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=200), checkpoint=tmp_path / "run").advance(0.1)
    run.kill("chief").advance(0.1)
    fork, again = run.fork(0.15), lk.resume(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    assert again.engine.cluster == cluster
    done = [contents(r.wait().trace, in_order=False) for r in (run, fork, again)]
    assert done[0] == done[1] == done[2]


def test_a_chief_that_is_killed_while_it_evaluates_evaluates_again():
    cluster = lk.SimulatedCluster(workers=2, compute=0.1, evaluation_time=0.05, restart_after=0.2)
    faults = [lk.Kill("chief", at=0.02)]
    run = lk.train(MOONS, lk.AsyncPS(eval_every=1), cluster, lk.Budget(updates=40), faults=faults).wait()
    assert run.stopped_by == "updates"
    assert run.trace.column("evaluations", "time").min() == 0.27e9
    assert ledger(run.trace)["closes"]


def test_cancelled_work_frees_its_core():
    class Halted(OneNode):
        messages = (*lk.AsyncPS.messages, lk.Ack, lk.Chunk)

        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            batch = next(ctx.batches())
            if ctx.name == "worker-1":
                await ctx.sleep(0.004)
                ctx.send("worker-0", lk.Chunk(np.zeros(1), 0, 0))
                await ctx.compute(model.gradient, weights, batch)  # begins at 4 ms, not at 10
                return
            assert await ctx.compute(model.gradient, weights, batch, unless=lk.Chunk) is None
            assert ctx.now == 0.004

    cluster = lk.SimulatedCluster(workers=2, compute=0.010)
    run = lk.train(TIMING, Halted(), cluster, lk.Budget(updates=5)).wait()
    assert work(run.trace) == [(0, 4, "worker-0"), (4, 14, "worker-1")]
    assert ledger(run.trace)["dropped"] == {"cancelled": 1}


# network --------------------------------------------------------------------------------------------------------------

MS = 1_000_000


def test_cut_through_by_hand():
    """1 MB/s, 5 ms: a message of 1,000 bytes holds the sender's egress for 1 ms and, 5 ms later, the receiver's
    ingress.
    """
    net = LinkTimes(4, 0.005, 1e6)
    assert net.arrival(0, 0, 1, 1000) == 6 * MS
    assert net.arrival(0, 0, 2, 1000) == 7 * MS  # the egress of 0 is busy until 1 ms
    assert net.arrival(0, 3, 1, 2000) == 8 * MS  # the ingress of 1 is busy until 6 ms, so it starts at 1 ms
    assert net.arrival(0, 1, 0, 1000) == 6 * MS  # full duplex: 1 receives, and sends
    assert net.arrival(0, 3, 3, 10**9) == 0  # on one node: free
    assert net.arrival(20 * MS, 0, 1, 0) == 25 * MS  # latency only
    assert net.arrival(20 * MS, 0, 1, 3) == 25 * MS + 3000
    assert LinkTimes(2, 0.0, float("inf")).arrival(7, 0, 1, 10**9) == 7


def test_incast_takes_as_long_as_all_its_bytes():
    net = LinkTimes(9, 0.001, 1e6)
    arrivals = [net.arrival(0, sender, 8, 1000) for sender in range(8)]
    assert arrivals == [MS * (2 + i) for i in range(8)]


class Overtakes(lk.AsyncPS):
    """A message without bytes is sent at the instant in which an earlier, large one arrives: it must not overtake it."""

    messages = (*lk.AsyncPS.messages, lk.Ack, lk.Chunk)

    async def worker(self, ctx, model):
        if ctx.name == "worker-2":
            ctx.send("worker-0", lk.Chunk(np.zeros(2000, np.uint8), 0, 0))  # 2,000 bytes, arrives after 2 ms
        elif ctx.name == "worker-0":
            await ctx.sleep(0.001)
            ctx.send("worker-1", lk.Chunk(np.zeros(1000, np.uint8), 1, 0))  # 1,000 bytes, arrives after 2 ms too
            await ctx.recv(lk.Chunk)
            ctx.send("worker-1", lk.Ack(2))
        else:
            first, second = await ctx.recv(lk.Chunk, lk.Ack), await ctx.recv(lk.Chunk, lk.Ack)
            assert (type(first), type(second)) == (lk.Chunk, lk.Ack)


def test_messages_on_a_link_stay_in_order():
    cluster = lk.SimulatedCluster(workers=3, bandwidth=1e6)
    assert lk.train(TIMING, Overtakes(), cluster, lk.Budget(seconds=1)).wait().stopped_by == "finished"


# manual advance -------------------------------------------------------------------------------------------------------


def test_advance_and_step():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=4, compute=0.01), lk.Budget(updates=100))
    assert run.summary()["updates"] == 0
    run.advance(0.0099)
    assert (run.summary()["updates"], run.engine.seconds) == (0, 0.0099)
    run.advance(0.0001)  # the instant itself is included
    assert (run.summary()["updates"], run.engine.seconds) == (4, 0.01)
    for updates in range(5, 12):  # one at a time, although four arrive in one instant
        run.step()
        assert run.summary()["updates"] == updates
    assert run.engine.seconds == 0.03
    assert not run.done
    run.wait()
    assert (run.stopped_by, run.summary()["updates"]) == ("updates", 100)
    before = contents(run.trace)
    run.advance(1.0).step().stop()  # the run has ended
    assert contents(run.trace) == before


def test_step_counts_whole_updates_of_a_sharded_model():
    run = lk.train(TIMING, lk.SyncPS(), lk.SimulatedCluster(workers=3, servers=3), lk.Budget(updates=10))
    for updates in range(1, 11):
        run.step()
        assert run.summary()["updates"] == updates


def test_pieces_or_at_once_is_the_same_run():
    def made(play):
        run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), lk.Budget(updates=50))
        while not run.done:
            play(run)
        return contents(run.trace, in_order=False)

    whole = made(lambda run: run.wait())
    assert made(lambda run: run.advance(0.003)) == whole
    assert made(lambda run: run.step()) == whole


def test_a_run_is_repeated_from_the_log_of_its_commands():
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, slow={"worker-3": 1.5})
    strategy = lk.AsyncPS(learning_rate=0.1)
    plan = make_plan(MOONS, strategy, cluster.spec, lk.Budget(updates=10_000))
    first = lk.train(
        MOONS, strategy, cluster, lk.Budget(updates=10_000), faults=[lk.Slow("worker-0", 2, at=0.02, until=0.05)]
    )
    first.advance(0.03)
    first.slow("worker-2", 3)
    first.step().step()  # now it is in the middle of an instant
    first.set(learning_rate=0.02)
    first.advance(0.1)
    first.set(learning_rate=0.05).slow("worker-2", 1)
    first.advance(0.2)
    first.stop()
    log = first.engine.commands
    assert [entry.command.word for entry in log] == ["slow", "slow", "set", "end", "set", "slow", "stop"]

    again = cluster.start(plan, commands=log)
    again.wait()
    assert contents(again.trace, in_order=False) == contents(first.trace, in_order=False)
    assert again.parameters.tobytes() == first.result().parameters.tobytes()
    assert again.commands == log

    other = cluster.start(plan, commands=log[:3])  # a fork from here
    other.advance(0.3)
    other.execute(Stop())
    assert contents(other.trace, in_order=False) != contents(first.trace, in_order=False)


# deadlock -------------------------------------------------------------------------------------------------------------


class Polls(lk.AsyncPS):
    async def worker(self, ctx, model):
        while await ctx.recv(lk.Weights, timeout=0) is None:
            pass


class SleepsNot(lk.AsyncPS):
    async def worker(self, ctx, model):
        while True:
            await ctx.sleep(0)


@pytest.mark.parametrize("strategy", [Polls(), SleepsNot()])
def test_a_role_that_never_advances_virtual_time_fails_with_an_error(strategy):
    run = lk.train(TIMING, strategy, lk.SimulatedCluster(workers=1), lk.Budget(seconds=1))
    with pytest.raises(lk.RoleError, match=r"worker-0 failed at step 0: looked 100,000 times in one instant"):
        run.wait()


class PollsPolitely(lk.AsyncPS):
    async def worker(self, ctx, model):
        for server in ctx.peers("server"):
            ctx.send(server, lk.Pull())
        expected_times = 0
        while await ctx.recv(lk.Weights, timeout=0) is None:
            expected_times += 1
            await ctx.sleep(0.001)
        assert expected_times == 10


def test_polling_with_a_sleep_is_fine():
    cluster = lk.SimulatedCluster(workers=1, latency=0.005)
    assert lk.train(TIMING, PollsPolitely(), cluster, lk.Budget(seconds=1)).wait().stopped_by == "finished"


class NoReply(lk.AsyncPS):
    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, shard.weights())


@pytest.mark.parametrize("budget", [lk.Budget(seconds=20), lk.Budget(updates=50), None])
def test_a_deadlock_is_found_when_it_happens(budget):
    run = lk.train(MOONS, NoReply(), lk.SimulatedCluster(workers=2, compute=0.01), budget)
    with pytest.raises(lk.Deadlock, match=r"deadlock after 0\.010 s: .*worker-0 waits for Weights.*Is a reply missing"):
        run.wait()
    assert run.summary()["seconds"] == 0.01
    assert ledger(run.trace)["closes"]
