"""Clusters of several hosts, on one machine: see `net.py`.

Where namespaces cannot be created, these tests are skipped, with instructions how to enable them. With
`LABKIT_MULTIHOST=required` that is an error instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labkit as lk
from tests.multihost.client import Client
from tests.multihost.net import Host, Network, left, missing, sweep

HERE = Path(__file__).parent
ROOT = Path(lk.__file__).parent.parent
REQUIRED = os.environ.get("LABKIT_MULTIHOST") == "required"
PORT = 8786
CHEAP = {  # Dask workers are forked instead of importing everything, and take less processor time while they wait
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    why = missing() if here and not REQUIRED and not config.option.collectonly else ""
    for item in here:
        item.add_marker(pytest.mark.slow)
        if why:
            item.add_marker(pytest.mark.skip(reason=f"no hosts: {why}"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "/multihost/" in report.nodeid]
    if skipped:
        names = ", ".join(report.nodeid.rpartition("::")[2] for report in skipped)
        why = skipped[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"Tests of several hosts skipped: {names}: {why}", yellow=True)


class Cluster:
    """A Dask scheduler on the head and Dask workers, each with a nanny, on every other host; a client on the head.

    `client`: a program in which `lk` is labkit and `cluster` a `DaskCluster` on that scheduler.
    """

    def __init__(self, network: Network, folder: Path, each: int):
        self.network, self.folder = network, folder
        names = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        self._env = {**names, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **CHEAP}
        self.address = f"tcp://{network.head.address}:{PORT}"
        self._dask(network.head, "scheduler", "--host", network.head.address, "--port", str(PORT), "--no-dashboard")
        for host in network.hosts:
            self.add_workers(host, each)
        self.client = Client(network.head, self._env)
        self.client.do("import labkit as lk; from tests.multihost import ledgers")
        self.client.do(f"cluster = lk.DaskCluster({self.address!r}, workers=3, servers=1)")
        self._await_workers(each * len(network.hosts))

    def _dask(self, host: Host, what: str, *arguments: str) -> None:
        with open(self.folder / f"{host.name}-{what}.log", "ab") as log:
            host.spawn(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments],
                env=self._env,
                stdout=log,
                stderr=log,
            )

    def add_workers(self, host: Host, count: int) -> None:
        """Start Dask workers on a host, of one thread each."""
        self._dask(
            host, "worker", self.address, "--host", host.address, "--nworkers", str(count), "--nthreads", "1",
            "--nanny", "--no-dashboard", "--local-directory", str(self.folder),
        )  # fmt: skip

    def _await_workers(self, count: int) -> None:
        self.client.do(f"cluster.client.wait_for_workers({count})")

    def hosts_of_roles(self) -> dict[str, Host]:
        """The host of every role of `run`, now."""
        where = self.client.ask("dict(run.engine.members.where)")
        return {role: self.network.host(address) for role, address in where.items()}


@pytest.fixture(scope="package", autouse=True)
def _swept() -> Iterator[None]:
    """Remove leftovers of killed tests first; assert that none is left at the end."""
    if missing():
        yield
        return
    sweep()
    yield
    assert left() == []


@pytest.fixture
def network() -> Iterator[Network]:
    """A head and three hosts."""
    with Network(3) as made:
        yield made


@pytest.fixture
def hosts(network: Network) -> list[Host]:
    """Three hosts."""
    return network.hosts


@pytest.fixture(scope="package")  # processes of Dask's command line take a quarter of a core while they wait
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three hosts with two Dask workers each. For tests that leave it as it was: each link that they close is open again."""
    with Network(3) as network:
        yield Cluster(network, tmp_path_factory.mktemp("multihost"), 2)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The same, for tests that pull cables."""
    with Network(3) as network:
        yield Cluster(network, tmp_path, 2)
