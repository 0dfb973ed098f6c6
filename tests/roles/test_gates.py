"""Gates: which workers may begin, and which gradients form a step, compared with a brute-force evaluation of the
rules.
"""

from collections.abc import Sized

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.roles.gates import Accumulator, Gate, Round, all_pushes, first_pushes, next_pushes
from labkit.roles.messages import Joined, Left

NAMES = tuple(f"worker-{i}" for i in range(5))


def pull(worker):
    made = lk.Pull()
    made.__dict__["sender"] = worker
    return made


def pushed(worker):
    made = lk.Push(np.zeros(1), 0, 0, 0)
    made.__dict__["sender"] = worker
    return made


class Workers:
    """A context with a list of the workers that take part."""

    def __init__(self, names):
        self.names = tuple(names)

    def peers(self, kind):
        return self.names if kind == "worker" else ()


def gate_of(names):
    """(a gate of these workers, the context that lists the participants)."""
    ctx = Workers(names)
    return Gate(ctx), ctx


def begins(gate, name, slack):
    """`name` starts. Returns the names of the workers that may begin an iteration."""
    return [request.sender for request in gate.admit(pull(name), slack)]


def completes(gate, name, slack):
    """`name` has completed an iteration. Returns the names of the workers that may begin one."""
    return [request.sender for request in gate.admit(pushed(name), slack)]


def changes(gate, ctx, names, slack, change):
    """From now on `names` take part. Returns the names of the workers that may begin an iteration."""
    ctx.names = tuple(names)
    return [request.sender for request in gate.admit(change, slack)]


@settings(deadline=None)
@given(
    workers=st.integers(1, 5), slack=st.integers(0, 4), rng=st.randoms(use_true_random=False), turns=st.integers(1, 60)
)
def test_a_gate_follows_its_definition(workers, slack, rng, turns):
    """Any interleaving: a worker may begin its iteration c at the first moment at which c - min <= s."""
    names = NAMES[:workers]
    (gate, _), clocks, waiting = gate_of(names), dict.fromkeys(names, 0), set()
    computing = set()
    for name in rng.sample(names, workers):  # every worker's first pull
        assert begins(gate, name, slack) == [name]
        computing.add(name)
    for _ in range(turns):
        name = rng.choice(sorted(computing))
        computing.remove(name)
        clocks[name] += 1
        waiting.add(name)
        admitted = completes(gate, name, slack)
        slowest = min(clocks.values())
        assert (gate.clocks, gate.slowest) == (clocks, slowest)
        assert len(set(admitted)) == len(admitted)
        assert set(admitted) == {w for w in waiting if clocks[w] - slowest <= slack}
        assert [clocks[w] for w in admitted] == sorted(clocks[w] for w in admitted)  # the slowest first
        waiting -= set(admitted)
        computing |= set(admitted)
        assert computing  # at least the slowest is never blocked: no deadlock


@settings(deadline=None)
@given(slacks=st.lists(st.integers(0, 3), min_size=1, max_size=30), rng=st.randoms(use_true_random=False))
def test_the_slack_may_change_between_two_requests(slacks, rng):
    (gate, _), clocks, waiting, computing = gate_of(NAMES[:3]), dict.fromkeys(NAMES[:3], 0), set(), set(NAMES[:3])
    for name in NAMES[:3]:
        begins(gate, name, slacks[0])
    for slack in slacks:
        name = rng.choice(sorted(computing))
        computing.remove(name)
        clocks[name] += 1
        waiting.add(name)
        admitted = set(completes(gate, name, slack))
        assert admitted == {w for w in waiting if clocks[w] - min(clocks.values()) <= slack}
        waiting -= admitted
        computing |= admitted


def test_memory_of_a_gate_does_not_grow():
    gate, _ = gate_of(NAMES[:2])
    sizes = []
    for _ in range(1000):
        for name in NAMES[:2]:
            completes(gate, name, 0)
        sizes.append(sum(len(held) for held in vars(gate).values() if isinstance(held, Sized)))
    assert gate.slowest == 1000
    assert min(sizes) == max(sizes) >= 2


@settings(deadline=None)
@given(
    workers=st.integers(2, 5), slack=st.integers(0, 3), rng=st.randoms(use_true_random=False), turns=st.integers(1, 60)
)
def test_a_gate_does_not_wait_for_workers_that_left_and_joining_workers_begin_at_the_minimum_clock(
    workers, slack, rng, turns
):
    """The same rule, over the workers that take part now."""
    names = NAMES[:workers]
    (gate, ctx), clocks, waiting, computing = gate_of(names), dict.fromkeys(names, 0), set(), set()
    for name in names:
        computing.update(begins(gate, name, slack))
    for _ in range(turns):
        what, away = rng.randrange(4), sorted(set(names) - set(clocks))
        if what == 0 and len(clocks) > 1:
            gone = rng.choice(sorted(clocks))
            del clocks[gone]
            computing.discard(gone)
            admitted = changes(gate, ctx, clocks, slack, Left(gone))
            admitted = [name for name in admitted if name != gone]  # no answer is sent
            waiting.discard(gone)
        elif what == 1 and away:
            new = rng.choice(away)
            clocks[new] = min(clocks.values())
            admitted = changes(gate, ctx, sorted(clocks), slack, Joined(new))
            waiting.add(new)
            admitted += begins(gate, new, slack)
        elif computing:
            name = rng.choice(sorted(computing))
            computing.remove(name)
            clocks[name] += 1
            waiting.add(name)
            admitted = completes(gate, name, slack)
        slowest = min(clocks.values())
        assert (gate.clocks, gate.slowest) == (clocks, slowest)
        admitted = [name for name in admitted if name in clocks]
        assert set(admitted) >= {w for w in waiting if clocks[w] - slowest <= slack}
        waiting -= set(admitted)
        computing |= set(admitted)
        assert computing


