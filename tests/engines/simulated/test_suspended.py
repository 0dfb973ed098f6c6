"""Roles that are frozen or being saved, in virtual time: the state with which they resume, and the effect on the run.

A gradient takes 10 ms and nothing else takes time, unless a test sets it.
"""

from dataclasses import dataclass

import pytest

import labkit as lk
from labkit.engines.simulated.role import Cores
from labkit.roles import Layout
from labkit.roles.part import Part
from labkit.roles.servers import NewestWeights, post
from labkit.roles.standard_layouts import worker_specs
from labkit.trace.schema import EVALUATE
from tests.engines.simulated.test_frozen import everything
from tests.engines.simulated.test_recovery import BACK, applied, closed, events, started

# the end of a budget ---------------------------------------------------------------------------------------------------


def test_a_budget_in_seconds_ends_a_run_of_which_a_worker_is_frozen():
    """The other workers wait for it, and it can continue: that is no deadlock."""
    run = started(
        lk.SyncPS(), budget=lk.Budget(seconds=1.0), heartbeat_timeout=5.0, faults=["freeze:worker-1@0.505-1.5"]
    ).wait()
    assert (run.stopped_by, run.engine.seconds, run.summary()["updates"]) == ("seconds", 1.0, 50)
    closed(run)


def test_a_budget_in_seconds_ends_a_run_of_which_a_server_is_being_saved():
    """It is saved from 0.3 s to 0.8 s, and answers the chief then."""
    cluster = {"checkpoint_every": 0.3, "checkpoint_time": 0.5}
    run = started(lk.AsyncPS(), budget=lk.Budget(seconds=0.6), **cluster).wait()
    assert (run.stopped_by, run.engine.seconds) == ("seconds", pytest.approx(0.8))
    assert applied(run, 0.0, 0.29) == 3 * 29
    assert applied(run, 0.3, 0.6) == 0
    closed(run)


def test_a_run_whose_server_is_being_saved_does_not_wait_for_a_worker_that_it_does_not_need():
    run = started(lk.BackupWorkers(b=1), checkpoint_every=0.3, checkpoint_time=0.5).advance(0.1)
    run.kill("worker-0", restart=False).advance(0.5)
    assert not events(run, "waits")
    assert applied(run, 0.1, 0.6) > 0
    run.advance(0.4)
    assert applied(run, 0.8, 1.0) > 0
    closed(run)


# messages --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change(lk.Message):
    """chief -> worker: cancel the current work."""

    number: int


class Changes(lk.Strategy):
    """The chief sends `count` changes while the only worker computes; the worker records what it receives."""

    messages = (Change,)
    count = 3

    def layout(self, problem, cluster):
        return Layout((*worker_specs(self, 1), lk.RoleSpec("chief", "chief", 0, "chief")), (), ())

    async def chief(self, ctx, evaluator):
        await ctx.sleep(0.5)
        for number in range(self.count):
            ctx.send("worker-0", Change(number))
        await ctx.sleep(10)

    async def worker(self, ctx, model):
        result = await ctx.compute(int, "7", cost=100.0, unless=Change)  # one second
        ctx.note("computed", given_up=float(result is None))
        for _ in range(self.count):
            change = await ctx.recv(Change)
            ctx.note("change", number=change.number)


@pytest.mark.parametrize("faults", [(), ("freeze:worker-0@0.2-0.7",)], ids=["present", "frozen"])
def test_messages_that_end_work_are_received_in_order_of_arrival(faults):
    run = started(Changes(), 1, heartbeat_timeout=5.0, budget=lk.Budget(seconds=2.0), faults=faults).wait()
    notes = [(m.time / 1e9, m.text, m.numbers) for m in events(run, "note")]
    at = 0.7 if faults else 0.5
    numbers = [{"given_up": 1.0}, *({"number": float(i)} for i in range(3))]
    assert notes == [(at, text, n) for text, n in zip(["computed", "change", "change", "change"], numbers)]


class Breaks(Part):
    """Work that cannot be cancelled."""

    work = "gradient"

    def cancelled(self):
        raise ArithmeticError("while work is given up")

    def method(self):
        return 7


