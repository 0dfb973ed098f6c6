"""Every public callable is given wrong values, one argument at a time: numbers of another size or kind, text, lists, arrays.

Allowed are success and labkit's own errors. An error from inside (`OverflowError`, `TypeError: '<' not supported`, ...) is a bug.
"""

import dataclasses
import functools
import inspect
import math

import dask.array as dask
import numpy as np
import pytest

import labkit as lk
from labkit.options import options_of

from .public import public_objects

HUGE = 10**400


NUMBERS = {
    "nan": math.nan, "inf": math.inf, "-1": -1, "0": 0, "half": 0.5, "1e308": 1e308, "huge": 10**400, "-huge": -(10**400),
    "True": True, "np.bool_": np.bool_(True), "np.nan": np.float32("nan"), "np.int64": np.int64(2), "np.float64": np.float64(2.5),
}  # fmt: skip
TEXTS = {
    "empty": "", "x": "x", "nul": "\0", "long": "x" * 100_000, "number": "3", "url": "ftp://?#[", "a folder": "/", "bytes": b"ab",
}  # fmt: skip
OBJECTS = {
    "None": None, "list": [], "nested": [[1], [2, 3]], "dict": {}, "set": {1}, "object": object(), "class": int, "function": len,
    "array": np.zeros(3), "empty array": np.zeros((0, 3)), "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "scalar array": np.array(2),
}  # fmt: skip
WRONG = NUMBERS | TEXTS | OBJECTS

SMALL = lk.Problem("moons", hidden=(2,), batch_size=4)
TIMED = lk.Problem("moons", hidden=(), timing_only=True)


def outcome(call, allowed=(lk.LabkitError, TimeoutError)):
    """None if `call` succeeded or refused; else a description of the error."""
    try:
        call()
    except allowed as error:
        text = str(error)
        return f"a message of {len(text):,} characters" if len(text) > 4000 else None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:90]}"
    return None


def holds(cases):
    """Assert that each of [(name, call), ...] succeeds or is refused."""
    wrong = [f"{name}: {what}" for name, call in cases if (what := outcome(call)) is not None]
    assert not wrong, "\n".join(wrong)


def each_argument(name, call, good, values=None):
    """(label, call) with one argument after the other replaced by every wrong value. A list among the values is copied."""
    for argument in good:
        for label, value in (values or WRONG).items():
            value = list(value) if type(value) is list else dict(value) if type(value) is dict else value
            yield f"{name}({argument}={label})", functools.partial(call, **{**good, argument: value})


# values ---------------------------------------------------------------------------------------------------------------

DATACLASSES = {
    cls.__name__: cls for cls in public_objects().values()
    if inspect.isclass(cls) and dataclasses.is_dataclass(cls)
    and not issubclass(cls, lk.Message | Exception)
    and cls.__name__ not in ("AdviceRow", "Calibration", "Forecasts", "Guess", "Layout", "RoleSpec",
        "Scalability", "StepCosts", "Sweep")
}  # fmt: skip
NEEDED = {
    "Limit": {"roles": "worker-0"},
    "Delay": {"a": "worker-0"},
    "Drop": {"a": "worker-0"},
    "Partition": {"a": "worker-0"},
}
NEEDED |= {"Table": {"columns": ["a"], "rows": [[1]]}, "NumpyStage": {"layers": ("dense",), "outputs": 1}}
NEEDED |= {"Cosine": {"total": 10}, "StepDecay": {"every": 10}, "Warmup": {"updates": 10}}


NO_NUMBERS = ["nan", "np.nan", "huge", "-huge", "True", "np.bool_", "x", "bytes", "list", "dict", "array", "masked"]


def made(cls, **given):
    """An instance, and a description of it."""
    repr(cls(**given))


def test_wrong_values_of_options_are_refused():
    assert len(DATACLASSES) > 50
    holds(
        (f"{name}({field.name}={label})", functools.partial(made, cls, **{**NEEDED.get(name, {}), field.name: value}))
        for name, cls in DATACLASSES.items()
        for field in dataclasses.fields(cls)
        if field.init
        for label, value in WRONG.items()
    )


def test_numeric_options_refuse_values_that_are_no_numbers():
    """A numeric option refuses nan, texts, truth values, arrays of several, and numbers that no float can hold."""
    numeric = [
        (name, k.name)
        for name, cls in DATACLASSES.items()
        for k in options_of(cls).values()
        if k.type in (int, float) and k.choices is None
    ]
    assert len(numeric) > 50
    wrong = [
        f"{name}({option}={label})"
        for name, option in numeric
        for label in NO_NUMBERS
        if refused_not(functools.partial(DATACLASSES[name], **{**NEEDED.get(name, {}), option: WRONG[label]}))
    ]
    assert not wrong, "\n".join(wrong)


def refused_not(call):
    try:
        call()
    except lk.BadInput:
        return False
    return True


# clusters -------------------------------------------------------------------------------------------------------------


