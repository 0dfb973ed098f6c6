"""Settings of a lab, their controls, and share texts."""

from __future__ import annotations

import contextlib
import math
import re

import numpy as np
import pytest

import labkit as lk
from labkit.engines.commands import log_text, parse_log
from labkit.engines.distributions import DISTRIBUTIONS, distribution_with_mean, mean_seconds
from labkit.lab.announcement import announcement
from labkit.lab.controls import HIDDEN, controls
from labkit.lab.settings import Settings, initial_settings
from labkit.lab.share_text import read_share_text, share_text
from labkit.options import options_of
from labkit.spec import RunSpec
from labkit.strategies import FIRST, STRATEGIES
from tests.models.own_models import Linear


def test_every_strategy_can_be_chosen_and_left_again():
    for name in STRATEGIES:
        chosen = Settings().changed(servers=2, learning_rate=0.03).changed(strategy=name)
        assert type(chosen.strategy) is STRATEGIES[name]
        assert chosen.strategy.learning_rate == 0.03, name
        assert chosen.cluster.servers == (2 if chosen.strategy.uses_servers else None), name
        assert chosen.changed(strategy="async-ps").strategy.name == "AsyncPS", name


def test_a_strategy_brings_the_problem_that_it_needs():
    assert Settings().changed(strategy="sparse-ps").problem.name == "clicks"
    assert len(Settings().changed(strategy="pipeline").problem.hidden) == 3


@pytest.mark.parametrize(
    ("settings", "cause", "back", "name", "value", "words"),
    [
        ({}, {"strategy": "pipeline"}, {"strategy": "ssp"}, "hidden", (64, 64, 64),
         "Pipeline needs at least 3 hidden layers: hidden layers changed from 64,32 to 64,64,64, until another strategy"),
        ({}, {"strategy": "sparse-ps"}, {"strategy": "sync-ps"}, "data", "clicks", "data changed from digits to clicks"),
        ({"servers": 2}, {"strategy": "ring-all-reduce"}, {"strategy": "ssp"}, "servers", None,
         "RingAllReduce has no servers: servers changed from 2 to none"),
        ({"replicas": 1}, {"strategy": "dpsgd"}, {"strategy": "async-ps"}, "replicas", 0, "backups changed from 1 to 0"),
        ({"engine": "dask", "distribution": "full speed"}, {"engine": "simulated"}, {"engine": "dask"}, "distribution",
         "deterministic", "distribution of times changed from full speed to deterministic, until another engine"),
        ({"accuracy": 0.9}, {"data": "quadratic"}, {"data": "moons"}, "accuracy", None,
         "quadratic has no classes: target accuracy changed from 0.9 to none, until another data is chosen"),
    ],
)  # fmt: skip
def test_a_setting_that_another_one_replaces_is_announced_and_restored(settings, cause, back, name, value, words):
    before = Settings().changed(**settings)
    replaced = before.changed(**cause)
    assert replaced.value(name) == value != before.value(name)
    assert words in announcement(before, replaced, cause)
    other = replaced.changed(batch_size=16)
    assert (other.value(name), announcement(replaced, other, {"batch_size"})) == (value, "")
    restored = other.changed(**back)
    assert restored.value(name) == before.value(name)
    assert "changed back from" in announcement(other, restored, back)
    assert restored == before.changed(batch_size=16, **back)


def test_an_own_model_replaces_the_menus_of_the_network_and_can_be_chosen_again():
    small, large = Linear(), Linear(scale=1.0)
    dense = Settings()
    assert "model" not in {c.name for c in controls(dense)}
    chosen = dense.changed(model=small).changed(model=large)
    shown = {c.name: c for c in controls(chosen)}
    assert not {"hidden", "activation"} & shown.keys()
    assert shown["model"].value == "Linear(scale=1.0)"
    assert shown["model"].choices == (
        ("dense layers", None), ("Linear, scale=0.1", "Linear(scale=0.1)"), ("Linear, scale=1.0", "Linear(scale=1.0)"),
    )  # fmt: skip
    alone = {c.name: c for c in controls(dense.changed(model=large))}["model"]
    assert alone.choices == (("dense layers", None), ("Linear", "Linear(scale=1.0)"))
    assert chosen.changed(model=chosen.read("model", "Linear(scale=0.1)")).problem.model == small
    assert announcement(dense, chosen, {"model"}) == ""
    again = chosen.changed(model=None)
    assert (again.problem.model, again.problem.hidden) == (None, (128,))
    assert {"hidden", "activation", "model"} <= {c.name for c in controls(again)}


