"""Forks that repeat a run exactly up to a moment; advancing in slices, or by several threads, does not change the run."""

import contextlib
import gc
import signal
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import labkit as lk
from labkit.engines.plan import make_plan
from labkit.engines.simulated.interpreter_tuning import SURVIVORS, InterpreterTuning
from labkit.trace.ledger import ledger
from tests.engines.simulated.test_time import MOONS, RANDOM, TIMING, contents

pytestmark = pytest.mark.sample(4, slow=4)

ENDLESS = lk.Budget(updates=10**9)
KINDS = [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.SSP(), lk.LocalSGD()]


def lively(strategy=None, seconds=0.3, faults=()):
    """A run of a few tenths of a second with commands at odd moments, one of them in the middle of an instant."""
    cluster = lk.SimulatedCluster(workers=3, slow={"worker-1": 1.5}, **RANDOM)
    run = lk.train(MOONS, strategy or lk.AsyncPS(), cluster, lk.Budget(seconds=5), faults=faults)
    run.advance(0.05).slow("worker-2", 3)
    run.step().set(learning_rate=0.03)
    run.advance(0.1).slow("worker-0", 2).slow("worker-0", 1)
    return run.advance(seconds - run.engine.seconds)


def rows_until(trace, t):
    """{table: the rows that had happened at `t` ns, in sorted order}. Rows count from when they were written."""
    when = {"spans": "end", "messages": "sent", "communications": "end"}
    made = {}
    for name, table in trace.tables.items():
        rows = table.rows()
        rows = rows[table.column(when.get(name, "time")) <= t]
        made[name] = rows[np.lexsort(rows.T[::-1])].tobytes()
    return made


def all_of(run):
    return contents(run.trace, in_order=False), run.engine.parameters.tobytes()


# forks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", KINDS, ids=lambda s: s.name)
def test_a_fork_repeats_the_run_and_continues_identically(strategy):
    run = lively(strategy)
    fork = run.fork(0.2)
    assert fork.engine.seconds == 0.2
    assert rows_until(fork.trace, 2e8) == rows_until(run.trace, 2e8)
    assert max(len(t) for t in fork.trace.tables.values()) > 20
    assert fork.trace.events == [m for m in run.trace.events if m.time <= 2e8]
    assert all_of(fork.wait()) == all_of(run.wait())


def test_a_fork_can_diverge_without_changing_the_run():
    run, twin = lively(), lively()
    fork = run.fork(0.2).slow("worker-0", 50)
    assert fork.wait().summary()["updates"] < run.wait().summary()["updates"]
    assert rows_until(fork.trace, 2e8) == rows_until(run.trace, 2e8)
    assert all_of(run) == all_of(twin.wait())
    assert (str(fork.trace.events[-1]), fork.trace.events[-1].time) == ("worker-0 computes 50x slower", 2e8)


def test_a_fork_without_a_time_starts_at_the_present():
    run = lively()
    fork = run.fork()
    assert fork.engine.seconds == run.engine.seconds == 0.3
    assert contents(fork.trace, in_order=False) == contents(run.trace, in_order=False)
    assert fork.fork(0.1).wait().engine.commands == fork.wait().engine.commands[:2]  # a fork of a fork: no later slow


def test_a_fork_keeps_scheduled_faults():
    fault = lk.Slow("worker-1", 4, at=0.1, until=0.25)
    run = lively(faults=[fault])
    fork = run.fork(0.2)
    assert [m.time for m in fork.trace.events if getattr(m, "factor", None) == 1.5 * 4] == [1e8]
    assert all_of(fork.wait()) == all_of(run.wait())


def test_a_fork_within_an_instant_includes_all_events_of_that_instant():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=4, compute=0.01), lk.Budget(updates=50))
    run.step().slow("worker-1", 2)
    fork = run.fork()
    assert (run.summary()["updates"], fork.summary()["updates"]) == (1, 4)
    assert all(table.rows().tobytes() for name, table in fork.trace.tables.items() if name == "applies")
    run.advance(0)
    assert contents(fork.trace, in_order=False) == contents(run.trace, in_order=False)


