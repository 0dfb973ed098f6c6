"""Routes events of a Dask cluster to the queues of the runs on it. A client has one subscription for all its runs.

A Dask client has one handler per topic, and the scheduler sends every event of a topic to every subscriber. So all runs
share one fixed topic, and each client has one `EventRouter`. The router also receives events of Dask workers that join
and leave (topic `all`), and of processes that a nanny ends because of their memory. If one of these topics has another
handler already, that handler is called as well, and is restored in the end. The router unsubscribes when the last run has
ended, before the client closes.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Any

from distributed import Client

from ..worker.command_channel import TOPIC
from .recovery_events import InternalError, RecoveryEvent, WorkerJoined, WorkerLeft, read_report

WORKERS = "all"  # Dask's own topic
# the topic on which Dask's nannies report that they end a process because of its memory
MEMORY = "worker-restart-memory"
log = logging.getLogger("labkit.engines.dask.client")


class EventRouter:
    """The event router of one client. Any thread may call `open` and `close`; events arrive on the client's thread."""

    def __init__(self, client: Client):
        self._client = client
        self._queues: dict[str, SimpleQueue[RecoveryEvent]] = {}
        self._lock = threading.Lock()
        self._before: dict[str, Any] = {}  # {topic of Dask: the user's own handler, or None}
        self._memory: dict[str, str] = {}  # {Dask worker that its nanny ends: its memory, as text}

    def open(self, run: str) -> SimpleQueue[RecoveryEvent]:
        with self._lock:
            if not self._queues:
                self._client.subscribe_topic(TOPIC, self._on_report)
                for topic, handler in ((WORKERS, self._on_workers), (MEMORY, self._on_memory)):
                    before = getattr(self._client, "_event_handlers", {}).get(topic)
                    self._before[topic] = None if before == handler else before
                    self._client.subscribe_topic(topic, handler)
            queue: SimpleQueue[RecoveryEvent] = SimpleQueue()
            self._queues[run] = queue
            return queue

    def close(self, run: str) -> None:
        with self._lock:
            if self._queues.pop(run, None) is not None and not self._queues and self._client.status == "running":
                self._client.unsubscribe_topic(TOPIC)
                for topic, before in self._before.items():
                    if before is None:
                        self._client.unsubscribe_topic(topic)
                    else:
                        self._client.subscribe_topic(topic, before)

    def is_routed(self, run: str) -> bool:
        return run in self._queues

    def _on_report(self, event: tuple[float, Any]) -> None:
        plain = event[1]
        queue = self._queues.get(plain.get("run", ""))
        if queue is None:
            return
        try:
            queue.put(read_report(plain))
        except Exception as error:
            log.exception("A report could not be read: %r", plain)
            queue.put(InternalError(error))

    def _on_workers(self, event: tuple[float, Any]) -> Any:
        message = event[1]
        action = message.get("action") if isinstance(message, dict) else None
        if action in ("add-worker", "remove-worker"):
            worker = message["worker"]
            how = self._memory.pop(worker, "")
            joined = action == "add-worker"
            found = WorkerJoined(worker) if joined else WorkerLeft(worker, bool(message.get("expected")), how)
            for queue in list(self._queues.values()):
                queue.put(found)
        return self._pass_on(WORKERS, event)

    def _on_memory(self, event: tuple[float, Any]) -> Any:
        message = event[1]
        if isinstance(message, dict) and "worker" in message:
            used = int(message.get("rss", 0)) / 1e9
            self._memory[message["worker"]] = f"ended by its nanny, because it used {used:.2g} GB of memory"
        return self._pass_on(MEMORY, event)

    def _pass_on(self, topic: str, event: tuple[float, Any]) -> Any:
        before = self._before.get(topic)
        return None if before is None else before(event)


def router_of(client: Client) -> EventRouter:
    """Return the router of a client, which is created at the first call."""
    found: EventRouter = vars(client).setdefault(
        "_labkit_router", EventRouter(client)
    )  # `setdefault` is atomic, so all threads get the same router
    return found
