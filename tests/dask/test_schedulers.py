"""Existing Dask schedulers: by address, by client, encrypted, started by SSH, by a job queue, by a gateway.

Tests of packages that are not installed are skipped, with how to install them. `dask-kubernetes` needs a Kubernetes
cluster: its client is
a `Client` like the others, and it is not tested here.
"""

import contextlib
import functools
import gc
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

import labkit as lk
from tests.dask.helpers import closes, eventually, plugins

pytestmark = pytest.mark.slow
NODES = 4  # two workers, a server, and the chief


def needs(package, pip):
    why = f"{package} is not installed: pip install '{pip}'"
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=why)


def trains(client, encrypted=False):
    """Train both kinds of strategies on it; the ledger balances, and no state remains on the cluster."""
    client.wait_for_workers(NODES, timeout=180)
    with lk.DaskCluster(client, workers=2, servers=1) as cluster:
        for strategy, on in [
            (lk.AsyncPS(learning_rate=0.2), cluster),
            (lk.RingAllReduce(learning_rate=0.5), cluster.resized(servers=0)),
        ]:
            run = lk.train(lk.Problem("moons", hidden=(16,)), strategy, on, lk.Budget(updates=400), checkpoint=False)
            where = set(run.engine.supervisor.where.values())
            assert all(address.startswith("tls://") == encrypted for address in where), where
            assert run.wait(180).stopped_by == "updates"
            assert run.summary()["accuracy"] > 0.8
            closes(run)
        eventually(lambda: plugins(cluster.client) == {})


# TLS, by address and by client -------------------------------------------------------------------------------------------


@functools.cache
def temporary():
    """A self-signed certificate; clients that hold it are accepted."""
    return Security.temporary()


@contextlib.contextmanager
def encrypted():
    with LocalCluster(
        n_workers=NODES, threads_per_worker=1, dashboard_address=None, silence_logs=50, security=temporary(),
        protocol="tls://", host="127.0.0.1",
    ) as local:  # fmt: skip
        yield local


@needs("cryptography", "cryptography")
def test_an_encrypted_cluster_by_its_client():
    with encrypted() as local, Client(local, security=temporary(), set_as_default=False) as client:
        trains(client, encrypted=True)


@needs("cryptography", "cryptography")
def test_an_encrypted_cluster_without_the_certificate():
    with (
        encrypted() as local,
        lk.DaskCluster(local.scheduler_address, workers=1) as cluster,
        pytest.raises(lk.ClusterError, match="No Dask scheduler answers at 'tls://"),
    ):
        cluster.open()


@needs("cryptography", "cryptography")
def test_an_encrypted_cluster_by_address_with_certificates_in_dasks_settings(tmp_path):
    """Where Dask's own settings name the certificate, an address is enough: a program with `DASK_...` in its
    environment.
    """
    keys = temporary().get_tls_config_for_role("client")
    names = {"tls_ca_file": "CA_FILE", "tls_client_key": "CLIENT__KEY", "tls_client_cert": "CLIENT__CERT"}
    env = {**os.environ, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    values = {"tls_ca_file": keys["ca_file"], "tls_client_key": keys["key"], "tls_client_cert": keys["cert"]}
    for option, text in values.items():
        (tmp_path / option).write_text(text)
        env[f"DASK_DISTRIBUTED__COMM__TLS__{names[option]}"] = str(tmp_path / option)
    script = (
        "import sys, labkit as lk\n"
        "cluster = lk.DaskCluster(sys.argv[1], workers=1, servers=1)\n"
        "run = lk.train('moons', lk.AsyncPS(), cluster, lk.Budget(updates=50), checkpoint=False).wait(180)\n"
        "print(run.stopped_by, run.summary().book['closes'])\n"
    )
    with encrypted() as local:
        done = subprocess.run(
            [sys.executable, "-c", script, local.scheduler_address], env=env, capture_output=True, text=True,
            timeout=90, check=False,
        )  # fmt: skip
    assert done.stdout == "updates True\n", done.stderr


# SSH ---------------------------------------------------------------------------------------------------------------------

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@contextlib.contextmanager
def secure_shell(folder):
    """Start a private SSH daemon on this machine with new keys; the options to connect to it."""
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "allowed").write_text((folder / "mine.pub").read_text())
    port = free_port()
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/allowed\n"
        f"PidFile none\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(port))
        yield {"port": port, "known_hosts": None, "client_keys": [str(folder / "mine")]}
    finally:
        daemon.terminate()
        daemon.wait(180)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def answers(port):
    """Whether a process listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@needs("asyncssh", "asyncssh")
@pytest.mark.skipif(not os.path.exists(SSHD), reason="there is no sshd: apt-get install openssh-server")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="not root: sshd lets nobody in")
def test_a_cluster_by_ssh(tmp_path):
    from distributed import SSHCluster

    with (
        secure_shell(tmp_path) as options,
        SSHCluster(
            ["127.0.0.1"] * (NODES + 1), connect_options=options, remote_python=sys.executable,
            worker_options={"nthreads": 1}, scheduler_options={"port": 0, "dashboard": False},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        trains(client)


# a job queue ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def handlers():
    """Restores the signal handlers afterwards: `import dask_jobqueue` makes Ctrl-C end the program."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@needs("dask_jobqueue", "dask-jobqueue")
