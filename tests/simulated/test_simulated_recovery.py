"""Workers, servers and the chief are lost in virtual time and come back: what goes on meanwhile, and what it costs.

A gradient takes 10 ms and nothing else takes time, so who does what when can be said in advance. A role that is killed
at T is back at T + 0.8.
"""

import numpy as np
import pytest
from test_simulated_time import MOONS, RANDOM, TIMING

import labkit as lk
from labkit.trace.ledger import ledger

ENDLESS = lk.Budget(updates=10**9)
BACK = 0.8


def started(strategy, workers=3, problem=MOONS, budget=ENDLESS, faults=(), **cluster):
    return lk.train(problem, strategy, lk.SimulatedCluster(workers=workers, **cluster), budget, faults=faults)


def marks(run, *kinds):
    return [m for m in run.trace.marks if m["kind"] in kinds]


def applied(run, begin, end, sender=None):
    """How many rows say that something was applied after `begin` and up to `end` seconds (of one sender)."""
    time, who = run.trace.column("applies", "time", "sender")
    there = (time > begin * 1e9) & (time <= end * 1e9)
    return int(there.sum() if sender is None else (there & (who == run.trace.roles.index(sender))).sum())


def closed(run):
    """The books of a run that is over."""
    if not run.done:
        run.stop()
    book = ledger(run.trace)
    assert book["closes"], book
    assert book["missing"] == 0
    return book


def shard(run, name="server-0"):
    return run.engine.by_name[name].shard


# a worker -------------------------------------------------------------------------------------------------------------


def test_a_worker_of_an_asynchronous_server_takes_only_its_own_share_with_it():
    run = started(lk.AsyncPS()).advance(0.505).kill("worker-1").advance(1.5)
    for name in ("worker-0", "worker-2"):
        assert applied(run, 0.505, 1.305, name) == 80
    assert applied(run, 0.505, 1.305, "worker-1") == 0
    assert applied(run, 1.305, 2.005, "worker-1") == 70  # the first at 1.315
    assert [(m["kind"], m["time"]) for m in marks(run, "kill", "lost", "restart")] == [
        ("kill", 505_000_000), ("lost", 505_000_000), ("restart", 1_305_000_000),
    ]  # fmt: skip
    book = closed(run)
    assert (book["lost"], book["rolled_back"], book["dropped"]) == (0, 0, {})  # what was half computed is no gradient


def test_the_next_life_of_a_worker_draws_other_batches():
    class Notes(lk.AsyncPS):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                ctx.note("batch", first=float(batch.x[0, 0]))
                weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))

    run = started(Notes()).advance(0.1).kill("worker-1").advance(1)
    me = run.trace.roles.index("worker-1")
    seen = [m["numbers"]["first"] for m in marks(run, "note") if m["role"] == me]
    assert seen[0] not in seen[10:20]
    assert len(seen) == 11 + 21 or len(seen) > 25


@pytest.mark.parametrize("kill", [0.5, 0.505])
def test_a_synchronous_run_that_waits_makes_no_update_meanwhile(kill):
    run = started(lk.SyncPS(on_loss="wait")).advance(kill).kill("worker-1").advance(2)
    gone = round(kill * 100)
    assert applied(run, kill, kill + BACK) == 0
    assert applied(run, 0, kill) == 3 * gone  # a row for each gradient
    assert applied(run, kill + BACK, kill + BACK + 0.01) == 3
    assert not marks(run, "waits")  # it will be back
    assert closed(run)["dropped"] == {}


