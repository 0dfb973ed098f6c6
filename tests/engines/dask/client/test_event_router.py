"""Routing of events of a Dask cluster to runs; no cluster is needed."""

import logging
from queue import Empty

import pytest

from labkit.engines.dask.client import recovery_events
from labkit.engines.dask.client.event_router import EventRouter, router_of
from labkit.engines.dask.worker.command_channel import TOPIC, CommandChannel


class Client:
    """Stub of Dask's client: one handler per topic."""

    def __init__(self):
        self.status, self.handlers = "running", {}
        self._event_handlers = self.handlers

    def subscribe_topic(self, topic, handler):
        self.handlers[topic] = handler

    def unsubscribe_topic(self, topic):
        del self.handlers[topic]

    def hear(self, topic, message):
        return self.handlers[topic]((0.0, message))


def left(queue):
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found


UP = {"address": ["127.0.0.1", 1, "key"], "process": ["boot", 2, 3.0], "restored": [], "saved_at": None, "version": 4}
COUNTS = {"sent": 3, "received": 4, "flow": 5, "finishing": False, "unanswered": {}}
BATCH = {"batch": {"until": 1}, "change": 2, "waiting": ["Weights"], "only": None, **COUNTS}
REPORTS = [
    ("up", UP, recovery_events.RoleUp),
    ("batch", BATCH, recovery_events.Report),
    ("heartbeat", {}, recovery_events.Heartbeat),
    ("returned", {"verdict": "accuracy"}, recovery_events.Returned),
    ("failed", {"report": {"type": "ZeroDivisionError"}}, recovery_events.RoleFailed),
    ("version", {"version": 5}, recovery_events.VersionReported),
    ("stepped", {}, recovery_events.Stepped),
    ("ended", {}, recovery_events.RoleEnded),
    ("departed", {"report": {}, "retired": True}, recovery_events.Departed),
]


@pytest.mark.parametrize(("what", "values", "kind"), REPORTS, ids=[what for what, _, _ in REPORTS])
def test_a_report_of_a_role_becomes_an_event_of_its_run(what, values, kind):
    client = Client()
    router = EventRouter(client)
    queue, others = router.open("run"), router.open("other")
    slot = CommandChannel("run", "worker-0", 7, "key", lambda plain: client.hear(TOPIC, plain))
    slot.report(what, **values)
    assert left(queue) == [kind("worker-0", 7, **values)]
    assert left(others) == []


@pytest.mark.parametrize("plain", [{"what": "nonsense"}, {"what": "version"}], ids=["unknown", "incomplete"])
def test_a_report_that_cannot_be_read_is_logged_and_ends_the_run(plain, caplog):
    client = Client()
    queue = EventRouter(client).open("run")
    with caplog.at_level(logging.ERROR, "labkit.engines.dask.client"):
        client.hear(TOPIC, {"run": "run", "role": "worker-0", "incarnation": 0, **plain})
    (event,) = left(queue)
    assert isinstance(event, recovery_events.InternalError)
    assert isinstance(event.error, KeyError)
    assert "could not be read" in caplog.text


def test_dask_workers_that_join_and_leave_concern_all_runs():
    client = Client()
    router = EventRouter(client)
    queues = [router.open("one"), router.open("two")]
    client.hear("all", {"action": "add-worker", "worker": "a"})
    client.hear("all", {"action": "remove-worker", "worker": "a", "expected": True})
    client.hear("worker-restart-memory", {"worker": "b", "pid": 7, "rss": 2_500_000_000})
    client.hear("all", {"action": "remove-worker", "worker": "b"})
    client.hear("all", {"action": "something else"})
    client.hear("all", "no dict")
    how = "ended by its nanny, because it used 2.5 GB of memory"
    first, second = recovery_events.WorkerLeft("a", True), recovery_events.WorkerLeft("b", False, how)
    expected = [recovery_events.WorkerJoined("a"), first, second]
    assert [left(queue) for queue in queues] == [expected, expected]


@pytest.mark.parametrize("topic", ["all", "worker-restart-memory"])
def test_a_handler_that_was_there_before_is_called_and_put_back(topic):
    client, received = Client(), []
    client.subscribe_topic(topic, received.append)
    router = EventRouter(client)
    for run in ("one", "two"):
        router.open(run)
    client.hear(topic, {"action": "add-worker", "worker": "a"})
    assert len(received) == 1
    router.close("one")
    assert TOPIC in client.handlers
    router.close("two")
    router.close("two")
    assert client.handlers == {topic: received.append}


def test_the_last_run_takes_the_subscriptions_with_it_and_the_next_begins_anew():
    client = Client()
    router = router_of(client)
    assert router_of(client) is router
    for _ in range(2):
        router.open("run")
        assert set(client.handlers) == {TOPIC, "all", "worker-restart-memory"}
        router.close("run")
        assert client.handlers == {}
    router.open("run")
    client.status = "closed"
    router.close("run")