def test_a_cluster_of_jobs(tmp_path, handlers):
    """A queue whose jobs are local processes; Slurm and PBS differ only in how jobs are submitted."""
    from dask_jobqueue.local import LocalCluster as LocalJobs

    with (
        LocalJobs(
            cores=1, processes=1, memory="1GiB", local_directory=str(tmp_path), python=sys.executable,
            scheduler_options={"dashboard": False, "host": "127.0.0.1"}, silence_logs=50,
        ) as jobs,
        Client(jobs, set_as_default=False) as client,
    ):  # fmt: skip
        jobs.scale(jobs=NODES)
        trains(client)


# a gateway -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def gateway(folder):
    """A gateway that starts clusters as local processes; yields its address."""
    port = free_port()
    (folder / "config.py").write_text(
        "c.DaskGateway.backend_class = 'dask_gateway_server.backends.local.UnsafeLocalBackend'\n"
        f"c.DaskGateway.address = '127.0.0.1:{free_port()}'\n"
        f"c.Proxy.address = '127.0.0.1:{port}'\n"
        f"c.LocalBackend.clusters_directory = {str(folder)!r}\n"
        f"c.ClusterConfig.scheduler_cmd = [{sys.executable!r}, '-m', 'distributed.cli.dask_scheduler']\n"
        f"c.ClusterConfig.worker_cmd = [{sys.executable!r}, '-m', 'distributed.cli.dask_worker']\n"
        "c.ClusterConfig.worker_cores = 1\n"
    )
    program = shutil.which("dask-gateway-server", path=os.path.dirname(sys.executable)) or "dask-gateway-server"
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    with open(folder / "log", "wb") as log:
        started = subprocess.Popen(
            [program, "--config", str(folder / "config.py")], stdout=log, stderr=log, cwd=folder,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        try:
            eventually(lambda: healthy(f"http://127.0.0.1:{port}/api/health"), 180)
            yield f"http://127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait(180)


def healthy(url):
    """Whether the gateway behind the proxy reports that it is healthy."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as page:
        return page.status == 200
    return False


@needs("dask_gateway", "dask-gateway")
@needs("dask_gateway_server", "dask-gateway-server[local]")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Gateway.__del__, when it is closed
def test_a_cluster_behind_a_gateway(tmp_path):
    from dask_gateway import Gateway

    with (
        gateway(tmp_path) as address,
        Gateway(address, auth="basic") as listener,
        listener.new_cluster(shutdown_on_close=True) as cluster,
        cluster.get_client(set_as_default=False) as client,
    ):
        cluster.scale(NODES)
        trains(client, encrypted=True)
    del listener, cluster, client
    gc.collect()
