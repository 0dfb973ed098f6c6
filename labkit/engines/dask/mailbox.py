"""How a run reaches its roles: one plugin of the run on every Dask worker that plays for it.

Commands arrive on the worker's event loop and are handed to the role's own thread, which looks between two effects. A
ticker makes roles report about ten times a second, beats for roles that are busy, and ends roles whose client has
vanished.

The plugin comes with the run's first role on that worker and goes with the last. It is not registered with the
scheduler: that waits for every worker of the cluster, one that is frozen included, and would outlive a client that was
killed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Status, Worker, WorkerPlugin
from tornado.ioloop import PeriodicCallback

from .timeouts import LEAVE_S

__all__ = ["TOPIC", "Mailbox", "Slot", "check_in", "check_out", "deliver", "plugin_name"]

TOPIC = "labkit"
TICK_MS = 100
BEAT_S = 0.5
ALONE_S = 25.0  # after which a role that is cut off looks whether anybody still waits for it
HELD = 1000  # reports that a role which is cut off keeps back; the oldest go


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
        self.cut_at = 0.0
        self.box: Mailbox | None = None  # that it hangs in
        self.retired = False  # Dask is about to close this worker, and the role knows
        self.cut = False  # from everybody, the client too: nothing goes in or out
        self._held: deque[dict[str, Any]] = deque(maxlen=HELD)
        self._shut_out: list[dict[str, Any]] = []

    def post(self, command: dict[str, Any]) -> None:
        """Hand a command to the role (from the event loop)."""
        if command["do"] == "impair":
            if command["alone"] != self.cut:
                self._cut(command["alone"])
        elif self.cut and command["do"] != "leave":
            self._shut_out.append(command)
            return
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
        said = {"run": self.run, "role": self.role, "incarnation": self.incarnation, "what": what, **more}
        (self._held.append if self.cut else self._report)(said)

    def _cut(self, cut: bool) -> None:
        """Cut off, or together again: what was said and heard meanwhile arrives now."""
        self.cut, self.cut_at = cut, time.monotonic()
        if not cut:
            while self._held:
                self._report(self._held.popleft())
            self.report("beat")
            self._commands.extend(self._shut_out)
            self._shut_out.clear()


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
        self.slots: dict[tuple[str, int], Slot] = {}  # by role and incarnation
        self._ticker = PeriodicCallback(self._tick, TICK_MS)
        self._ticker.start()

    async def teardown(self, worker: Worker) -> None:
        """The last role has gone, or the worker closes: whoever is still here takes its leave, and is waited for."""
        self._ticker.stop()
        for slot in self.slots.values():
            self._retire(slot)
        until = time.monotonic() + LEAVE_S
        while self.slots and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for slot in self.slots.values():
            slot.post({"do": "leave", "why": "the cluster closed"})

    def _retire(self, slot: Slot) -> None:
        if not slot.retired:
            slot.retired = True
            slot.post({"do": "depart", "retired": True})

    def _tick(self) -> None:
        now = time.monotonic()
        for slot in list(self.slots.values()):
            task = self.worker.state.tasks.get(slot.key)
            if slot.cut and now - slot.cut_at < ALONE_S:  # as a machine without its cable: nobody hears it
                continue
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                slot.post({"do": "leave", "why": "nobody waits for this run any more"})
                continue
            if self.worker.status is Status.closing_gracefully:
                self._retire(slot)
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
    box.slots[role, incarnation], slot.box = slot, box
    return slot


async def check_out(worker: Worker, slot: Slot) -> None:
    """The role of `slot` has gone, and the plugin with the last. Runs on the worker's event loop."""
    box, key = slot.box, (slot.role, slot.incarnation)
    if box is not None and box.slots.get(key) is slot:
        del box.slots[key]
        if not box.slots and worker.plugins.get(box.name) is box:
            await worker.plugin_remove(name=box.name)


def deliver(
    run: str, role: str | None, command: dict[str, Any], incarnation: int | None = None, dask_worker: Any = None
) -> bool:  # fmt: skip
    """Run on a Dask worker by the client: hand `command` to `role`, or to every role here. False if it is not here.

    `incarnation`: only to this life of it.
    """
    box = dask_worker.plugins.get(plugin_name(run))
    slots = [] if box is None else [s for s in list(box.slots.values()) if role is None or s.role == role]
    slots = [s for s in slots if incarnation is None or s.incarnation == incarnation]
    for slot in slots:
        slot.post(command)
    return bool(slots)