def test_the_command_that_ended_the_run_is_not_repeated():
    run = lively()
    run.stop()
    assert run.done
    fork = run.fork(0.3)
    assert not fork.done
    assert fork.advance(0.1).engine.seconds == 0.4
    assert all_of(fork.wait()) == all_of(lively().wait())


def test_a_kill_is_repeated_like_any_other_command():
    run = lively().kill("server-0").advance(1.5)
    fork = run.fork(0.3 + 0.4)  # while it is away
    assert [m.kind for m in fork.trace.events[-2:]] == ["killed", "lost"]
    assert all_of(fork.wait()) == all_of(run.wait())
    assert [m.kind for m in fork.trace.events].count("restarted") == 1


def test_a_fork_of_a_finished_run_is_finished():
    run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=20)).wait()
    fork = run.fork()
    assert fork.stopped_by == "updates"
    assert contents(fork.trace, in_order=False) == contents(run.trace, in_order=False)
    assert not run.fork(0.05).done


@pytest.mark.parametrize("at", [-0.1, 0.31, float("nan"), float("inf"), True, "0.1"])
def test_a_moment_that_the_run_has_not_seen_is_refused(at):
    with pytest.raises(lk.BadInput, match=r"fork\(at=.*: give a moment that this run has seen, from 0 to 0\.3 seconds"):
        lively().fork(at)


def test_a_fork_can_be_made_in_slices():
    run = lively()
    fork = run.fork(0.25, timeout=1e-6)
    assert fork.engine.seconds < 0.25
    while fork.engine.seconds < 0.25:
        fork.advance(0.25 - fork.engine.seconds, timeout=1e-6)
    assert contents(fork.trace, in_order=False) == contents(run.fork(0.25).trace, in_order=False)
    assert all_of(fork.wait()) == all_of(run.wait())


# slices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", KINDS, ids=lambda s: s.name)
def test_advancing_in_time_slices_changes_nothing(strategy):
    cluster = lk.SimulatedCluster(workers=3, **RANDOM)
    run = lk.train(MOONS, strategy, cluster, lk.Budget(updates=40))
    stops = 0
    while not run.done:
        run.advance(1e9, timeout=1e-6)
        stops += 1
        assert run.trace.watermark() == round(1e9 * run.engine.seconds)
    whole = lk.train(MOONS, strategy, cluster, lk.Budget(updates=40)).wait()
    assert all_of(run) == all_of(whole)
    assert stops > 5


def test_advancing_can_stop_early_and_the_trace_is_complete_up_to_that_moment():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=5, **RANDOM), ENDLESS)
    seen = 0
    for _ in range(20):
        before = run.engine.seconds
        run.advance(1e6, timeout=1e-6)
        assert before <= run.engine.seconds < 1e6
        applied = len(run.engine.trace.tables["applies"])
        assert applied == sum(role.counters.gradients for role in run.engine.roles.values()) >= seen
        seen = applied
    assert seen
    run.advance(1e6, timeout=0)
    assert not run.done


def test_advancing_to_infinity_ends_the_run():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=20))
    assert run.advance(float("inf")).stopped_by == "updates"


@pytest.mark.slow
def test_a_step_stops_on_the_way_and_is_taken_up_again():
    run = lk.train(
        TIMING, lk.SyncPS(), lk.SimulatedCluster(workers=50, compute=lk.distributions.Exponential(0.1)), ENDLESS
    )
    for updates in range(1, 5):
        pieces = 0
        while run.summary()["updates"] < updates:
            run.step(timeout=1e-6)
            pieces += 1
            assert run.summary()["updates"] in (updates - 1, updates)
        assert pieces > 1


def test_returned_counters_do_not_change_when_the_run_advances():
    """One thread draws while another advances the run."""
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2, compute=0.01), ENDLESS).advance(0.1)
    counters = run.trace.counters[0]
    before = counters.to_dict()
    run.advance(0.1)
    assert counters.to_dict() == before
    assert run.trace.counters[0].gradients > before["gradients"]


# several threads ------------------------------------------------------------------------------------------------------