def test_a_push_of_a_worker_that_has_left_moves_no_clock():
    gate, ctx = gate_of(NAMES[:2])
    changes(gate, ctx, NAMES[1:2], 0, Left("worker-0"))
    assert completes(gate, "worker-0", 0) == ["worker-0"]  # a worker that asks gets an answer
    assert (gate.clocks, gate.slowest) == ({"worker-1": 0}, 0)


def test_all_workers_leave_and_one_joins():
    gate, ctx = gate_of(NAMES[:2])
    for _ in range(3):
        completes(gate, "worker-0", 0)
        completes(gate, "worker-1", 0)
    changes(gate, ctx, (), 0, Left("worker-0"))
    changes(gate, ctx, ("worker-1",), 0, Joined("worker-1"))
    completes(gate, "worker-1", 0)
    assert (gate.clocks, gate.slowest) == ({"worker-1": 4}, 4)


# a round of all workers ------------------------------------------------------------------------------------------------


def test_a_round_is_one_gradient_of_every_worker_that_takes_part():
    step = Round(Shard(3))
    assert [step.add(push(w, 3)) for w in (2, 0)] == [True, True]
    assert not step.complete(NAMES[:3])
    assert step.complete(("worker-0", "worker-2"))  # the third has left
    assert step.add(push(1, 3))
    assert step.complete(NAMES[:3])
    assert [p.sender for p in step.pushes()] == list(NAMES[:3])  # also of one that has left since
    assert not step.complete(NAMES[:3])
    assert not step.complete(())  # no gradients, no mean


def test_a_round_takes_one_of_a_worker_and_none_of_the_round_before():
    shard = Shard(3)
    step = Round(shard)
    old, first_incarnation, second_incarnation = push(0, 2, 7), push(0, 3, 8), push(0, 3, 0)
    assert [step.add(p) for p in (old, first_incarnation, second_incarnation)] == [False, True, True]
    assert shard.dropped == [("worker-0", 7, "late"), ("worker-0", 8, "late")]
    assert step.pushes() == [second_incarnation]


# the first gradients of a round ---------------------------------------------------------------------------------------


class Ctx:
    """A context whose inbox is a script."""

    def __init__(self, *script):
        self.script, self.sent, self.there = list(script), [], NAMES

    def peers(self, kind):
        return self.there if kind == "worker" else ()

    async def recv(self, *kinds):
        assert kinds == (lk.Push, lk.Pull, Left, Joined)
        made = self.script.pop(0)
        if isinstance(made, (Left, Joined)):  # it arrives after they have changed
            there = {*self.there, made.name} if isinstance(made, Joined) else {*self.there} - {made.name}
            self.there = tuple(sorted(there))
        return made

    def send(self, to, message):
        self.sent.append((to.sender, message))


class Shard:
    role_ids = {name: i for i, name in enumerate(NAMES)}  # noqa: RUF012

    def __init__(self, version):
        self.version, self.dropped = version, []

    def weights(self):
        return f"weights {self.version}"

    def fresh(self, push):
        return push.version == self.version

    def drop(self, push, why):
        self.dropped.append((push.sender, push.step, why))


def push(worker, version, step=0):
    made = lk.Push(np.zeros(1), step, 0, version)
    made.__dict__["sender"] = f"worker-{worker}"
    return made


def play(coroutine):
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


def test_first_pushes_takes_those_of_the_present_version_and_drops_the_others():
    ctx = Ctx(push(4, 7), push(2, 6), pull("worker-3"), push(0, 7), push(1, 5, step=9), push(3, 7), push(1, 7))
    shard = Shard(7)
    pushes = play(first_pushes(ctx, shard, 3))
    assert [p.sender for p in pushes] == ["worker-0", "worker-3", "worker-4"]  # added in the order of the workers
    assert shard.dropped == [("worker-2", 0, "late"), ("worker-1", 9, "late")]
    assert ctx.sent == [("worker-3", "weights 7")]
    assert len(ctx.script) == 1  # a finished step is not waited for


def test_next_pushes_takes_several_of_one_worker_in_their_order():
    ctx = Ctx(push(1, 0, 5), push(0, 0, 8), push(1, 0, 6), push(1, 0, 7))
    assert [(p.sender[-1], p.step) for p in play(next_pushes(ctx, Shard(0), 4))] == [
        ("0", 8),
        ("1", 5),
        ("1", 6),
        ("1", 7),
    ]


