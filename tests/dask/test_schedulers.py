"""Existing Dask schedulers with TLS: by client, and by address. Those started by SSH or a job queue: `tests/dev`."""

import contextlib
import functools
import socket
import subprocess
import sys

import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

import labkit as lk
from labkit.engines.dask.transport.handshake import Hello
from tests.dask.helpers import closes, endless, events, further, nothing_left, path_of_labkit

pytestmark = [pytest.mark.slow, pytest.mark.processes]
NODES = 4  # two workers, a server, and the chief


def trains(client, encrypted=False):
    """Train both kinds of strategies on it; the ledger balances, and no state remains on the cluster."""
    client.wait_for_workers(NODES)
    with lk.DaskCluster(client, workers=2, servers=1) as cluster:
        for strategy, on in [
            (lk.AsyncPS(learning_rate=0.2), cluster),
            (lk.RingAllReduce(learning_rate=0.5), cluster.resized(servers=0)),
        ]:
            run = lk.train(lk.Problem("moons", hidden=(16,)), strategy, on, lk.Budget(updates=400), checkpoint=False)
            where = set(run.engine.members.where.values())
            assert all(address.startswith("tls://") == encrypted for address in where), where
            assert run.wait().stopped_by == "updates"
            assert run.summary()["accuracy"] > 0.8
            closes(run)
        nothing_left(client)


@functools.cache
def temporary():
    """A self-signed certificate; clients that hold it are accepted."""
    return Security.temporary()


@pytest.fixture(scope="module")
def encrypted():
    with LocalCluster(
        n_workers=NODES, threads_per_worker=1, dashboard_address=None, silence_logs=50, security=temporary(),
        protocol="tls://", host="127.0.0.1",
    ) as local:  # fmt: skip
        yield local


def test_an_encrypted_cluster_by_its_client_encrypts_the_connections_of_roles(encrypted):
    with Client(encrypted, security=temporary(), set_as_default=False) as client:
        trains(client, encrypted=True)
        run = endless(lk.DaskCluster(client, workers=1))
        with socket.create_connection(run.engine.members.contact["server-0"][:2]) as plain:  # does not use encryption
            plain.sendall(Hello(run.engine.supervisor.run, "worker-0", "server-0", 0).pack(b"x" * 16))
            with contextlib.suppress(ConnectionError):
                assert plain.recv(100)[:1] in (b"", b"\x15")  # closed, or a TLS alert
        further(run, 50).stop()
        closes(run)
        assert any("ssl" in str(event).lower() for event in events(run, "connection refused"))


def test_a_cluster_of_dask_is_taken_as_it_is_with_its_certificates(encrypted):
    with lk.DaskCluster(encrypted, workers=2, servers=1) as cluster:
        run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=50), checkpoint=False).wait()
        assert run.stopped_by == "updates"
        closes(run)
        with pytest.raises(
            lk.BadInput, match=r"11 nodes \(one .* each: 8 workers \+ 2 servers \+ 1 chief\) .* has 4 Dask workers;"
        ):
            lk.train("moons", lk.AsyncPS(), cluster.resized(workers=8, servers=2))
    assert encrypted.status.name == "running"  # it is its owner's
    with LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as closed:
        pass
    with pytest.raises(lk.ClusterError, match="LocalCluster is closed"):
        lk.DaskCluster(closed, workers=1).open()


def test_an_encrypted_cluster_without_the_certificate(encrypted):
    with (
        lk.DaskCluster(encrypted.scheduler_address, workers=1) as cluster,
        pytest.raises(lk.ClusterError, match="No Dask scheduler answers at 'tls://"),
    ):
        cluster.open()


def test_an_encrypted_cluster_by_address_with_certificates_in_dasks_settings(encrypted, tmp_path):
    """Where Dask's own settings name the certificate, an address is enough: a program with `DASK_...` in its
    environment.
    """
    keys = temporary().get_tls_config_for_role("client")
    names = {"tls_ca_file": "CA_FILE", "tls_client_key": "CLIENT__KEY", "tls_client_cert": "CLIENT__CERT"}
    env = {**path_of_labkit(), "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    values = {"tls_ca_file": keys["ca_file"], "tls_client_key": keys["key"], "tls_client_cert": keys["cert"]}
    for option, text in values.items():
        (tmp_path / option).write_text(text)
        env[f"DASK_DISTRIBUTED__COMM__TLS__{names[option]}"] = str(tmp_path / option)
    script = (
        "import sys, labkit as lk\n"
        "cluster = lk.DaskCluster(sys.argv[1], workers=1, servers=1)\n"
        "run = lk.train('moons', lk.AsyncPS(), cluster, lk.Budget(updates=50), checkpoint=False).wait()\n"
        "print(run.stopped_by, run.summary().book['closes'])\n"
    )
    command = [sys.executable, "-c", script, encrypted.scheduler_address]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "updates True\n", done.stderr