def cluster_arguments(cls):
    parameters = inspect.signature(cls).parameters.values()
    return [p.name for p in parameters if p.default is not p.empty and p.name[0] != "_"]


def test_a_simulated_cluster():
    def use(**given):
        lk.train(TIMED, lk.AsyncPS(), lk.SimulatedCluster(**{"workers": 2, **given}), lk.Budget(updates=3)).wait(180)

    holds(
        (f"SimulatedCluster({a}={label})", functools.partial(use, **{a: value}))
        for a in cluster_arguments(lk.SimulatedCluster)
        for label, value in WRONG.items()
    )


def test_a_cluster_of_processes():
    """Made, not started."""

    def use(**given):
        cluster = lk.DaskCluster(**given)
        repr(cluster)
        cluster.close()

    holds(
        (f"DaskCluster({a}={label})", functools.partial(use, **{a: value}))
        for a in cluster_arguments(lk.DaskCluster)
        for label, value in WRONG.items()
    )


# runs -----------------------------------------------------------------------------------------------------------------


def started(problem=TIMED):
    cluster = lk.SimulatedCluster(workers=2, compute=0.1, max_workers=3)
    return lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=20))


def test_wrong_arguments_of_train_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = {
        "problem": TIMED, "strategy": lk.AsyncPS(), "cluster": lk.SimulatedCluster(workers=2), "budget": lk.Budget(updates=2),
        "seed": 0, "faults": (), "checkpoint": None,
    }  # fmt: skip
    holds(each_argument("train", lambda **g: lk.train(**g).wait(180), good))


METHODS = {
    "wait": {"timeout": 1.0, "progress": False},
    "advance": {"seconds": 0.1, "timeout": 1.0},
    "step": {"timeout": 1.0},
    "fork": {"at": 0.1, "timeout": 1.0},
    "set": {"learning_rate": 0.1},
    "scale": {"workers": 2},
    "execute": {"command": lk.Slow("worker-0", 2.0)},
    "inject": {"faults": ()},
    "slow": {"role": "worker-0", "factor": 2.0},
    "kill": {"role": "worker-0", "restart": True},
    "restart": {"role": "worker-0"},
    "freeze": {"role": "worker-0"},
    "thaw": {"role": "worker-0"},
    "cut": {"role": "worker-0", "peer": "server-0"},
    "reconnect": {"role": "worker-0", "peer": "server-0"},
    "limit": {"role": "worker-0", "bandwidth": 1e6},
    "delay": {"role": "worker-0", "seconds": 0.1, "peer": "server-0"},
    "drop": {"role": "worker-0", "chance": 0.1, "peer": "server-0"},
    "sentence": {"t": 0.1, "reference": None},
    "wait_for": {"role": "worker-0", "timeout": 1.0},
}
FIXED = {"wait_for": {"condition": "restarted"}}  # what a function given as a condition raises is the caller's
NO_ARGUMENTS = {"stop", "pause", "resume", "summary", "result"}
LIVE = {"watch", "predictor", "serve"}  # see tests/lab, and tests/contract/test_serving.py


def test_every_method_of_a_run_is_here():
    methods = {n for n, _ in inspect.getmembers(lk.Run, inspect.isfunction) if n[0] != "_"}
    assert methods == METHODS.keys() | NO_ARGUMENTS | LIVE
    for name, good in METHODS.items():
        parameters = inspect.signature(getattr(lk.Run, name)).parameters.values()
        named = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        assert named <= good.keys() | {"self", "reference", "condition"}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_run(name):
    def use(**given):
        run = started().advance(0.2)
        try:
            getattr(run, name)(**FIXED.get(name, {}), **given)
            assert name in ("wait", "advance", "wait_for") or not run.done
        finally:
            run.wait(180)  # refused and accepted calls do not damage the run

    holds(each_argument(f"run.{name}", use, METHODS[name]))


def test_times_of_a_run_are_numbers():
    wrong = []
    for name in ("wait", "advance", "step", "fork"):
        for argument in METHODS[name].keys() - {"progress"}:
            for label in ("nan", "True", "np.bool_", "x", "huge", "bytes", "list", "array", "masked", "-1"):
                given = {**METHODS[name], argument: WRONG[label]}
                if refused_not(functools.partial(getattr(started().advance(0.2), name), **given)):
                    wrong.append(f"run.{name}({argument}={label})")
    assert not wrong, "\n".join(wrong)


def test_unknown_options_of_a_run():
    with pytest.raises(
        lk.BadInput, match=r"^AsyncPS has no setting 'lerning_rate'\. Did you mean 'learning_rate'\? Settings: "
    ):
        started().set(lerning_rate=3)


# functions ------------------------------------------------------------------------------------------------------------


