"""Faults on links and processes as the client executes them: requests, signals, events and the log; no run is needed."""

import threading
import time
import types
from collections import Counter

import psutil
import pytest

from labkit.engines.active_faults import ActiveFaults
from labkit.engines.commands import Cut, Delay, Drop, End, Freeze, Kill, Limit, Reconnect, Restart, Thaw
from labkit.engines.dask.client import process_faults
from labkit.engines.dask.client.clock import EngineClock
from labkit.engines.dask.client.link_faults import LinkFaultOrders
from labkit.engines.dask.client.membership import Membership
from labkit.engines.dask.client.process_faults import ProcessFaults, check_allowed
from labkit.engines.dask.client.recovery_events import Heartbeat, RoleUp, WorkerJoined, WorkerLeft
from labkit.engines.dask.client.recovery_policy import Killed, RecoveryPolicy, Timer
from labkit.engines.dask.client.run_record import RunRecord
from labkit.engines.dask.processes import LEASE_S, boot_id, this_process
from labkit.engines.lifecycle import State
from labkit.errors import BadInput
from labkit.roles.layout import Layout, RoleSpec

ROLES = ("worker-0", "worker-1", "server-0", "chief")
ADDRESSES = {"worker-0": "a", "worker-1": "b", "server-0": "c", "chief": "d"}


def layout(nodes=ROLES):
    roles = (RoleSpec(n, n.partition("-")[0], int(n[-1]) if "-" in n else 0, node) for n, node in zip(ROLES, nodes))
    return Layout(tuple(roles), (), ())


class World:
    """Stub of the rest of a run. `answers`: the answers of other processes."""

    def __init__(self, nodes=ROLES, local=True):
        self.layout = layout(nodes)
        self.members = Membership(self.layout, dict(ADDRESSES), Counter())
        for role in ROLES:
            self.members.arrive(role, ("127.0.0.1", 1, ""))
        self.posted, self.events, self.called, self.told, self.done = [], [], [], [], []
        clock = EngineClock(lambda: 0)
        trace = types.SimpleNamespace(lock=threading.RLock(), event=self.events.append)
        self.record = RunRecord(trace, clock)
        self.links = LinkFaultOrders(
            self.layout, self.members, self.record, ActiveFaults(), lambda *order: self.posted.append(order)
        )
        self.answer, self.answers_at_once, self.unanswered = None, True, []
        self.supervisor = types.SimpleNamespace(
            members=self.members,
            processes={where: (boot_id(), 10 + i, 0.0) for i, where in enumerate("abcd")},
            call=self.call,
        )
        cluster = types.SimpleNamespace(local=local, place=None, recovering=True)
        self.policy = RecoveryPolicy(
            self.members, cluster, "abcd", on_loss="wait", heartbeat_timeout=5.0, elastic=False, now=0.0
        )
        self.processes = ProcessFaults(local, self.supervisor, self.record, self)

    def call(self, address, fn, arguments, limit, then, nanny=False):
        self.called.append((address, fn, arguments, nanny))
        self.unanswered.append(then)
        if self.answers_at_once:
            self.unanswered.pop()(self.answer)

    def handle(self, event):
        self.told.append(event)
        self.policy.handle(event, 0.0)

    @property
    def words(self):
        return [entry.command.word for entry in self.record.commands]


@pytest.fixture
def signals(monkeypatch):
    """(what, process) of every signal, of which none is sent."""
    sent = []
    for name in ("end_process", "freeze_process", "thaw_process"):
        monkeypatch.setattr(
            process_faults, name, lambda process, name=name: sent.append((name.split("_")[0], process[1]))
        )
    return sent


# links ----------------------------------------------------------------------------------------------------------------


