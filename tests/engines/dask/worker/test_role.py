"""A role in real time without processes, with a stub endpoint, and commands posted by the test."""

import errno
from collections import Counter

import pytest

import labkit as lk
from labkit.engines.dask.protocol import ProtocolError
from labkit.engines.dask.worker.assignment import RoleAssignment
from labkit.engines.dask.worker.command_channel import CommandChannel
from labkit.engines.dask.worker.role import RealRole
from labkit.engines.storage.store import Store
from labkit.roles.messages import Joined, Snapshot, SnapshotRequest
from labkit.trace.schema import EVALUATION, NANO, STARTUP, TRAINING

TIMING = lk.Problem("moons", hidden=(), timing_only=True)
WORKERS = ("worker-0", "worker-1")


class Endpoint:
    """Records what a role sends. `script`: the actions at its waits, one per wait."""

    def __init__(self, *script):
        self.script, self.outbox, self.peers, self.fenced, self.links = list(script), [], {}, {}, {}
        self.sent, self.received, self.repeated, self.refused = Counter(), Counter(), Counter(), []
        self.clock = self.deliver = None
        self.woken = 0  # how many times another thread has ended a wait
        self.served = 0  # how many times handshakes and queues were served without a wait

    def poll(self, timeout, watch=True):
        if timeout and self.script:
            self.script.pop(0)()

    def send(self, to, message, category, computed):
        self.outbox.append((to, message, category))
        return 8

    def add_peer(self, name, host, port, key, incarnation):
        self.peers[name] = incarnation

    def fence(self, name, incarnation):
        self.fenced[name] = incarnation

    def limit(self, per_byte):
        self.per_byte = per_byte

    def set_link_fault(self, peer, **fault):
        self.links[peer] = fault

    def wake(self):
        self.woken += 1

    def progress(self):
        self.served += 1

    def flush(self):
        pass

    def finish_sending(self, limit):
        return set()

    drain = remove_peer = finish_sending

    def unsent_gradients(self):
        return []

    def unanswered(self):
        return {}


class Role:
    """A role instance of AsyncPS, or of `strategy`, with two workers. `do(...)` posts a command."""

    def __init__(self, name="server-0", incarnation=0, strategy=None, folder=None, now=0):
        strategy = strategy or lk.AsyncPS()
        plan = lk.train(TIMING, strategy, lk.SimulatedCluster(workers=2), lk.Budget(updates=5)).plan
        self.reports, self.endpoint, self.now = [], Endpoint(), now
        self.channel = CommandChannel("run", name, incarnation, "key", self.reports.append)
        assignment = RoleAssignment(
            "run", plan.role_ids[name], incarnation, plan, TIMING.objective(), None, None, 1.0, folder, True
        )
        share = None if name == "server-0" else ([], [])
        self.role = RealRole(assignment, share, None, self.endpoint, self.channel, lambda: self.now)
        self.names = [role.name for role in plan.layout.roles]
        self.incarnations = dict.fromkeys(self.names, 0) | {name: incarnation}
        self.change = 0

    def do(self, what, **more):
        self.channel.post({"do": what, **more})

    def members(self, *away, change=None):
        """A membership broadcast: all are present but those that are `away`."""
        self.change = self.change + 1 if change is None else change
        present = [name for name in self.names if name not in away]
        here = {name: ("host", 1, "key", self.incarnations[name]) for name in present if name != self.role.name}
        peers = {"worker": [w for w in WORKERS if w in present], "server": ["server-0"], "chief": ["chief"]}
        return {"change": self.change, "incarnations": dict(self.incarnations), "here": here, "peers": peers}

    def arrives(self, message, sender, incarnation=0, computed=0):
        message.__dict__.update(sender=sender, incarnation=incarnation)
        self.endpoint.deliver(message, 0, TRAINING, 0, 0, 0, computed)

    def run(self, *script, zero=0):
        """Begin, perform one step of the script at each wait, then end; returns the final report."""
        self.endpoint.script = [*script, lambda: self.do("leave")]
        self.role.begin({"do": "begin", "zero": zero, **self.members()})
        return self.role.run()

    @property
    def outbox(self):
        return [(to, type(message).__name__, category) for to, message, category in self.endpoint.outbox]


