"""How a run reaches its roles: one plugin of the run on every Dask worker that plays for it.

Commands arrive on the worker's event loop and are handed to the role's own thread, which looks between two effects. A
ticker makes roles report about ten times a second, beats for roles that are busy, and ends roles whose client has
vanished.

The plugin comes with the run's first role on that worker and goes with the last. It is not registered with the
scheduler: that waits for every worker of the cluster, one that is frozen included, and would outlive a client that was
killed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Worker, WorkerPlugin
from tornado.ioloop import PeriodicCallback

__all__ = ["TOPIC", "Mailbox", "Slot", "check_in", "check_out", "deliver", "plugin_name"]

TOPIC = "labkit"
TICK_MS = 100
BEAT_S = 0.5


class Slot:
    """One role's letter box. `flag` is up when the role should look; its thread alone takes things out."""

    def __init__(self, run: str, role: str, incarnation: int, key: str, report: Callable[[dict[str, Any]], None]):
        self.run, self.role, self.incarnation, self.key, self._report = run, role, incarnation, key, report
        self.flag = False
        self.tick = False
        self.wake: Callable[[], None] = lambda: None
        self.arrived = threading.Event()
        self.last_report = time.monotonic()
        self._commands: deque[dict[str, Any]] = deque()

    def post(self, command: dict[str, Any]) -> None:
        """Hand a command to the role (from the event loop)."""
        self._commands.append(command)
        self.flag = True
        self.arrived.set()
        self.wake()

    def take(self) -> Iterator[dict[str, Any]]:
        """One by one, the commands that have come (in the role's thread). Who stops in between leaves the rest."""
        self.flag = False
        self.arrived.clear()
        try:
            while self._commands:
                yield self._commands.popleft()
        finally:
            self.flag = bool(self._commands)

    def report(self, what: str, **more: Any) -> None:
        """Tell the client. Never blocks."""
        self.last_report = time.monotonic()
        self._report({"run": self.run, "role": self.role, "incarnation": self.incarnation, "what": what, **more})


def plugin_name(run: str) -> str:
    """Under which name the run's plugin is registered."""
    return f"labkit-{run}"


class Mailbox(WorkerPlugin):
    """The run's plugin on one Dask worker. Lives on its event loop."""

    def __init__(self, run: str):
        self.run, self.name = run, plugin_name(run)

    def setup(self, worker: Worker) -> None:
        """The first role of the run is here."""
        self.worker = worker
        self.slots: dict[str, Slot] = {}
        self._ticker = PeriodicCallback(self._tick, TICK_MS)
        self._ticker.start()

    def teardown(self, worker: Worker) -> None:
        """The last role has gone, or the worker closes: whoever is still here has to go."""
        self._ticker.stop()
        for slot in self.slots.values():
            slot.post({"do": "leave", "why": "the cluster closed"})

    def _tick(self) -> None:
        now = time.monotonic()
        for slot in list(self.slots.values()):
            task = self.worker.state.tasks.get(slot.key)
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                slot.post({"do": "leave", "why": "nobody waits for this run any more"})
                continue
            slot.tick = slot.flag = True
            slot.wake()
            if now - slot.last_report > BEAT_S:
                slot.report("beat")


async def check_in(worker: Worker, run: str, role: str, incarnation: int, key: str) -> Slot:
    """A letter box for a role that starts on `worker`; the plugin comes with it. Runs on the worker's event loop."""
    box = worker.plugins.get(plugin_name(run))
    if box is None:
        box = Mailbox(run)
        await worker.plugin_add(box, name=box.name)
    assert isinstance(box, Mailbox)
    slot = Slot(run, role, incarnation, key, lambda message: worker.log_event(TOPIC, message))
    box.slots[role] = slot
    return slot


async def check_out(worker: Worker, slot: Slot) -> None:
    """The role of `slot` has gone, and the plugin with the last. Runs on the worker's event loop."""
    box = worker.plugins.get(plugin_name(slot.run))
    if isinstance(box, Mailbox) and box.slots.get(slot.role) is slot:
        del box.slots[slot.role]
        if not box.slots:
            await worker.plugin_remove(name=box.name)


def deliver(run: str, role: str | None, command: dict[str, Any], dask_worker: Any = None) -> bool:
    """Run on a Dask worker by the client: hand `command` to `role`, or to every role here. False if it is not here."""
    box = dask_worker.plugins.get(plugin_name(run))
    slots = [] if box is None else [s for s in list(box.slots.values()) if role is None or s.role == role]
    for slot in slots:
        slot.post(command)
    return bool(slots)