def test_faults_of_one_link_are_combined():
    world = World()
    links = world.links
    links.cut(Cut("worker-0"))
    links.change(Delay("server-0", "worker-0", 0.1))
    links.change(Drop("worker-0", "server-0", 0.5))
    links.change(Drop("server-0", "*", 0.5))
    none = {"cut": False, "delay": 0.0, "drop": 0.0, "per_byte": 0.0}
    assert links.order_for("worker-0")["links"]["server-0"] == none | {"cut": True, "delay": 0.1, "drop": 0.5}
    assert links.order_for("worker-0")["isolated"]
    assert links.order_for("server-0")["links"]["worker-1"] == none | {"drop": 0.5}
    links.reconnect(Reconnect("worker-0"))
    assert links.order_for("server-0")["links"]["worker-0"] == none | {"delay": 0.1, "drop": 0.5}
    links.change(Drop("server-0", "*", 0.0))
    assert links.order_for("server-0")["links"].keys() == {"worker-0"}
    newest = links.order_for("server-0")["number"]
    assert newest == links.order_for("worker-0")["number"] - 1
    assert world.words == ["cut", "delay", "drop", "drop", "reconnect", "drop"]


def test_the_slower_end_of_a_link_counts():
    world = World()
    links, limited = world.links, Limit("worker-0", 1e6, at=0.0, until=2.0)
    links.limit(limited)
    assert {role for _, _, role, _ in world.posted} == set(ROLES)
    links.limit(Limit("server-0", 4e6))

    def orders():
        """{role: (us per byte, {peer: us per byte})}"""
        found = {role: links.order_for(role) for role in ROLES}
        return {
            role: (1e6 * order["per_byte"], {peer: 1e6 * how["per_byte"] for peer, how in order["links"].items()})
            for role, order in found.items()
        }

    first, second = {"worker-0": 1.0, "server-0": 0.25}, {"server-0": 0.25}
    assert orders() == {
        "worker-0": (1.0, dict.fromkeys(("worker-1", "server-0", "chief"), 1.0)), "worker-1": (0.0, first),
        "server-0": (0.25, {"worker-0": 1.0, "worker-1": 0.25, "chief": 0.25}), "chief": (0.0, first),
    }  # fmt: skip
    links.end(End(limited, at=2.0))
    assert orders() == {
        "worker-0": (0.0, second), "worker-1": (0.0, second), "chief": (0.0, second),
        "server-0": (0.25, dict.fromkeys(("worker-0", "worker-1", "chief"), 0.25)),
    }  # fmt: skip
    assert [(event.kind, event.name, event.bandwidth) for event in world.events] == [
        ("limited", "worker-0", 1e6), ("limited", "server-0", 4e6), ("limited", "worker-0", None),
    ]  # fmt: skip
    assert world.words == ["limit", "limit", "end"]


def test_roles_of_one_node_share_its_limit():
    world = World(nodes=("node", "worker-1", "node", "chief"))
    world.links.limit(Limit("server-0", 1e6))
    assert world.links.order_for("worker-0")["per_byte"] == 1e-6
    assert world.links.order_for("worker-0")["links"].keys() == {"worker-1", "chief"}


def test_a_link_fault_is_sent_to_both_ends_and_that_of_a_role_to_all_its_peers():
    world = World()
    world.links.change(Delay("worker-0", "server-0", 0.1))
    assert [(addresses, role) for _, addresses, role, _ in world.posted] == [(["a"], "worker-0"), (["c"], "server-0")]
    world.posted.clear()
    world.links.cut(Cut("worker-0"))
    assert [role for _, _, role, _ in world.posted] == list(ROLES)


def test_roles_on_one_node_have_no_link_and_are_cut_off_together():
    world = World(nodes=("node", "worker-1", "node", "chief"))
    world.links.cut(Cut("worker-0"))
    assert world.links.order_for("server-0")["isolated"]
    assert world.links.order_for("server-0")["links"].keys() == {"worker-1", "chief"}


