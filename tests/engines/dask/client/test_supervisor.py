"""Asynchronous requests to roles: each process gets them in the order in which they were sent; no cluster is needed."""

import asyncio
import threading
import types
from collections import Counter, defaultdict

import pytest

import labkit as lk
from labkit import ClusterError
from labkit.engines.dask.client import start
from labkit.engines.dask.client import supervisor as supervisors
from labkit.engines.dask.client.event_router import router_of
from labkit.engines.dask.client.recovery_events import Answered, InternalError
from labkit.engines.dask.client.supervisor import Supervisor
from labkit.packed import Packed
from labkit.roles.layout import Layout, RoleSpec
from tests.engines.dask.client.client_stub import Loop

ROLES = ("worker-0", "worker-1", "chief")


class Client:
    """Receives requests to Dask workers: each is answered when the test opens the gate of its address."""

    def __init__(self, loop):
        self.loop, self.status = loop, "running"
        self.arrived = defaultdict(list)
        self.gates = defaultdict(asyncio.Event)
        self.answers = defaultdict(lambda: True)

    def subscribe_topic(self, topic, handler):
        """Does nothing."""

    def unsubscribe_topic(self, topic):
        """Does nothing."""

    async def run(self, fn, run, role, order, incarnation=None, *, workers, on_error):
        (address,) = workers
        self.arrived[address].append(order["do"])
        await self.gates[address].wait()
        return {address: self.answers[address]}

    def open(self, *addresses):
        for address in addresses:
            self.loop.loop.call_soon_threadsafe(self.gates[address].set)


@pytest.fixture
def client():
    loop = Loop()
    yield Client(loop)
    loop.end()


@pytest.fixture
def supervisor(client):
    layout = Layout(tuple(RoleSpec(name, name.partition("-")[0], i, name) for i, name in enumerate(ROLES)), (), ())
    plan = types.SimpleNamespace(layout=layout, strategy=types.SimpleNamespace(on_loss="wait"), elastic=None)
    cluster = types.SimpleNamespace(usage=Counter(), run_starts=lambda run, *progress: None)
    return Supervisor(client, plan, ["a", "b", "c"], cluster, Packed.of({}, "nothing"))


def answered(supervisor):
    """Take one event, an answer, and process it as the run's thread does."""
    event = supervisor.queue.get()
    assert isinstance(event, Answered)
    event.then()


def test_orders_to_one_process_keep_their_order_and_a_frozen_one_delays_no_other(client, supervisor):
    done = []
    client.open("a", "b")
    for word in ("pause", "resume", "set"):
        supervisor.send_in_order({"do": word}, None, lambda deaf, word=word: done.append((word, deaf)))
    supervisor.send_in_order({"do": "slow"}, "worker-0", lambda deaf: done.append(("slow", deaf)))
    answered(supervisor)  # of the one that does not wait for c
    assert done == [("slow", [])]
    assert client.arrived == {"a": ["pause", "resume", "set", "slow"], "b": ["pause", "resume", "set"], "c": ["pause"]}
    client.open("c")
    for _ in range(3):
        answered(supervisor)
    assert [word for word, _ in done] == ["slow", "pause", "resume", "set"]
    assert client.arrived["c"] == ["pause", "resume", "set"]


def test_roles_that_do_not_acknowledge_in_time_are_named(client, supervisor, monkeypatch):
    monkeypatch.setattr(supervisors, "ANSWER_S", 0.01)
    client.answers["b"] = False
    client.open("a", "b")
    found = []
    supervisor.send_in_order({"do": "set"}, None, found.append)
    answered(supervisor)
    assert found == [["b", "c"]]


def test_orders_to_a_dask_worker_that_has_left_are_not_awaited(client, supervisor):
    """Neither the one on its way, nor those that wait for it; and nobody is missing, as the loss is reported by itself."""
    found = []
    client.open("a", "b")
    for word in ("slow", "set", "pause"):
        supervisor.send_in_order({"do": word}, None, found.append)
    supervisor.left("c")
    for _ in range(3):
        answered(supervisor)
    assert found == [[], [], []]


def test_an_answer_is_dealt_with_by_the_thread_that_takes_it_out_of_the_queue(client, supervisor):
    threads = []
    client.open("a", "b", "c")
    supervisor.post({"do": "members"}, ["a", "b"], then=lambda: threads.append(threading.current_thread()))
    answered(supervisor)
    assert threads == [threading.current_thread()]


