"""Loss and restart of workers in virtual time.

A gradient takes 10 ms and nothing else takes time, so all times are known in advance. A role that is killed at T is
back at T + 0.8.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.roles.gradient import Model
from tests.accounts import balanced
from tests.engines.simulated.test_time import MOONS

pytestmark = pytest.mark.sample(4, slow=6)

ENDLESS = lk.Budget(updates=10**9)
BACK = 0.8


def started(strategy, workers=3, problem=MOONS, budget=ENDLESS, faults=(), **cluster):
    return lk.train(problem, strategy, lk.SimulatedCluster(workers=workers, **cluster), budget, faults=faults)


def events(run, *kinds):
    return [m for m in run.trace.events if m.kind in kinds]


def applied(run, begin, end, sender=None):
    """Number of rows of gradients applied after `begin` and up to `end` seconds (of one sender)."""
    time, who = run.trace.column("applies", "time", "sender")
    there = (time > begin * 1e9) & (time <= end * 1e9)
    return int(there.sum() if sender is None else (there & (who == run.trace.roles.index(sender))).sum())


def closed(run):
    """The ledger of a finished run."""
    if not run.done:
        run.stop()
    return balanced(run)


def shard(run, name="server-0"):
    return run.engine.roles[name].shard


# a worker -------------------------------------------------------------------------------------------------------------


def test_a_lost_asynchronous_worker_reduces_throughput_by_its_share():
    run = started(lk.AsyncPS()).advance(0.505).kill("worker-1").advance(1.5)
    for name in ("worker-0", "worker-2"):
        assert applied(run, 0.505, 1.305, name) == 80
    assert applied(run, 0.505, 1.305, "worker-1") == 0
    assert applied(run, 1.305, 2.005, "worker-1") == 70  # the first at 1.315
    assert [(m.kind, m.time) for m in events(run, "killed", "lost", "restarted")] == [
        ("killed", 505_000_000), ("lost", 505_000_000), ("restarted", 1_305_000_000),
    ]  # fmt: skip
    entries = closed(run)
    # an unfinished computation is no gradient
    assert (entries["lost"], entries["rolled_back"], entries["dropped"]) == (0, 0, {})


def test_the_next_incarnation_of_a_worker_draws_other_batches():
    class Notes(lk.AsyncPS):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                ctx.note("batch", first=float(batch.x[0, 0]))
                weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))

    run = started(Notes()).advance(0.1).kill("worker-1").advance(1)
    me = run.trace.roles.index("worker-1")
    seen = [m.numbers["first"] for m in events(run, "note") if m.recorder == me]
    assert seen[0] not in seen[10:20]
    assert len(seen) == 11 + 21 or len(seen) > 25


@pytest.mark.parametrize("kill", [0.5, 0.505])
def test_a_synchronous_run_that_waits_makes_no_update_meanwhile(kill):
    run = started(lk.SyncPS(on_loss="wait")).advance(kill).kill("worker-1").advance(2)
    gone = round(kill * 100)
    assert applied(run, kill, kill + BACK) == 0
    assert applied(run, 0, kill) == 3 * gone  # a row for each gradient
    assert applied(run, kill + BACK, kill + BACK + 0.01) == 3
    assert not events(run, "waits")  # it will be back
    assert closed(run)["dropped"] == {}


@pytest.fixture
def computed(monkeypatch):
    """The gradients that workers compute: {(role's number, incarnation, step): gradient}."""
    kept, gradient = {}, Model.gradient

    def noted(model, *arguments):
        made = gradient(model, *arguments)
        kept[model.recorder.role, model.recorder.incarnation, made.step] = made.values.copy()
        return made

    monkeypatch.setattr(Model, "gradient", noted)
    return kept


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_a_synchronous_run_that_goes_on_takes_the_mean_of_those_that_are_there(computed, reduce):
    """Replayed by hand: 50 steps of three, 80 of two, and then of three again, one of them in incarnation 1."""
    strategy = lk.SyncPS(on_loss="continue", reduce=reduce, learning_rate=0.05)
    run = started(strategy, budget=lk.Budget(updates=150)).advance(0.0)
    weights = shard(run).values.copy()
    run.advance(0.505).kill("worker-1").wait()
    first, second, third = (run.trace.roles.index(f"worker-{i}") for i in range(3))
    for step in range(150):
        mine = [(first, 0, step), (third, 0, step)]
        if step < 50:
            mine.insert(1, (second, 0, step))
        elif step >= 130:
            mine.insert(1, (second, 1, step - 130))
        total = computed[mine[0]].copy()
        for key in mine[1:]:
            total += computed[key]
        if reduce == "mean":
            total = total / total.dtype.type(len(mine))
        weights = weights - total.dtype.type(0.05) * total
    np.testing.assert_allclose(run.result().parameters, weights, rtol=1e-5, atol=1e-6)
    assert [m.kind for m in events(run, "left", "restarted")] == ["left", "restarted"]
    assert closed(run)["applied"] == 50 * 3 + 80 * 2 + 20 * 3


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_ssp_waits_for_lost_workers_at_its_gate_depending_on_on_loss(on_loss):
    run = started(lk.SSP(s=3, on_loss=on_loss)).advance(0.505).kill("worker-1", restart=False).advance(1)
    assert applied(run, 0, 2, "worker-1") == 50
    assert applied(run, 0, 1.505, "worker-0") == (54 if on_loss == "wait" else 150)  # 50 + s, and the one begun
    assert len(events(run, "waits")) == (on_loss == "wait")
    run.restart("worker-1").advance(0.5)
    assert applied(run, 1.505, 2.005, "worker-1") == 50  # it begins with the slowest, and the gate is open again
    assert applied(run, 1.505, 2.005, "worker-0") > 40
    closed(run)


@pytest.mark.parametrize(
    ("strategy", "lost", "goes_on"),
    [
        (lk.BackupWorkers(b=1), 1, True), (lk.BackupWorkers(b=1), 2, False),
        (lk.BackupWorkers(b=1, on_loss="continue"), 2, True), (lk.KSync(K=2), 2, True), (lk.KSync(K=2), 3, False),
        (lk.KSync(K=2, on_loss="continue"), 3, True), (lk.KBatchSync(K=5), 3, True), (lk.KAsync(K=2), 2, True),
        (lk.KAsync(K=4, on_loss="wait"), 1, False), (lk.KAsync(K=4), 3, True), (lk.KBatchAsync(K=6), 3, True),
        (lk.EASGD(), 3, True), (lk.Downpour(n_push=2, n_fetch=4), 3, True), (lk.Downpour(), 3, True),
    ],
    ids=lambda v: v.name + v.on_loss if isinstance(v, lk.Strategy) else str(v),
)  # fmt: skip
def test_strategies_that_can_step_without_lost_workers_continue(strategy, lost, goes_on):
    run = started(strategy, workers=4).advance(0.2)
    for i in range(lost):
        run.kill(f"worker-{i}", restart=False)
    run.advance(0.1)  # gradients already received make at most one more step
    before = run.summary()["updates"]
    run.advance(0.5)
    assert (run.summary()["updates"] > before + 5) == goes_on
    assert bool(events(run, "waits")) == (not goes_on)
    for i in range(lost):
        run.restart(f"worker-{i}")
    before = run.summary()["updates"]
    run.advance(0.5)
    assert run.summary()["updates"] > before + 5
    run.kill("server-0").kill("worker-3").advance(2)
    assert run.summary()["updates"] > 5
    closed(run)


def test_a_server_that_is_restarted_while_spare_workers_are_away_needs_no_more_than_there_are():
    for strategy in (lk.BackupWorkers(b=1, on_loss="continue"), lk.KSync(K=3, on_loss="continue")):
        run = started(strategy).advance(0.2)
        run.kill("worker-0", restart=False).kill("worker-1", restart=False).kill("server-0").advance(1.5)
        assert applied(run, 1.0, 1.7) == 70
        closed(run)


@pytest.mark.parametrize("role", ["worker-1", "server-0"])
@pytest.mark.parametrize("dense", ["server", "all-reduce"])
def test_sparse_servers(role, dense):
    clicks = lk.Problem("clicks", batch_size=16, options={"samples": 400, "rows": 200})
    run = started(lk.SparsePS(dense=dense), problem=clicks, checkpoint_every=0.1).advance(0.305).kill(role).advance(2)
    assert events(run, "restarted")[0].name == role
    assert applied(run, 1.2, 2.2) > 50
    closed(run)


def test_an_answer_to_a_lost_incarnation_does_not_reach_the_next():
    """The server is a second behind: its answer to the lost worker's push must be dropped. Else the next incarnation
    would
    take it for the answer to its pull, and would stay one answer ahead.
    """
    run = started(lk.AsyncPS(), workers=4, server_time=1.0).advance(4.5).kill("worker-3").advance(60)
    sender, stale = run.trace.column("applies", "sender", "staleness")
    mine = stale[sender == run.trace.roles.index("worker-3")]
    assert mine[-5:].tolist() == [3] * 5  # N - 1, as before
    closed(run)


# the end waits for no recovery ----------------------------------------------------------------------------------------

SILENT = {
    "lost": lambda run, role: run.kill(role),
    "lost for good": lambda run, role: run.kill(role, restart=False),
    "frozen": lambda run, role: run.freeze(role),
    "cut off": lambda run, role: run.cut(role),
    "cut off from the chief": lambda run, role: run.cut("chief", role),
}


@pytest.mark.parametrize("fault", SILENT)
@pytest.mark.parametrize("end", ["stop", "seconds"])
@pytest.mark.parametrize(("strategy", "role"), [
    (lk.AsyncPS(eval_every=10), "server-0"), (lk.SyncPS(eval_every=10), "server-1"), (lk.LocalSGD(eval_every=10), "worker-1"),
    (lk.FSDP(eval_every=10), "worker-1"), (lk.Pipeline(eval_every=10), "worker-2"),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_the_end_of_a_run_waits_for_no_recovery(strategy, role, end, fault):
    servers = {"servers": 2} if strategy.uses_servers else {}
    problem = lk.Problem("moons", hidden=(6,) * 5, batch_size=8, options={"samples": 240})
    cluster = lk.SimulatedCluster(
        workers=3, compute=0.01, latency=0.001, heartbeat_timeout=0.3, restart_after=0.1, **servers
    )
    run = lk.train(problem, strategy, cluster, lk.Budget(seconds=2.0)).advance(1.9 if end == "seconds" else 0.5)
    SILENT[fault](run.advance(0.095 if end == "seconds" else 0.0), role)
    now = run.engine.seconds
    run.stop() if end == "stop" else run.wait()
    assert run.stopped_by == ("user" if end == "stop" else "seconds")
    assert run.engine.seconds == (now if end == "stop" else 2.0)
    assert f"it would wait for {role}, which " in run.trace.ending["why"]
    assert run.trace.ending["update"] == run.trace.column("evaluations", "update")[-1] > 0
    balanced(run)


def test_a_run_that_can_evaluate_ends_with_an_evaluation():
    cluster = lk.SimulatedCluster(workers=3, compute=0.01, latency=0.001)
    run = lk.train(lk.Problem("moons"), lk.AsyncPS(eval_every=10), cluster, lk.Budget(seconds=2.0)).advance(0.5)
    run.freeze("worker-1").kill("worker-2").stop()
    assert run.trace.ending["why"] == ""
    assert run.trace.ending["update"] == run.trace.counters[run.trace.roles.index("server-0")].updates
