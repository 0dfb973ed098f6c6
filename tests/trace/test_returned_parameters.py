"""Which gradients do the returned parameters hold, if reports of a shard are lost with its process?"""

from collections import deque

import numpy as np
import pytest

import labkit as lk
from labkit.roles.budget import Limits
from labkit.roles.dense_parameters import DenseParameters
from labkit.roles.shard import Shard
from labkit.trace import Recorder, Trace, ledger
from tests.headers import header_of

IDS = {"server-0": 0, "worker-0": 1}


class Server:
    """A shard and its trace. The parameter is the sum of 2 ** step over the gradients that it holds."""

    def __init__(self):
        self.trace, self.time, self.computed = Trace(header_of(*IDS)), 0, 0
        self.begin(0)

    def begin(self, incarnation, state=None):
        self.recorder = Recorder(0, incarnation, roles=2)
        self.recorder.unacknowledged = deque()
        parameters = DenseParameters(0, slice(0, 1), np.zeros(1), lk.SGD())
        self.shard = Shard(parameters, self.recorder, self.clock, IDS, Limits(), senders=2)
        if incarnation:
            self.shard.restore(state)

    def clock(self):
        self.time += 1
        return self.time

    def push(self):
        push = lk.Push(np.array([-(2.0**self.computed)]), self.computed, 0, self.shard.version, 1, 1)
        push.__dict__.update(sender="worker-0", incarnation=0)
        self.computed += 1
        return push

    def apply(self, times=1):
        for _ in range(times):
            self.shard.apply(self.push(), 1.0)

    def drop(self):
        self.shard.drop(self.push(), "late")

    def report(self, arrives=True, acknowledged=True):
        batch = self.recorder.take(self.clock())
        if arrives:
            self.trace.append(batch)
            if acknowledged:
                self.recorder.acknowledge(batch["number"])

    def snapshot(self):
        """The content of a snapshot, and the gradients that it contains in fact."""
        return [[0, {**self.shard.log.contained(), "time": self.clock()}]], int(self.shard.values[0]).bit_count()

    def end(self, lost=(), **more):
        worker = Recorder(1, roles=2)
        worker.counters.computed = worker.counters.released = self.computed
        self.trace.append(worker.take(self.clock()))
        self.trace.end(
            time=self.clock(), lost_instances=[[0, instance] for instance in lost], in_flight=[], lost=[], **more
        )
        entries = ledger(self.trace)
        assert entries["closes"], entries
        return entries


@pytest.mark.parametrize("again", [False, True])
def test_a_checkpoint_contains_the_counts_of_lost_reports(again):
    """The second time the restored shard is lost, too, before its first report arrives."""
    server = Server()
    server.apply()
    server.report()
    server.drop()
    server.apply()
    server.report(arrives=False)
    server.drop()
    server.apply()
    state = server.shard.to_state()
    server.begin(1, state)
    if again:
        server.report(arrives=False)
        server.begin(2, server.shard.to_state())
    server.apply()
    server.report()
    entries = server.end(lost=range(1 + again))
    assert entries["applied"] == 4 == int(server.shard.values[0]).bit_count()
    assert entries["dropped"] == {"late": 2}


def test_rows_that_arrived_are_in_no_later_checkpoint():
    server = Server()
    server.drop()
    assert len(server.shard.to_state()["unreported_drops"]) == 1
    server.report(acknowledged=False)
    assert len(server.shard.to_state()["unreported_drops"]) == 1
    server.drop()
    server.report()
    assert server.shard.to_state()["unreported_drops"] == []


@pytest.mark.parametrize("over", ["after the end", "rolled back"])
def test_gradients_applied_after_the_snapshot_are_not_in_the_returned_parameters(over):
    server = Server()
    server.apply(3)
    server.drop()
    server.apply()
    held, there = server.snapshot()
    server.apply(2)
    server.drop()
    server.report()
    entries = server.end(returned={"contained": held, "over": over})
    assert entries["applied"] == 4 == there
    assert (entries["dropped"].get("after the end", 0), entries["rolled_back"]) == (
        (2, 0) if over == "after the end" else (0, 2)
    )
    assert entries["dropped"]["late"] == 2


def test_the_snapshot_counts_when_the_last_report_is_lost():
    server = Server()
    server.apply()
    server.report()
    server.drop()
    server.apply(3)
    held, there = server.snapshot()
    entries = server.end(lost=[0], returned={"contained": held, "over": "after the end"})
    assert entries["applied"] == 4 == there
    assert entries["dropped"] == {"late": 1}


def test_a_restore_after_the_snapshot_takes_nothing_from_it():
    server = Server()
    server.apply(2)
    state = server.shard.to_state()
    server.apply(3)
    held, there = server.snapshot()
    server.report()
    server.begin(1, state)
    server.apply()  # reports that three steps before it are rolled back
    server.report()
    entries = server.end(lost=[0], returned={"contained": held, "over": "rolled back"})
    assert entries["applied"] == 5 == there
    assert entries["rolled_back"] == 1


def test_parameters_of_another_run_hold_nothing_of_this_one():
    server = Server()
    server.apply(2)
    server.report()
    entries = server.end(returned={"contained": [], "over": "rolled back"})
    assert (entries["applied"], entries["rolled_back"]) == (0, 2)
