"""How a run reaches its roles: one plugin per run on every Dask worker.

Commands arrive on the worker's event loop and are handed to the role's own thread, which looks between two effects. A ticker
makes roles report about ten times a second, beats for roles that are busy, and ends roles whose client has vanished.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from distributed import Worker, WorkerPlugin
from tornado.ioloop import PeriodicCallback

__all__ = ["TOPIC", "Mailbox", "Slot", "deliver", "plugin_name"]

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

    def take(self) -> list[dict[str, Any]]:
        """All commands that have come (in the role's thread)."""
        self.flag = False
        self.arrived.clear()
        taken = []
        while self._commands:
            taken.append(self._commands.popleft())
        return taken

    def report(self, what: str, **more: Any) -> None:
        """Tell the client. Never blocks."""
        self.last_report = time.monotonic()
        self._report({"run": self.run, "role": self.role, "incarnation": self.incarnation, "what": what, **more})


def plugin_name(run: str) -> str:
    """Under which name the run's plugin is registered."""
    return f"labkit-{run}"


class Mailbox(WorkerPlugin):
    """The run's plugin on one Dask worker."""

    def __init__(self, run: str):
        self.run, self.name = run, plugin_name(run)

    def setup(self, worker: Worker) -> None:
        """Called by Dask on every worker, also on those that join later."""
        self.worker = worker
        self.slots: dict[str, Slot] = {}
        self._ticker = PeriodicCallback(self._tick, TICK_MS)
        self._ticker.start()

    def teardown(self, worker: Worker) -> None:
        """Called when the run is over or the worker closes: whoever is still here has to go."""
        self._ticker.stop()
        for slot in self.slots.values():
            slot.post({"do": "end", "why": "the cluster closed"})

    def open(self, role: str, incarnation: int, key: str) -> Slot:
        """A letter box for a role that starts here (called in the role's thread)."""
        slot = Slot(self.run, role, incarnation, key, lambda message: self.worker.log_event(TOPIC, message))
        self.slots[role] = slot
        return slot

    def shut(self, role: str) -> None:
        """The role has gone."""
        self.slots.pop(role, None)

    def _tick(self) -> None:
        now = time.monotonic()
        for slot in list(self.slots.values()):
            task = self.worker.state.tasks.get(slot.key)
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                slot.post({"do": "end", "why": "nobody waits for this run any more"})
                continue
            slot.tick = slot.flag = True
            slot.wake()
            if now - slot.last_report > BEAT_S:
                slot.report("beat")


def deliver(run: str, role: str | None, command: dict[str, Any], dask_worker: Any = None) -> bool:
    """Run on a Dask worker by the client: hand `command` to `role`, or to every role here. False if it is not here."""
    box = dask_worker.plugins.get(plugin_name(run))
    slots = [] if box is None else [s for s in list(box.slots.values()) if role is None or s.role == role]
    for slot in slots:
        slot.post(command)
    return bool(slots)
