"""Roles with tasks that are processes on hosts: a role receives between two pieces of work, and while a paced rest passes.

The oracle of the times is a loop without an engine: the thread of one worker, whose neighbours do the same at the same times.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.engines.costs import Costs, Linear, WorkCost
from labkit.trace import query
from labkit.trace.schema import COMPUTE, WAIT
from tests.contract.scripts import QUADRATIC, Letter, Script
from tests.engines.simulated.test_frozen import everything
from tests.engines.simulated.test_hosts import spans

MS = 0.001
MOST_LATE = 250_000  # ns of lateness that are subtracted from the next paced duration
NEVER = 10**6


def pieces(hidden, bucket_size, work, samples, pace):
    """[(processor time of a piece in ns, its paced duration in ns or None, bytes of the bucket that is then complete)], by hand.

    The forward pass is the first piece. It takes half of the fixed time of a gradient, as all backward pieces together; a third
    of the rest, whose other two thirds are divided by multiplications.
    """
    widths = [2, *hidden, 2]
    layers = [(a * b, (a + 1) * b) for a, b in itertools.pairwise(widths)]  # (multiplications, parameters)
    total, count = sum(m for m, _ in layers), sum(p for _, p in layers)
    sized, paced = work.per_product * count * samples, None if pace is None else 1e9 * pace
    found, size = [(1e9 * (work.fixed / 2 + sized / 3), paced and paced / 3, 0)], 0
    for number, (multiplications, parameters) in enumerate(reversed(layers), 1):
        share, size = multiplications / total * 2 / 3, size + parameters
        complete = size * 4 >= bucket_size or number == len(layers)
        found.append(
            (1e9 * (work.fixed / 2 / len(layers) + sized * share), paced and paced * share, 4 * size if complete else 0)
        )
        size = 0 if complete else size
    return found


def one_step(pieces, workers, given):
    """(When a step of a ring is done whose members are equal and have cores of their own; how many messages were received before
    the last piece was done). All times in ns.
    """
    now = late = received = left = size = 0  # `left`: messages of the present bucket that are not received yet
    ready = []  # bytes of complete buckets
    sent = []  # when each message left: the left neighbour sends at the same times
    latency = 1e9 * given.latency

    def serve():
        """Receive all messages that are there, and send the answers."""
        nonlocal now, received, left, size
        while (left == 0 and ready) or (left and sent[received] + latency <= now):
            if left == 0:
                size, left = ready.pop(0) / workers, 2 * (workers - 1)
            else:
                now, received, left = now + 1e9 * given.receive(size), received + 1, left - 1
            if left:
                now += 1e9 * given.send(size)
                sent.append(now)

    for number, (processor, paced, complete) in enumerate(pieces):
        if number:  # the forward pass is not part of the block with tasks
            serve()
        began = now
        now += processor
        if paced is not None:
            end = began + max(processor, paced) - late
            while number and now < end:
                serve()
                arrives = sent[received] + latency if left else end
                now = max(now, min(arrives, end))
            now = max(now, end)
            late = min(now - end, MOST_LATE)
        if complete:
            ready.append(complete)
    overlapped = received
    serve()
    while left:
        now = sent[received] + latency
        serve()
    return now, overlapped


def applied(run, role="worker-0"):
    who, time = run.trace.column("applies", "role", "time")
    return time[who == run.plan.role_ids[role]].tolist()


def trained(given, hidden=(2,), bucket_size=1, workers=2, pace=None, updates=1, faults=(), **more):
    problem = lk.Problem("moons", hidden=hidden, batch_size=8, timing_only=True)
    cluster = lk.SimulatedCluster(workers=workers, compute=pace, costs=given, **more)
    strategy = lk.BucketedAllReduce(bucket_size=bucket_size, eval_every=NEVER)
    return lk.train(problem, strategy, cluster, lk.Budget(updates=updates), faults=list(faults)).wait()


def random_costs(rng, workers):
    """Costs whose times are no multiples of each other, so that nothing happens at once. All widths are even, so that two workers
    have equal chunks; with more workers, messages cost the same for all sizes.
    """
    work = WorkCost(rng.uniform(0, 2 * MS), per_product=rng.choice([0, 1e-8, 1e-7]))
    byte = 1e-7 if workers == 2 else 0
    send, receive = (Linear(seconds, byte) for seconds in rng.uniform(0, 3e-4, 2))
    return Costs(work, send=send, receive=receive, latency=rng.uniform(0.001, 1) ** 3 * MS, cores=20)


def test_a_step_is_that_of_a_thread_that_receives_between_pieces():
    rng, overlapped, faster = np.random.default_rng(1), 0, 0
    for _ in range(60):
        hidden = tuple((2 * rng.integers(2, 40, rng.integers(1, 7))).tolist())
        workers, bucket_size = int(rng.choice([2, 2, 3, 5])), int(rng.choice([1, 500, 4_000, 10**9]))
        given, pace = random_costs(rng, workers), rng.choice([None, 5 * MS, 20 * MS, 40 * MS])
        (expected, during), (whole, _) = (
            one_step(pieces(hidden, size, given.gradient, 8, pace), workers, given) for size in (bucket_size, 10**9)
        )
        run = trained(given, hidden, bucket_size, workers, pace)
        assert applied(run)[0] == pytest.approx(expected, abs=100)  # ns: each job is rounded
        overlapped, faster = overlapped + (during > 0), faster + (expected < whole)
    assert overlapped > 20
    assert faster > 5


def test_workers_of_a_core_take_turns():
    """One core, two equal layers: forward and pieces of 2 ms, 1 ms to send. w0: forward and piece 0-4, sends 4-5, piece 5-7,
    waits. w1 the same from 7 on; at 12 it finds the message of w0, sends the answer 12-13, piece 13-15, waits. w0 answers 15-16,
    has its answer, sends bucket two 16-17, waits. w1: 17-18 and 18-19 bucket two, waits. w0 answers 19-20: both have both sums.
    """
    size = lk.Problem("moons", hidden=(2,)).objective().size
    work = WorkCost(per_product=6 * MS / (8 * size))
    run = trained(Costs(work, send=Linear(1 * MS), cores=1, time_slice=0.1, min_slice=0.1), (2,))
    assert spans(run, "worker-0", COMPUTE).ravel()[:6] == pytest.approx([0, 2, 2, 4, 5, 7])
    assert spans(run, "worker-1", COMPUTE)[:3, 1] == pytest.approx([9, 11, 15])
    assert applied(run)[0] == pytest.approx(20e6)


def test_a_message_that_arrives_during_a_piece_waits_for_its_end():
    """Pieces of 3, 1, 1 and 1 ms. Bucket one is sent 4-4.5; its answer, which arrives at 4.6, is received at 5.5."""
    given = Costs(WorkCost(6 * MS), send=Linear(0.5 * MS), receive=Linear(0.25 * MS), latency=0.1 * MS, cores=8)
    run = trained(given, (2, 2))
    assert spans(run, "worker-0", COMPUTE).ravel() == pytest.approx([0, 3, 3, 4, 4.5, 5.5, 6.25, 7.25])
    # of bucket one the second answer 7.5, sending bucket two 8; then each half 0.1 + 0.25, and 0.5 for all but the last
    assert spans(run, "worker-0", WAIT).ravel()[:2] == pytest.approx([8, 8.1])
    assert applied(run)[0] == pytest.approx(1e6 * (8 + 3 * (0.1 + 0.25 + 0.5) + 0.1 + 0.25))


def test_during_a_paced_rest_a_role_sleeps_and_receives():
    """Paced at 12 ms, three pieces of 4 ms, of which 1, 0.5 and 0.5 are work. Sending takes 0.5 ms, and after a sleep everything
    0.2 ms more. Piece two ends at 8, bucket one is sent until 8.7. Piece three works 8.7-9.2; in its rest the message arrives at
    9.7, and the answer is sent until 10.4. The rest ends at 12.7, and bucket two is sent until 13.4.
    """
    wake = ((0.1 * MS, 0.2 * MS),)
    given = Costs(WorkCost(2 * MS), send=Linear(0.5 * MS), latency=1 * MS, cores=8, polling=1.0, wake=wake)
    run = trained(given, (2,), pace=12 * MS)
    who, category, sent = run.trace.column("messages", "sender", "category", "sent")
    mine = sent[(who == run.plan.role_ids["worker-0"]) & (category == 0)] / 1e6
    assert mine[:3] == pytest.approx([8.7, 10.4, 13.4])
    assert spans(run, "worker-0", COMPUTE).ravel()[:6] == pytest.approx([0, 4, 4, 8, 8.7, 12.7])


@dataclass(frozen=True)
class Unless(Script):
    """Rank 0 computes, and its task computes on; a letter arrives 2 ms after the beginning."""

    async def play(self, ctx, rank):
        async def other():
            await ctx.compute(int)

        if rank:
            await ctx.sleep(2 * MS)
            ctx.send(ctx.peers("worker")[0], Letter(1))
            return
        async with ctx.tasks() as tasks:
            tasks.start(other())
            assert await ctx.compute(lambda: 5, unless=Letter) is None
        assert (await ctx.recv(Letter)).number == 1


@pytest.mark.parametrize(("pace", "ends"), [(None, [5, 10]), (9 * MS, [5, 14]), (1 * MS, [5, 10])])
def test_a_cancellation_takes_effect_when_the_piece_returns(pace, ends):
    """Work takes 5 ms. With a pace of 9 ms the letter ends the rest of the first piece."""
    cluster = lk.SimulatedCluster(workers=2, compute=pace, costs=Costs(WorkCost(5 * MS), cores=8))
    run = lk.train(QUADRATIC, Unless(), cluster, lk.Budget(updates=1)).wait()
    assert run.stopped_by == "finished"
    assert spans(run, "worker-0", COMPUTE)[:, 1] == pytest.approx(ends)


def test_computing_waiting_and_sending_are_at_most_the_run():
    """Messages that are sent while the pace of a piece passes are part of computing."""
    given = Costs(WorkCost(1 * MS), send=Linear(0.5 * MS), latency=0.2 * MS, cores=8)
    for pace in (None, 20 * MS):
        run = trained(given, (20, 20, 20), pace=pace, workers=4, updates=5)
        spent = {name: seconds / 4 for name, seconds in query.phases(run.trace)["worker"].items()}
        assert 0.9 * run.engine.seconds < sum(spent.values()) <= run.engine.seconds + 1e-9
        assert spent["send"] > 0


LIVELY = Costs(
    WorkCost(2 * MS), spread=lk.distributions.LogNormal(1.0, 0.3), send=Linear(0.1 * MS, 1e-9), receive=Linear(0.1 * MS),
    update=Linear(0.2 * MS), latency=0.05 * MS, polling=1 * MS, wake=((1 * MS, 0.1 * MS), (10 * MS, 0.3 * MS)), cores=2,
    evaluation=WorkCost(0.2 * MS), cold=((0, 0.3),),
)  # fmt: skip
FAULTS = [
    (), (lk.Kill("worker-1", at=0.04),), (lk.Freeze("worker-1", during=(0.03, 0.08)), lk.Kill("chief", at=0.1)),
    (lk.Slow("worker-0", 4, during=(0.02, 0.1)),), (lk.Partition("worker-1", "*", during=(0.01, 0.06)),),
    (lk.Delay("worker-0", "worker-1", 0.01),),
]  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("faults", FAULTS, ids=lambda f: "+".join(type(x).__name__ for x in f) or "none")
@pytest.mark.parametrize("pace", [None, 8 * MS], ids=["full speed", "paced"])
def test_runs_with_faults_repeat_in_slices_and_their_ledger_closes(pace, faults):
    def started():
        cluster = lk.SimulatedCluster(workers=3, compute=pace, costs=LIVELY, restart_after=0.02, heartbeat_timeout=0.03)
        problem = lk.Problem("moons", hidden=(6, 6, 6))
        strategy = lk.BucketedAllReduce(bucket_size=1)
        return lk.train(problem, strategy, cluster, lk.Budget(updates=20), seed=3, faults=list(faults))

    whole, sliced = started().wait(), started()
    while not sliced.done:
        sliced.advance(0.0037)
    assert everything(sliced) == everything(whole)
    assert whole.summary().book["closes"], whole.summary().book
    assert whole.stopped_by == "updates"


@pytest.mark.parametrize("pace", [None, 6 * MS], ids=["full speed", "paced"])
def test_a_freeze_at_any_moment_of_a_step_postpones_it(pace):
    """Both workers are frozen for 3 ms: in their work, its paced rest, while they send, receive or wait. Almost no message is on
    its way then.
    """
    given = Costs(WorkCost(2 * MS), send=Linear(0.3 * MS), receive=Linear(0.2 * MS), latency=1e-6, cores=8)
    undisturbed = applied(trained(given, (5, 5), pace=pace, updates=2))[1]
    postponed = []
    for moment in np.linspace(0.11 * MS, 0.95 * undisturbed / 1e9, 60):
        frozen = [lk.Freeze(f"worker-{i}", during=(moment, moment + 3 * MS)) for i in range(2)]
        run = trained(given, (5, 5), pace=pace, updates=2, faults=frozen, heartbeat_timeout=10)
        postponed.append((applied(run)[1] - undisturbed) / 1e6)
    assert postponed == pytest.approx([3] * 60, abs=0.01)