class Keeps(lk.SyncPS):
    """Writes down what its workers computed: {(worker, incarnation, step): gradient}."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            gradient = await ctx.compute(model.gradient, weights, batch)
            KEPT[ctx.name, ctx.incarnation, gradient.step] = gradient.values.copy()
            weights = await lk.push_pull(ctx, gradient)


KEPT: dict = {}


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_a_synchronous_run_that_goes_on_takes_the_mean_of_those_that_are_there(reduce):
    """Replayed by hand: 50 steps of three, 80 of two, and then of three again, one of them in its second life."""
    KEPT.clear()
    strategy = Keeps(on_loss="continue", reduce=reduce, learning_rate=0.05)
    run = started(strategy, budget=lk.Budget(updates=150)).advance(0.0)
    weights = shard(run).values.copy()
    run.advance(0.505).kill("worker-1").wait()
    for step in range(150):
        mine = [("worker-0", 0, step), ("worker-2", 0, step)]
        if step < 50:
            mine.insert(1, ("worker-1", 0, step))
        elif step >= 130:
            mine.insert(1, ("worker-1", 1, step - 130))
        total = KEPT[mine[0]].copy()
        for key in mine[1:]:
            total += KEPT[key]
        if reduce == "mean":
            total = total / total.dtype.type(len(mine))
        weights = weights - total.dtype.type(0.05) * total
    np.testing.assert_allclose(run.result().parameters, weights, rtol=1e-5, atol=1e-6)
    assert [m["kind"] for m in marks(run, "left", "restart")] == ["left", "restart"]
    assert closed(run)["applied"] == 50 * 3 + 80 * 2 + 20 * 3


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_ssp_waits_for_the_lost_at_its_gate_or_not(on_loss):
    run = started(lk.SSP(s=3, on_loss=on_loss)).advance(0.505).kill("worker-1", restart=False).advance(1)
    assert applied(run, 0, 2, "worker-1") == 50
    assert applied(run, 0, 1.505, "worker-0") == (54 if on_loss == "wait" else 150)  # 50 + s, and the one begun
    assert len(marks(run, "waits")) == (on_loss == "wait")
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
        (lk.KAsync(K=4), 1, False), (lk.KAsync(K=4, on_loss="continue"), 3, True), (lk.KBatchAsync(K=6), 3, True),
        (lk.EASGD(), 3, True), (lk.AsyncPS(n_push=2, n_fetch=4), 3, True), (lk.AsyncPS(fused=False), 3, True),
    ],
    ids=lambda v: v.name + v.on_loss if isinstance(v, lk.Strategy) else str(v),
)  # fmt: skip
def test_who_can_make_a_step_without_the_lost_goes_on(strategy, lost, goes_on):
    run = started(strategy, workers=4).advance(0.2)
    for i in range(lost):
        run.kill(f"worker-{i}", restart=False)
    run.advance(0.1)  # what was there already makes a last step at most
    before = run.summary()["updates"]
    run.advance(0.5)
    assert (run.summary()["updates"] > before + 5) == goes_on
    assert bool(marks(run, "waits")) == (not goes_on)
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
@pytest.mark.parametrize("dense", ["server", "replicas"])
def test_sparse_servers(role, dense):
    clicks = lk.Problem("clicks", batch_size=16, options={"samples": 400, "rows": 200})
    run = started(lk.SparsePS(dense=dense), problem=clicks, checkpoint_every=0.1).advance(0.305).kill(role).advance(2)
    assert marks(run, "restart")[0]["name"] == role
    assert applied(run, 1.2, 2.2) > 50
    closed(run)


class SlowToAnswer(lk.AsyncPS):
    pass


def test_an_answer_to_a_lost_life_does_not_reach_the_next():
    """The server is a second behind: what it answers to the lost worker's push is nobody's, or the next life would take it
    for the answer to its own pull, and be one answer ahead for ever."""
    run = started(SlowToAnswer(), workers=4, server_time=1.0).advance(4.5).kill("worker-3").wait if False else None
    run = started(SlowToAnswer(), workers=4, server_time=1.0).advance(4.5)
    run.kill("worker-3").advance(60)
    (stale,) = [run.trace.column("applies", "staleness")]
    sender, version = run.trace.column("applies", "sender", "version")
    mine = stale[sender == run.trace.roles.index("worker-3")]
    assert mine[-5:].tolist() == [3] * 5  # N - 1, as before
    closed(run)


# a server -------------------------------------------------------------------------------------------------------------


def saved(run, name="server-0"):
    """The newest checkpoint of a role."""
    return list(run.engine._checkpoints[name].values())[-1]


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(), lk.Adam()], ids=lambda o: type(o).__name__)
def test_a_server_loses_at_most_what_was_applied_since_its_last_checkpoint(optimizer):
    run = started(lk.AsyncPS(optimizer=optimizer, learning_rate=0.01), checkpoint_every=0.2).advance(0.505)
    assert shard(run).version == 150
    state = saved(run)
    assert 3 * 40 <= state["version"] <= 3 * 41  # saved at the first application from 0.4 on
    before, remembered = state["values"].copy(), {k: v.copy() for k, v in state.items() if ":" in k}
    run.kill("server-0").advance(BACK)
    now = shard(run)
    assert (now.version, now.generation) == (state["version"], 1)
    assert np.array_equal(now.values, before)
    assert now.values.tobytes() == before.tobytes()
    again = now.to_state()
    assert all(again[k].tobytes() == v.tobytes() for k, v in remembered.items())
    (mark,) = marks(run, "restart")
    lost = 150 - state["version"]
    assert mark["text"].endswith(f"restored from update {state['version']}: {lost} updates are rolled back")
    run.advance(1)
    assert closed(run)["rolled_back"] == lost


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(), lk.Adam()], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("servers", [1, 2])
def test_a_loss_right_after_a_checkpoint_changes_no_bit(optimizer, servers):
    """One worker, saved after every update: the run that lost its server is the one that did not, only later."""

    def made(faults):
        strategy = lk.AsyncPS(optimizer=optimizer, learning_rate=0.01)
        run = started(strategy, 1, budget=lk.Budget(updates=200), faults=faults, servers=servers, checkpoint_every=1e-6)
        return run.wait()

    whole, lost = made(()), made([f"kill:server-{servers - 1}@{at}" for at in (0.505, 1.5, 2.9)])
    assert lost.result().parameters.tobytes() == whole.result().parameters.tobytes()
    assert lost.engine.seconds == pytest.approx(whole.engine.seconds + 3 * BACK, abs=0.05)
    assert closed(lost)["rolled_back"] == 0


def test_a_server_that_never_saved_begins_with_the_first_weights():
    run = started(lk.AsyncPS(), checkpoint_every=100.0).advance(0)
    first = shard(run).values.copy()
    run.advance(0.5).kill("server-0").advance(BACK)
    assert np.array_equal(shard(run).values, first)
    assert "with the first weights" in marks(run, "restart")[0]["text"]
    run.advance(0.5)
    assert closed(run)["rolled_back"] >= 147


def test_one_of_two_shards_is_lost():
    run = started(lk.AsyncPS(), servers=2, checkpoint_every=0.2).advance(0.505).kill("server-1").advance(BACK)
    one, other = shard(run, "server-0"), shard(run, "server-1")
    assert one.version in range(150, 154)  # workers wait for both answers
    assert other.version == saved(run, "server-1")["version"] < 150
    run.advance(1)
    book = closed(run)
    assert book["partly_applied"] >= 150 - 3 * 41
    assert book["rolled_back"] == 0


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.SSP(), lk.KSync()], ids=lambda s: s.name)
def test_a_push_that_is_sent_again_is_applied_once(strategy):
    """The server is lost after it has applied and saved, before its answer has arrived."""
    run = started(strategy, 2, latency=0.004, checkpoint_every=1e-6, budget=lk.Budget(updates=100))
    run.advance(0.1)
    while True:  # up to an instant at which an answer is on its way
        run.step()
        if shard(run).version > 5:
            break
    run.advance(0.001).kill("server-0")
    version = shard(run).version
    run.advance(BACK + 0.002)
    assert shard(run).version == version
    run.wait()
    c = sum(c.duplicates for c in run.trace.lives.values())
    assert c >= 1 or isinstance(strategy, lk.KSync)  # its workers ask for weights, and do not push again
    book = closed(run)
    assert book["rolled_back"] == 0
    assert book["applied"] + book["partly_applied"] == run.trace.counters[run.trace.roles.index("server-0")].gradients


# the chief ------------------------------------------------------------------------------------------------------------


def test_a_chief_that_is_lost_goes_on_judging():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=600)).advance(0.505)
    told = run.engine.judge.state()
    assert told["update"] > 0
    run.kill("chief").advance(BACK)
    assert run.engine.judge.update == told["update"]
    assert np.array_equal(run.engine.judge.parameters, told["parameters"])
    run.wait()
    role, time, update = (run.trace.column("evaluations", n) for n in ("role", "time", "update"))
    assert not ((time > 0.505e9) & (time < 1.305e9)).any()
    assert (np.diff(update) > 0).all()
    assert (time > 1.305e9).sum() > 2
    assert applied(run, 0.505, 1.305) == 240  # nobody else noticed
    assert (run.stopped_by, run.trace.ending["update"], closed(run)["applied"]) == ("updates", 600, 600)


def test_a_budget_that_is_used_up_while_the_chief_is_away_ends_the_run_when_it_is_back():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=200)).advance(0.505).kill("chief").wait()
    assert (run.stopped_by, run.summary()["updates"], run.engine.seconds) == ("updates", 200, pytest.approx(1.305))
    closed(run)


@pytest.mark.parametrize("kill", ["chief", "worker-0"])
def test_on_a_node_of_the_chief_both_are_lost_and_both_come_back(kill):
    run = started(lk.SyncPS(chief_works=True), 2, budget=lk.Budget(updates=100)).advance(0.305).kill(kill)
    assert sorted(m["name"] for m in marks(run, "lost")) == ["chief", "worker-0"]
    assert [m["name"] for m in marks(run, "kill")] == [kill]
    run.wait()
    assert sorted(m["name"] for m in marks(run, "restart")) == ["chief", "worker-0"]
    assert run.engine.seconds == pytest.approx(1.0 + BACK, abs=0.02)
    closed(run)


@pytest.mark.parametrize("at", [0.305, 0.9, 1.2])
def test_a_budget_in_seconds_does_not_wait_for_the_lost(at):
    """The chief ends with the time, whoever is away; a worker that joins does not prolong it."""
    run = started(lk.AsyncPS(eval_every=10**6), budget=lk.Budget(seconds=1.5), problem=TIMING).advance(at)
    run.kill("worker-0").wait()
    assert (run.stopped_by, run.engine.seconds) == ("seconds", 1.5)
    assert run.trace.ending["lost"] == (["worker-0"] if at > 0.7 else [])
    closed(run)


def test_random_times_change_nothing_of_all_this():
    strategy = lk.AsyncPS(optimizer=lk.Momentum(), learning_rate=0.02)
    faults = ["kill:worker-1@0.2", "kill:server-0@0.5", "kill:chief@0.6", "kill:worker-0@1.0", "kill:server-0@1.5"]
    run = started(strategy, faults=faults, budget=lk.Budget(updates=500), checkpoint_every=0.1, **RANDOM).wait()
    assert len(marks(run, "restart")) == 5
    assert closed(run)["rolled_back"] > 0
    assert run.trace.ending["update"] == 500