def test_events_before_the_begin_have_the_time_of_the_begin(monkeypatch):
    """A restarted server saves its checkpoint while it is prepared, and the disk is full."""

    def full(store, *more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Store, "write", full)
    one = Role(incarnation=1, folder="memory://labkit-tests", now=5_000 * NANO)
    one.now += 2 * NANO
    report = one.run(zero=4_990 * NANO)
    assert [(event["kind"], event["time"]) for event in report["batch"]["events"]] == [("warning", 12 * NANO)]


def test_the_chief_saves_its_result_before_it_reports_its_return(monkeypatch):
    """It saves at most once per second, and the run ends when it has returned: its process may be lost from then on."""
    one = Role("chief", folder="memory://labkit-tests")
    monkeypatch.setattr(Store, "write", lambda store, role, state, tag: one.reports.append({"saved": state["update"]}))

    weights = one.role.assignment.plan.start(TIMING.objective())

    def evaluates(version):
        return lambda: one.arrives(Snapshot(weights, 0, version, 4 * version), "server-0")

    one.run(evaluates(0), evaluates(5))
    done = [report.get("saved", report.get("verdict", None)) for report in one.reports]
    assert [what for what in done if what is not None] == [0, 5, "updates"]


def push(step, version=0):
    return lk.Push(lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=1)).plan.start(TIMING.objective()),
                   step, 0, version, 1, 4)  # fmt: skip


def test_a_server_answers_what_arrives_and_reports_what_it_did():
    one = Role()
    report = one.run(lambda: one.arrives(lk.Pull(), "worker-0"), lambda: one.arrives(push(0), "worker-0", computed=1))
    assert one.outbox[:2] == [("worker-0", "Weights", STARTUP), ("worker-0", "Weights", TRAINING)]
    assert report["batch"]["counters"]["updates"] == 1
    assert (report["role"], report["in_flight"], report["late"]) == ("server-0", [], [])


def test_a_command_ends_the_wait_of_its_role():
    one = Role()
    woken = []

    def commanded():
        before = one.endpoint.woken
        one.do("slow", factor=2.0)
        woken.append(one.endpoint.woken - before)

    one.run(commanded)
    assert woken == [1]


def test_messages_in_the_inbox_at_the_end_are_in_flight():
    one = Role()

    def comes_and_ends():
        one.do("leave")
        one.arrives(push(3), "worker-1", incarnation=2)

    one.endpoint.script = []
    one.role.begin({"do": "begin", "zero": 0, **one.members()})
    comes_and_ends()
    assert one.role.run()["in_flight"] == [[0, one.role.ids["worker-1"], 2, 3, 1]]


def test_a_snapshot_that_is_requested_is_sent_as_evaluation():
    one = Role()
    one.run(lambda: one.arrives(SnapshotRequest(0, True), "chief"))
    ((to, message, category),) = [sent for sent in one.endpoint.outbox if isinstance(sent[1], Snapshot)]
    assert (to, category, message.final) == ("chief", EVALUATION, True)


def test_a_lost_peer_is_fenced_and_an_answer_to_its_old_instance_is_not_sent():
    one = Role()

    def lost_and_back():
        one.do("members", **one.members("worker-0"))
        one.incarnations["worker-0"] = 1

    report = one.run(
        lost_and_back, lambda: one.do("members", **one.members()), lambda: one.arrives(lk.Pull(), "worker-0", 0),
        lambda: one.arrives(lk.Pull(), "worker-0", 1),
    )  # fmt: skip
    assert one.endpoint.fenced == {"worker-0": 0}
    assert one.endpoint.peers["worker-0"] == 1
    assert one.outbox == [("worker-0", "Weights", STARTUP)]  # the answer to the new instance
    assert report["batch"]["counters"]["messages"] == 2


def test_an_older_membership_broadcast_is_ignored():
    one = Role()
    one.run(lambda: one.do("members", **one.members("worker-1")), lambda: one.do("members", **one.members(change=1)))
    assert one.role.members.absent == {"worker-1"}
    assert one.role.members.peers["worker"] == ("worker-0",)


def test_an_instance_that_was_replaced_ends_and_saves_nothing():
    one = Role()
    one.incarnations["server-0"] = 1
    saved = []
    one.role.checkpoints.finish = lambda *state: saved.append(state)
    one.endpoint.script = []
    one.role.begin({"do": "begin", "zero": 0, **one.members()})
    one.do("members", **one.members())
    assert one.role.run()["role"] == "server-0"
    assert saved == []