def test_what_an_own_model_excludes_is_refused_and_changes_nothing():
    own = Settings().changed(model=Linear())
    for change, said in (
        ({"hidden": (8,)}, "these describe labkit's network"),
        ({"activation": "tanh"}, "these describe labkit's network"),
        ({"data": "clicks"}, "ids of an embedding table"),
        ({"strategy": "tensor-parallel"}, "splits the weights of dense layers"),
        ({"model": Linear}, "write Linear()"),
        ({"model": "CNN"}, "model='CNN' is not allowed"),
    ):
        with pytest.raises(lk.BadInput, match=re.escape(said)):
            own.changed(**change)


def test_a_setting_that_was_changed_in_between_is_not_restored():
    pipeline = Settings().changed(strategy="pipeline").changed(hidden=(32, 32, 32, 32))
    back = pipeline.changed(strategy="async-ps")
    assert back.problem.hidden == (32, 32, 32, 32)
    assert announcement(pipeline, back, {"strategy"}) == ""


def test_a_strategy_that_is_chosen_again_has_its_options_again():
    ssp = Settings().changed(strategy="ssp", s=7, codec="top-k:0.02", learning_rate=0.2)
    other = ssp.changed(strategy="async-ps", learning_rate=0.1)
    assert "codec changed from top-k:0.02 to none" in announcement(ssp, other, {"strategy", "learning_rate"})
    again = other.changed(strategy="ssp")
    assert (again.strategy.s, again.strategy.codec) == (7, ssp.strategy.codec)
    assert again.strategy.learning_rate == 0.1  # an option of both is taken over
    assert other.changed(strategy="ssp", s=2).strategy.s == 2


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_a_distribution_of_any_kind_has_the_requested_mean(kind):
    distribution = distribution_with_mean(kind, 0.2)
    assert mean_seconds(distribution) == pytest.approx(0.2)
    draws = distribution.draw(np.random.default_rng(0), 400_000)
    assert draws.mean() == pytest.approx(0.2, rel=0.02)


def test_the_pace_keeps_the_distribution_and_the_distribution_keeps_the_pace():
    exponential = Settings().changed(pace=0.3).changed(distribution="exponential")
    assert exponential.cluster.compute == lk.distributions.Exponential(0.3)
    assert exponential.changed(pace=0.5).cluster.compute == lk.distributions.Exponential(0.5)


def test_full_speed_is_for_real_processes_only():
    assert Settings().changed(engine="dask", distribution="full speed").cluster.compute is None
    assert Settings().changed(distribution="full speed").cluster.compute == lk.distributions.Deterministic(0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "hybrd"}, "Did you mean 'hybrid'"),
        ({"strategy": "hybrid", "workers": 3}, "1x3, 3x1"),
        ({"workers": 0}, "from 1 to 100,000"),
        ({"workers": 2.5}, "whole number"),
        ({"learning_rate": -1}, "from 0.000001 to 10"),
        ({"rate": 1}, "no setting 'rate'"),
        ({"data": "digit"}, "Did you mean 'digits'"),
        ({"slow": {"worker-9": 2}}, "no role 'worker-9'"),
        ({"slow": {"worker-1": 0}}, "0.001 to 1000"),
        ({"learning_rate": 1e99}, "from 0.000001 to 10"),
        ({"pace": -5}, "pace is a number from 0 to 1,000,000 s"),
        ({"pace": 1e99}, "pace is a number from 0 to 1,000,000 s"),
        ({"speed": 0}, "speed is a number from 0.000001"),
        ({"distribution": "gauss"}, "no distribution 'gauss'"),
        ({"partition": "even:3"}, "takes no number"),
    ],
)
def test_invalid_settings_are_refused_with_a_message_and_change_nothing(settings, words):
    setup = Settings()
    with pytest.raises(lk.BadInput, match=words):
        setup.changed(**settings)
    assert setup == Settings()