def together(*works):
    """Call these at the same time; their exceptions are raised here."""
    errors, ready = [], threading.Barrier(len(works))

    def do(work):
        ready.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_threads_advance_one_run_while_a_third_reads_its_ledger():
    def made(*works):
        run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), lk.Budget(updates=300))
        together(*(lambda work=work: work(run) for work in works))
        return all_of(run.wait())

    def slices(run):
        while not run.done:
            run.advance(0.02, timeout=0.001)

    def reads(run):
        while not run.done:
            assert run.summary()["updates"] <= 300
            assert run.trace.watermark() <= round(1e9 * run.engine.seconds)

    assert made(slices, lambda run: run.wait(), reads) == made(lambda run: run.wait())


@pytest.mark.parametrize("verb", ["stop", "kill", "set", "slow", "step", "fork"])
def test_a_request_is_served_while_another_thread_advances_the_run(verb):
    """The other thread's call would never end."""
    run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), ENDLESS)
    arguments = {"kill": ("server-0",), "slow": ("worker-0", 2.0), "fork": (0.0,)}.get(verb, ())
    options = {"learning_rate": 0.01} if verb == "set" else {}

    def asks():
        getattr(run, verb)(*arguments, **options)
        if not run.done:
            run.stop()

    together(lambda: run.wait(), asks)
    assert run.stopped_by == "user"
    assert ledger(run.trace)["closes"]
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)  # repeatable, whenever it was executed
    again.wait()
    assert contents(again.trace, in_order=False) == contents(run.trace, in_order=False)


@pytest.mark.parametrize(("one", "two"), [("stop", "stop"), ("kill", "stop"), ("kill", "kill"), ("step", "stop")])
def test_two_concurrent_commands_are_executed_or_refused(one, two):
    run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), ENDLESS).advance(0.05)

    def press(verb):
        with contextlib.suppress(lk.BadInput):  # the other one was first: the run is over
            getattr(run, verb)(*(("worker-0",) if verb == "kill" else ()))

    together(lambda: press(one), lambda: press(two))
    if {one, two} == {"kill"}:
        run.stop()
    assert run.stopped_by == "user"
    assert ledger(run.trace)["closes"]
    assert len([m for m in run.trace.events if m.kind == "killed"]) <= (one, two).count("kill")
    assert len([m for m in run.trace.events if m.kind == "lost"]) <= 1  # killed roles are not lost again
    assert run.trace.events[-1:] == [] or run.trace.events[-1].time <= run.trace.ending["time"]


def test_settings_of_the_process_come_back_with_the_last_that_leaves():
    quiet, threads, before = InterpreterTuning(), ThreadpoolController(), gc.get_threshold()
    count = lambda: [library["num_threads"] for library in threads.info()]  # noqa: E731
    own = count()
    first, second = quiet(), quiet()
    first.__enter__()
    second.__enter__()
    assert (gc.get_threshold()[0], set(count())) == (SURVIVORS, {1})
    first.__exit__(None, None, None)
    assert (gc.get_threshold()[0], set(count())) == (SURVIVORS, {1})
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), count()) == (before, own)


# Ctrl-C ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("move", ["advance", "wait"])
def test_ctrl_c_reaches_the_main_thread_while_another_thread_advances_the_run(move):
    before = signal.getsignal(signal.SIGINT)
    cluster = lk.SimulatedCluster(workers=3, **RANDOM)
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=300))
    moving = threading.Event()

    def moves():
        moving.set()
        if move == "wait":
            run.wait()
        while not run.done:
            run.advance(0.05, timeout=0.001)

    thread = threading.Thread(target=moves)
    thread.start()
    moving.wait()
    with pytest.raises(KeyboardInterrupt):  # it is not swallowed
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    thread.join()
    assert run.stopped_by == "updates"  # and no state is damaged
    assert all_of(run) == all_of(lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=300)).wait())


