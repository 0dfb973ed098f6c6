"""`lk.resume`: continues a run whose program ended. In virtual time exactly; a different run is refused."""

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

import labkit as lk
from labkit.engines.base import Cluster
from labkit.engines.cluster_spec import ClusterSpec
from labkit.engines.storage.journal import read_commands, read_json, read_reached, write_json
from labkit.engines.storage.locations import Folder
from labkit.engines.storage.store import Store
from labkit.nn.network import Network
from labkit.plain_values import NotEncodable
from labkit.serialization import from_dict, to_dict
from labkit.spec import make_cluster, spec_of
from labkit.strategies import STRATEGIES

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, options={"samples": 200}, seed=3)
BUDGET = lk.Budget(seconds=1.0)


def cluster(**more):
    return lk.SimulatedCluster(
        workers=3,
        compute=lk.distributions.LogNormal(0.01, 0.7),
        latency=0.0007,
        bandwidth=3e6,
        slow={"worker-1": 1.5},
        **more,
    )


def begun(place=None, strategy=None, problem=MOONS, faults=(), budget=BUDGET):
    return lk.train(problem, strategy or lk.AsyncPS(), cluster(), budget, checkpoint=place, faults=faults)


def with_commands(run):
    """A run with commands, one in the middle of an instant; it is left at 0.35 s."""
    run.advance(0.1).slow("worker-2", 3)
    run.step().set(learning_rate=0.03)
    run.advance(0.1).slow("worker-0", 2).slow("worker-0", 1)
    return run.advance(0.35 - run.engine.seconds)


def all_of(run):
    """Every byte of a trace, and the model."""
    trace = run.trace
    tables = {name: np.sort(table.rows(), axis=0).tobytes() for name, table in trace.tables.items()}
    ending = {k: v for k, v in (trace.ending or {}).items() if k != "wall_seconds"}
    counters = {role: c.to_dict() for role, c in trace.counters.items()}
    parameters = run.engine.parameters
    return tables, ending, counters, trace.events, trace.header, None if parameters is None else parameters.tobytes()


# exactly --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy",
    [
        lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.LocalSGD(), lk.SSP(accumulate=3), lk.BucketedAllReduce(accumulate=3),
    ],
    ids=lambda s: s.name,
)  # fmt: skip
def test_a_resumed_run_continues_identically(tmp_path, strategy):
    faults = [lk.Slow("worker-1", 4, at=0.15, until=0.6)]  # it has begun, and has not ended yet
    whole = with_commands(begun(None, strategy, faults=faults))
    with_commands(begun(tmp_path, strategy, faults=faults))  # and dropped
    again = lk.resume(tmp_path)
    assert again.engine.seconds == 0.35
    assert not again.done
    assert all_of(again) == all_of(whole)
    assert all_of(again.wait()) == all_of(whole.wait())


def test_a_run_can_be_resumed_repeatedly(tmp_path):
    whole = with_commands(begun()).slow("worker-1", 7).advance(0.2)
    with_commands(begun(tmp_path))
    lk.resume(tmp_path).slow("worker-1", 7)
    lk.resume(tmp_path).advance(0.2)
    third = lk.resume(tmp_path)
    assert all_of(third) == all_of(whole)
    assert all_of(third.wait()) == all_of(whole.wait())
    assert all_of(lk.resume(tmp_path)) == all_of(whole)  # it has ended in the resumed run, too
    assert lk.resume(tmp_path).stopped_by == "seconds"


def test_a_program_that_is_killed(tmp_path):
    """The process is killed in the middle of the run."""
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.test_resume import *
with_commands(begun({str(tmp_path)!r}))
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    whole, again = with_commands(begun()), lk.resume(tmp_path)
    assert all_of(again) == all_of(whole)


def test_a_run_killed_during_its_repetition_keeps_later_commands(tmp_path):
    """A run that is being repeated keeps the commands that are still to come."""
    with_commands(begun(tmp_path))
    before = read_commands(Store(tmp_path))
    on_the_way = lk.resume(tmp_path, timeout=0)
    assert on_the_way.engine.seconds < 0.35
    assert read_commands(Store(tmp_path)) == before
    del on_the_way
    assert all_of(lk.resume(tmp_path)) == all_of(with_commands(begun()))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_resumed_run_ends_for_the_same_reason(tmp_path, end):
    run = with_commands(begun(tmp_path))
    run.stop() if end == "stop" else run.kill("worker-1")
    expected = run.stopped_by, all_of(run)
    del run
    again = lk.resume(tmp_path)
    assert (again.stopped_by, all_of(again)) == expected


def test_a_stopped_run_with_another_budget(tmp_path):
    with_commands(begun(tmp_path)).stop()
    assert lk.resume(tmp_path).done
    longer = lk.Budget(seconds=1.5)
    whole = with_commands(begun(budget=longer))
    again = lk.resume(tmp_path, budget=longer)
    assert not again.done
    assert all_of(again.wait()) == all_of(whole.wait())


