"""The specification of a run: plain values, JSON, `run.json`, the command line and the share text are equivalent; hostile
values are refused in a sentence; and no option is declared twice.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pkgutil
import re
from dataclasses import replace

import click
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.cli import main
from labkit.cli.options import SECTIONS, given_options, run_specs
from labkit.data import NAMES, dataset_options
from labkit.engines.cluster_spec import ENGINES, ONLY, ClusterSpec, cluster_options
from labkit.engines.costs import Costs, Linear, WorkCost, costs_as_text
from labkit.engines.distributions import DISTRIBUTIONS, Measured, distribution_with_mean
from labkit.engines.storage.store import Store
from labkit.lab.settings import Settings
from labkit.lab.share_text import read_share_text, share_text
from labkit.manifest import load_manifest
from labkit.options import options_of, read_option, same_option, write_option
from labkit.plain_values import NotEncodable
from labkit.serialization import CLASSES, from_dict, to_dict
from labkit.spec import SHORTHANDS, RunSpec, make_cluster, spec_of, strategy_name
from labkit.strategies import STRATEGIES
from tests.refusals import check_refused

FEW = settings(max_examples=60, deadline=None)

# components of a run --------------------------------------------------------------------------------------------------

TEXTS = {
    "optimizer": ("sgd", "momentum:0.5", "nesterov", "adagrad:1e-05", "adam:0.8:0.99"),
    "schedule": ("constant", "step:100:0.25", "cosine:1000", "warmup:50+cosine:1000:0.1"),
    "codec": ("none", "top-k:0.02", "sign-sgd", "qsgd:8:64", "float16", "power-sgd:3"),
    "compensation": ("none", "constant:0.1", "adaptive:1.5:0.9"),
    "placement": ("range", "hash:3", "consistent-hash:7:2"),
    "partition": ("even", "by-label:0.3", "by-size:2", "by-weight:1,2,4", "shared", "global-batch"),
    "shape": ("2x2", "1x4"),
    "class_weights": ("balanced", "1,2.5", "spam:5,1:1e-05", "a:b:3"),
    "costs": (
        costs_as_text(Costs()),
        costs_as_text(
            Costs(WorkCost(1e-5, 1e-9), Measured((0.9, 1.1)), update=Linear(1e-6), wake=((0.1, 1e-4),), cores=2)
        ),
        costs_as_text(
            Costs(drift=Measured((0.5, 1.5)), drift_time=0.05, remote_send=Linear(1e-6), cold=[(0, 0.5)], hosts=3)
        ),
    ),
}


def numbers(k):
    """Values of a number: its limits, and anything between."""
    low, high = (-(10**6) if k.low is None else k.low), (10**6 if k.high is None else k.high)
    if k.type is int:
        return st.integers(math.ceil(low), math.floor(min(high, 2**62)))
    return st.floats(low, high, allow_nan=False)


def values(k):
    """Values that an option may have."""
    if k.name in TEXTS:
        drawn = st.sampled_from(TEXTS[k.name]).map(lambda text: read_option("test", k, text))
    elif k.names is not None:
        drawn = drawn_distributions()
    elif k.choices:
        drawn = st.sampled_from([choice for choice in k.choices if choice != ""])
    elif k.type is bool:
        drawn = st.booleans()
    else:
        assert k.type in (int, float), k.name
        drawn = numbers(k)
    return st.none() | drawn if k.optional else drawn


def drawn_distributions():
    return st.builds(distribution_with_mean, st.sampled_from(list(DISTRIBUTIONS)), st.floats(1e-3, 1e3))


def some(options):
    """Values of some of these options, by name."""
    return st.fixed_dictionaries({}, optional={name: values(k) for name, k in options.items()})


@st.composite
def problems(draw):
    data = draw(st.sampled_from(NAMES))
    known = {name: k for name, k in dataset_options(data).items() if name != "curvature"}
    options = draw(some(known))
    if data == "quadratic" and draw(st.booleans()):
        options["curvature"] = tuple(draw(st.lists(st.floats(0.1, 10), min_size=2, max_size=3)))
    given = {
        name: k for name, k in options_of(lk.Problem).items() if name not in ("data", "hidden", "options", "model")
    }
    if data == "quadratic":  # has no samples
        del given["validation"]
    hidden = draw(st.lists(st.integers(1, 100_000), max_size=3))
    return lk.Problem(data, hidden=tuple(hidden), options=options, **draw(some(given)))


@st.composite
def algorithms(draw):
    kind = draw(st.sampled_from(list(STRATEGIES.values())))
    try:
        return kind(**draw(some(options_of(kind))))
    except lk.BadInput:
        assume(False)


@st.composite
def clusters(draw, engine=None):
    engine = draw(st.sampled_from(ENGINES)) if engine is None else engine
    known = {
        name: k for name, k in cluster_options(engine).items() if name not in ("slow", "scheduler", "place", "engine")
    }
    slow = draw(st.dictionaries(st.sampled_from(("worker-0", "server-0")), st.floats(0.001, 1000)))
    more = {}
    if engine == "dask":
        more["scheduler"] = draw(st.none() | st.just("tcp://host:8786"))
        more["place"] = draw(st.none() | st.sampled_from(("spread", "pack")) | st.just({"worker": "10.0.0.3"}))
    return ClusterSpec(engine, slow=slow, **more, **draw(some(known)))


@st.composite
def budgets_of_any_kind(draw):
    given = draw(some(options_of(lk.Budget)))
    if given.get("patience") is None:  # by how much the loss must fall within it
        given.pop("min_delta", None)
    return lk.Budget(**given)


budgets = budgets_of_any_kind()
faults = st.lists(
    st.sampled_from(["kill:worker-1@2", "slow:worker-0:5@2-4", "drop:worker:server:0.05", "preempt:worker:0.01"]),
    max_size=2,
).map(lambda texts: tuple(lk.engines.faults.parse_fault(text) for text in texts))
specs = st.builds(RunSpec, problems(), algorithms(), clusters(), budgets, faults)


# plain values ---------------------------------------------------------------------------------------------------------


@FEW
@given(specs)
def test_plain_values_and_json(spec):
    text = json.dumps(spec.to_dict(), allow_nan=False)
    assert RunSpec.from_dict(json.loads(text)) == spec


@FEW
@given(specs)
def test_every_option_is_written_and_read(spec):
    for name, k in spec.options().items():
        if name in ("data", "options", "place", "distribution", "pace"):
            continue
        assert spec.read(name, spec.write(name)) == spec.value(name), (name, spec.write(name), k)
    assert spec.read("options", spec.write("options")) == spec.problem.options


@FEW
@given(clusters())
def test_a_cluster_has_the_values_of_its_specification(spec):
    assume(spec.engine == "simulated" or spec.heartbeat_timeout >= 0.6)
    assume(not spec.dashboard)  # needs bokeh, and no scheduler
    with make_cluster(spec) as cluster:
        assert spec_of(cluster) == cluster.spec
        for name in cluster_options(spec.engine):
            # None: 10 ms; own processes
            if not (name in ("compute", "may_kill") and getattr(spec, name) in (None, False)):
                assert getattr(cluster.spec, name) == getattr(spec, name), name
        assert json.dumps(cluster.describe(), allow_nan=False)


class Mine(lk.AsyncPS):
    """A user's."""