def test_ctrl_c_ends_a_wait_while_another_thread_advances_the_run():
    run = lk.train(MOONS, lk.AsyncPS(), lk.SimulatedCluster(workers=3, **RANDOM), ENDLESS)

    def moves():
        while run.engine.seconds < 0.5 and not run.done:
            run.advance(0.05, timeout=0.001)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while not run.done:
            run.advance(0.05, timeout=0.001)

    thread = threading.Thread(target=moves)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    thread.join()
    assert run.stopped_by == "interrupted"
    assert ledger(run.trace)["closes"]


# killed ---------------------------------------------------------------------------------------------------------------

EVERY = [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.SSP(), lk.LocalSGD(), lk.HalvingDoubling(), lk.FSDP(),
         lk.BucketedAllReduce(), lk.ADPSGD(), lk.KSync(), lk.PipeDream()]  # fmt: skip


KILLED = [
    (s, role) for s in EVERY for role in ("worker-1", "server-0", "chief") if s.uses_servers or role != "server-0"
]


@pytest.mark.parametrize(("strategy", "role"), KILLED, ids=lambda v: v if isinstance(v, str) else v.name)
def test_the_ledger_balances_for_a_kill_at_any_moment(strategy, role):
    problem = lk.Problem("moons", hidden=(8, 8, 8), batch_size=8, options={"samples": 200})
    cluster = lk.SimulatedCluster(workers=4, restart_after=0.1, **RANDOM)
    for at in (0.0, 0.0101, 0.05, 0.123):
        run = lk.train(problem, strategy, cluster, lk.Budget(seconds=0.6)).advance(at).kill(role)
        assert run.engine.seconds == at
        assert not run.done
        if at == 0.05:  # and whenever it is stopped: here before it is back
            run.advance(0.03)
            run.stop()
        else:
            run.wait()
        assert run.stopped_by == ("user" if at == 0.05 else "seconds")
        assert [m.incarnation for m in run.trace.events if m.kind == "lost" and m.name == role] == [0]
        if at != 0.05:
            assert run.trace.ending["lost"] == []
        entries = ledger(run.trace)
        assert entries["closes"], (at, entries)
        assert entries["missing"] == 0


def test_a_killed_process_takes_all_its_roles_along():
    strategy = lk.SyncPS(chief_works=True)
    run = lk.train(MOONS, strategy, lk.SimulatedCluster(workers=2), lk.Budget(seconds=5)).advance(0.1)
    home = dict(zip(run.trace.roles, run.trace.nodes))["chief"]
    together_there = [name for name, node in zip(run.trace.roles, run.trace.nodes) if node == home]
    assert len(together_there) == 2
    run.kill("chief")
    assert [m.name for m in run.trace.events if m.kind == "lost"] == together_there
    run.wait()
    assert [m.name for m in run.trace.events if m.kind == "restarted"] == together_there
    assert ledger(run.trace)["closes"]


def test_a_kill_is_exact_and_repeated_from_the_log():
    cluster = lk.SimulatedCluster(workers=3, **RANDOM)
    budget = lk.Budget(updates=400)
    run = lk.train(MOONS, lk.AsyncPS(), cluster, budget).advance(0.1).step().kill("worker-2").wait()
    plan = make_plan(MOONS, lk.AsyncPS(), cluster.spec, budget)
    again = cluster.start(plan, commands=run.engine.commands)
    again.wait()
    assert contents(again.trace, in_order=False) == contents(run.trace, in_order=False)
    scheduled = cluster.start(plan, commands=[lk.Kill("worker-2", at=0.1)])
    scheduled.wait()
    events = {m.kind: m.time for m in scheduled.trace.events}
    assert (events["killed"], events["lost"], events["restarted"]) == (1e8, 1e8, 9e8)


class SaysGoodbye(lk.AsyncPS):
    """A worker that tries to send a message during its shutdown."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        try:
            for batch in ctx.batches():
                weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))
        finally:
            ctx.send("server-0", lk.Pull())


def test_killed_roles_send_nothing():
    run = lk.train(MOONS, SaysGoodbye(), lk.SimulatedCluster(workers=2), ENDLESS).advance(0.1)
    sent = run.summary()["bytes_sent"]
    run.kill("worker-0")
    assert run.summary()["bytes_sent"] == sent
