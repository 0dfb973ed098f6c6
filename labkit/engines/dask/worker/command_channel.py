"""The command channel of a run: one plugin on every Dask worker that has roles of the run, and in it a channel for each role.

Commands of the client arrive on the worker's event loop and wait in the role's channel; the role's own thread carries them out
between two effects. A ticker has roles report about ten times a second, sends a heartbeat for roles that are busy, and ends
roles whose client has vanished.

The plugin comes with the run's first role on that worker and goes with the last. It is not registered with the scheduler: that
waits for every worker of the cluster, one that is frozen included, and would outlive a client that was killed.
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

from ..timeouts import LEAVE_S

__all__ = [
    "BEAT_S", "TOPIC", "Command", "CommandChannel", "RunPlugin", "check_in", "check_out", "deliver", "plugin_name",
]  # fmt: skip

Command = dict[str, Any]  # as it travels: plain values; "do" is what is to be done

TOPIC = "labkit"
TICK_MS = 100
BEAT_S = 0.5
ISOLATED_S = 25.0  # after which a role that is cut off checks whether its task still exists
MOST_UNSENT = 1000  # reports that a role which is cut off keeps back; the oldest are dropped


class CommandChannel:
    """Commands to one role instance, and its reports to the client.

    Commands are posted by the worker's event loop and taken by the role's thread alone. `pending`: there is something to do,
    and `report_due`: a report is part of it. `posted` is set while commands wait. `wake` ends the role's wait for messages.
    """

    def __init__(self, run: str, role: str, incarnation: int, key: str, send: Callable[[dict[str, Any]], None]):
        self.run, self.role, self.incarnation, self.key, self._send = run, role, incarnation, key, send
        self.pending = self.report_due = False
        self.wake: Callable[[], None] = lambda: None
        self.posted = threading.Event()
        self.last_report = time.monotonic()
        self.plugin: RunPlugin | None = None  # that it belongs to
        self.retired = False  # Dask is about to close this worker, and the role was told to leave
        self.isolated, self.isolated_at = False, 0.0  # cut off from all others and from the client
        self._commands: deque[Command] = deque()
        self._unsent: deque[dict[str, Any]] = deque(maxlen=MOST_UNSENT)  # reports, while it is isolated
        self._kept_out: list[Command] = []

    def post(self, command: Command) -> None:
        """Have a command carried out by the role (called on the event loop)."""
        if command["do"] == "impair":
            if command["alone"] != self.isolated:
                self._isolate(command["alone"])
        elif self.isolated and command["do"] != "leave":
            self._kept_out.append(command)
            return
        self._commands.append(command)
        self.pending = True
        self.posted.set()
        self.wake()

    def commands(self) -> Iterator[Command]:
        """Take the commands that wait, one by one (in the role's thread). A caller that stops in between leaves the rest."""
        self.pending = False
        self.posted.clear()
        try:
            while self._commands:
                yield self._commands.popleft()
        finally:
            self.pending = bool(self._commands)

    def report(self, what: str, **more: Any) -> None:
        """Send a report to the client. Never blocks."""
        self.last_report = time.monotonic()
        report = {"run": self.run, "role": self.role, "incarnation": self.incarnation, "what": what, **more}
        (self._unsent.append if self.isolated else self._send)(report)

    def _isolate(self, isolated: bool) -> None:
        """Cut the role off, or connect it again: then reports and commands of the time in between arrive."""
        self.isolated, self.isolated_at = isolated, time.monotonic()
        if not isolated:
            while self._unsent:
                self._send(self._unsent.popleft())
            self.report("beat")
            self._commands.extend(self._kept_out)
            self._kept_out.clear()


def plugin_name(run: str) -> str:
    """Under which name the run's plugin is registered."""
    return f"labkit-{run}"


class RunPlugin(WorkerPlugin):
    """The run's plugin on one Dask worker. Lives on its event loop."""

    def __init__(self, run: str):
        self.run, self.name = run, plugin_name(run)

    def setup(self, worker: Worker) -> None:
        """The first role of the run is here."""
        self.worker = worker
        self.channels: dict[tuple[str, int], CommandChannel] = {}  # by role and incarnation
        self._ticker = PeriodicCallback(self._tick, TICK_MS)
        self._ticker.start()

    async def teardown(self, worker: Worker) -> None:
        """The last role has gone, or the worker closes: roles that are still here are told to leave, and waited for."""
        self._ticker.stop()
        for channel in self.channels.values():
            self._retire(channel)
        until = time.monotonic() + LEAVE_S
        while self.channels and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for channel in self.channels.values():
            channel.post({"do": "leave", "why": "the cluster closed"})

    def _retire(self, channel: CommandChannel) -> None:
        if not channel.retired:
            channel.retired = True
            channel.post({"do": "depart", "retired": True})

    def _tick(self) -> None:
        now = time.monotonic()
        for channel in list(self.channels.values()):
            task = self.worker.state.tasks.get(channel.key)
            if channel.isolated and now - channel.isolated_at < ISOLATED_S:  # as a machine without its cable
                continue
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                channel.post({"do": "leave", "why": "nobody waits for this run any more"})
                continue
            if self.worker.status is Status.closing_gracefully:
                self._retire(channel)
            channel.report_due = channel.pending = True
            channel.wake()
            if now - channel.last_report > BEAT_S:
                channel.report("beat")


async def check_in(worker: Worker, run: str, role: str, incarnation: int, key: str) -> CommandChannel:
    """The channel of a role instance that starts on `worker`, with task `key`. Runs on the worker's event loop."""
    plugin = worker.plugins.get(plugin_name(run))
    if plugin is None:
        plugin = RunPlugin(run)
        await worker.plugin_add(plugin, name=plugin.name)
    assert isinstance(plugin, RunPlugin)
    channel = CommandChannel(run, role, incarnation, key, lambda report: worker.log_event(TOPIC, report))
    plugin.channels[role, incarnation], channel.plugin = channel, plugin
    return channel


async def check_out(worker: Worker, channel: CommandChannel) -> None:
    """The role instance of `channel` has ended; the plugin goes with the last one. Runs on the worker's event loop."""
    plugin, key = channel.plugin, (channel.role, channel.incarnation)
    if plugin is not None and plugin.channels.get(key) is channel:
        del plugin.channels[key]
        if not plugin.channels and worker.plugins.get(plugin.name) is plugin:
            await worker.plugin_remove(name=plugin.name)


def deliver(
    run: str, role: str | None, command: Command, incarnation: int | None = None, dask_worker: Any = None
) -> bool:  # fmt: skip
    """Run on a Dask worker by the client: post `command` to `role`, or to every role here. False if there is no such role.

    `incarnation`: only to this instance of it.
    """
    plugin = dask_worker.plugins.get(plugin_name(run))
    channels = [] if plugin is None else [c for c in list(plugin.channels.values()) if role is None or c.role == role]
    channels = [c for c in channels if incarnation is None or c.incarnation == incarnation]
    for channel in channels:
        channel.post(command)
    return bool(channels)
