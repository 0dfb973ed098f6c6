"""Exports: a file is read back with the same numbers; a file in another format is refused in one sentence."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.engines.cluster_spec import ClusterSpec
from labkit.engines.plan import make_plan
from labkit.narrative import log_lines
from labkit.trace import summary
from labkit.trace.exports import load_npz, save_npz, to_frames, to_perfetto
from labkit.trace.header import TraceHeader
from labkit.trace.overlap import overlap
from labkit.trace.schema import NANO, TABLES
from labkit.views import PANELS


def simulated(strategy=None, *, updates=60, **cluster):
    """A finished run of a few updates on moons, with messages that take time and a worker that is slow for a while."""
    problem = lk.Problem("moons", hidden=(4,), batch_size=8)
    cluster = lk.SimulatedCluster(workers=3, latency=0.001, **cluster)
    faults = [lk.Slow("worker-1", 4, at=0.1, until=0.2)]
    return lk.train(problem, strategy or lk.AsyncPS(), cluster, lk.Budget(updates=updates), faults=faults)


@pytest.fixture(scope="module")
def trace():
    return simulated().wait().trace


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_a_loaded_trace_gives_the_identical_summary(tmp_path, strategy):
    trace = simulated(strategy).wait().trace
    loaded = load_npz(save_npz(trace, tmp_path / "run.npz"))
    assert json.dumps(summary(loaded)) == json.dumps(summary(trace))
    assert log_lines(loaded) == log_lines(trace) != []
    for name in TABLES:
        rows = trace.tables[name].rows()
        np.testing.assert_array_equal(loaded.tables[name].rows(), rows[np.argsort(rows[:, 0], kind="stable")])


def test_a_file_does_not_depend_on_how_often_the_trace_was_read(tmp_path):
    whole, looked_at = simulated().wait(), simulated()
    while not looked_at.done:
        looked_at.advance(0.013)
        looked_at.summary()
    first, second = save_npz(whole.trace, tmp_path / "a.npz"), save_npz(looked_at.trace, tmp_path / "b.npz")
    assert first.read_bytes() == second.read_bytes()


def test_a_run_that_goes_on_or_diverged_can_be_saved(tmp_path):
    going = simulated()
    going.advance(0.05)
    assert load_npz(save_npz(going.trace, tmp_path / "going.npz")).ending is None
    strategy = lk.AsyncPS(optimizer=lk.Momentum(0.99), learning_rate=10.0)
    diverged = lk.train("digits", strategy, lk.SimulatedCluster(), lk.Budget(updates=300)).wait()
    assert diverged.stopped_by == "diverged"
    loaded = load_npz(save_npz(diverged.trace, tmp_path / "diverged.npz"))
    assert json.dumps(summary(loaded)) == json.dumps(summary(diverged.trace))
    json.loads(to_perfetto(loaded, tmp_path / "diverged.json").read_text(), parse_constant=pytest.fail)


def test_foreign_and_older_files_are_refused(tmp_path, trace):
    path, bad = save_npz(trace, tmp_path / "run.npz"), tmp_path / "bad.npz"
    np.savez(bad, x=np.arange(3))
    with pytest.raises(lk.BadInput, match="not a labkit trace"):
        load_npz(bad)
    np.savez(bad, about=np.array([{"pickled": 1}], dtype=object))
    with pytest.raises(lk.BadInput, match="not a labkit trace"):
        load_npz(bad)
    for change, text in (
        (("format", 1), "format 1, made by an older labkit; this one reads formats 5 to 6"),
        (("kind", "labkit model"), "not a labkit trace"),
    ):
        np.savez(bad, **changed(path, "about", *change))
        with pytest.raises(lk.BadInput, match=text):
            load_npz(bad)


def test_a_file_of_the_previous_format_has_no_measurements_of_the_gradient_noise(tmp_path):
    trace = simulated(lk.SyncPS()).wait().trace
    path, old = save_npz(trace, tmp_path / "run.npz"), tmp_path / "old.npz"
    members = dict(np.load(path))
    about = json.loads(members["about"].tobytes()) | {"format": 5}
    for tables in (about["columns"], about["spilled"], about["skipped"]):
        del tables["gradient_noise"]
    del members["table.gradient_noise"]
    np.savez(old, **members | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
    loaded = load_npz(old)
    assert json.dumps(summary(loaded)) == json.dumps(summary(trace))
    assert lk.gradient_noise(trace).measurements > 0
    assert lk.gradient_noise(loaded).measurements == 0


def test_names_that_are_no_roles_of_the_run_are_refused(tmp_path, trace):
    path, bad = save_npz(trace, tmp_path / "run.npz"), tmp_path / "bad.npz"
    for key, value in (("absent", ["w9"]), ("layout", trace.header.layout.to_dict() | {"observed": ["w9"]})):
        np.savez(bad, **changed(path, "header", key, value))
        with pytest.raises(lk.BadInput, match=rf"header\.{key}.* names 'w9', which is no role"):
            load_npz(bad)


@pytest.mark.parametrize("engine", ["simulated", "dask"])
def test_the_header_of_a_file_has_every_option(engine):
    problem, strategy = lk.Problem("quadratic", partition="shared"), lk.KAsync(K=2)
    cluster = ClusterSpec(engine, workers=3, compute=0.02, slow={"worker-1": 2.0}, max_workers=4, costs=lk.Costs())
    budget = lk.Budget(updates=7, accuracy=None)
    header = make_plan(problem, strategy, cluster, budget, seed=3).header(cluster).to_dict()
    assert header["problem"] == replace(problem, seed=3).describe()
    assert header["strategy"] == strategy.describe() | {"mean_staleness": strategy.mean_staleness(3)}
    assert (header["cluster"], header["budget"]) == (cluster.describe(), {"updates": 7})
    assert list(header["cluster"]) == list(cluster.describe())
    assert TraceHeader.from_dict(header).to_dict() == header


def changed(path, member, key, value):
    members = dict(np.load(path))
    plain = json.loads(members[member].tobytes())
    return members | {member: np.frombuffer(json.dumps(plain | {key: value}).encode(), np.uint8)}


def test_a_failed_export_leaves_no_partial_file(tmp_path, trace):
    with pytest.raises(lk.BadInput, match="cannot be written"):
        save_npz(trace, tmp_path / "no" / "folder.npz")
    save_npz(trace, tmp_path / "run.npz")
    to_perfetto(trace, tmp_path / "run.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.npz"]


def test_perfetto_has_a_process_per_node_a_thread_per_role_and_every_span(tmp_path, trace):
    data = json.loads(to_perfetto(trace, tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    events = data["traceEvents"]
    named = {e["args"]["name"]: (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert tuple(named) == trace.roles
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == list(dict.fromkeys(trace.nodes))
    spans = [e for e in events if e.get("cat") == "span"]
    start, end = trace.column("spans", "start", "end")
    assert sum(e["dur"] for e in spans) == pytest.approx((end - start).sum() / 1000)
    assert {(e["pid"], e["tid"]) for e in spans} <= set(named.values())
    curves = {e["name"] for e in events if e["ph"] == "C"}
    assert curves == {"updates server-0", "staleness server-0", "loss", "accuracy"}
    assert sum(e["ph"] == "i" for e in events) == len(trace.events) == 2


def test_arrows_of_perfetto_go_forward_between_slices_and_are_bounded(tmp_path, trace):
    data = json.loads(to_perfetto(trace, tmp_path / "run.json", arrows=50).read_text())
    events = data["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == 50
    assert starts.keys() == ends.keys()
    assert all(ends[i]["ts"] - starts[i]["ts"] == pytest.approx(1000) for i in starts)  # the latency, in microseconds
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    assert all((e["pid"], e["tid"], e["ts"]) in slices for e in (*starts.values(), *ends.values()))
    assert data["otherData"]["messages_left_out"] > 0


def test_frames_have_names_and_seconds(trace):
    pd = importlib.import_module("pandas")
    frames = to_frames(trace)
    assert set(frames) == {*TABLES, "events"}
    applies = frames["applies"]
    assert isinstance(applies, pd.DataFrame)
    assert set(applies["sender"]) == {"worker-0", "worker-1", "worker-2"}
    assert set(applies["role"]) == {"server-0"}
    assert applies["time"].max() == trace.column("applies", "time").max() / NANO
    assert applies["staleness"].mean() == pytest.approx(summary(trace)["staleness"]["mean"])
    assert set(frames["messages"]["kind"]) >= {"Push", "Weights"}
    assert set(frames["norms"]["layer"]) == set(trace.header.layers)
    assert frames["events"]["kind"].tolist() == ["slowed", "slowed"]


def test_collective_updates_have_the_sender_everyone_in_frames():
    importlib.import_module("pandas")
    frames = to_frames(simulated(lk.RingAllReduce(), updates=5).wait().trace)
    assert set(frames["applies"]["sender"]) == {"everyone"}


def test_without_pandas_to_frames_names_the_package_to_install(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(lk.BadInput, match="pip install pandas"):
        to_frames(trace)


# runs with tasks ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def overlapping():
    problem = lk.Problem("moons", hidden=(8, 8), options={"samples": 200})
    cluster = lk.SimulatedCluster(workers=3, bandwidth=1e5, latency=1e-4)
    return lk.train(problem, lk.BucketedAllReduce(bucket_size=1), cluster, lk.Budget(updates=4)).wait().trace


def test_pieces_and_communications_are_saved_and_in_frames(overlapping, tmp_path):
    loaded = load_npz(save_npz(overlapping, tmp_path / "trace.npz"))
    assert overlap(loaded) == overlap(overlapping)
    assert PANELS["timeline"]().caption(loaded) == PANELS["timeline"]().caption(overlapping)
    importlib.import_module("pandas")
    frames = to_frames(loaded)
    pieces = frames["pieces"]
    assert pieces[pieces["role"] == "worker-0"]["layer"].tolist() == ["output", "dense2", "dense1"] * 4
    sums = frames["communications"]
    assert sums[sums["role"] == "worker-1"]["number"].tolist() == [0, 1, 2] * 4
    assert ((sums["hidden"] >= 0) & (sums["hidden"] <= sums["end"] - sums["start"] + 1e-12)).all()


def test_perfetto_has_communications_in_a_thread_of_their_own(overlapping, tmp_path):
    events = json.loads(to_perfetto(overlapping, tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    sums = [event for event in events if event.get("cat") == "communication"]
    assert [event["name"] for event in sums] == ["bucket 0", "bucket 1", "bucket 2"] * 4 * 3
    assert {threads[event["tid"]] for event in sums} == {f"worker-{k}, communication" for k in range(3)}
    hidden = sum(event["args"]["hidden_us"] for event in sums)
    assert hidden * 1000 == pytest.approx(overlap(overlapping).hidden)
    worker = next(tid for tid, name in threads.items() if name == "worker-2")
    spans = [e for e in events if e.get("cat") == "span" and e["tid"] == worker and e["name"] == "compute"]
    assert [e["args"].get("backward") for e in spans] == [None, "output", "dense2", "dense1"] * 4
