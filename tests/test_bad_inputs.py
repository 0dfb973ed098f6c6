"""Invalid arguments are refused with one sentence, before anything starts."""

import functools
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.data import load
from labkit.options import options_of, parse_option
from tests.refusals import check_refused

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


def test_invalid_problems_are_refused():
    cases = [
        ({"partition": 3}, r"^partition=3: give a name, as 'by-label:0\.5', or a partition"),
        ({"partition": lk.partitions.Even}, r"^Problem: partition=Even is a class; write Even\(\)\."),
        ({"hidden": 1.5}, r"^hidden=1\.5: the widths of the hidden layers are whole numbers from 1 to 100000"),
        ({"hidden": (True,)}, r"^hidden=\(True,\): the widths"),
        ({"hidden": True}, r"^hidden=True: the widths"),
        ({"hidden": None}, r"^hidden=None: the widths"),
        ({"hidden": "8"}, r"^hidden='8': the widths"),
        ({"options": 3}, r"^options=3: give the data set's options by name"),
        ({"options": {"nose": 1}}, r"^moons has no option 'nose'\. Did you mean 'noise'\? Options: "),
        ({"options": {"seed": 1}}, r"^moons has no option 'seed'\."),
        ({"options": {"noise": -1}}, r"^moons: noise=-1 is not allowed; noise is a number from 0 to 10\."),
        ({"data": "digits", "options": {"noise": 1}}, r"^options: digits has none, and was given 'noise'\."),
        ({"data": load("moons"), "options": {"noise": 1}}, r"^options: moons has none, and was given 'noise'\."),
    ]
    check_refused((lambda given=given: lk.Problem(**{"data": "moons", **given}), message) for given, message in cases)


def test_invalid_values_are_refused():
    check_refused(
        [
            (lambda: lk.SyncPS(optimizer=lk.SGD), r"^SyncPS: optimizer=SGD is a class; write SGD\(\)\."),
            (
                lambda: lk.SyncPS(schedule=lk.schedules.Constant),
                r"^SyncPS: schedule=Constant is a class; write Constant\(\)",
            ),
            (
                lambda: lk.SparsePS(placement=lk.placements.HashPlacement),
                r"^SparsePS: placement=HashPlacement is a class; write HashPl",
            ),
            (
                lambda: lk.SparsePS(placement=["hash"]),
                r"^There is no placement \['hash'\]\. .*Allowed: consistent-hash, hash",
            ),
            (lambda: lk.Hybrid(shape=(2, 2)), r"^Hybrid: shape=\(2, 2\) is not allowed; shape is text, as '2x2'\."),
            (
                lambda: parse_option("SSP", options_of(lk.SSP), "S=3"),
                r"^SSP has no setting 'S'\. Did you mean 's'\? Settings: ",
            ),
            (lambda: lk.SimulatedCluster(slow=["worker-1"]), r"^slow=\['worker-1'\]: say who is how many times slower"),
            (lambda: lk.SimulatedCluster(slow={"worker-1": "x"}), r"^factor='x': how many times slower is a number"),
            (lambda: lk.SimulatedCluster(slow={"worker-1": True}), r"^factor=True: how many"),
        ]
    )


def test_invalid_arguments_of_train_are_refused():
    cases = [
        ({"cluster": lk.SimulatedCluster}, r"^cluster=<class .*: give lk\.DaskCluster\(workers=4\) or"),
        ({"cluster": lk.SimulatedCluster(slow={"worker-9": 2})}, r"^There is no role 'worker-9'\. Did you mean"),
        ({"faults": 3}, r"^faults: 3 is not a fault; give for example lk\.Slow"),
        ({"faults": [lk.Slow]}, r"^faults: <class .* is not a fault"),
        ({"faults": lk.Slow("worker-9")}, r"^There is no role 'worker-9'"),
    ]
    good = {"problem": TIMING, "strategy": lk.AsyncPS(), "cluster": lk.SimulatedCluster()}
    check_refused((lambda given=given: lk.train(**{**good, **given}), message) for given, message in cases)


def test_a_single_fault_is_a_list_of_one():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(), lk.Budget(updates=9), faults=lk.Slow("worker-1", 3))
    assert [str(m) for m in run.wait().trace.events] == ["worker-1 computes 3x slower"]


@dataclass(frozen=True)
class Steps(lk.distributions.Deterministic.__base__):
    """A user-defined distribution."""

    low: float = 0.25

    def draw(self, rng, n):
        """Sometimes twice as long."""
        return self.low * rng.integers(1, 3, n)


def test_a_user_defined_distribution():
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(compute=Steps(0.5)), lk.Budget(updates=20)).wait()
    assert run.trace.header.cluster.compute == "Steps(low=0.5)"
    _, start, end = (
        c[run.trace.column("spans", "phase") == 0] for c in run.trace.column("spans", "role", "start", "end")
    )
    assert set(((end - start) / 1e9).tolist()) == {0.5, 1.0}


def test_a_loaded_predictor_can_be_saved_again(tmp_path):
    problem = lk.Problem("moons", hidden=(4,), seed=3)
    run = lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(), lk.Budget(updates=9)).wait()
    model = run.result()
    again = lk.load(lk.load(model.save(tmp_path / "a.npz")).save(tmp_path / "b.npz"))
    evaluated = {"accuracy": run.summary()["accuracy"], "update": 9, "time": 0.03}
    assert again.about == model.about == problem.describe() | evaluated
    assert np.array_equal(again.parameters, model.parameters)


@pytest.mark.parametrize(
    ("workers", "servers", "message"), [(1, 1, "1 worker, 1 server,"), (2, 3, "2 workers, 3 servers,")]
)
def test_one_worker_and_one_server_are_written_in_the_singular(workers, servers, message):
    run = lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=workers, servers=servers), lk.Budget(updates=9))
    assert message in str(run.wait().summary())


def test_invalid_arguments_of_runs_and_files_are_refused():
    calls = [
        lambda run: run.wait(float("nan")), lambda run: run.advance(True), lambda run: run.advance("x"), lambda run: run.kill([]),
        lambda run: run.kill("worker-0", restart="no"), lambda run: run.step(-1), lambda run: run.fork(True),
        lambda run: lk.resume("\0"), lambda run: lk.resume("x" * 5000), lambda run: lk.load(3), lambda run: lk.load("x/" * 4000),
        lambda run: lk.Budget(updates=10**400), lambda run: lk.SimulatedCluster(compute=10**400),
        lambda run: lk.lessons.young(10**400, 1), lambda run: lk.Problem("moons", batch_size=10**5000),
    ]  # fmt: skip
    runs = [lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=50)) for _ in calls]
    check_refused((functools.partial(call, run), "") for call, run in zip(calls, runs))