def test_wrong_arguments_of_functions_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "data.csv").write_text("a,b,c\n" + "1,2,0\n2,1,1\n" * 10)
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    np.save("x.npy", x)
    fleet = lk.SimulatedCluster(workers=2, compute=0.01)
    trace = started(SMALL).wait().trace
    data = {"classes": None, "name": "mine", "seed": 0, "test_fraction": 0.2, "standardize": True, "dtype": "float32"}
    known = {"like": None}
    table = {
        "missing": ["NA"],
        "path": "data.csv",
        "target": -1,
        "header": "auto",
        "regression": False,
        "delimiter": ",",
    }
    resumed = {"path": "none", "problem": None, "strategy": None, "cluster": None, "budget": None, "timeout": None}
    functions = [
        ("young", lk.lessons.young, {"cost": 1.0, "mtbf": 100.0}),
        ("daly", lk.lessons.daly, {"cost": 1.0, "mtbf": 100.0}),
        ("load", lk.load, {"path": "there-is-none.npz"}),
        ("load_npz", lk.load_npz, {"path": "there-is-none.npz"}),
        ("save_npz", lk.save_npz, {"trace": trace, "path": "trace.npz"}),
        ("to_perfetto", lk.to_perfetto, {"trace": trace, "path": "trace.json", "arrows": 10}),
        ("resume", lk.resume, resumed),
        ("advise", lk.advise, {"problem": SMALL, "cluster": fleet}),
        ("from_arrays", lk.from_arrays, {"x": x, "y": y, **data, **known}),
        ("from_arrays", lk.from_arrays, {"x": x, "y": y, "x_test": x, "y_test": y}),
        ("from_csv", lk.from_csv, {**data, **known, **table}),
        ("from_npy", lk.from_npy, {"x": "x.npy", "y": y, **data, **known}),
        ("from_dask", lk.from_dask, {"x": dask.from_array(x), "y": dask.from_array(y), **data, "classes": 2}),
        ("fit_scalability", lk.lessons.fit_scalability, {"throughput": {1: 10.0, 2: 19.0, 4: 33.0}}),
        ("ledger", lk.ledger, {"trace": trace, "t": 10**8}),
        ("to_frames", lk.to_frames, {"trace": trace}),
    ]
    assert {call for _, call, _ in functions} <= set(public_objects().values())
    cases = [case for name, call, good in functions for case in each_argument(name, call, good)]
    holds(cases)


def test_wrong_arguments_of_a_trained_model_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clicks = lk.Problem("clicks", hidden=(2,), batch_size=4, options={"rows": 100})
    sparse = (
        lk.train(clicks, lk.SparsePS(), lk.SimulatedCluster(workers=2, compute=0.1), lk.Budget(updates=2))
        .wait()
        .result()
    )
    cases = []
    for model, good in (
        (started(SMALL).wait().result(), {"x": np.zeros((1, 2))}),
        (sparse, {"x": np.zeros((1, 10), int)}),
    ):
        for method in (model.predict, model.predict_proba):
            cases += each_argument(f"{method.__name__} of {model!r}", method, good, WRONG | SAMPLES)
        cases += each_argument("save", model.save, {"path": "model.npz"})
    holds(cases)


# pictures -------------------------------------------------------------------------------------------------------------


SAMPLES = {
    "no samples": np.zeros((0, 2)), "no features": np.zeros((3, 0)), "too many axes": np.zeros((1, 2, 3, 4)),
    "large": np.full((1, 2), 1e300), "infinite": np.full((1, 2), np.inf), "negative": -np.ones((1, 2)),
    "texts": np.array([["a", "b"]]), "complex array": np.ones((1, 2), complex), "dates": np.array(["2020"], "M8[D]"),
    "records": np.zeros(3, [("a", float)]), "truth": np.ones((1, 2), bool), "8 bits": np.ones((1, 2), np.uint8),
}  # fmt: skip
PLOTS = {
    name: set(inspect.signature(method).parameters) - {"self"}
    for name, method in inspect.getmembers(type(started().plot), inspect.isfunction) if name[0] != "_"
}  # fmt: skip


def test_the_time_of_a_picture_is_a_number():
    plots, names = started().advance(0.2).plot, [name for name in PLOTS if "t" in PLOTS[name]]
    assert len(names) > 10
    wrong = [
        f"{name}(t={label})"
        for name in names
        for label in (*NO_NUMBERS, "-1", "inf", "1e308")
        if refused_not(functools.partial(getattr(plots, name), t=WRONG[label]))
    ]
    assert not wrong, "\n".join(wrong)


def test_wrong_names_of_figure_contents_are_refused():
    plots = started().advance(0.2).plot
    samples = {"images": np.zeros((2, 4)), "labels": [0, 1], "predicted": [0, 1]}
    values = {label: WRONG[label] for label in ("x", "list", "dict", "array", "huge", "1e308")}
    cases = [*each_argument("throughput", plots.throughput, {"of": "samples"}, values)]
    cases += each_argument("loss", plots.loss, {"against": "updates", "reference": None}, values)
    cases += each_argument("predictions", plots.predictions, samples, values)
    cases += each_argument("save", plots.save, {"path": "x.png"}, {k: WRONG[k] for k in ("nul", "long", "a folder")})
    holds(cases)