def test_a_url():
    place = f"memory://{uuid.uuid4().hex}/run"
    run = begun(place).advance(0.1).slow("worker-2", 3)
    again = lk.resume(place)
    assert again.engine.seconds == 0.1
    assert all_of(again.wait()) == all_of(run.wait())


def test_a_place_without_room_does_not_end_the_run(tmp_path, monkeypatch):
    run = begun(tmp_path).advance(0.1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "put", full)
    run.slow("worker-2", 3).advance(0.1).slow("worker-2", 1).wait()
    warnings = [str(m) for m in run.trace.events if m.kind == "warning"]
    assert warnings == ["What is needed to resume this run could not be written: [Errno 28] No space left on device"]
    assert read_reached(Store(tmp_path)) == (0.1, None, "")


# refusals -------------------------------------------------------------------------------------------------------------


class MyOwn(lk.AsyncPS):
    """A user-defined strategy."""


def own_data(seed=0):
    rng = np.random.default_rng(seed)
    return lk.from_arrays(rng.normal(size=(100, 3)), rng.integers(0, 2, 100), name="mine")


def test_a_user_defined_strategy_is_passed_to_resume(tmp_path):
    whole = with_commands(begun(None, MyOwn(learning_rate=0.05)))
    with_commands(begun(tmp_path, MyOwn(learning_rate=0.05)))
    with pytest.raises(
        lk.BadInput, match=r"strategy .* is not labkit's own \(MyOwn\): give it, as lk.resume.*strategy="
    ):
        lk.resume(tmp_path)
    with pytest.raises(lk.BadInput, match=r"has another one, options\.learning_rate 0\.05 instead of 0\.06"):
        lk.resume(tmp_path, strategy=MyOwn(learning_rate=0.06))
    with pytest.raises(lk.BadInput, match=r"has another one, name 'MyOwn' instead of 'AsyncPS'"):
        lk.resume(tmp_path, strategy=lk.AsyncPS(learning_rate=0.05))
    again = lk.resume(tmp_path, strategy=MyOwn(learning_rate=0.05))
    assert all_of(again.wait()) == all_of(whole.wait())


def test_user_defined_data_are_passed_to_resume(tmp_path):
    problem = lk.Problem(own_data(), hidden=(4,), batch_size=8)
    expected = all_of(begun(tmp_path, problem=problem).advance(0.1))
    with pytest.raises(lk.BadInput, match=r"problem .* is not labkit's own \(Problem\)|\(Dataset\)"):
        lk.resume(tmp_path)
    with pytest.raises(lk.BadInput, match="sha256"):
        lk.resume(tmp_path, problem=lk.Problem(own_data(1), hidden=(4,), batch_size=8))
    again = lk.resume(tmp_path, problem=lk.Problem(own_data(), hidden=(4,), batch_size=8))
    assert all_of(again) == expected


def test_a_cluster_with_a_user_defined_distribution_is_user_defined(tmp_path):
    class Mine(lk.distributions.Deterministic):
        """A user-defined class."""

    its = lk.SimulatedCluster(workers=2, compute=Mine(0.01))
    lk.train(MOONS, lk.AsyncPS(), its, BUDGET, checkpoint=tmp_path).advance(0.1)
    with pytest.raises(lk.BadInput, match=r"The cluster .*\(Mine\)"):
        lk.resume(tmp_path)
    assert lk.resume(tmp_path, cluster=its).engine.seconds == 0.1


def test_a_cluster_that_does_not_fit_the_checkpoints_is_refused(tmp_path):
    begun(tmp_path).advance(0.1)
    with pytest.raises(lk.BadInput, match=r"another one, workers 3 instead of 4"):
        lk.resume(tmp_path, cluster=lk.SimulatedCluster(workers=4))
    for other in (lk.DaskCluster(workers=3), "here"):
        with pytest.raises(lk.BadInput, match=r"is of the engine 'simulated'; give such a one"):
            lk.resume(tmp_path, cluster=other)


def test_resuming_from_an_empty_folder_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere", f"memory://{uuid.uuid4().hex}"):
        with pytest.raises(lk.BadInput, match=r"There is no run in .*run\.json is missing"):
            lk.resume(place)
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_progress_file_loses_no_commands(tmp_path):
    """That file is not synced: without it the run resumes at its last command, and nothing else is lost; the log says so."""
    whole = with_commands(begun()).wait()
    for damaged in (True, False):
        with_commands(begun(tmp_path / str(damaged)))
        reached = tmp_path / str(damaged) / "reached.json"
        reached.write_bytes(b"") if damaged else reached.unlink()
        again = lk.resume(tmp_path / str(damaged))
        assert again.engine.seconds == pytest.approx(0.2, abs=0.1)
        warnings = [str(event) for event in again.trace.events if event.kind == "warning"]
        assert len(warnings) == damaged
        for text in warnings:
            assert re.match(r"reached\.json in .* is damaged: .*: the run was repeated to 0\.\d+ s only$", text)
        again.trace.events = [event for event in again.trace.events if event.kind != "warning"]
        assert all_of(again.wait()) == all_of(whole)