def test_a_part_that_cannot_be_encoded_is_a_name_and_a_fingerprint():
    plain = RunSpec(strategy=Mine(learning_rate=0.3)).to_dict()
    assert plain["strategy"]["custom"] == "Mine"
    assert plain["strategy"]["fingerprint"]["options"]["learning_rate"] == 0.3
    with pytest.raises(lk.BadInput, match=r"The strategy is not labkit's own \(Mine\)"):
        RunSpec.from_dict(plain)
    with pytest.raises(NotEncodable, match="made by hand"):
        to_dict(Mine())


# hostile values -------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["worker", "even", "sgd"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3) | st.just("lk"), inner, max_size=3)
    | st.builds(lambda kind, more: {"lk": kind, **more}, st.sampled_from([*CLASSES, "float", "object"]),
                st.dictionaries(st.sampled_from(["hidden", "options", "slow", "optimizer", "seconds", "is", "at", "a", "role",
                                                 "durations", "weights", "after", "data", "place", "scheduler"]), inner,
                                max_size=3)),
    max_leaves=8,
)  # fmt: skip


def read_or_refused(read, given):
    """The value read; None if it is refused in a sentence. Any other error is a defect of labkit."""
    sentence = "."
    try:
        return read(given)
    except lk.BadInput as error:
        sentence = str(error).rstrip()
    assert sentence.endswith(".")
    return None


