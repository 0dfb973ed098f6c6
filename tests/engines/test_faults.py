"""Faults as values: their texts, their commands, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import End, Executed, Thaw
from labkit.engines.faults import FAULTS, parse_fault, schedule_faults
from labkit.engines.plan import make_plan
from labkit.problem import Problem

MOONS = Problem("moons", hidden=(4,), batch_size=8)


def plan_of(workers=3, servers=1, budget=None, seed=0, strategy=None):
    cluster = lk.SimulatedCluster(workers=workers, servers=servers)
    return make_plan(MOONS, strategy or lk.AsyncPS(), cluster.spec, budget or lk.Budget(seconds=100), seed)


# text -----------------------------------------------------------------------------------------------------------------

TEXTS = {
    "kill:worker-1@2": lk.Kill("worker-1", at=2.0),
    "kill:worker-1:for-good@2": lk.Kill("worker-1", at=2.0, restart=False),
    "slow:worker-2:5@2-4": lk.Slow("worker-2", 5, during=(2, 4)),
    "freeze:worker-1@1-3": lk.Freeze("worker-1", at=1, until=3),
    "delay:worker-1:server-0:0.1@2-4": lk.Delay("worker-1", "server-0", 0.1, during=(2, 4)),
    "limit:worker-1,server:2500@2-4": lk.Limit(("worker-1", "server"), "2.5 kB/s", during=(2, 4)),
    "drop:worker:server:0.05": lk.Drop("worker", "server", 0.05),
    "partition:worker-1:*@2-4": lk.Partition("worker-1", during=(2, 4)),
    "partition:worker-0,worker-1:*@2": lk.Partition(["worker-0", "worker-1"], at=2),
    "preempt:worker:0.01": lk.Preempt(0.01),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_value_are_the_same_thing(text):
    assert parse_fault(text) == TEXTS[text]
    assert TEXTS[text].text() == text


def test_times_are_parsed_in_all_usual_notations():
    assert parse_fault(" slow:worker-2:5.0 @ 2.0-4.0 ") == lk.Slow("worker-2", 5, during=(2, 4))
    assert parse_fault("freeze:worker-1@1e-05-2e0") == lk.Freeze("worker-1", at=1e-5, until=2)
    assert parse_fault("freeze:worker-1@1-") == lk.Freeze("worker-1", at=1)
    assert parse_fault("partition:worker-1@2-4") == lk.Partition("worker-1", during=(2, 4))
    assert parse_fault("delay:worker-1:0.1") == lk.Delay("worker-1", seconds=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kil:worker-1", r"no fault 'kil'\. Did you mean 'kill'\?.*written as kill:worker-1@2\.0"),
        ("kill", "'kill' is not a fault as 'kill:worker-1@2.0'"),
        ("kill:@2", "'kill:@2' is not a fault as"),
        ("kill:worker-1@", "give a time after the @"),
        ("kill:worker-1@-1", "is not a fault as"),
        ("kill:worker-1@1-2", "is not a fault as"),
        ("slow:worker-1:x", "is not a fault as 'slow:worker-2:5@2.0-4.0'"),
        ("slow:worker-1:nan", "factor is a number from 0.001 to 1,000"),
        ("slow:worker-1:5@4-2", "has to end after it has begun"),
        ("drop:worker:server:2", "chance is a number from 0 to 0.95"),
        ("drop:worker,*:server:0.1", r"give a role \('worker-1'\), a kind"),
        ("preempt:worker:0", r"rate is a number from 10\*\*-9"),
    ],
)
def test_invalid_fault_texts_are_refused(text, message):
    with pytest.raises(lk.BadInput, match=message):
        parse_fault(text)


def test_every_example_is_a_fault():
    for word, kind in FAULTS.items():
        assert type(parse_fault(kind.example)) is kind
        assert kind.example.startswith(word + ":")


# times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lk.Slow, lk.Freeze])
def test_during_is_short_for_at_and_until(kind):
    assert kind("worker-1", during=(1, 2)) == kind("worker-1", at=1.0, until=2.0)
    assert kind("worker-1", during=(1, None)) == kind("worker-1", at=1.0)
    assert replace(kind("worker-1", during=(1, 3)), at=2.0) == kind("worker-1", at=2.0, until=3.0)
    for more in ({"at": 1.0}, {"until": 3.0}):
        with pytest.raises(lk.BadInput, match=r"during=\(1, 2\) and at= or until= say one thing twice"):
            kind("worker-1", during=(1, 2), **more)
    for wrong in (3, (1,), (1, 2, 3)):
        with pytest.raises(lk.BadInput, match=r"give \(start, stop\) in seconds"):
            kind("worker-1", during=wrong)
    with pytest.raises(lk.BadInput, match="has to end after it has begun"):
        kind("worker-1", during=(2, 2))


# commands -------------------------------------------------------------------------------------------------------------


def test_faults_expand_into_commands_about_one_role_or_link():
    made = schedule_faults([TEXTS[t] for t in list(TEXTS)[:5]], plan_of())
    assert made == [
        lk.Freeze("worker-1", at=1.0, until=3.0),
        lk.Kill("worker-1", at=2.0),
        lk.Kill("worker-1", at=2.0, restart=False),
        (slow := lk.Slow("worker-2", 5.0, at=2.0, until=4.0)),
        (delay := lk.Delay("worker-1", "server-0", 0.1, at=2.0, until=4.0)),
        End(made[0], at=3.0),
        End(slow, at=4.0),
        End(delay, at=4.0),
    ]
    for command in made:
        command.check(plan_of().role_ids)


def test_times_are_counted_from_the_moment_of_the_injection():
    faults = [lk.Slow("worker-1", 5, during=(1, 2)), Executed(Thaw("worker-0", at=0.5), 12)]
    assert schedule_faults(faults, plan_of(), 10.0) == [
        Thaw("worker-0", at=10.5), (slow := lk.Slow("worker-1", 5, during=(11, 12))), End(slow, at=12.0),
    ]  # fmt: skip
    assert schedule_faults(faults, plan_of())[0] == Executed(Thaw("worker-0", at=0.5), 12)


def ends(fault, **shape):
    return {(c.word, c.role, c.peer) for c in schedule_faults(fault, plan_of(**shape))}


def test_links_are_named_by_role_kind_or_group():
    assert ends("drop:worker:server:0.1", workers=2, servers=2) == {
        ("drop", f"worker-{w}", f"server-{s}") for w in range(2) for s in range(2)
    }
    assert ends("delay:worker:worker:0.1") == {
        ("delay", "worker-0", "worker-1"), ("delay", "worker-0", "worker-2"), ("delay", "worker-1", "worker-2"),
    }  # fmt: skip
    assert ends("drop:worker:*:0.1", workers=2) == {("drop", "worker-0", None), ("drop", "worker-1", None)}
    assert ends("drop:*:worker-1:0.1") == {("drop", "worker-1", None)}
    assert ends("delay:worker-0,server:worker-1:0.1") == {
        ("delay", "worker-0", "worker-1"), ("delay", "server-0", "worker-1"),
    }  # fmt: skip


def test_a_partition_leaves_each_side_whole():
    assert ends("partition:worker-1:*") == {("cut", "worker-1", None)}
    assert ends("partition:worker-1,worker-2:*") == {
        ("cut", w, other) for w in ("worker-1", "worker-2") for other in ("worker-0", "server-0", "chief")
    }


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kill:worker-9", "There is no role 'worker-9'. Did you mean 'worker-"),
        ("slow:server:2", "There is no role 'server'"),
        ("drop:workers:server:0.1", "There is no role 'workers'. Did you mean 'worker'"),
        ("drop:worker-1:worker-1:0.1", "nothing lies between a role and itself"),
        (lk.Partition(("worker", "server", "chief")), "no roles outside of that group"),
        (lk.Kill, "is not a fault; give for example"),
        (7, "is not a fault; give for example"),
    ],
)
def test_faults_that_do_not_fit_the_plan_are_refused(fault, message):
    with pytest.raises(lk.BadInput, match=message):
        schedule_faults(fault, plan_of())


# preemption -----------------------------------------------------------------------------------------------------------


def kills(rate=0.1, roles="worker", **shape):
    found = {}
    for command in lk.Preempt(rate, roles).commands(plan_of(**shape)):
        assert command == lk.Kill(command.role, at=command.at)
        found.setdefault(command.role, []).append(command.at)
    return found


def test_preemptions_come_at_exponential_times():
    horizon, rate = 20_000, 0.05
    found = kills(rate, budget=lk.Budget(seconds=horizon))
    assert set(found) == {"worker-0", "worker-1", "worker-2"}
    for moments in found.values():
        assert abs(len(moments) - rate * horizon) < 5 * np.sqrt(rate * horizon)  # Poisson: mean = variance
        gaps = np.diff([0.0, *moments])
        assert abs(gaps.std() / gaps.mean() - 1) < 0.2  # of an exponential distribution both are 1 / rate


def test_preemptions_depend_on_seed_role_and_fault_only():
    assert kills(seed=1) == kills(seed=1) != kills(seed=2)
    assert kills(workers=3)["worker-1"] == kills(workers=2)["worker-1"]
    assert kills(roles="worker-1")["worker-1"] != kills(rate=0.1000001, roles="worker-1")["worker-1"]
    assert kills(strategy=lk.SyncPS()) == kills()


def test_preemptions_end():
    plan = plan_of(budget=lk.Budget(seconds=50))
    everything = lk.Preempt(0.1).commands(plan)
    assert max(command.at for command in everything) < 50
    assert all(10 <= command.at < 20 for command in lk.Preempt(0.5, during=(10, 20)).commands(plan))
    endless = lk.Preempt(10.0).commands(plan_of(budget=lk.Budget(updates=100)))
    assert len(endless) == 10_000
    assert endless == sorted(endless, key=lambda command: command.at)


# runs -----------------------------------------------------------------------------------------------------------------


def started(*faults, strategy=None, **more):
    cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Exponential(0.01), **more)
    return lk.train(MOONS, strategy or lk.AsyncPS(), cluster, lk.Budget(updates=150), faults=faults)


def events(run):
    return [(event.time, event.kind, str(event)) for event in run.trace.events]


def test_injected_faults_count_from_now():
    run = started().advance(0.2)
    run.inject("slow:worker-1:5@0.1-0.15").inject([lk.Slow("worker-2", 2)])
    run.advance(0.2)
    slow = [(event.time, event.name, event.factor) for event in run.trace.events if event.kind == "slowed"]
    assert slow == [(200_000_000, "worker-2", 2), (300_000_000, "worker-1", 5), (350_000_000, "worker-1", 1)]


def test_injected_faults_are_repeated_exactly():
    run = started("slow:worker-0:2@0.05").advance(0.1)
    run.inject(["slow:worker-1:5@0.1-0.3", "delay:worker-2:0.05@0.05"])
    run.wait()
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)
    again.wait()
    assert events(run) == [(m.time, m.kind, str(m)) for m in again.trace.events]
    assert run.trace.ending["parameters_sha256"] == again.trace.ending["parameters_sha256"]
    kinds = [kind for _, kind, _ in events(run)]
    for at, seen in ((0.05, 1), (0.12, 1), (0.3, 3)):  # before it was injected, and while it was active
        fork = run.fork(at)
        assert [kind for _, kind, _ in events(fork)] == kinds[:seen]
        fork.wait()
        assert [kind for _, kind, _ in events(fork)] == (kinds[:1] if at < 0.1 else kinds)


def test_a_run_has_a_method_for_every_command():
    run = started(heartbeat_timeout=10.0).advance(0.05)
    run.freeze("worker-0").advance(0.01).thaw("worker-0")
    run.cut("worker-1").advance(0.01).reconnect("worker-1").cut("worker-1", "server-0").reconnect(
        "worker-1", "server-0"
    )
    run.delay("worker-2", 0.01).delay("worker-2", 0).drop("worker-2", 0.1, "server-0").drop("worker-2", 0, "server-0")
    run.kill("worker-2", restart=False).advance(0.01).restart("worker-2")
    seen = [kind for _, kind, _ in events(run) if kind not in ("lost", "left", "joined")]
    assert seen == [
        "frozen", "thawed", "cut", "reconnected", "cut", "reconnected", "delayed", "delayed", "lossy", "lossy", "killed",
        "restarted",
    ]  # fmt: skip
    run.wait()
    assert lk.ledger(run.trace)["closes"]
    with pytest.raises(lk.BadInput, match="The run is over"):
        run.inject("kill:worker-1")


def test_signals_to_processes_of_others_are_refused_before_anything_starts():
    cluster = lk.DaskCluster("tcp://127.0.0.1:1", workers=2)  # no cluster exists: starting it would fail the test
    for fault in ("kill:worker-1@2", "freeze:worker-1@2", "preempt:worker:1"):
        with pytest.raises(lk.BadInput, match=r"labkit did not start these processes.*may_kill=True"):
            lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(seconds=10), faults=fault)