def test_requests_through_a_closed_client_return_without_an_answer(client, supervisor):
    client.status = "closed"
    found = []
    supervisor.send_in_order({"do": "pause"}, None, found.append)
    supervisor.post({"do": "members"}, ["a"], then=lambda: found.append("posted"))
    supervisor.post({"do": "members"}, ["a"])
    supervisor.call("a", print, (), 1.0, found.append)
    for _ in range(3):
        answered(supervisor)
    assert found[:2] == [["a", "b", "c"], "posted"]
    assert isinstance(found[2], OSError)
    assert supervisor.queue.empty()


def test_a_failed_clock_measurement_is_repeated_on_request(client, supervisor, monkeypatch):
    monkeypatch.setattr(supervisors, "LOOK_S", 0.0)
    client.status = "closed"  # no answer
    done = []
    supervisor.measure("a", lambda: done.append("a"))
    answered(supervisor)
    assert done == ["a"]


class Failed:
    """A task that has failed."""

    def __init__(self, status, error=None):
        self.status, self.error = status, error

    def exception(self, timeout):
        if isinstance(self.error, TimeoutError):
            raise self.error
        return self.error

    def release(self):
        if self.status == "stuck":
            raise RuntimeError("not released")


def wrapped(error):
    outside = RuntimeError("could not be unpacked")
    outside.__cause__ = error
    return outside


@pytest.mark.parametrize(
    ("future", "why"),
    [
        (Failed("error", ValueError("no")), "ValueError: no"),
        (Failed("error", wrapped(ValueError("no"))), "ValueError: no"),
        (
            Failed("error", wrapped(ClusterError("no module 'a'"))),
            "no module 'a'",
        ),  # a message is not a type and a message
        (Failed("error", TimeoutError("late")), "TimeoutError: late"),
        (Failed("error"), "its task was error"),  # the state has changed since: there is no error any more
        (Failed("cancelled"), "its task was cancelled"),
        (Failed("lost"), "its task was lost"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.status,
)
def test_the_error_of_a_task_that_failed_has_the_reason(supervisor, future, why, monkeypatch):
    def start(role, incarnation, worker, done, strategy, restored):
        done(future)
        return future

    launcher = types.SimpleNamespace(load=lambda where: None, restored={}, start=start, forget=lambda: None)
    monkeypatch.setattr("labkit.engines.dask.client.supervisor.Launcher", lambda *arguments: launcher)
    with pytest.raises(ClusterError, match=f"could not start: {why}"):
        supervisor.start({})


def test_a_run_releases_everything_it_can(client, supervisor):
    released = []
    supervisor.futures = {
        "worker-0": Failed("running"), "worker-1": Failed("stuck"),
        "chief": types.SimpleNamespace(release=lambda: released.append("chief")),
    }  # fmt: skip
    supervisor.futures["worker-0"].release = lambda: released.append("worker-0")
    assert sum(supervisor.members.usage.values()) == 3
    with pytest.raises(RuntimeError, match="not released"):
        supervisor.close()
    assert sorted(released) == ["chief", "worker-0"]
    assert sum(supervisor.members.usage.values()) == 0
    assert not router_of(client).is_routed(supervisor.run)


def test_a_run_that_cannot_be_made_leaves_nothing(client, monkeypatch):
    layout = Layout((RoleSpec("chief", "chief", 0, "chief"),), (), ())
    plan = types.SimpleNamespace(
        layout=layout, strategy=lk.AsyncPS(), elastic=None, role_ids={"chief": 0}, problem=lk.Problem("moons"),
        without_data=lambda: None,
    )  # fmt: skip
    usage, made = Counter(), []
    client.open("a")
    connection = types.SimpleNamespace(client=lambda: client, usage=usage)
    cluster = types.SimpleNamespace(spec=lk.SimulatedCluster(workers=1).spec)

    def fails(plan, cluster, connection, supervisor, *more):
        made.append(supervisor)
        assert usage["a"] == 1
        raise RuntimeError("no thread can be started")

    monkeypatch.setattr(start, "DaskRun", fails)
    client.sync = lambda call, callback_timeout: asyncio.run_coroutine_threadsafe(call(), client.loop.loop).result()
    with pytest.raises(RuntimeError, match="no thread"):
        start.start_run(cluster, connection, lambda roles: {"chief": "a"}, plan, (), False, None)
    assert usage["a"] == 0
    assert client.arrived["a"] == ["leave"]
    assert not router_of(client).is_routed(made[0].run)


def test_a_mistake_on_the_event_loop_is_logged_and_becomes_an_event(client, supervisor, monkeypatch, caplog):
    monkeypatch.setattr(client, "run", lambda *arguments, **options: 1 / 0)
    supervisor.post({"do": "members"}, ["a"])
    event = supervisor.queue.get()
    assert isinstance(event, InternalError)
    assert isinstance(event.error, ZeroDivisionError)
    assert "An order to roles" in caplog.text
