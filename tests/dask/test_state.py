"""State after a run: no leftovers on the cluster, checkpoints, and the same numbers as the simulator."""

import gc
import importlib
import os
import socket
import threading
import weakref

import numpy as np
import psutil
import pytest
from distributed import Client

import labkit as lk
from labkit.engines.dask.transport.handshake import Hello
from labkit.engines.storage.store import Store
from tests.dask.helpers import MOONS, closes, events, further, labkit_threads, nothing_left, released, usable


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(psutil.Process, "num_fds"), reason="counts file descriptors")
def test_twenty_runs_leave_no_process_and_no_thread(cluster):
    def resources():
        here, there = (
            psutil.Process(),
            cluster.client.run(lambda: (psutil.Process().num_fds(), psutil.Process().num_threads())),
        )
        return (here.num_fds(), *map(sum, zip(*there.values())))

    def runs(count):
        for _ in range(count):
            run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait()
        nothing_left(cluster.client)
        return run

    runs(8)  # everything that is created once per process exists
    before = resources()
    released(runs(20))
    gc.collect()
    assert all(now <= then + 10 for now, then in zip(resources(), before))  # a leak would be 20 or more
    assert not cluster.client.futures


# checkpoints -------------------------------------------------------------------------------------------------------


def test_a_given_folder_has_the_result_and_is_resolved_in_the_client_process(tmp_path, started, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = started(lk.AsyncPS(), lk.Budget(updates=50), checkpoint="kept/here").wait()
    state, remark = Store(tmp_path / "kept" / "here").read("chief")
    assert remark == ""
    np.testing.assert_array_equal(state["parameters"], run.result().parameters)
    assert state["update"] == 50
    assert state["accuracy"] == run.summary()["accuracy"]


def test_the_default_checkpoint_folder_is_removed_with_the_run(cluster):
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20)).wait()
    folder, forgotten = run.engine.folder, threading.Event()
    assert "chief" in Store(folder).roles()
    weakref.finalize(run.engine, forgotten.set)
    nothing_left(cluster.client)
    del run
    gc.collect()
    forgotten.wait()
    gc.collect()
    assert not os.path.exists(folder)
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=20), checkpoint=False).wait()
    assert run.engine.folder is None


def test_without_checkpoints_the_model_exists_at_the_end(started):
    run = started(lk.AsyncPS(), lk.Budget(updates=10**9), checkpoint=False)
    run.wait_for(lambda run: len(run.trace.column("evaluations", "update")) > 0)
    with pytest.raises(lk.BadInput, match="checkpoint=False they are read at its end"):
        run.predictor(live=True).predict([[0.0, 1.0]])
    run.stop()
    assert run.predictor(live=True).predict([[0.0, 1.0]]).shape == (1,)


def test_a_folder_that_cannot_be_created_is_refused_by_name(cluster, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(lk.BadInput, match=r"checkpoint=.*cannot be written to"):
        lk.train(MOONS, lk.AsyncPS(), cluster, checkpoint=tmp_path / "file" / "below")
    assert cluster.runs == set()
    assert labkit_threads() == []
    released(usable(cluster))


def test_a_folder_that_goes_away_is_a_warning(started, cluster, tmp_path):
    folder = tmp_path / "gone"
    run = further(started(checkpoint=folder, on=cluster.resized(pace=0.001, checkpoint_every=0.05)))
    folder.rename(tmp_path / "elsewhere")
    warning = run.wait_for("warning")
    assert "could not save its checkpoint" in str(warning)
    run.stop()
    closes(run)


# the same numbers --------------------------------------------------------------------------------------------------


def test_one_asynchronous_worker_is_equal_to_the_bit(cluster, started):
    problem = lk.Problem("digits", hidden=(16,), seed=3)
    real = started(budget=lk.Budget(updates=120), problem=problem, on=cluster.resized(workers=1)).wait()
    virtual = lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(workers=1, servers=1), lk.Budget(updates=120)).wait()
    np.testing.assert_array_equal(real.result().parameters, virtual.result().parameters)
    assert real.summary()["parameters_sha256"] == virtual.summary()["parameters_sha256"]