def test_first_pushes_waits_for_no_more_than_there_are():
    left, joined = Left("worker-4"), Joined("worker-4")
    ctx = Ctx(*(Left(f"worker-{i}") for i in (1, 2)), push(0, 0), push(3, 0), left)
    assert [p.sender for p in play(first_pushes(ctx, Shard(0), 4))] == ["worker-0", "worker-3"]
    assert ctx.script == []
    ctx = Ctx(left, push(0, 0), push(1, 0), push(2, 0), joined, push(3, 0), push(4, 0))
    assert len(play(first_pushes(ctx, Shard(0), 5))) == 5


def test_next_pushes_waits_for_as_many_as_it_was_asked_however_few_workers_there_are():
    ctx = Ctx(*(Left(f"worker-{i}") for i in (1, 2, 3, 4)), *(push(0, 0, step) for step in range(5)))
    assert [p.step for p in play(next_pushes(ctx, Shard(0), 3))] == [0, 1, 2]


def test_first_pushes_takes_one_of_a_worker_that_was_restarted():
    shard = Shard(0)
    again = push(1, 0, 0)
    ctx = Ctx(push(1, 0, 4), again, push(2, 0))
    pushes = play(first_pushes(ctx, shard, 2))
    assert [p.sender for p in pushes] == ["worker-1", "worker-2"]
    assert pushes[0] is again
    assert shard.dropped == [("worker-1", 4, "late")]


# one gradient of every worker -----------------------------------------------------------------------------------------


class Messages(Ctx):
    """The same, read as `async for request in ctx.inbox(...)`."""

    def __init__(self, *script, servers=1):
        super().__init__(*script)
        self.there, self.servers = NAMES[:3], tuple(f"server-{i}" for i in range(servers))

    def peers(self, kind):
        return self.servers if kind == "server" else super().peers(kind)

    def inbox(self, *kinds):
        async def messages():
            while True:
                yield await self.recv(*kinds)

        return messages()


def test_all_pushes_are_one_of_every_worker_and_what_is_not_waited_for_is_answered_at_once():
    ctx, shard = (
        Messages(push(2, 7), pull("worker-1"), push(0, 6, step=3), push(0, 7), push(1, 7), push(2, 7)),
        Shard(7),
    )
    pushes = play(all_pushes(ctx, shard))
    assert [p.sender for p in pushes] == list(NAMES[:3])
    assert ctx.sent == [("worker-1", "weights 7"), ("worker-0", "weights 7")]
    assert shard.dropped == [("worker-0", 3, "late")]
    assert len(ctx.script) == 1  # of the next step


def test_all_pushes_do_not_wait_for_a_worker_that_leaves():
    ctx = Messages(push(2, 0), push(0, 0), Left("worker-1"))
    assert [p.sender for p in play(all_pushes(ctx, Shard(0)))] == ["worker-0", "worker-2"]


@pytest.mark.parametrize("servers", [1, 2])
def test_all_pushes_begin_again_when_a_worker_joins_and_there_are_several_servers(servers):
    """With two servers, worker-0 may wait for this one and worker-1 for the other: the pushes are dropped, and
    answered.
    """
    again = [push(0, 0, step=1)] if servers == 2 else []
    ctx, shard = Messages(push(0, 0), Joined("worker-2"), *again, push(1, 0), push(2, 0), servers=servers), Shard(0)
    pushes = play(all_pushes(ctx, shard))
    assert [(p.sender[-1], p.step) for p in pushes] == [("0", servers - 1), ("1", 0), ("2", 0)]
    assert shard.dropped == [("worker-0", 0, "late")] * (servers - 1)
    assert ctx.sent == [("worker-0", "weights 0")] * (servers - 1)


# gradients of any version ---------------------------------------------------------------------------------------------


def test_an_accumulator_hands_out_k_pushes_in_the_order_of_arrival():
    accumulator, pushes = Accumulator(), [push(w, version) for w, version in ((2, 5), (0, 3), (2, 6))]
    assert accumulator.add(pushes[0], 2) == []
    assert accumulator.add(pull("worker-1"), 2) == []
    assert accumulator.add(pushes[1], 2) == pushes[:2]
    assert accumulator.add(pushes[2], 2) == []  # the next step's


def test_an_accumulator_hands_out_what_it_has_when_a_worker_joins():
    accumulator, only = Accumulator(), push(1, 0)
    assert accumulator.add(Joined("worker-4"), 2) == []
    accumulator.add(only, 2)
    assert accumulator.add(Left("worker-3"), 2) == []
    assert accumulator.add(Joined("worker-3"), 2) == [only]


def test_an_accumulator_hands_out_what_it_has_when_fewer_are_needed():
    accumulator, pushes = Accumulator(), [push(0, 0), push(1, 0)]
    for each in pushes:
        assert accumulator.add(each, 3) == []
    assert accumulator.add(Left("worker-2"), 2) == pushes
