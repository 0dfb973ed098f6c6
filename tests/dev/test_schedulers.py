"""Dask schedulers started by SSH, by a job queue, and by a gateway.

They need the extra `dev`, an SSH daemon, and `dask-gateway`, which is tested only where it is installed. `dask-kubernetes`
needs a Kubernetes cluster: its client is a `Client` like the others, and it is not tested here.
"""

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from distributed import Client

from tests.dask.helpers import free_port
from tests.dask.test_schedulers import NODES, trains

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def needs(package, pip):
    why = f"{package} is not installed: pip install '{pip}'"
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=why)


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
    daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.PIPE, text=True)
    try:
        until_it_says(daemon.stderr, "Server listening")
        yield {"port": port, "known_hosts": None, "client_keys": [str(folder / "mine")]}
    finally:
        daemon.terminate()
        daemon.wait()


def until_it_says(lines, words):
    """Read the lines of a program up to the one with these words; from then on they are read and forgotten."""
    seen = []
    for line in lines:
        seen.append(line)
        if words in line:
            threading.Thread(target=lines.read, daemon=True).start()
            return
    raise AssertionError("".join(seen))


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
    started = subprocess.Popen(
        [program, "--config", str(folder / "config.py")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder,
        text=True, env={**os.environ, "PATH": path},
    )  # fmt: skip
    try:
        until_it_says(started.stderr, "Dask-Gateway server started")
        yield f"http://127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait()


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
