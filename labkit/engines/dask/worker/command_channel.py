"""The command channel of a run: one plugin on every Dask worker with roles of the run, with one channel per role.

Commands of the client arrive on the worker's event loop, and are queued in the role's channel. The role's thread
executes them between two effects. A ticker requests a report from each role about ten times per second, sends a
heartbeat for roles that are busy, and ends roles whose task no longer exists because the client has disconnected.

The plugin is added with the run's first role on that worker, and removed with the last. It is not registered with the
scheduler, because registration waits for every worker of the cluster, including frozen ones, and because a registered
plugin would outlive a client that was killed.
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

Command = dict[str, Any]  # plain values; "do" is the name of the command

TOPIC = "labkit"
TICK_MS = 100
HEARTBEAT_S = 0.5
ISOLATED_S = 25.0  # time after which the ticker checks whether the task of an isolated role still exists, seconds
MAX_UNSENT = 1000  # reports that are queued while a role is isolated; the oldest are dropped


class CommandChannel:
    """The queue of commands to one role instance, and the sender of its reports to the client.

    Only the worker's event loop posts commands, and only the role's thread takes them. `pending`: whether commands are
    queued or a report is due. `report_due`: whether a report is due. `posted`: set while commands are queued. `wake()`
    ends the role's wait for messages.
    """

    def __init__(self, run: str, role: str, incarnation: int, key: str, send: Callable[[dict[str, Any]], None]):
        self.run, self.role, self.incarnation, self.key, self._send = run, role, incarnation, key, send
        self.pending = self.report_due = False
        self.wake: Callable[[], None] = lambda: None
        self.posted = threading.Event()
        self.last_report = time.monotonic()
        self.plugin: RunPlugin | None = None  # the plugin that holds this channel
        self.retired = False  # Dask is closing this worker, and the role was ordered to leave
        self.isolated, self.isolated_at = False, 0.0  # cut off from all other roles and from the client
        self._commands: deque[Command] = deque()
        self._unsent: deque[dict[str, Any]] = deque(maxlen=MAX_UNSENT)  # reports queued while the role is isolated
        self._held_commands: list[Command] = []

    def post(self, command: Command) -> None:
        """Queue a command for the role (called on the event loop)."""
        if command["do"] == "link_faults":
            if command["isolated"] != self.isolated:
                self._isolate(command["isolated"])
        elif self.isolated and command["do"] != "leave":
            self._held_commands.append(command)
            return
        self._commands.append(command)
        self.pending = True
        self.posted.set()
        self.wake()

    def commands(self) -> Iterator[Command]:
        """Take the queued commands one by one. Called in the role's thread. Commands that are not taken stay in the queue."""
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
        """Isolate the role, or reconnect it. On reconnection, delivers the reports and commands of the time of isolation."""
        self.isolated, self.isolated_at = isolated, time.monotonic()
        if not isolated:
            while self._unsent:
                self._send(self._unsent.popleft())
            self.report("heartbeat")
            self._commands.extend(self._held_commands)
            self._held_commands.clear()


def plugin_name(run: str) -> str:
    """Return the name under which the run's plugin is registered."""
    return f"labkit-{run}"


class RunPlugin(WorkerPlugin):
    """The run's plugin on one Dask worker. Used only on the worker's event loop."""

    def __init__(self, run: str):
        self.run, self.name = run, plugin_name(run)

    def setup(self, worker: Worker) -> None:
        """Start the ticker. Called when the first role of the run starts on this worker."""
        self.worker = worker
        self.channels: dict[tuple[str, int], CommandChannel] = {}  # {(role, incarnation): channel}
        self._ticker = PeriodicCallback(self._tick, TICK_MS)
        self._ticker.start()

    async def teardown(self, worker: Worker) -> None:
        """Order the remaining roles to leave, and wait for them.

        Called after the last role has ended, or when the worker closes.
        """
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
            if channel.isolated and now - channel.isolated_at < ISOLATED_S:  # like on a machine without a network
                continue
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                channel.post({"do": "leave", "why": "the task was released"})
                continue
            if self.worker.status is Status.closing_gracefully:
                self._retire(channel)
            channel.report_due = channel.pending = True
            channel.wake()
            if now - channel.last_report > HEARTBEAT_S:
                channel.report("heartbeat")


async def open_channel(worker: Worker, run: str, role: str, incarnation: int, key: str) -> CommandChannel:
    """Open the channel of a role instance that starts on `worker` with task `key`. Runs on the worker's event loop."""
    plugin = worker.plugins.get(plugin_name(run))
    if plugin is None:
        plugin = RunPlugin(run)
        await worker.plugin_add(plugin, name=plugin.name)
    assert isinstance(plugin, RunPlugin)
    channel = CommandChannel(run, role, incarnation, key, lambda report: worker.log_event(TOPIC, report))
    plugin.channels[role, incarnation], channel.plugin = channel, plugin
    return channel


async def close_channel(worker: Worker, channel: CommandChannel) -> None:
    """Remove the channel of a role instance that has ended. Removes the plugin with its last channel. Runs on the event loop."""
    plugin, key = channel.plugin, (channel.role, channel.incarnation)
    if plugin is not None and plugin.channels.get(key) is channel:
        del plugin.channels[key]
        if not plugin.channels and worker.plugins.get(plugin.name) is plugin:
            await worker.plugin_remove(name=plugin.name)


def deliver(
    run: str, role: str | None, command: Command, incarnation: int | None = None, dask_worker: Any = None
) -> bool:  # fmt: skip
    """Post `command` to `role`, or to every role of the run on this Dask worker (None). The client runs this on the Dask worker.

    `incarnation`: post it only to this instance of `role`. Returns False if there is no such role.
    """
    plugin = dask_worker.plugins.get(plugin_name(run))
    channels = [] if plugin is None else [c for c in list(plugin.channels.values()) if role is None or c.role == role]
    channels = [c for c in channels if incarnation is None or c.incarnation == incarnation]
    for channel in channels:
        channel.post(command)
    return bool(channels)
