"""Events of a cluster, sorted by run: one subscription per client, however many runs it has.

A Dask client has one handler a topic, and the scheduler sends every event of a topic to every subscriber. So there is
one fixed topic for all runs, and one `Dispatcher` on each client; it also hears of workers that come and go (topic `all`;
a handler that was there before is called as well, and put back). It unsubscribes when the last run is over, before the
client closes.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from distributed import Client

from .mailbox import TOPIC

__all__ = ["Dispatcher", "dispatcher_of"]

LOST = "all"
WORKERS = {"remove-worker": "worker lost", "add-worker": "worker came"}


class Dispatcher:
    """Hands each event to the queue of its run."""

    def __init__(self, client: Client):
        self.client = client
        self.queues: dict[str, SimpleQueue[dict[str, Any]]] = {}
        self.lock = threading.Lock()
        self._before: Any = None  # the user's own handler of the topic that we listen to

    def open(self, run: str) -> SimpleQueue[dict[str, Any]]:
        """From now on the events of `run` come into this queue."""
        with self.lock:
            if not self.queues:
                before = getattr(self.client, "_event_handlers", {}).get(LOST)
                self._before = None if before == self._on_membership else before
                self.client.subscribe_topic(TOPIC, self._on_report)
                self.client.subscribe_topic(LOST, self._on_membership)
            queue: SimpleQueue[dict[str, Any]] = SimpleQueue()
            self.queues[run] = queue
            return queue

    def shut(self, run: str) -> None:
        """Nobody listens for `run` any more."""
        with self.lock:
            if self.queues.pop(run, None) is not None and not self.queues and self.client.status == "running":
                self.client.unsubscribe_topic(TOPIC)
                if self._before is None:
                    self.client.unsubscribe_topic(LOST)
                else:
                    self.client.subscribe_topic(LOST, self._before)

    def _on_report(self, event: tuple[float, Any]) -> None:
        queue = self.queues.get(event[1].get("run", ""))
        if queue is not None:
            queue.put(event[1])

    def _on_membership(self, event: tuple[float, Any]) -> Any:
        message = event[1]
        what = WORKERS.get(str(message.get("action"))) if isinstance(message, dict) else None
        if what is not None:
            for queue in list(self.queues.values()):
                queue.put({"what": what, "worker": message["worker"], "expected": bool(message.get("expected"))})
        return None if self._before is None else self._before(event)


def dispatcher_of(client: Client) -> Dispatcher:
    """The client's one dispatcher."""
    found: Dispatcher = vars(client).setdefault("_labkit_dispatcher", Dispatcher(client))  # one, whoever asks first
    return found
