"""State after a run: no leftovers on the cluster, checkpoints, and the same numbers as the simulator."""

import contextlib
import gc
import importlib
import os
import socket

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.engines.dask.transport.handshake import Hello
from labkit.engines.storage.store import Store
from tests.dask.helpers import closes, eventually, labkit_threads, moving, plugins, updates

MOONS = lk.Problem("moons", hidden=(8,))
FILES = pytest.mark.skipif(not hasattr(psutil.Process, "num_fds"), reason="counts file descriptors")


def fds():
    return psutil.Process().num_fds()


def threads():
    return psutil.Process().num_threads()


@pytest.mark.slow
@FILES
def test_twenty_runs_leave_no_process_and_no_thread(cluster):
    def resources():
        there = cluster.client.run(lambda: (psutil.Process().num_fds(), psutil.Process().num_threads()))
        return (fds(), *map(sum, zip(*there.values())))

    def runs(count):
        for _ in range(count):
            lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait(180)

    runs(8)  # everything that is created once per process exists
    before = resources()
    runs(20)
    assert labkit_threads() == []
    assert plugins(cluster.client) == {}
    eventually(lambda: all(now <= then + 3 for now, then in zip(resources(), before)))
    assert not cluster.client.futures
    assert cluster.runs == set()


@FILES
@pytest.mark.slow
def test_clusters_leave_nothing():
    def once():
        with lk.DaskCluster(workers=1) as cluster:
            lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait(180)

    once()
    before = fds(), threads()
    for _ in range(3):
        once()
    eventually(lambda: fds() <= before[0] + 3 and threads() <= before[1] + 3)


# checkpoints -------------------------------------------------------------------------------------------------------


def test_a_given_folder_has_the_result(cluster, tmp_path, started):
    run = started(lk.AsyncPS(), lk.Budget(updates=50), checkpoint=tmp_path / "kept" / "here").wait(180)
    state, remark = Store(tmp_path / "kept" / "here").read("chief")
    assert remark == ""
    np.testing.assert_array_equal(state["parameters"], run.result().parameters)
    assert state["update"] == 50
    assert state["accuracy"] == run.summary()["accuracy"]