def test_a_setup_runs_as_the_same_call_in_python_does():
    setup = Settings().changed(strategy="ssp", s=1, workers=3, pace=0.05, seconds=2, slow={"worker-1": 3}, seed=5)
    mine = lk.train(setup.problem, setup.strategy, setup.cluster_on(None), setup.budget).wait()
    cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.Deterministic(0.05), slow={"worker-1": 3})
    problem = lk.Problem("digits", hidden=(64, 32), seed=5)
    other = lk.train(problem, lk.SSP(s=1), cluster, lk.Budget(seconds=2)).wait()
    assert mine.trace.ending["parameters_sha256"] == other.trace.ending["parameters_sha256"]


def test_settings_keep_the_shape_of_a_given_cluster():
    cluster = lk.SimulatedCluster(workers=7, compute=lk.distributions.Exponential(0.2), latency=0.01, bandwidth=1e6)
    assert initial_settings(None, None, cluster, None, None).cluster_on(None) == cluster
    dask = lk.DaskCluster(workers=2, pace=0.5)  # starts no process
    seen = initial_settings(None, None, dask, None, None)
    assert seen.cluster.compute == lk.distributions.Deterministic(0.5)
    assert seen.cluster.engine == "dask"
    assert seen.cluster_on(dask).spec == dask.spec
    dask.close()


# controls -------------------------------------------------------------------------------------------------------------


def test_nine_strategies_come_first_in_the_menu():
    menu = next(c for c in controls(Settings()) if c.name == "strategy")
    assert [value for _, value in menu.choices[:9]] == list(FIRST)
    assert {value for _, value in menu.choices} == set(STRATEGIES)


def test_every_option_of_every_strategy_has_a_control_that_can_set_what_it_offers():
    for name in STRATEGIES:
        setup = Settings().changed(strategy=name)
        made = {c.name: c for c in controls(setup)}
        assert set(options_of(setup.strategy)) - HIDDEN <= set(made), name
        for control in made.values():
            assert control.label, (name, control)
            assert control.help or control.name in ("strategy", "pace", "distribution", "data", "hidden", "partition")
            if control.kind in ("menu", "steps"):
                assert control.value in [value for _, value in control.choices], (name, control.name)
                assert len({text for text, _ in control.choices}) == len(control.choices), (name, control.name)
            if control.kind == "slider":
                assert control.low <= control.value <= control.high, (name, control.name)


@pytest.mark.parametrize("name", ["async-ps", "local-sgd", "pipeline"])
def test_every_choice_of_a_control_is_accepted_or_refused_with_a_message(name):
    setup = Settings().changed(strategy=name)
    accepted = 0
    for control in controls(setup):
        for _, value in control.choices[:6]:
            if control.name == "workers" and value > 32:
                continue
            with contextlib.suppress(lk.BadInput):  # any other value is a defect of labkit
                setup.changed(**{control.name: _asked(control, value)})
                accepted += 1
    assert accepted > 40


def _asked(control, value):
    return read_share_text(f"hidden={value}")[0].problem.hidden if control.name == "hidden" else value


def test_only_the_controls_that_were_asked_for():
    assert [c.name for c in controls(Settings(), ("workers", "learning_rate"))] == ["workers", "learning_rate"]
    with pytest.raises(lk.BadInput, match="no control 'wrkers'"):
        controls(Settings(), ("wrkers",))


def test_live_controls_are_the_live_options():
    ssp = {c.name for c in controls(Settings().changed(strategy="ssp")) if c.live}
    assert ssp == {"learning_rate", "s"}


def test_controls_without_effect_are_not_offered():
    assert "servers" not in [c.name for c in controls(Settings().changed(strategy="ring-all-reduce"))]
    assert "latency" not in [c.name for c in controls(Settings().changed(engine="dask"))]
    assert "accuracy" not in [c.name for c in controls(Settings().changed(data="quadratic"))]


# share texts ----------------------------------------------------------------------------------------------------------------

RICH = {
    "optimizer": "momentum:0.8", "schedule": "warmup:50+cosine:1000", "codec": "top-k:0.02", "distribution": "exponential",
    "bandwidth": 1e6, "partition": "by-label:0.3", "hidden": (), "slow": {"worker-2": 5.0}, "data": "spirals",
    "engine": "dask", "speed": 3.0, "seconds": 7.5, "accuracy": 0.9, "clip_norm": 2.0, "chief_works": True,
}  # fmt: skip


def test_a_share_text_contains_all_settings():
    for name in STRATEGIES:
        setup = Settings().changed(strategy=name).changed(learning_rate=0.07, seed=11)
        assert read_share_text(share_text(setup))[0] == setup, name