# data that stays on the cluster ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dask_arrays_train_where_they_are(cluster, started, monkeypatch):
    da = importlib.import_module("dask.array")
    client = cluster.client
    with client.as_current():
        x = da.random.default_rng(0).normal(size=(40_000, 20), chunks=(5_000, 20))
        data = lk.from_dask(x, (x[:, 0] > 0).astype(int), classes=2)
    gathered, real = [], Client.gather
    monkeypatch.setattr(Client, "gather", lambda self, f, *a, **k: gathered.append(f) or real(self, f, *a, **k))
    problem = lk.Problem(data, hidden=(8,), batch_size=64)
    run = started(budget=lk.Budget(updates=300), problem=problem, on=cluster.resized(workers=2)).wait()
    assert run.stopped_by == "updates"
    assert run.summary()["accuracy"] > 0.8
    closes(run)
    assert all("-labkit-" in future.key for future in gathered)  # last reports of roles, and no data
    addresses = {run.engine.members.where[name] for name in ("worker-0", "worker-1", "chief")}
    assert len(addresses) == 3
    nothing_left(client)


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
    released(usable(cluster))


# data in a file ----------------------------------------------------------------------------------------------------


def test_every_process_maps_the_file_itself_and_names_one_that_is_gone(cluster, started, tmp_path):
    x = np.random.default_rng(0).normal(size=(2_000, 6))
    np.save(tmp_path / "x.npy", x)
    data = lk.from_npy(tmp_path / "x.npy", x @ np.arange(6.0), dtype="float64")
    problem, two = lk.Problem(data, hidden=(8,)), cluster.resized(workers=2)
    real = started(lk.SyncPS(), lk.Budget(updates=30), problem=problem, on=two).wait()
    virtual = lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=30)).wait()
    np.testing.assert_allclose(real.result().parameters, virtual.result().parameters, rtol=0, atol=1e-12)
    closes(real)
    (tmp_path / "x.npy").rename(tmp_path / "away.npy")
    with pytest.raises(lk.ClusterError, match=r"could not start: The Dask worker at \w+://\S+ cannot read '.*x.npy'"):
        lk.train(problem, lk.SyncPS(), two, lk.Budget(updates=30))
    np.save(tmp_path / "x.npy", x + 1)
    with pytest.raises(lk.ClusterError, match=r"The Dask worker at \w+://\S+ has another file '.*x.npy'"):
        lk.train(problem, lk.SyncPS(), two, lk.Budget(updates=30))
    (tmp_path / "x.npy").rename(tmp_path / "changed.npy")
    (tmp_path / "away.npy").rename(tmp_path / "x.npy")
    run = further(started(lk.SyncPS(), problem=problem, on=two))
    (tmp_path / "changed.npy").replace(tmp_path / "x.npy")  # a mapped file that is truncated would end the process
    with pytest.raises(lk.RoleError, match=r"The file '.*x.npy' was changed"):
        run.wait()
    assert labkit_threads() == []
    released(usable(cluster))


# unauthenticated connections ---------------------------------------------------------------------------------------


def test_an_unauthenticated_connection_changes_nothing(cluster, started):
    run = further(started(on=cluster.resized(pace=0.001)))
    sockets = []
    for words in (
        b"GET / HTTP/1.1\r\n\r\n", os.urandom(4000), b"",
        Hello(run.engine.supervisor.run, "worker-0", "server-0", 0).pack(b"x" * 16),
        Hello(run.engine.supervisor.run, "worker-0", "server-0", 5).pack(b"x" * 16),
    ):  # fmt: skip
        sockets.append(socket.create_connection(run.engine.members.contact["server-0"][:2]))
        sockets[-1].sendall(words)
    further(run, 50).stop()
    for sock in sockets:
        sock.close()
    assert run.stopped_by == "user"
    closes(run)
    assert any("not signed by that role" in str(event) for event in events(run, "connection refused"))
