"""The network namespaces of these tests: hosts are isolated, cables can be pulled, and everything is removed afterwards."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.multihost import net

PING = "import socket,sys; socket.create_connection((sys.argv[1], 7), 1).close()"
LISTENER = """
import socket
door = socket.create_server(("", 7))
print("open", flush=True)
while True:
    door.accept()[0].close()
"""
KILLED = """
import os, signal, subprocess; from tests.multihost import net
network = net.Network(1)
command = ["sh", "-c", "echo up; exec sleep 1000"]
sleeper = network.hosts[0].spawn(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
sleeper.stdout.readline()
print(network.name, *network.hosts[0].processes, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def reaches(here, there):
    """Whether a connection from one host to the other opens within a second."""
    done = here.spawn([sys.executable, "-c", PING, there.address], stderr=subprocess.DEVNULL)
    return done.wait() == 0


@pytest.fixture
def listener(hosts):
    """A listening socket on the second host."""
    listening = hosts[1].spawn([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True)
    assert listening.stdout.readline() == "open\n"
    return hosts[1]


def test_hosts_reach_each_other_and_not_this_machine(network, hosts, listener):
    assert reaches(hosts[0], listener)
    assert reaches(network.head, listener)
    assert not reaches(hosts[0], hosts[2])  # no process listens there: each host has separate ports
    asked = [host.spawn(["readlink", "/proc/self/ns/net"], stdout=subprocess.PIPE, text=True) for host in hosts]
    assert len({os.readlink("/proc/self/ns/net"), *(one.stdout.read().strip() for one in asked)}) == 4


def test_an_unplugged_host_is_reconnected(hosts, listener):
    listener.unplug()
    assert not reaches(hosts[0], listener)
    assert reaches(listener, listener)  # it is unchanged
    listener.plug()
    assert reaches(hosts[0], listener)


def test_a_host_that_is_closed_to_another_reaches_the_others(network, hosts, listener):
    hosts[0].close_to(listener)
    assert not reaches(hosts[0], listener)
    assert reaches(network.head, listener)
    assert reaches(hosts[2], listener)
    hosts[0].open_to(listener)
    assert reaches(hosts[0], listener)


def test_the_switch_counts_what_a_host_sends(hosts, listener):
    before = hosts[0].sent
    assert reaches(hosts[0], listener)
    assert 0 < hosts[0].sent - before < 10_000


def test_a_closed_network_leaves_no_process_and_no_namespace():
    with net.Network(2) as network:
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
        started = network.hosts[0].spawn([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, text=True)
        assert started.stdout.readline() == "up\n"
        assert started.pid in network.hosts[0].processes
        assert len(net.left()) >= 4
    assert started.returncode is not None
    assert not [name for name in net.left() if name.startswith(network.name)]


def test_a_network_that_failed_to_start_leaves_nothing(monkeypatch):
    before = net.left()
    monkeypatch.setattr(net, "SUBNET", "not an address")
    with pytest.raises(RuntimeError, match="address"):
        net.Network(1)
    assert net.left() == before


def test_leftovers_of_a_killed_test_are_removed_and_networks_in_use_are_kept(network):
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=env, check=False)
    name, left = done.stdout.split()
    net.ip("netns", "add", "labkit-of-somebody-else")
    try:
        swept = net.sweep()
        assert [one for one in swept if one.startswith(name)]
        assert "labkit-of-somebody-else" in net.ip("netns", "list")
    finally:
        net.ip("netns", "delete", "labkit-of-somebody-else")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(left)).wait()
    assert all(host.namespace in net.left() for host in network.all)