def test_an_evaluation_time_is_part_of_a_share_text_and_of_the_cluster():
    setup = Settings().changed(evaluation_time=0.05)
    assert read_share_text(share_text(setup))[0] == setup
    assert setup.cluster_on(None).evaluation_time == setup.cluster_on(None).spec.evaluation_time == 0.05
    assert "evaluation_time" not in share_text(Settings())


def test_a_share_text_with_all_fields():
    setup = Settings().changed(**RICH)
    code = share_text(setup, scenario="one", panels="timeline,loss")
    assert read_share_text(code, ("scenario", "panels")) == (setup, {"scenario": "one", "panels": "timeline,loss"})
    assert " " not in code
    assert len(code) < 400


def test_a_share_text_can_be_written_by_hand():
    setup, _ = read_share_text("strategy=ssp&s=5&workers=8&pace=0.2&hidden=32,16")
    assert (setup.strategy.s, setup.cluster.workers, setup.cluster.compute) == (
        5,
        8,
        lk.distributions.Deterministic(0.2),
    )
    assert setup.problem.hidden == (32, 16)
    assert read_share_text("")[0] == Settings()


@pytest.mark.parametrize(
    "code",
    ["x", "workers", "workers=a", "slow=5", "strategy=foo", "foo=1", "story=x", "hidden=a", "s=3&strategy=ssp&s="],
)
def test_an_invalid_share_text_is_refused_with_a_message(code):
    with pytest.raises(lk.BadInput, match=r".{20}"):
        read_share_text(code)


def test_user_defined_parts_have_no_share_text():
    arrays = lk.from_arrays(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2)

    class Mine(lk.AsyncPS):
        pass

    for kind, spec in {
        "data set": RunSpec(problem=lk.Problem(arrays)),
        "strategy": RunSpec(strategy=Mine()),
        "model": RunSpec(problem=lk.Problem("digits", model=Linear())),
    }.items():
        with pytest.raises(lk.BadInput, match=f"is a user-defined {kind}, .*share the notebook, or choose a {kind}"):
            share_text(Settings(spec))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("clip_norm", None, "none"), ("bandwidth", math.inf, "inf"), ("optimizer", lk.Adam(), "adam"),
     ("optimizer", lk.Momentum(0.5), "momentum:0.5"), ("chief_works", True, "True"),
     ("schedule", lk.schedules.Warmup(5), "warmup:5"),
     ("partition", lk.partitions.ByLabel(0.5), "by-label:0.5"), ("hidden", (3, 4), "3,4"),
     ("slow", {"worker-1": 2.0}, "worker-1:2.0")],
)  # fmt: skip
def test_values_are_written_as_the_command_line_takes_them(name, value, text):
    spec = RunSpec().changed(**{name: value})
    assert spec.write(name) == text
    assert spec.read(name, text) == spec.value(name) == value


def test_executed_commands_are_repeated_from_a_share_text():
    setup = Settings().changed(seconds=3, pace=0.05)

    def run(faults=()):
        return lk.train(setup.problem, setup.strategy, setup.cluster_on(None), setup.budget, faults=faults)

    one = run().advance(0.5)
    one.slow("worker-2", 5)
    one.advance(0.7)
    one.set(learning_rate=0.2)
    one.wait()
    text = log_text(one.engine.commands)
    assert re.fullmatch(r"slow:worker-2:5@0.5#\d+,set:learning_rate:0.2@1.2#\d+", text)
    again = run(parse_log(text)).wait()
    assert again.trace.ending["parameters_sha256"] == one.trace.ending["parameters_sha256"]
    with pytest.raises(lk.BadInput, match=r"slow:worker-2:5@5\.0"):
        parse_log("break:everything")


def test_user_defined_parts_can_be_selected_again_by_name():
    class Mine(lk.AsyncPS):
        pass

    arrays = lk.from_arrays(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2)
    first = Settings(RunSpec(lk.Problem(arrays), Mine(learning_rate=0.3)))
    other = first.changed(strategy="sync-ps", data="moons")
    menus = {c.name: [value for _, value in c.choices] for c in controls(other)}
    assert "Mine" in menus["strategy"]
    assert arrays.name in menus["data"]
    back = other.changed(strategy="Mine", data=arrays.name)
    assert type(back.strategy) is Mine
    assert back.problem.data is arrays