def test_the_next_instance_of_an_isolated_role_is_not_isolated():
    world = World()
    world.links.cut(Cut("worker-0"))
    world.members.lose("worker-0", "was killed")
    world.posted.clear()
    world.links.ended("worker-0", 0)
    assert {role for _, _, role, _ in world.posted} == {"worker-1", "server-0", "chief"}
    assert world.links.order_for("worker-0")["links"] == {}
    world.posted.clear()
    world.links.reconnect(Reconnect("worker-0"))  # the lost instance is notified, too, and then fenced
    assert ("worker-0", 0) in [(role, incarnation) for _, _, role, incarnation in world.posted]


# processes ------------------------------------------------------------------------------------------------------------


def test_a_process_on_this_machine_is_killed_at_once(signals):
    world = World()
    world.processes.kill(Kill("worker-0"), world.done.append)
    assert signals == [("end", 10)]
    assert world.done == [None]
    assert world.told == [Killed("worker-0", True, "a")]
    assert not world.policy.stays_away("worker-0")
    assert [str(event.kind) for event in world.events] == ["killed"]


def test_a_role_killed_without_restart_keeps_its_node_until_it_is_restarted(signals):
    world = World(nodes=("node", "worker-1", "node", "chief"))
    world.processes.kill(Kill("worker-0", restart=False), world.done.append)
    assert [role for role in ROLES if world.policy.stays_away(role)] == ["worker-0", "server-0"]
    for role in ("worker-0", "server-0"):
        world.members.lose(role, "was killed", stays_away=True)
    world.processes.restart(Restart("server-0"))
    assert world.told == [Killed("worker-0", False, "a"), Restart("server-0")]
    assert not world.policy.stays_away("worker-0")
    assert State.STOPPED not in world.members.state.values()


def test_a_role_that_is_here_is_not_restarted():
    world = World()
    with pytest.raises(BadInput, match="it is running; only a role that was killed without restart"):
        world.processes.restart(Restart("worker-0"))
    assert world.words == []


def test_a_kill_of_a_role_that_is_lost_is_for_recovery(signals):
    world = World()
    world.members.lose("worker-0", "was killed")
    world.processes.kill(Kill("worker-0", restart=False), world.done.append)
    assert signals == []
    assert world.told == [Killed("worker-0", False, None)]
    assert world.members.state["worker-0"] is State.STOPPED
    assert world.done == [None]


def test_a_process_on_another_host_ends_itself_and_its_silence_confirms_it(signals):
    world = World(local=False)
    world.supervisor.processes["a"] = ("another boot", 10, 0.0)
    world.answer = OSError("the connection is gone")
    world.processes.kill(Kill("worker-0"), world.done.append)
    assert signals == []
    process = ("another boot", 10, 0.0)
    assert world.called == [("a", process_faults.end_process, (process,), False)]
    assert [event.kind for event in world.events] == ["killed"]
    assert world.done == [None]


def test_a_remote_kill_is_repeated_until_the_role_instance_is_lost(signals):
    world = World(local=False)
    world.supervisor.processes["a"] = ("another boot", 10, 0.0)
    world.answers_at_once = False
    world.processes.kill(Kill("worker-0", restart=False), world.done.append)
    for times in (1, 2, 3):
        assert len(world.called) == times
        assert len(world.done) == (times > 1)
        world.unanswered.pop()(TimeoutError())
    assert [event.kind for event in world.events] == ["killed", "warning"]
    assert "did not acknowledge 'kill', which is retransmitted" in world.events[1].text
    world.policy.handle(WorkerLeft("a", expected=False), 1.0)
    assert world.members.state["worker-0"] is State.STOPPED
    world.unanswered.pop()(TimeoutError())
    assert len(world.called) == 4
    assert world.done == [None]