@settings(max_examples=300, deadline=None)
@given(JSON)
@example({"lk": "ClusterSpec", "heartbeat_timeout": 10**400})
@example({"lk": "Problem", "options": {"lk": "float", "is": "nan"}})
def test_anything_is_read_or_refused_in_a_sentence(plain):
    for read in (from_dict, RunSpec.from_dict):
        read_or_refused(read, plain)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_specification_with_something_else_in_it(data):
    plain = json.loads(json.dumps(RunSpec(strategy=lk.SSP(optimizer="momentum:0.9")).to_dict()))
    part = plain[data.draw(st.sampled_from(("problem", "strategy", "cluster", "budget")))]
    part[data.draw(st.sampled_from([*part, "unknown"]))] = data.draw(JSON)
    made = read_or_refused(RunSpec.from_dict, plain)
    if made is not None:
        assert RunSpec.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_hostile_values_are_refused():
    cases = [
        ({"lk": "Budget", "minutes": 3}, "Budget has no option 'minutes'. Options: accuracy"),
        (
            {"lk": "Budget", "seconds": "soon"},
            "seconds='soon' is not allowed; seconds is a number from 0.000001 to 10**9",
        ),
        ({"lk": "Budget", "updates": 10**400}, "updates=1000"),
        ({"lk": "Popen", "args": ["true"]}, "There is no Popen in this labkit: it was written by another version."),
        ({"lk": "DaskCluster", "target": None}, "There is no DaskCluster"),
        ({"lk": ["Budget"]}, "There is no ['Budget'] in this labkit"),
        ({"lk": "Cosine"}, "Cosine has other options in this labkit"),
        ({"lk": "float", "is": "__import__('os')"}, "is not a float"),
        ({"lk": "AsyncPS", "optimizer": {"lk": "Cosine", "total": 3}}, "give one of labkit's optimizers"),
        ({"lk": "ClusterSpec", "engine": "ray"}, "engine is one of 'simulated', 'dask'"),
        ({"lk": "ClusterSpec", "place": 3}, "place=3 is not allowed"),
        (json.loads("[" * 100 + "]" * 100), "nested more than"),
    ]
    check_refused((lambda plain=plain: from_dict(plain), re.escape(message)) for plain, message in cases)


# run.json, command line, share text -----------------------------------------------------------------------------------


@st.composite
def small(draw, engine="simulated"):
    """A consistent run that a command line and a share text can express."""
    kind = draw(st.sampled_from(("async-ps", "ssp", "sync-ps", "local-sgd", "backup-workers", "ring-all-reduce")))
    try:
        strategy = STRATEGIES[kind](**draw(some(options_of(STRATEGIES[kind]))))
    except lk.BadInput:
        assume(False)
    workers = draw(st.integers(2, 6))
    servers = draw(st.sampled_from((None, 1, 2))) if strategy.uses_servers else None
    cluster = draw(clusters(engine))
    cluster = replace(
        cluster, workers=workers, servers=servers, replicas=0, max_workers=None, record=True, place=None, dashboard=False,
        may_kill=False, scheduler=None, slow=draw(st.just({}) | st.just({"worker-1": 2.5})),
        compute=cluster.compute or lk.distributions.Exponential(0.1),
    )  # fmt: skip
    given = {name: k for name, k in options_of(lk.Problem).items() if name in ("batch_size", "seed", "activation")}
    problem = lk.Problem(
        "spirals", hidden=tuple(draw(st.lists(st.integers(2, 64), min_size=1, max_size=2))),
        partition=draw(st.sampled_from(("even", "shared", "by-size:2"))), dtype=draw(st.sampled_from(("float32", "float64"))),
        options=draw(st.just({}) | st.just({"arms": 3, "noise": 0.01})), **draw(some(given)),
    )  # fmt: skip
    budget = lk.Budget(seconds=draw(st.floats(0.1, 100)), accuracy=draw(st.none() | st.floats(0.1, 1)))
    spec = RunSpec(problem, strategy, cluster, budget)
    try:
        spec.check()
    except lk.BadInput:
        assume(False)
    return spec