class ChangesBroken(Changes):
    async def worker(self, ctx, model):
        try:
            await ctx.compute(Breaks().method, cost=100.0, unless=Change)
        except ArithmeticError:
            ctx.note("caught")
        assert (await ctx.recv(Change)).number == 0
        await ctx.compute(Breaks().method, cost=100.0, unless=Change)


def test_an_error_while_work_is_given_up_goes_to_the_role():
    run = started(ChangesBroken(), 1, budget=lk.Budget(seconds=2.0))
    with pytest.raises(lk.RoleError, match="worker-0 failed at step 0: ArithmeticError: while work is given up"):
        run.wait()
    assert [(m.time, m.text) for m in events(run, "note")] == [(500_000_000, "caught")]


class NotesVersions(lk.BackupWorkers):
    """Workers note the version of the weights on which they begin a gradient."""

    async def worker(self, ctx, model):
        newest = NewestWeights(ctx)
        weights = await newest.pull()
        for batch in ctx.batches():
            ctx.note("begins", version=float(weights.version))
            gradient = await ctx.compute(model.gradient, weights, batch, unless=lk.Weights)
            if gradient is not None:
                post(ctx, gradient)
            weights = await newest.weights()


def test_a_worker_that_is_thawed_begins_again_on_the_newest_weights():
    """Workers 0 and 1 make an update every 10 ms, which ends the work of worker 2. It is frozen from 0.105 to 0.205."""
    run = started(
        NotesVersions(b=1), slow={"worker-2": 2.5}, heartbeat_timeout=5.0, faults=["freeze:worker-2@0.105-0.205"]
    )
    run.advance(0.215)
    me = run.trace.roles.index("worker-2")
    begun = {round(m.time / 1e9, 3): m.numbers["version"] for m in events(run, "note") if m.recorder == me}
    versions = {i / 100: float(i) for i in [*range(11), 21]}
    assert begun == versions | {0.205: 20.0}
    closed(run)


# commands --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["freeze:chief@0.5-0.905", "freeze:chief@0.5"])
def test_a_stop_ends_a_run_whose_chief_is_frozen_at_once(fault):
    run = started(lk.AsyncPS(eval_every=10), budget=lk.Budget(updates=900), heartbeat_timeout=1.0, faults=[fault])
    run.advance(0.6).stop()
    assert (run.stopped_by, run.engine.seconds) == ("user", 0.6)
    assert "it would wait for chief, which is frozen" in run.trace.ending["why"]
    assert run.trace.ending["update"] == run.summary()["updates"] > 0
    closed(run)


def test_the_instance_that_is_fenced_is_the_one_that_was_frozen():
    run = (
        started(lk.AsyncPS(), heartbeat_timeout=1.0).advance(0.5).freeze("worker-1").advance(2.0)
    )  # incarnation 1 since 2.3
    run.kill("worker-1").advance(1.0).thaw("worker-1")
    assert [(m.name, m.incarnation) for m in events(run, "lost")] == [("worker-1", 0), ("worker-1", 1)]
    assert [(m.name, m.incarnation) for m in events(run, "fenced")] == [("worker-1", 0)]
    closed(run)


def test_every_instance_that_was_frozen_and_lost_is_fenced_when_it_goes_on():
    run = (
        started(lk.AsyncPS(), heartbeat_timeout=1.0)
        .advance(0.5)
        .freeze("worker-1")
        .advance(2.0)
        .freeze("worker-1")
        .advance(3)
    )
    run.thaw("worker-1")
    assert [m.incarnation for m in events(run, "lost")] == [0, 1]
    assert [m.incarnation for m in events(run, "fenced")] == [0, 1]
    run.thaw("worker-1")
    assert len(events(run, "fenced")) == 2
    closed(run)


def test_an_isolated_instance_is_fenced_after_reconnection_even_if_its_successor_was_killed():
    run = (
        started(lk.AsyncPS(), heartbeat_timeout=1.0)
        .advance(0.5)
        .cut("worker-1")
        .advance(2.0)
        .kill("worker-1")
        .advance(1.0)
    )
    run.reconnect("worker-1")
    assert [m.incarnation for m in events(run, "lost")] == [0, 1]
    assert [m.incarnation for m in events(run, "fenced")] == [0]
    closed(run)