@pytest.mark.parametrize("silent", [True, False], ids=["without effect", "with effect"])
def test_a_kill_is_the_reason_of_the_loss_that_it_leads_to_and_of_no_other(signals, silent):
    world = World()
    world.processes.kill(Kill("worker-0"), world.done.append)
    if silent:
        for now in (quarter / 4 for quarter in range(4, 29)):
            for role in ROLES[1:]:
                world.policy.handle(Heartbeat(role, 0), now)
            world.policy.handle(Timer(), now)
    else:
        world.policy.handle(WorkerLeft("a", expected=False), 7.0)
    assert world.members.why["worker-0"].startswith("did not answer" if silent else "was killed")
    world.policy.handle(WorkerJoined("a"), 7.1)
    world.policy.handle(Timer(), 7.2)
    world.policy.handle(RoleUp("worker-0", 1, ["h", 1, ""], [], [], None, 0), 7.3)
    assert world.members.where["worker-0"] == "a"
    world.policy.handle(WorkerLeft("a", expected=False), 7.5)
    assert world.members.why["worker-0"] == "ended unexpectedly"


def test_the_process_of_the_client_is_neither_killed_nor_frozen(signals):
    world = World()
    world.supervisor.processes["a"] = this_process()
    for execute in (
        lambda: world.processes.kill(Kill("worker-0"), world.done.append),
        lambda: world.processes.freeze(Freeze("worker-0"), world.done.append),
    ):
        with pytest.raises(BadInput, match="runs in this process"):
            execute()
    assert psutil.Process().is_running()
    assert (signals, world.words, world.events, world.done) == ([], [], [], [])


def test_frozen_roles_are_thawed_after_the_end_of_the_run(signals):
    world = World()
    with pytest.raises(BadInput, match="not frozen"):
        world.processes.thaw(Thaw("worker-0"), world.done.append)
    world.processes.freeze(Freeze("worker-0"), world.done.append)
    world.processes.thaw(Thaw("worker-0"), world.done.append)
    world.processes.freeze(Freeze("worker-1"), world.done.append)
    world.processes.thaw_all()
    assert signals == [("freeze", 10), ("thaw", 10), ("freeze", 11), ("thaw", 11)]
    assert world.done == [None] * 3
    assert world.words == ["freeze", "thaw", "freeze"]


def test_a_process_on_another_host_is_frozen_by_its_nanny_or_the_missing_nanny_is_reported(signals, monkeypatch):
    world = World(local=False)
    world.supervisor.processes["a"] = process = ("another boot", 10, 0.0)
    world.processes.freeze(Freeze("worker-0"), world.done.append)
    assert signals == []
    assert [(address, arguments, nanny) for address, _, arguments, nanny in world.called] == [("a", (process,), True)]
    now = time.monotonic()
    for seconds, orders in ((0, 1), (LEASE_S / 2, 2), (LEASE_S / 2, 2), (LEASE_S, 3)):  # it is renewed twice in a lease
        monkeypatch.setattr(process_faults.time, "monotonic", lambda seconds=seconds: now + seconds)
        world.processes.renew_leases()
        assert len(world.called) == orders
    assert {arguments for _, _, arguments, _ in world.called[1:]} == {(process, True)}
    world.answer = OSError("there is no nanny")
    world.processes.thaw(Thaw("worker-0"), world.done.append)
    assert world.done[0] is None
    assert "its nanny does not pass the signal on (there is no nanny)" in str(world.done[1])


@pytest.mark.parametrize("state", ["lost", "starting"])
def test_a_role_that_is_not_here_is_not_frozen(state):
    world = World()
    if state == "lost":
        world.members.lose("worker-0", "was killed", stays_away=True)
        assert world.members.state["worker-0"] is State.STOPPED
    else:
        del world.supervisor.processes["a"]
    why = "was killed" if state == "lost" else "is starting"
    with pytest.raises(BadInput, match=f"it is not present \\(worker-0 {why}"):
        world.processes.freeze(Freeze("worker-0"), world.done.append)


def test_processes_of_others_are_left_alone_unless_that_was_allowed():
    with pytest.raises(BadInput, match="may_kill=True"):
        check_allowed(Kill("worker-0"), may_kill=False)
    check_allowed(Kill("worker-0"), may_kill=True)
    check_allowed(Cut("worker-0"), may_kill=False)


def test_commands_are_not_logged_after_the_record_is_closed(signals):
    world = World()
    world.record.close()
    world.links.cut(Cut("worker-0"))
    assert world.words == []
    assert world.events == []