def train_context(words):
    command = main.commands["train"]
    return command.make_context("train", words, parent=click.Context(main, info_name="labkit"))


@FEW
@given(small() | small("dask"), faults.filter(lambda given: all(getattr(f, "a", "") == "" for f in given)))
def test_the_command_line(spec, faults):
    spec = replace(spec, faults=faults)
    words = ["--strategy", strategy_name(spec.strategy), "--engine", spec.cluster.engine]
    for name in options_of(spec.strategy):
        words += ["--set", f"{name}={spec.write(name)}"]
    for title, part, names in SECTIONS:
        for flag, name in names.items() if part != "strategy" else ():
            known = spec.options()[name]
            if known.type is bool:
                words += [f"--{flag}"] if spec.value(name) else []
            elif not title.startswith("Cluster, only") or title.endswith(spec.cluster.engine):
                words += [f"--{flag}={spec.write(name)}"]
    for name, value in spec.problem.options.items():
        words += ["--option", f"{name}={write_option(dataset_options('spirals')[name], value)}"]
    words += [word for fault in spec.faults for word in ("--fault", fault.text())]
    context = train_context(words)
    (read,) = run_specs((context.params["strategy"],), context.params["engine"], given_options(context.params))
    assert read == spec


def test_options_that_are_not_given_have_their_defaults():
    context = train_context(["--engine", "simulated"])
    (spec,) = run_specs(("async-ps",), "simulated", given_options(context.params))
    assert spec == RunSpec()


@FEW
@given(small() | small("dask"))
def test_a_share_text_restores_settings_and_extra_fields(spec):
    settings = Settings(spec).changed(speed=3.0)
    text = share_text(settings, scenario="one")
    assert read_share_text(text, ("scenario",)) == (settings, {"scenario": "one"})


def test_the_share_text_of_the_default_lab_is_short():
    assert share_text(Settings()) == "strategy=async-ps"
    assert len(share_text(Settings().changed(strategy="ssp", s=5, workers=8, pace=0.2, slow={"worker-2": 5}))) < 80


def test_share_texts_of_before_are_read():
    text = (
        "strategy=ssp&data=spirals&compute=lognormal:0.2:0.5&s=5&optimizer=momentum:0.8&engine=dask&workers=8&slow=worker-2:5.0,"
        "worker-1:2.0&bandwidth=inf&seconds=7.5&accuracy=none&hidden=none&partition=by-label:0.3&options=noise:0.1,arms:3&speed=3.0"
    )
    read, _ = read_share_text(text)
    assert (read.strategy.s, read.strategy.optimizer, read.speed) == (5, lk.Momentum(0.8), 3.0)
    assert read.cluster.compute == lk.distributions.LogNormal(0.2, 0.5)
    assert read.cluster.slow == {"worker-2": 5.0, "worker-1": 2.0}
    assert (read.problem.hidden, read.problem.options) == ((), {"noise": 0.1, "arms": 3})
    assert (read.budget.seconds, read.budget.accuracy) == (7.5, None)