# cores -----------------------------------------------------------------------------------------------------------------


class SharesCore(lk.AsyncPS):
    """The chief and worker 0 share a core. The worker computes for 5 s; the chief for 0.5 s, after a sleep."""

    sleep = 4.5

    async def worker(self, ctx, model):
        while True:
            await ctx.compute(int, "7", cost=500.0)
            ctx.note("worker")

    async def chief(self, ctx, evaluator):
        await ctx.sleep(self.sleep)
        await ctx.compute(evaluator.warm_up, 0)
        ctx.note("chief")
        await ctx.sleep(100)


class SoonSharesCore(SharesCore):
    sleep = 1.0


def shares_core(strategy, **more):
    return started(strategy(chief_works=True), 1, evaluation_time=0.5, cores=1, **more)


def finished(run):
    return [(m.text, pytest.approx(m.time / 1e9)) for m in events(run, "note")]


def test_roles_take_turns_on_one_core():
    assert finished(shares_core(SharesCore).advance(6.0)) == [("worker", 5.0), ("chief", 5.5)]


def test_a_frozen_role_keeps_its_core_as_long_as_it_needs_it_after_its_thaw():
    """Frozen for a second: the worker's 5 s end at 6, and the chief, whose sleep is over at 5.5, computes from 6 on."""
    run = shares_core(SharesCore, heartbeat_timeout=9.0, faults=["freeze:worker-0@1-2"]).advance(7.0)
    assert finished(run) == [("worker", 6.0), ("chief", 6.5)]


def test_work_that_is_queued_when_its_node_is_frozen_is_recorded_from_when_it_begins():
    run = shares_core(SoonSharesCore, heartbeat_timeout=9.0, faults=["freeze:worker-0@2-4"]).advance(8.0)
    assert finished(run) == [("worker", 7.0), ("chief", 7.5)]
    role, phase, start, end = run.trace.column("spans", "role", "phase", "start", "end")
    mine = (role == run.trace.roles.index("chief")) & (end == 7_500_000_000)
    assert start[mine].tolist() == [7_000_000_000]
    assert phase[mine].tolist() == [EVALUATE]


def test_a_killed_node_frees_its_cores():
    """The chief's work was queued behind the worker's. Both are killed at 2, and begin anew at 2.8."""
    run = shares_core(SoonSharesCore).advance(2.0).kill("chief").advance(8.0)
    assert finished(run)[0] == ("worker", 2.0 + BACK + 5.0)


def test_cores_are_given_in_order_and_given_back():
    cores = Cores(2)
    assert [cores.reserve(role, 0, 10) for role in "abc"] == [0, 0, 10]
    cores.release("c")
    cores.release("a")
    assert cores.reserve("d", 5, 1) == 5
    cores.postpone("b", 7)
    cores.postpone("d", 20)
    assert cores.reserve("e", 6, 1) == 17


# the end of an instance ------------------------------------------------------------------------------------------------


class SendsMessages(lk.AsyncPS):
    """A worker that sends, records a note, and saves when its coroutine is closed."""

    async def worker(self, ctx, model):
        ctx.note("begins", saved=float(ctx.restored is not None))
        try:
            await super().worker(ctx, model)
        finally:
            ctx.send("server-0", lk.Pull())
            ctx.note("gone")
            ctx.save({"a": 1})


class IsSilent(SendsMessages):
    name = "Speaks"

    async def worker(self, ctx, model):
        ctx.note("begins", saved=0.0)
        await lk.AsyncPS.worker(self, ctx, model)


@pytest.mark.parametrize("end", ["kill", "freeze"])
def test_an_instance_that_is_lost_does_nothing_in_its_finally_blocks(end):
    def seen(strategy):
        run = started(
            strategy(), heartbeat_timeout=0.3, budget=lk.Budget(updates=600), faults=[f"{end}:worker-1@0.505"]
        ).wait()
        (rows, notes, counters, ending, _), parameters = everything(run)
        return rows, notes, counters, ending, parameters

    assert seen(SendsMessages) == seen(IsSilent)
