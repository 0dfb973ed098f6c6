"""The rules of a budget that depend on evaluations: `accuracy`, `loss` and `patience`, on the validation part or the test set."""

import math

import numpy as np
import pytest

import labkit as lk
from labkit.trace.exports import load_npz, save_npz
from tests.contract.engines import slow_on_processes

PART = lk.Problem("digits", hidden=(16,), validation=0.2)
STRATEGY = lk.SyncPS(learning_rate=1.0)


def first(rows, rule, value, min_delta=0.0):
    """The index of the row of (loss, accuracy) at which a rule ends the run: the definition, applied to all rows so far."""
    for n in range(1, len(rows) + 1):
        losses = [loss for loss, _ in rows[:n]]
        lowest, improved = math.inf, 0
        for i, loss in enumerate(losses):
            if loss < lowest - min_delta:
                lowest, improved = loss, i
        ends = {"accuracy": rows[n - 1][1] >= value, "loss": losses[-1] <= value, "patience": n - 1 - improved >= value}
        if ends[rule]:
            return n - 1
    return None


def rows_of(run, table):
    return list(zip(*(c.tolist() for c in run.trace.column(table, "loss", "accuracy"))))


@pytest.mark.sample(3, slow=2)
@pytest.mark.parametrize("validation", [0.0, 0.2])
@pytest.mark.parametrize(
    ("rule", "value", "more"),
    [("accuracy", 0.93, {}), ("loss", 0.28, {}), ("patience", 2, {}), ("patience", 3, {"min_delta": 0.02})],
)
def test_a_run_ends_at_the_evaluation_at_which_its_rule_first_holds(simulated, rule, value, more, validation):
    problem, table = (
        lk.Problem("digits", hidden=(16,), validation=validation),
        ("evaluations", "validations")[validation > 0],
    )
    longer = simulated.wait(problem, STRATEGY, lk.Budget(updates=1200))
    index = first(rows_of(longer, table), rule, value, more.get("min_delta", 0.0))
    assert index is not None
    assert 0 < index < len(rows_of(longer, table)) - 1
    run = simulated.wait(problem, STRATEGY, lk.Budget(updates=1200, **{rule: value}, **more))
    assert run.stopped_by == rule
    assert rows_of(run, table) == rows_of(longer, table)[: index + 1]
    update, loss, accuracy = (c[index] for c in longer.trace.column("evaluations", "update", "loss", "accuracy"))
    ending = run.trace.ending
    assert (ending["update"], ending["loss"], ending["accuracy"]) == (
        update,
        loss,
        accuracy,
    )  # the report: on the test set
    summary = run.summary()
    assert summary["stopped_on"] == ("test set", "validation part")[validation > 0]
    assert run.log[-1].endswith(f"on the {summary['stopped_on']}")
    assert f"{rule}, on the {summary['stopped_on']}" in dict(summary.rows())["stopped by"]


def test_patience_goes_on_after_a_restart_of_the_chief(simulated):
    budget = lk.Budget(updates=3000, patience=4)
    faults = [lk.Kill("chief", at=0.32 + 0.4 * i) for i in range(8)]
    run = simulated.wait(PART, STRATEGY, budget, faults=faults, restart_after=0.05, checkpoint_every=0.1)
    assert run.stopped_by == "patience"
    rows = rows_of(run, "validations")
    assert first(rows, "patience", 4) == len(rows) - 1
    assert sum(event.kind == "restarted" for event in run.trace.events) >= 2


@slow_on_processes
def test_a_run_with_a_validation_part_records_both(engine, tmp_path):
    run = engine.wait(PART, STRATEGY, lk.Budget(seconds=60, patience=3), time=lk.distributions.Deterministic(0.01))
    assert run.stopped_by == "patience"
    rows = rows_of(run, "validations")
    assert first(rows, "patience", 3) == len(rows) - 1
    network, parameters, data = PART.objective(), run.result().parameters, PART.dataset
    for table, x, y in (
        ("evaluations", data.x_test, data.y_test), ("validations", data.x_validation, data.y_validation),
    ):  # fmt: skip
        assert rows_of(run, table)[-1] == pytest.approx(network.evaluate(parameters, x, y))
    assert [*run.trace.column("evaluations", "update")] == [*run.trace.column("validations", "update")]
    summary = run.summary()
    assert (summary["validation_loss"], summary["validation_accuracy"]) == rows[-1]
    assert summary["loss"] == rows_of(run, "evaluations")[-1][0]
    again = load_npz(save_npz(run.trace, tmp_path / "run.npz"))
    assert np.array_equal(again.column("validations"), run.trace.column("validations"))
    assert again.header == run.trace.header


def test_the_curves_of_both_parts_are_drawn_and_exported(simulated):
    run = simulated.wait(PART, STRATEGY, lk.Budget(updates=60))
    x, y = run.plot.accuracy().axes[0].lines[1].get_data()
    time, accuracy = run.trace.column("validations", "time", "accuracy")
    assert np.allclose(x, time / 1e9)
    assert np.allclose(y, 100 * accuracy)
    exported = lk.to_frames(run.trace)["validations"]
    assert exported["accuracy"].tolist() == accuracy.tolist()


def test_the_model_with_rows_of_a_table(simulated):
    problem = lk.Problem("clicks", validation=0.1, options={"samples": 3000, "rows": 500})
    run = simulated.wait(problem, lk.SparsePS(), lk.Budget(updates=200, loss=0.69), servers=2)
    data = problem.dataset
    loss, accuracy = problem.objective().evaluate(run.result().parameters, data.x_validation, data.y_validation)
    assert rows_of(run, "validations")[-1] == pytest.approx((loss, accuracy))


def test_limits_that_cannot_be(simulated):
    for options, words in [
        ({"loss": -0.1}, "loss"), ({"loss": math.nan}, "loss"), ({"loss": "low"}, "loss"), ({"patience": 0}, "patience"),
        ({"patience": 2.5}, "patience"), ({"min_delta": 0.1}, "patience"), ({"patience": 2, "min_delta": -1}, "min_delta"),
    ]:  # fmt: skip
        with pytest.raises(lk.BadInput, match=words):
            lk.Budget(**options)
    timing = lk.Problem("digits", timing_only=True)
    for options in ({"loss": 0.1}, {"patience": 3}):
        with pytest.raises(lk.BadInput, match="timing only"):
            lk.train(timing, STRATEGY, simulated.cluster(), lk.Budget(seconds=1, **options))