# a folder holds one run -----------------------------------------------------------------------------------------------


def test_a_run_that_has_not_ended_is_not_overwritten(tmp_path):
    begun(tmp_path).advance(0.1)
    with pytest.raises(lk.BadInput, match=r"holds a run that has not ended \(AsyncPS on moons\): lk\.resume"):
        begun(tmp_path)
    lk.resume(tmp_path).wait()
    assert begun(tmp_path, lk.SyncPS()).advance(0.1).engine.seconds == 0.1  # that one is over
    assert lk.resume(tmp_path).plan.strategy == lk.SyncPS()
    assert Store(tmp_path).roles() == []


def test_checkpoints_without_a_run_are_not_overwritten(tmp_path):
    Store(tmp_path).write("server-0", {}, 3)
    with pytest.raises(lk.BadInput, match=r"holds checkpoints of server-0, but no run\.json"):
        begun(tmp_path)
    assert Store(tmp_path).tags("server-0") == [3]


def test_a_run_that_fails_to_start_leaves_no_files(tmp_path):
    broken = lk.SimulatedCluster(workers=2, slow={"nobody": 2.0})
    with pytest.raises(lk.BadInput, match="nobody"):
        lk.train(MOONS, lk.AsyncPS(), broken, BUDGET, checkpoint=tmp_path)
    assert begun(tmp_path).advance(0.1).engine.seconds == 0.1


def test_no_files_are_written_without_a_checkpoint_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for nothing in (None, False):
        with_commands(begun(nothing)).stop()
    assert list(tmp_path.iterdir()) == []


# descriptions ---------------------------------------------------------------------------------------------------------

