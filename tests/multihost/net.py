"""Several hosts on one machine: Linux network namespaces, each connected to a common switch.

    with Network(3) as network:
        network.hosts[0].spawn([sys.executable, "-m", "http.server"])
        network.hosts[0].unplug()

Everything is created inside namespaces whose names contain their creator (process number and start time), so it does
not conflict with anything else on the machine. Leaving the block ends every process in them and removes them; what a
killed test left behind is removed by the next `sweep()`. Importable on any system; needs root, Linux and `ip`.

Pulling a cable takes down the port of the *switch*: the host keeps its address and its routes, and receives nothing.
No connection is reset, in contrast to a killed process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PREFIX = "labkit"
SUBNET = "10.86.0"  # the same in every network: no two of them are connected
HOW = "run as root on Linux with iproute2 (apt-get install iproute2), where `ip netns add` is allowed"


def ip(*arguments: str, check: bool = True) -> str:
    """Run `ip`; return what it printed."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def missing() -> str:
    """The reason why namespaces cannot be created here, or ""."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's: {HOW}"
    if os.geteuid() != 0:
        return f"not root: {HOW}"
    if shutil.which("ip") is None:
        return f"there is no `ip`: {HOW}"
    try:
        with Network(1):
            return ""
    except (RuntimeError, subprocess.SubprocessError) as error:
        return f"{error}: {HOW}"


def sweep() -> list[str]:
    """Remove the namespaces whose creators are gone; return their names."""
    stale = [name for name in _names() if name.startswith(f"{PREFIX}-") and not _alive(name)]
    for name in stale:
        _remove(name)
    return stale


def left() -> list[str]:
    """The existing namespaces of this process."""
    return [name for name in _names() if name.startswith(f"{_me()}-")]


class Host:
    """One machine: a namespace with one cable. `address` is its address in the network."""

    def __init__(self, network: Network, name: str, number: int):
        self.network, self.name, self.namespace = network, name, f"{network.name}-{name}"
        self.address, self._port = f"{SUBNET}.{number + 1}", f"port{number}"
        ip("netns", "add", self.namespace)
        self._ip("link", "set", "lo", "up")
        other_end = ("peer", "name", "eth0", "netns", self.namespace)
        ip("-n", network.switch, "link", "add", self._port, "type", "veth", *other_end)
        self._ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self._ip("link", "set", "eth0", "up")
        ip("-n", network.switch, "link", "set", self._port, "master", "switch", "up")

    def _ip(self, *arguments: str) -> str:
        return ip("-n", self.namespace, *arguments)

    def spawn(self, arguments: list[str], **more: Any) -> subprocess.Popen[Any]:
        """Start a program on this host. It and its descendants end with the network at the latest."""
        started = subprocess.Popen(["ip", "netns", "exec", self.namespace, *arguments], start_new_session=True, **more)
        self.network.started.append(started)
        return started

    @property
    def processes(self) -> list[int]:
        """Identifiers of the processes that run on this host."""
        return _processes(self.namespace)

    def unplug(self) -> None:
        """Pull the cable: all packets are dropped, and no connection is reset."""
        ip("-n", self.network.switch, "link", "set", self._port, "down")

    def plug(self) -> None:
        """Put the cable back."""
        ip("-n", self.network.switch, "link", "set", self._port, "up")

    def close_to(self, other: Host) -> None:
        """Lose all packets from this host to another one: they go to an address that no cable has."""
        self._ip(
            "neighbour", "replace", other.address, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"
        )

    def open_to(self, other: Host) -> None:
        """Lose no more packets to the other host."""
        self._ip("neighbour", "delete", other.address, "dev", "eth0")

    def limit(self, rate: str, burst: str = "4kb") -> None:
        """Limit the bandwidth of both directions of the cable, as "100mbit". Raises `RuntimeError` if the kernel cannot."""
        for namespace, device in ((self.namespace, "eth0"), (self.network.switch, self._port)):
            command = [
                "tc",
                "-n",
                namespace,
                "qdisc",
                "add",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                burst,
            ]
            done = subprocess.run(
                [*command, "latency", "200ms"], capture_output=True, text=True, check=False
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"the bandwidth of a link cannot be limited: {done.stderr.strip()}")

    @property
    def sent(self) -> int:
        """Bytes sent through the cable so far, including headers, as counted by the switch."""
        (found,) = json.loads(ip("-n", self.network.switch, "-j", "-s", "link", "show", "dev", self._port))
        return int(found["stats64"]["rx"]["bytes"])


class Network:
    """A switch, a host called `head`, and the given number of further hosts."""

    _numbers = itertools.count()

    def __init__(self, hosts: int):
        self.name = f"{_me()}-{next(Network._numbers)}"
        self.switch = f"{self.name}-switch"
        self.started: list[subprocess.Popen[Any]] = []
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._remove)
        with self._stack:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "switch", "up", "type", "bridge")
            self.head = Host(self, "head", 0)
            self.hosts = [Host(self, f"host{i}", i + 1) for i in range(hosts)]
            self._stack = self._stack.pop_all()

    @property
    def all(self) -> list[Host]:
        """The head and the others."""
        return [self.head, *self.hosts]

    def host(self, address: str) -> Host:
        """The host with this address (or a Dask worker's: `tcp://10.86.0.2:34567`)."""
        plain = address.rpartition("//")[2].partition(":")[0]
        return next(host for host in self.all if host.address == plain)

    def _remove(self) -> None:
        for name in _names():
            if name.startswith(f"{self.name}-"):
                _remove(name)
        for started in self.started:
            started.wait()
            for pipe in (started.stdin, started.stdout, started.stderr):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


def _me() -> str:
    """Prefix of this process's namespaces: process number and start time, since process numbers are reused."""
    return f"{PREFIX}-{os.getpid()}-{_start(os.getpid())}"


def _start(number: int) -> str:
    """When a process was started, in kernel ticks since boot; "" if it is gone."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _alive(name: str) -> bool:
    """Whether the creator of a namespace still runs; True for names in another format, which belong to other programs."""
    parts = name.split("-")
    if len(parts) != 5 or not (parts[1].isdigit() and parts[2].isdigit()):
        return True
    return _start(int(parts[1])) == parts[2]


def _names() -> list[str]:
    return [line.split()[0] for line in ip("netns", "list", check=False).splitlines() if line.strip()]


def _processes(namespace: str) -> list[int]:
    return [int(number) for number in ip("netns", "pids", namespace, check=False).split()]


def _remove(namespace: str) -> None:
    """End every process in a namespace, also those started meanwhile, and remove the namespace."""
    while running := _processes(namespace):
        for number in running:
            with contextlib.suppress(ProcessLookupError), os.fdopen(os.pidfd_open(number)) as process:
                os.kill(number, signal.SIGKILL)
                select.select([process], [], [])  # until it has ended
    ip("netns", "delete", namespace, check=False)
    Path("/run/netns", namespace).unlink(missing_ok=True)
