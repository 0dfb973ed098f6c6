"""Gates: who may begin, and which gradients make a step, against a brute-force reading of the rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit.roles.gates import Gate, first

NAMES = tuple(f"worker-{i}" for i in range(5))


@given(
    workers=st.integers(1, 5), slack=st.integers(0, 4), luck=st.randoms(use_true_random=False), turns=st.integers(1, 60)
)
def test_a_gate_is_the_rule_read_aloud(workers, slack, luck, turns):
    """Any interleaving: a worker that wants to begin its iteration c may at the first moment at which c - min <= s."""
    names = NAMES[:workers]
    gate, clocks, waiting = Gate(names), dict.fromkeys(names, 0), set()
    computing = set()
    for name in luck.sample(names, workers):  # everybody's first pull
        assert gate.admit(name, slack) == [name]
        computing.add(name)
    for _ in range(turns):
        name = luck.choice(sorted(computing))
        computing.remove(name)
        gate.tick(name)
        clocks[name] += 1
        waiting.add(name)
        admitted = gate.admit(name, slack)
        slowest = min(clocks.values())
        assert (gate.clocks, gate.slowest) == (clocks, slowest)
        assert len(set(admitted)) == len(admitted)
        assert set(admitted) == {w for w in waiting if clocks[w] - slowest <= slack}
        assert [clocks[w] for w in admitted] == sorted(clocks[w] for w in admitted)  # the furthest behind first
        waiting -= set(admitted)
        computing |= set(admitted)
        assert computing  # somebody, the slowest at least, is never held up: no deadlock


@given(slacks=st.lists(st.integers(0, 3), min_size=1, max_size=30), luck=st.randoms(use_true_random=False))
def test_the_slack_may_change_between_two_requests(slacks, luck):
    gate, clocks, waiting, computing = Gate(NAMES[:3]), dict.fromkeys(NAMES[:3], 0), set(), set(NAMES[:3])
    for name in NAMES[:3]:
        gate.admit(name, slacks[0])
    for slack in slacks:
        name = luck.choice(sorted(computing))
        computing.remove(name)
        gate.tick(name)
        clocks[name] += 1
        waiting.add(name)
        admitted = set(gate.admit(name, slack))
        assert admitted == {w for w in waiting if clocks[w] - min(clocks.values()) <= slack}
        waiting -= admitted
        computing |= admitted


def test_memory_of_a_gate_does_not_grow():
    gate = Gate(NAMES[:2])
    for _ in range(1000):
        for name in NAMES[:2]:
            gate.tick(name)
            gate.admit(name, 0)
    assert gate.slowest == 1000
    assert len(gate._at) == 1
    assert not gate._waiting


# the first gradients of a round ---------------------------------------------------------------------------------------


class Ctx:
    """A context whose inbox is a script."""

    def __init__(self, *script):
        self.script, self.sent = list(script), []

    def peers(self, kind):
        return NAMES if kind == "worker" else ()

    async def recv(self, *kinds):
        assert kinds == (lk.Push, lk.Pull)
        return self.script.pop(0)

    def send(self, to, message):
        self.sent.append((to, message))


class Shard:
    def __init__(self, version):
        self.version, self.dropped = version, []

    def weights(self):
        return f"weights {self.version}"

    def drop(self, push, why):
        self.dropped.append((push.sender, push.step, why))


def push(worker, version, step=0):
    made = lk.Push(np.zeros(1), step, 0, version)
    made.__dict__["sender"] = f"worker-{worker}"
    return made


def pull(worker):
    made = lk.Pull()
    made.__dict__["sender"] = f"worker-{worker}"
    return made


def play(coroutine):
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    return end.value.value


def test_first_takes_those_of_the_present_version_and_drops_the_others():
    ctx = Ctx(push(4, 7), push(2, 6), pull(3), push(0, 7), push(1, 5, step=9), push(3, 7), push(1, 7))
    shard = Shard(7)
    pushes = play(first(ctx, shard, 3))
    assert [p.sender for p in pushes] == ["worker-0", "worker-3", "worker-4"]  # added in the order of the workers
    assert shard.dropped == [("worker-2", 0, "late"), ("worker-1", 9, "late")]
    assert ctx.sent == [("worker-3", "weights 7")]
    assert len(ctx.script) == 1  # what is over is not waited for


def test_first_takes_several_of_one_worker_in_their_order():
    ctx = Ctx(push(1, 0, 5), push(0, 0, 8), push(1, 0, 6), push(1, 0, 7))
    assert [(p.sender[-1], p.step) for p in play(first(ctx, Shard(0), 4))] == [("0", 8), ("1", 5), ("1", 6), ("1", 7)]
