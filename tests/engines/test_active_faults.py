"""Temporary and manual faults together: random sequences of them, compared with their definition and with counts by hand."""

from math import inf, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.engines.active_faults import ActiveFaults
from labkit.engines.commands import Executed
from labkit.engines.faults import schedule_faults
from labkit.engines.plan import make_plan

ROLES = ("worker-0", "worker-1", "server-0")
SLOW = {"worker-1": 4.0}
TIMING = lk.Problem("digits", hidden=(8,), timing_only=True)
PLAN = make_plan(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2).spec, lk.Budget(seconds=9), 0)
AMOUNTS = {lk.Slow: (0.5, 2.0, 8.0), lk.Limit: (None, 2e6, 8e6), lk.Delay: (0.0, 0.25, 1.0), lk.Drop: (0.0, 0.25, 0.5)}


OF_ROLES = (lk.Slow, lk.Limit)


@st.composite
def faults(draw, kind):
    """A fault of a kind that begins at one of ten times; no two faults begin or end at the same time."""
    ends = draw(st.permutations(range(10)).map(lambda order: iter(order[:8])))
    made = []
    for at in ends:
        until = None if draw(st.booleans()) else next(ends, None)
        at, until = (at, until) if until is None or at < until else (until, at)
        amount = draw(st.sampled_from(AMOUNTS[kind]))
        role, *others = draw(st.permutations(ROLES))
        who = (role,) if kind in OF_ROLES else (role, draw(st.sampled_from([others[0], "*"])))
        made.append(kind(*who, amount, at=float(at), until=None if until is None else float(until)))
    return made


def acting(made, time):
    """The amount of the last manual fault, if there is one, and those of the temporary faults that act at this time."""
    manual = [f for f in made if f.until is None and f.at <= time]
    last = [max(manual, key=lambda f: f.at)] if manual else []
    chosen = last + [f for f in made if f.until is not None and f.at <= time < f.until]
    return [getattr(f, f.parts[-1]) for f in chosen]


def concerns(fault, *ends):
    if isinstance(fault, OF_ROLES):
        return fault.role == ends[0]
    return fault.role in ends if fault.peer is None else {fault.role, fault.peer} == set(ends)


@settings(deadline=None)
@given(st.sampled_from(list(AMOUNTS)).flatmap(lambda kind: st.tuples(st.just(kind), faults(kind))))
def test_what_acts_is_composed_of_normal_the_last_manual_command_and_all_temporary_faults(drawn):
    kind, made = drawn
    active = ActiveFaults(SLOW)
    for command in schedule_faults(made, PLAN):
        active.apply(command)
        for a, b in (("worker-0", "worker-1"), ("worker-1", "server-0"), ("server-0", "worker-0")):
            amounts = acting([fault for fault in made if concerns(fault, a, b)], command.at)
            if kind is lk.Slow:
                assert active.slowdown(a) == prod(amounts, start=SLOW.get(a, 1.0))
            elif kind is lk.Limit:
                assert active.bandwidth([a]) == min((amount or inf for amount in amounts), default=inf)
            elif kind is lk.Delay:
                assert active.delay(a, b) == active.delay(b, a) == sum(amounts)
            else:
                assert active.loss(a, b) == active.loss(b, a) == 1 - prod(1 - amount for amount in amounts)


def test_a_fault_of_many_roles_acts_once_on_a_link_between_two_of_them():
    active = ActiveFaults()
    for command in schedule_faults([lk.Delay("worker", "*", 0.5, during=(1, 3)), lk.Delay("worker", "*", 0.25)], PLAN):
        active.apply(command)
        expected = 0.25 if command.at in (0.0, 3.0) else 0.75
        last = command.role == "worker-1"
        assert not last or active.delay("worker-0", "worker-1") == active.delay("worker-0", "server-0") == expected


# whole runs -----------------------------------------------------------------------------------------------------------


def pushed(*made, manual=()):
    """The times (ds) at which the gradients of worker-1 end: 0.1 s each, 0.4 s on this cluster."""
    cluster = lk.SimulatedCluster(workers=2, compute=0.1, slow=SLOW)
    run = lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=12), faults=made)
    for at, factor in manual:
        run.advance(at - run.engine.seconds).slow("worker-1", factor)
    run.wait()
    times, sender = run.trace.column("applies", "time", "sender")
    return [round(time / 1e8) for time in times[sender == run.trace.role_ids("worker")[1]].tolist()]