@settings(max_examples=15, deadline=None)
@given(small())
def test_the_run_manifest(tmp_path_factory, spec):
    place = tmp_path_factory.mktemp("run")
    run = lk.train(spec.problem, spec.strategy, make_cluster(spec.cluster), spec.budget, checkpoint=place)
    assert RunSpec.from_dict(load_manifest(Store(place)).run) == spec
    expected = run.engine.cluster.spec
    del run  # which reserves the folder
    again = lk.resume(place)
    assert (again.plan.strategy, again.plan.problem, again.plan.budget) == (spec.strategy, spec.problem, spec.budget)
    assert again.engine.cluster.spec == expected


# once -----------------------------------------------------------------------------------------------------------------

# components of a run, too, which have their own options under their own name
OF_PARTS = (
    "labkit.nn", "labkit.data", "labkit.engines.distributions", "labkit.engines.commands", "labkit.engines.faults",
    "labkit.course", "labkit.roles.sparse.placement",
)  # fmt: skip
DIFFER = {
    ("on_loss", "AsynchronousServer"),  # asynchronous servers continue without a lost worker
    ("optimizer", "SparsePS"),  # rows are touched seldom: Adagrad
    ("compute", "SimulatedCluster"),  # in virtual time a gradient needs a time
    ("order", "Pipeline"),  # with the interleaved schedule, which `Hybrid` does not have
}  # fmt: skip


def modules():
    found = [name for _, name, _ in pkgutil.walk_packages(lk.__path__, "labkit.") if not name.endswith("__main__")]
    return [importlib.import_module(name) for name in found]


def test_no_option_is_declared_twice_with_another_range_or_default():
    seen, differ = {}, set()
    for module in modules():
        for cls in vars(module).values():
            mine = dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == module.__name__
            if not mine or module.__name__.startswith(OF_PARTS):
                continue
            for name, k in options_of(cls).items():
                if name not in cls.__annotations__:
                    continue
                kind = () if k.names is not None else (k.type, k.optional)  # objects by their names
                reported = (*kind, k.low, k.high, k.choices, k.unit, k.log, k.live, repr(k.default))
                if seen.setdefault(name, reported) != reported:
                    differ.add((name, cls.__name__))
    assert {"heartbeat_timeout", "learning_rate", "seconds", "batch_size", "checkpoint_every"} <= set(seen)
    assert differ == DIFFER


def test_an_option_belongs_to_one_part():
    for strategy in STRATEGIES.values():
        parts = (strategy, ClusterSpec, lk.Budget, lk.Problem)
        names = [name for part in parts for name in options_of(part)]
        names += [*SHORTHANDS]
        assert [name for name in names if names.count(name) > 1] == [], strategy


def test_every_option_has_help_and_numbers_have_ranges():
    for part in (*STRATEGIES.values(), ClusterSpec, lk.Budget, lk.Problem):
        for name, k in options_of(part).items():
            assert k.help, (part, name)
            assert k.type not in (int, float) or (k.low is not None and k.high is not None), (part, name)


def test_the_options_of_an_engine_are_those_of_its_cluster():
    assert set(options_of(lk.SimulatedCluster)) == set(cluster_options("simulated")) - {"engine"}
    assert not set(ONLY["simulated"]) & set(cluster_options("dask"))
    for name, k in options_of(lk.SimulatedCluster).items():
        its = options_of(ClusterSpec)[name]
        assert (k.low, k.high, k.unit, k.help, k.names, k.read) == (
            its.low,
            its.high,
            its.unit,
            its.help,
            its.names,
            its.read,
        )


def test_an_option_of_another_class():
    @dataclasses.dataclass(frozen=True)
    class Copy:
        workers: int = same_option(ClusterSpec, "workers")
        slow: dict = same_option(ClusterSpec, "slow")
        heartbeat_timeout: float = same_option(ClusterSpec, "heartbeat_timeout", default=3.0, help="s of silence")

    assert Copy() == Copy(4, {}, 3.0)
    assert (options_of(Copy)["heartbeat_timeout"].high, options_of(Copy)["heartbeat_timeout"].help) == (
        1e6,
        "s of silence",
    )