class Listens(lk.AsyncPS):
    """A strategy whose server waits for a member to return."""

    messages = (*lk.AsyncPS.messages, Joined)

    async def server(self, ctx, shard):
        news = await ctx.recv(Joined)
        ctx.note(f"{news.name} has joined", incarnation=news.incarnation)


def test_a_role_that_listens_for_news_of_members_gets_them():
    one = Role(strategy=Listens())

    def back():
        one.incarnations["worker-0"] = 1
        one.do("members", **one.members())

    report = one.run(lambda: one.do("members", **one.members("worker-0")), back, lambda: None)
    (note,) = report["batch"]["events"]
    assert (note["text"], note["numbers"]) == ("worker-0 has joined", {"incarnation": 1.0})


class SaysGoodbye(lk.AsyncPS):
    """A strategy whose server posts when its coroutine is closed."""

    async def server(self, ctx, shard):
        try:
            await ctx.recv(lk.Pull)
        finally:
            ctx.send("worker-0", lk.Pull())
            ctx.note("gone")
            ctx.save({"a": 1})


def test_posts_of_an_instance_that_has_ended_have_no_effect():
    one = Role(strategy=SaysGoodbye())
    saved = []
    one.role.checkpoints.request = lambda *state: saved.append(state)
    report = one.run(lambda: None)
    assert (one.outbox, report["batch"]["events"], saved) == ([], [], [])


def test_engine_time_stands_still_during_a_pause_and_the_role_serves_its_connections():
    one = Role()

    def pauses():
        one.now = NANO
        one.do("flow", number=1, paused=True, zero=0, goals={})

        def goes_on(limit):
            one.now = 3 * NANO
            one.do("flow", number=2, paused=False, zero=2 * NANO, goals={})

        one.channel.posted.wait = goes_on

    report = one.run(pauses, lambda: None)
    assert report["time"] == NANO
    assert one.endpoint.served == 1


def batches(one):
    return [report for report in one.reports if report["what"] == "batch"]


def test_an_order_to_pause_that_comes_after_a_newer_one_is_ignored():
    one = Role()

    def inverted():
        one.do("flow", number=2, paused=False, zero=0, goals={})
        one.do("flow", number=1, paused=True, zero=0, goals={})
        one.do("flow", number=2, paused=False, zero=0, goals={})
        one.channel.report_due = True

    one.now = NANO
    assert one.run(inverted, lambda: None)["time"] == NANO
    assert [report["flow"] for report in batches(one)] == [2]


def test_a_role_that_has_missed_a_pause_waits_until_the_run_has_come_as_far():
    one = Role()
    waited = []

    def goes_on():
        one.now = 3 * NANO
        one.do("flow", number=2, paused=False, zero=2 * NANO, goals={})

    def wait(limit):
        waited.append(limit)
        one.now += max(1, round(limit * NANO))

    one.channel.posted.wait = wait
    report = one.run(goes_on, lambda: None)
    assert sum(waited) == pytest.approx(2.0)
    assert one.now == pytest.approx(5 * NANO)
    assert report["time"] == pytest.approx(3 * NANO)  # it never decreases


def test_a_role_that_begins_receives_whether_the_run_is_paused():
    one = Role()
    paused = {"do": "flow", "number": 3, "paused": True, "zero": 0, "goals": {}}
    one.endpoint.script = []
    one.now = NANO
    one.role.begin({"do": "begin", "zero": 0, "orders": [paused], **one.members()})
    assert one.channel.pending
    one.now = 5 * NANO
    one.do("leave")
    assert one.role.run()["time"] == NANO


def test_link_faults_with_an_older_number_are_ignored():
    one = Role()
    slow, none = {"worker-0": {"delay": 1.0}}, {}
    one.run(
        lambda: one.do("link_faults", number=1, links=slow, isolated=False, per_byte=1e-6),
        lambda: one.do("link_faults", number=0, links=none, isolated=False, per_byte=0.0),
    )
    assert one.endpoint.links == {"worker-0": {"delay": 1.0}}
    assert one.endpoint.per_byte == 1e-6


def test_a_command_that_it_does_not_know_is_an_error():
    one = Role()
    with pytest.raises(ProtocolError, match="server-0 received an unknown command: 'dance'"):
        one.run(lambda: one.do("dance"))