def test_a_relative_folder_is_resolved_in_the_client_process(cluster, tmp_path, started, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started(lk.AsyncPS(), lk.Budget(updates=20), checkpoint="kept").wait(180)
    assert "chief" in Store(tmp_path / "kept").roles()


def test_the_default_checkpoint_folder_is_removed_with_the_run(started, cluster):
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait(180)
    folder = run.engine.folder
    assert "chief" in Store(folder).roles()
    del run
    gc.collect()
    eventually(lambda: not os.path.exists(folder))


def test_without_checkpoints_a_run_has_no_folder(started):
    run = started(budget=lk.Budget(updates=20), checkpoint=False).wait(180)
    assert run.engine.folder is None


def test_a_folder_that_cannot_be_created_is_refused_by_name(cluster, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(lk.BadInput, match=r"checkpoint=.*cannot be written to"):
        lk.train(MOONS, lk.AsyncPS(), cluster, checkpoint=tmp_path / "file" / "below")
    assert not any(cluster._connection.usage.values())
    assert cluster.runs == set()
    assert labkit_threads() == []


def test_a_folder_that_goes_away_is_a_warning(started, cluster, tmp_path):
    folder = tmp_path / "gone"
    run = moving(started(checkpoint=folder, on=cluster.resized(pace=0.001)))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    run.stop()
    closes(run)
    warnings = [str(m) for m in run.trace.events if m.kind == "warning"]
    assert any("could not save its checkpoint" in text for text in warnings)


# the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_asynchronous_worker_is_equal_to_the_bit(cluster, started, dtype):
    problem = lk.Problem("digits", hidden=(16,), dtype=dtype, seed=3)
    real = started(budget=lk.Budget(updates=120), problem=problem, on=cluster.resized(workers=1)).wait(180)
    virtual = lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(workers=1, servers=1), lk.Budget(updates=120)).wait()
    np.testing.assert_array_equal(real.result().parameters, virtual.result().parameters)
    assert real.summary()["parameters_sha256"] == virtual.summary()["parameters_sha256"]


@pytest.mark.parametrize("servers", [1, 3])
def test_four_synchronous_workers_agree_with_the_simulator(cluster, started, servers):
    problem = lk.Problem("digits", hidden=(16,), dtype="float64", seed=3)
    strategy, budget = lk.SyncPS(optimizer=lk.Momentum(0.9)), lk.Budget(updates=40)
    real = started(strategy, budget, problem=problem, on=cluster.resized(workers=4, servers=servers)).wait(180)
    virtual = lk.train(problem, strategy, lk.SimulatedCluster(workers=4, servers=servers), budget).wait()
    np.testing.assert_allclose(real.result().parameters, virtual.result().parameters, rtol=0, atol=1e-12)


def test_another_seed_is_another_model(cluster, started):
    one, budget = cluster.resized(workers=1), lk.Budget(updates=20)
    runs = [started(budget=budget, on=one, seed=seed).wait(180) for seed in (1, 2, 1)]
    shas = [run.summary()["parameters_sha256"] for run in runs]
    assert shas[0] == shas[2] != shas[1]


# data that stays on the cluster ------------------------------------------------------------------------------------


def test_dask_arrays_train_where_they_are(cluster, started, monkeypatch):
    da = importlib.import_module("dask.array")
    client = cluster.client
    with client.as_current():
        x = da.random.default_rng(0).normal(size=(40_000, 20), chunks=(5_000, 20))
        data = lk.from_dask(x, (x[:, 0] > 0).astype(int), classes=2)
    gathered, real = [], Client.gather
    monkeypatch.setattr(Client, "gather", lambda self, f, *a, **k: gathered.append(f) or real(self, f, *a, **k))
    problem = lk.Problem(data, hidden=(8,), batch_size=64)
    run = started(budget=lk.Budget(updates=300), problem=problem, on=cluster.resized(workers=2)).wait(180)
    assert run.stopped_by == "updates"
    assert run.summary()["accuracy"] > 0.8
    closes(run)
    assert all("-labkit-" in future.key for future in gathered)  # last reports of roles, and no data
    addresses = {run.engine.supervisor.where[name] for name in ("worker-0", "worker-1", "chief")}
    assert len(addresses) == 3
    eventually(lambda: not any(client.run(lambda dask_worker: len(dask_worker.data)).values()))


def rows_while(path, block):
    if os.path.exists(path):
        raise OSError("the rows are gone")
    return block


def test_dask_arrays_that_can_no_longer_be_computed_are_an_error(cluster, tmp_path):
    da = importlib.import_module("dask.array")
    gone = str(tmp_path / "gone")
    with cluster.client.as_current():
        x = da.random.default_rng(0).normal(size=(1_000, 4), chunks=(250, 4))
        x = x.map_blocks(lambda block: rows_while(gone, block), meta=np.zeros((0, 0)))
        data = lk.from_dask(x, (x[:, 0] > 1).astype(int), classes=2)
    (tmp_path / "gone").touch()
    with pytest.raises(OSError, match="the rows are gone"):
        lk.train(lk.Problem(data, hidden=(4,)), lk.AsyncPS(), cluster.resized(workers=2), lk.Budget(updates=10))
    assert labkit_threads() == []
    assert not any(cluster._connection.usage.values())


# unauthenticated connections, and encryption -----------------------------------------------------------------------


def listeners(run):
    """{role: (host, port)} as exchanged by the run's roles."""
    return {role: contact[:2] for role, contact in run.engine.supervisor.members.contact.items()}


def test_an_unauthenticated_connection_changes_nothing(cluster, started):
    run = moving(started(on=cluster.resized(pace=0.001)))
    host, port = listeners(run)["server-0"]
    sockets = []
    for words in (
        b"GET / HTTP/1.1\r\n\r\n", os.urandom(4000), b"",
        Hello(run.engine.supervisor.run, "worker-0", "server-0", 0).pack(b"x" * 16),
        Hello(run.engine.supervisor.run, "worker-0", "server-0", 5).pack(b"x" * 16),
    ):  # fmt: skip
        sockets.append(socket.create_connection((host, port), 5))
        sockets[-1].sendall(words)
    moving(run, 50).stop()
    for sock in sockets:
        sock.close()
    assert run.stopped_by == "user"
    closes(run)
    assert any("not signed by that role" in str(m) for m in run.trace.events if m.kind == "connection refused")


@pytest.mark.slow
def test_an_encrypted_cluster_encrypts_its_connections():
    importlib.import_module("cryptography")
    from distributed import Security

    security = Security.temporary()
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, security=security, protocol="tls://", dashboard_address=None,
                     silence_logs=50) as local,
        Client(local, set_as_default=False) as client,
    ):  # fmt: skip
        run = moving(lk.train(MOONS, lk.AsyncPS(), lk.DaskCluster(client, workers=1), lk.Budget(seconds=60)))
        host, port = listeners(run)["server-0"]
        with socket.create_connection((host, port), 5) as plain:  # does not use encryption
            plain.sendall(Hello(run.engine.supervisor.run, "worker-0", "server-0", 0).pack(b"x" * 16))
            plain.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert plain.recv(100)[:1] in (b"", b"\x15")  # closed, or a TLS alert
        goal = updates(run) + 50
        eventually(lambda: updates(run) >= goal)
        run.stop()
        closes(run)
        assert any("SSL" in str(m) or "ssl" in str(m).lower() for m in run.trace.events if m.kind == "connection refused")