def by_hand(*slowdowns):
    """[(from, factor), ...], in ds: a gradient takes as many ds as the factor at its start."""
    at, ends = 0, []
    while at <= 120:
        at += next(int(factor) for since, factor in reversed(slowdowns) if since <= at)
        ends.append(at)
    return ends[:-1]


@pytest.mark.parametrize(
    ("made", "manual", "expected"),
    [
        ([lk.Slow("worker-1", 8, during=(2, 4))], (), [(0, 4), (20, 32), (40, 4)]),
        ([lk.Slow("worker-1", 0.5, during=(2, 4))], (), [(0, 4), (20, 2), (40, 4)]),
        (
            [lk.Slow("worker-1", 2, during=(2, 6)), lk.Slow("worker-1", 3, during=(4, 8))], (),
            [(0, 4), (20, 8), (40, 24), (60, 12), (80, 4)],
        ),
        ([lk.Slow("worker-1", 2, during=(2, 6))], [(4, 5), (5, 3)], [(0, 4), (20, 8), (40, 40), (50, 24), (60, 12)]),
        ([], [(2.1, 2), (4.1, 2), (6.1, 1)], [(0, 4), (21, 8), (61, 4)]),
    ],
)  # fmt: skip
def test_slowdowns_are_counted_in_gradients(made, manual, expected):
    assert pushed(*made, manual=manual) == by_hand(*expected)


@pytest.mark.parametrize("word", ["freeze", "cut"])
def test_the_end_of_a_temporary_fault_restores_what_was_there(word):
    """A condition holds from its first reason to the end of its last one; thaw and reconnect remove all reasons."""
    text = {"freeze": "freeze:worker-0@{}-{}", "cut": "partition:worker-0:*@{}-{}"}[word]
    undo = {"freeze": lk.Run.thaw, "cut": lk.Run.reconnect}[word]
    again = {"freeze": lk.Run.freeze, "cut": lk.Run.cut}[word]

    def started(*windows):
        cluster = lk.SimulatedCluster(workers=2, compute=0.1, heartbeat_timeout=100.0)
        return lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=12), faults=[text.format(*w) for w in windows])

    def computed(run):
        """The whole seconds in which a gradient of worker-0 was applied in the middle."""
        times, sender = run.wait().trace.column("applies", "time", "sender")
        middle = (times % 1_000_000_000 > 300_000_000) & (times % 1_000_000_000 < 700_000_000)
        return {time // 1_000_000_000 for time in times[middle & (sender == run.trace.role_ids("worker")[0])].tolist()}

    every = set(range(12))
    assert computed(started((2, 6), (4, 8))) == every - {2, 3, 4, 5, 6, 7}
    assert computed(started((2, 8), (4, 6))) == every - {2, 3, 4, 5, 6, 7}
    # a manual one has no end
    assert computed(again(started((2, 4)).advance(3.0), "worker-0")) == every - set(range(2, 12))
    run = undo(started((2, 9)).advance(4.0), "worker-0")
    assert computed(again(run.advance(2.0), "worker-0")) == every - {2, 3, *range(6, 12)}  # not ended at 9
    assert computed(undo(started((2, 9), (3, 5)).advance(4.0), "worker-0")) == every - {2, 3}


def test_a_run_is_repeated_from_the_text_of_its_log():
    made = [
        lk.Slow("worker-1", 8, during=(2, 4)),
        lk.Delay("worker", "server", 0.02, during=(1, 3)),
        "partition:worker-0:*@2-3",
    ]
    cluster = lk.SimulatedCluster(workers=2, compute=0.1, slow=SLOW)
    run = lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=6), faults=made).advance(2.5)
    log = [Executed(entry.command, entry.turn) for entry in run.engine.commands]
    run.wait()
    fork = run.fork(2.5)
    assert fork.engine.commands == log
    for again in (
        fork.wait(),
        lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=6), faults=run.engine.commands).wait(),
    ):
        assert again.trace.events == run.trace.events
        assert again.engine.commands == run.engine.commands