VALUES = [
    lk.Problem("digits", partition="by-label:0.3", hidden=(4, 5), dtype="float64", options={}),
    lk.Problem("spirals", options={"arms": 3}, partition=lk.partitions.BySize(skew=2.5)),
    lk.AsyncPS(optimizer="adam", codec="top-k:0.1", schedule="warmup:50+cosine:1000", compensation="adaptive"),
    lk.SparsePS(placement=lk.placements.ConsistentHash(7, 3)), *(kind() for kind in STRATEGIES.values()),
    cluster(server_time=lk.distributions.Uniform(0.1, 0.2), cores=3, record=False).spec,
    lk.SimulatedCluster(compute=lk.distributions.Measured((0.1, 1 / 3))).spec,
    lk.Budget(updates=3, accuracy=0.1 + 0.2), lk.Slow("worker-1", 3.3, at=1e-9), None,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_a_description_makes_the_same_again(value):
    again = from_dict(json.loads(json.dumps(to_dict(value), allow_nan=False)))
    assert again == value
    assert type(again) is type(value)


def test_the_values_of_a_cluster_of_processes():
    its = lk.DaskCluster(
        workers=3, servers=2, pace=lk.distributions.Exponential(0.1), slow={"worker-1": 2.0}, record=False, place="pack"
    )
    again = make_cluster(from_dict(json.loads(json.dumps(to_dict(spec_of(its))))))
    assert again.spec == its.spec
    assert again.describe() == its.describe()
    assert (again.starts_processes, again.record, again.place) == (True, False, "pack")
    given = spec_of(lk.DaskCluster("tcp://host:8786", replicas=1))
    assert given.scheduler == "tcp://host:8786"
    assert make_cluster(given).spec == given


def test_a_run_of_another_format_is_refused(tmp_path):
    store = Store(tmp_path)
    begun(tmp_path).advance(0.1)
    for given, made in ((2, "an older"), (4, "a newer")):
        write_json(store, "run.json", {**read_json(store, "run.json"), "format": given})
        for call in (lk.resume, begun):
            with pytest.raises(lk.BadInput, match=f"format {given}, made by {made} labkit; this one reads format 3"):
                call(tmp_path)


@pytest.mark.parametrize("value", [object(), MyOwn(), own_data(), lk.Problem(own_data()), {1: 2}, np.zeros(3)])
def test_user_defined_values_cannot_be_encoded(value):
    with pytest.raises(NotEncodable):
        to_dict(value)


def test_only_classes_of_labkit_are_created():
    for name in ("system", "Path", "object", "NotThere"):
        with pytest.raises(lk.BadInput, match=f"There is no {name}"):
            from_dict({"lk": name})
    with pytest.raises(lk.BadInput, match="Budget has no option 'minutes'"):
        from_dict({"lk": "Budget", "minutes": 3})
    with pytest.raises(lk.BadInput, match="has other options in this labkit"):
        from_dict({"lk": "Cosine"})


# real processes -------------------------------------------------------------------------------------------------------


class Paper(Cluster):
    """A cluster of the engine "dask" that only records how it is started."""

    engine, virtual_time = "dask", False

    def __init__(self, servers=1):
        self.spec = ClusterSpec("dask", workers=2, servers=servers)

    def start(self, plan, commands=(), checkpoint=None, resume=None):
        self.started = {"commands": list(commands), "checkpoint": checkpoint, "resume": resume}
        return type("Engine", (), {"stopped_by": None, "cluster": self, "seconds": 0.0, "hold": lambda *_: None})()

    def with_spec(self, spec):
        return Paper(spec.servers)

    def close(self):
        pass


def test_real_roles_restore_what_they_kept(tmp_path):
    faults = [lk.Slow("worker-1", 2, at=1.0)]
    lk.train(MOONS, lk.AsyncPS(), Paper(), BUDGET, checkpoint=tmp_path, faults=faults)
    Store(tmp_path).write("server-0", {"version": 7}, 7)
    with pytest.raises(lk.BadInput, match=r"The cluster .*\(Paper\)"):
        lk.resume(tmp_path)
    with pytest.raises(lk.BadInput, match="parameters on server-0; on this cluster"):
        lk.resume(tmp_path, cluster=Paper(servers=2))
    for times in (1, 2):
        its = Paper()
        run = lk.resume(tmp_path, cluster=its)
        store = its.started["resume"]
        assert (run.plan.strategy, run.plan.seed) == (lk.AsyncPS(), 3)
        assert its.started["commands"] == []
        assert its.started["checkpoint"] == store.location == str(tmp_path)
        assert store.times_resumed == times
        assert store.read("server-0") == ({"version": 7}, "")
        assert max(store.tags("server-0")) < 0  # checkpoints from now on are newer


def test_a_real_run_that_is_over_needs_another_budget(tmp_path):
    from labkit.engines.storage.journal import save_reached

    lk.train(MOONS, lk.AsyncPS(), Paper(), BUDGET, checkpoint=tmp_path)
    save_reached(Store(tmp_path), 1.0, "seconds")
    with pytest.raises(lk.BadInput, match=r"is over \(stopped by seconds\)\. To go on, give it another budget"):
        lk.resume(tmp_path, cluster=Paper())
    run = lk.resume(tmp_path, cluster=Paper(), budget=lk.Budget(seconds=9))
    assert run.plan.budget.seconds == 9
    assert lk.resume(tmp_path, cluster=Paper()).plan.budget.seconds == 9  # it continues with that one


# another machine ------------------------------------------------------------------------------------------------------


def other_last_digits(monkeypatch):
    """Compute gradients as another processor does: with other last digits."""
    gradient = Network.gradient

    def changed(self, params, x, y, out):
        loss = gradient(self, params, x, y, out)
        np.nextafter(out, out + 1, out=out)
        return loss

    monkeypatch.setattr(Network, "gradient", changed)


def differences(run):
    return [
        str(event)
        for event in run.trace.events
        if event.kind == "warning" and "the past of this run differs" in str(event)
    ]


WAYS = {
    "advanced": lambda run: run.advance(0.4),
    "waited for": lambda run: run.wait_for(lambda run: run.summary()["updates"] >= 30),
    "in steps": lambda run: [run.step() for _ in range(31)],
    "with commands": lambda run: with_commands(run),
    "over": lambda run: run.wait(),
    "stopped": lambda run: run.advance(0.4).stop(),
}


@pytest.mark.sample(11)
@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.LocalSGD()], ids=lambda s: s.name
)
@pytest.mark.parametrize("way", WAYS)
def test_resume_says_when_the_machine_computes_another_past(tmp_path, monkeypatch, way, strategy):
    run = begun(tmp_path, strategy)
    WAYS[way](run)
    losses = run.trace.column("evaluations", "loss").copy()
    del run
    same = lk.resume(tmp_path)
    assert differences(same) == []
    assert np.array_equal(same.trace.column("evaluations", "loss")[: len(losses)], losses)
    del same
    other_last_digits(monkeypatch)
    changed = lk.resume(tmp_path)
    assert not np.array_equal(changed.trace.column("evaluations", "loss")[: len(losses)], losses)
    (text,) = differences(changed)
    assert re.search(r"update \d+ at .* instead of update \d+ at .*another processor", text)


def test_a_longer_budget_is_no_other_past(tmp_path):
    begun(tmp_path).wait()
    assert differences(lk.resume(tmp_path, budget=lk.Budget(seconds=2.0))) == []
