"""The sentence about a run's throughput is correct: expected values are computed by hand from each strategy's formula."""

from __future__ import annotations

import functools
import re

import pytest

import labkit as lk
from labkit.narrative import sentence, state
from labkit.strategies import STRATEGIES
from labkit.trace import events as ev
from tests.models.own_models import Linear

NANO = 10**9
AT, END = 5.0, 12.0
WAITS, NOT, MORE = "all wait for w2", "the others do not wait", "the others wait more than before"

# N = 4 workers, a gradient of each every 0.1 s, w2 five times slower: no worker waits: (3 + 1/5)/4; all wait: 1/5.
# K-async
# (K = 2): three fast ones make one pair every 0.1 s and two when w2 comes with the one that is left: 12 gradients in
# 0.5 s instead of 20. The first ones of backup workers and K-sync do not include w2. Split models: counted below.
EXPECTED = {
    "sync-ps": ("Synchronous", WAITS, 20),
    "async-ps": ("Asynchronous", NOT, 80),
    "ssp": ("Bounded staleness", WAITS, 20),
    "backup-workers": ("BackupWorkers", NOT, 100),
    "ring-all-reduce": ("RingAllReduce", WAITS, 20),
    "local-sgd": ("LocalSGD", WAITS, 20),
    "tensor-parallel": ("Tensor parallel", WAITS, 20),
    "pipeline": ("Pipeline", WAITS, None),
    "hybrid": ("Hybrid", WAITS, None),
    "k-sync": ("KSync", NOT, 100),
    "k-batch-sync": ("KBatchSync", NOT, 100),
    "k-async": ("KAsync", MORE, 60),
    "k-batch-async": ("KBatchAsync", NOT, 80),
    "downpour": ("Downpour", NOT, 80),
    "easgd": ("EASGD", NOT, 80),
    "halving-doubling": ("HalvingDoubling", WAITS, 20),
    "bucketed-all-reduce": ("BucketedAllReduce", WAITS, 20),
    "dpsgd": ("Gossip", WAITS, 20),
    "adpsgd": ("Asynchronous gossip", NOT, 80),
    "sparse-ps": ("Sparse", WAITS, 20),
    "pipedream": ("PipeDream", WAITS, None),
    "fsdp": ("Fully sharded", WAITS, 20),
}
SPLIT = {"tensor-parallel", "pipeline", "hybrid", "pipedream"}


def simulated(strategy, *faults, seconds=END, problem=None, **cluster):
    problem = problem or lk.Problem(**{"timing_only": True, "hidden": (16, 16, 16)} | strategy.suggested_problem)
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.Deterministic(0.1)} | cluster)
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds), faults=faults)


@functools.cache
def slowed(name):
    """w2 is slowed after 5 s."""
    return simulated(STRATEGIES[name](), lk.Slow("worker-2", 5, at=AT)).wait().trace


@functools.cache
def without_faults(name):
    return simulated(STRATEGIES[name](), seconds=3.0).wait().trace


def updates_between(trace, first, last):
    """Updates in an interval, counted from the versions of the first shard, which the sentence does not use."""
    owner = trace.observed[0]
    role, time, version = trace.column("applies", "role", "time", "version")
    versions = [version[(role == owner) & (time <= t * NANO)].max() for t in (first, last)]
    return int(versions[1] - versions[0])


def test_every_strategy_is_expected():
    assert set(EXPECTED) == set(STRATEGIES)


def test_the_sentence_names_waiting_workers_and_remaining_throughput():
    violations = []
    for name, (label, waiting, percent) in EXPECTED.items():
        trace = slowed(name)
        text = sentence(trace)
        if percent is None:
            counted = 100 * updates_between(trace, 8, 12) / 4 / (updates_between(trace, 2, 5) / 3)
            percent = int(re.search(r"fell to (\d+)%", text)[1])
            assert percent == pytest.approx(counted, abs=2), name
        left = "throughput did not change" if percent == 100 else f"throughput fell to {percent}%"
        who = "w2 computes 5x slower than " + ("before" if name in SPLIT else "the others")
        if not text.startswith(f"{who}. {label}: {waiting}; {left}."):
            violations.append(f"{name}: {text}")
    assert not violations, "\n".join(violations)


def test_the_effect_of_a_change_is_reported_once_it_is_measurable():
    """Right after the change its effect on the throughput is not measurable yet; before it, it is not mentioned."""
    violations = []
    for name in STRATEGIES:
        early, before = (sentence(slowed(name), t) for t in (round((AT + 0.15) * NANO), round(AT * NANO) - 1))
        if not early.startswith("w2 computes 5x slower") or "throughput" in early:
            violations.append(f"{name}, just after the change: {early}")
        if not before.startswith("4 workers, ") or "w2" in before:
            violations.append(f"{name}, before the change: {before}")
    assert not violations, "\n".join(violations)


def is_whole(text):
    """It begins with a name or a capital, ends with a full stop, and has no letter in place of a number and no long part."""
    return (
        re.match(r"w2 |[A-Z0-9]", text) and text.endswith(".")
        and not re.search(r"  |\.\.|;\.|:\.| K |nan|None|inf\b|\[|\{", text)
        and all(len(part) < 160 for part in re.split(r"(?<=[a-z%.)0-9])\. (?=[A-Z])", text))
    )  # fmt: skip


def test_sentences_are_whole():
    traces = [trace for name in STRATEGIES for trace in (without_faults(name), slowed(name))]
    times = (0, NANO, round(5.2 * NANO), None)
    texts = {
        sentence(trace, t, reference) for trace in traces for t in times for reference in (None, slowed("sync-ps"))
    }
    assert len(texts) > 100
    assert [text for text in texts if not is_whole(text)] == []


def test_the_sentence_of_a_run_without_faults_has_throughput_and_staleness():
    assert sentence(without_faults("async-ps")) == (
        "4 workers, 40 gradients per second. Asynchronous: no worker waits. Mean staleness 2.95 (theory: mean = N − 1 = 3)."
    )
    assert sentence(without_faults("sync-ps")) == (
        "4 workers, 40 gradients per second. Synchronous: all wait for the slowest. No gradient is stale."
    )
    assert "with the first 2 workers only." in sentence(without_faults("k-sync"))
    assert "No gradient is stale on its own replica." in sentence(without_faults("adpsgd"))
    run = simulated(lk.AsyncPS()).advance(0)
    assert sentence(run.trace) == "4 workers. Asynchronous: no worker waits. No gradient has been applied yet."
    assert state(run.trace) == "0.0 s"


def test_a_user_defined_strategy_needs_no_description():
    class Mine(lk.SyncPS):
        description = ""

    assert sentence(simulated(Mine(), seconds=1.0).wait().trace) == (
        "4 workers, 40 gradients per second. Mine. No gradient is stale."
    )
    text = sentence(simulated(Mine(), lk.Slow("worker-2", 5, at=AT)).wait().trace)
    assert text == "w2 computes 5x slower than the others. Mine: all wait for w2; throughput fell to 20%."


def test_gradients_of_a_slow_worker_have_a_high_staleness():
    """While w2 computes for 0.5 s each of the others applies five: 15 updates. By conservation the mean is N - 1."""
    text = sentence(slowed("async-ps"))
    assert "Mean staleness is 15.0 for w2, 2.2 for the others" in text
    assert 1 * 15.0 + 15 * 2.2 == 16 * 3  # of w2 there is one in sixteen
    assert "and 2.99 for all (theory: mean = N − 1 = 3)." in text


# next to a reference run -------------------------------------------------------------------------------------------------


def test_the_sentence_of_a_slowed_run_and_its_reference():
    assert sentence(slowed("async-ps"), None, slowed("sync-ps")) == (
        "w2 computes 5x slower than the others. Asynchronous: the others do not wait; throughput fell to 80%. "
        "Synchronous (reference): all wait for w2; it fell to 20%. Mean staleness 2.99, reference 0."
    )


def test_the_reference_run_has_another_fault_or_none():
    assert "Synchronous (reference): 40 gradients per second without faults." in sentence(
        slowed("async-ps"), None, without_faults("sync-ps")
    )
    other = simulated(lk.SyncPS(), lk.Slow("worker-1", 2, at=AT)).wait().trace
    assert (
        "Synchronous (reference): w1 computes 2x slower than the others; all wait for w1; throughput fell to 50%."
        in (sentence(slowed("async-ps"), None, other))
    )
    text = sentence(without_faults("async-ps"), None, slowed("ring-all-reduce"))
    assert text.startswith("4 workers, 40 gradients per second. Asynchronous: no worker waits.")
    assert "RingAllReduce (reference): 40 gradients per second." in text  # at this time it was not yet disturbed
    later = sentence(simulated(lk.AsyncPS()).wait().trace, None, slowed("ring-all-reduce"))
    reported = "w2 computes 5x slower than the others; all wait for w2; throughput fell to 20%."
    assert f"RingAllReduce (reference): {reported}" in later


def test_losses_are_compared_without_an_accuracy():
    def fitted(rate):
        strategy = lk.AsyncPS(learning_rate=rate)
        return simulated(strategy, seconds=4.0, problem=lk.Problem("quadratic")).wait().trace

    small, large = fitted(0.05), fitted(0.5)
    (lost, kept) = (float(trace.column("evaluations", "loss")[-1]) for trace in (large, small))
    assert lost > 1 > kept
    text = sentence(large, None, small)
    shown = f"{lost:,.0f}" if lost >= 1000 else f"{lost:.4g}"
    assert f"The loss is {shown}; that of the reference run was {kept:.4g} by then; mean staleness" in text


def test_a_reference_run_is_labelled_with_its_model_not_with_layers_that_it_lacks():
    dense, own = (
        simulated(lk.AsyncPS(), lk.Slow("worker-2", 5, at=AT), problem=lk.Problem("moons", **network)).wait().trace
        for network in ({"hidden": (8,)}, {"model": Linear()})
    )
    assert "The reference run (model = Linear(scale=0.1)): " in sentence(dense, None, own)
    assert "The reference run (hidden = 8): " in sentence(own, None, dense)


def test_a_reference_run_of_the_same_strategy_is_labelled_with_its_options():
    again = simulated(lk.AsyncPS(learning_rate=0.05), lk.Slow("worker-2", 5, at=AT)).wait().trace
    assert "The reference run (learning_rate = 0.05): the others do not wait; it fell to 80%." in (
        sentence(slowed("async-ps"), None, again)
    )
    assert "The reference run: the others do not wait; it fell to 80%." in sentence(again, None, again)


def test_the_throughput_of_the_reference_run_is_reported_while_there_is_no_measurement():
    """Just after the change this run has no measured throughput yet, so the sentence reports the reference run's fall."""
    text = sentence(slowed("async-ps"), round(5.2 * NANO), slowed("sync-ps"))
    assert "Synchronous (reference): all wait for w2; throughput fell to 20%." in text


@pytest.mark.slow
def test_accuracies_of_a_run_and_its_reference_are_compared():
    def learning(strategy, seconds):
        problem = lk.Problem("digits", hidden=(16,))
        return (
            simulated(strategy, seconds=seconds, problem=problem, compute=lk.distributions.LogNormal(0.05, 0.2))
            .wait()
            .trace
        )

    fast, slow, short = learning(lk.AsyncPS(), 6), learning(lk.SyncPS(), 40), learning(lk.SyncPS(), 3)
    took = {
        name: lk.trace.time_to_accuracy(trace) for name, trace in (("fast", fast), ("slow", slow), ("short", short))
    }
    assert took["short"] is None
    assert took["slow"] > took["fast"]
    assert f"95% accuracy took {took['fast']:.2f} s, reference {took['slow']:.2f} s; mean staleness" in sentence(
        fast, None, slow
    )
    last = short.column("evaluations", "accuracy")[-1]
    assert f"95% accuracy took {took['fast']:.2f} s; the reference run came to {last:.0%}" in sentence(
        fast, None, short
    )
    text = sentence(short, None, fast)
    assert re.search(
        rf"Accuracy is {last:.0%}; the reference run had \d\d% by then and 95% after {took['fast']:.2f} s", text
    )
    assert f"95% accuracy took {took['fast']:.2f} s." in sentence(fast)
    assert f"Accuracy {last:.0%}." in sentence(short)
    assert f"Accuracy {last:.0%}." not in sentence(short, NANO)


# all kinds of faults --------------------------------------------------------------------------------------------------


def test_the_sentence_names_the_slow_workers():
    for slow, who in [
        ({"worker-1": 5, "worker-2": 5}, "w1 and w2 compute 5x slower than the others."),
        ({"worker-1": 2, "worker-3": 5}, "w1 computes 2x slower and w3 5x slower than the others."),
        ({"worker-1": 0.5}, "w1 computes 2x faster than the others."),
        (
            dict.fromkeys(("worker-0", "worker-1", "worker-2", "worker-3"), 3),
            "all 4 workers compute 3x slower than they would.",
        ),
        ({"server-0": 4}, "s0 works 4x slower than it would."),
        ({"server-0": 4, "worker-1": 2}, "w1 computes 2x slower than the others and s0 works 4x slower than it would."),
        ({"chief": 4}, "the chief works 4x slower than it would."),
    ]:
        run = simulated(lk.AsyncPS(), seconds=2.0, slow=slow, server_time=lk.distributions.Deterministic(0.001)).wait()
        assert sentence(run.trace).lower().startswith(who.lower()), (slow, who)


def test_many_slow_workers_are_counted_and_not_named():
    slow = {f"worker-{i}": 2.0 + (i % 2) for i in range(10)}
    text = sentence(simulated(lk.AsyncPS(), seconds=1.0, workers=100, slow=slow).wait().trace)
    assert text.startswith("10 workers compute 2x to 3x slower than the others.")


def test_for_slowdowns_from_the_start_no_change_is_reported():
    """3 x 10 + 2 gradients per second if no worker waits, 4 x 2 if all wait."""
    text = [sentence(simulated(s, slow={"worker-2": 5}).wait().trace) for s in (lk.AsyncPS(), lk.SyncPS())]
    assert "Asynchronous: the others do not wait; 32 gradients per second." in text[0]
    assert "Synchronous: all wait for w2; 8.0 gradients per second." in text[1]


def test_a_slow_server_is_waited_for():
    """Four gradients of 0.1 s and a server that takes 0.01 s for each; ten times slower it serves ten a second."""
    run = simulated(
        lk.AsyncPS(), lk.Slow("server-0", 10, at=AT), server_time=lk.distributions.Deterministic(0.01)
    ).wait()
    text = sentence(run.trace)
    assert text.startswith("s0 works 10x slower than before. Asynchronous: all wait for s0; throughput fell to 2")


def test_no_worker_waits_for_a_fast_worker():
    """All wait for the others, as before; the fast one waits, too."""
    text = sentence(
        simulated(lk.SyncPS(), lk.Slow("worker-2", 0.2, at=AT), compute=lk.distributions.LogNormal(0.1, 0.25))
        .wait()
        .trace
    )
    assert text.startswith(
        "w2 computes 5x faster than the others. Synchronous: w2 waits for the others; throughput rose to 1"
    )
    run = simulated(lk.SSP(s=2), lk.Slow("worker-2", 0.2, at=AT)).wait()
    assert "Bounded staleness: w2 waits for the others; throughput did not change." in run.sentence()
    run = simulated(lk.AsyncPS(), lk.Slow("worker-2", 0.2, at=AT)).wait()
    assert "Asynchronous: the others do not wait; throughput rose to 200%." in run.sentence()  # (3 + 5)/4


def test_a_single_worker_is_compared_with_its_past():
    run = simulated(lk.AsyncPS(), lk.Slow("worker-0", 4, at=4.0), workers=1).wait()
    assert sentence(run.trace).startswith("w0 computes 4x slower than before. Asynchronous: throughput fell to 25%.")
    assert sentence(run.trace, 3 * NANO).startswith("1 worker, 10 gradients per second. ")


def test_a_second_slowdown_is_described_after_the_first_ended():
    faults = [lk.Slow("worker-2", 5, at=4.0, until=8.0), lk.Slow("worker-1", 2, at=14.0)]
    trace = simulated(lk.SyncPS(), *faults, seconds=20.0).wait().trace
    assert sentence(trace, 13 * NANO) == (
        "w2 is back to normal speed; throughput is back to 100%. 4 workers, 40 gradients per second. "
        "Synchronous: all wait for the slowest. No gradient is stale."
    )
    assert sentence(trace) == (
        "w1 computes 2x slower than the others. Synchronous: all wait for w1; throughput fell to 50%."
    )


def test_a_throughput_above_that_before_is_not_called_a_return_to_it():
    found = set()
    for seed in range(12):
        problem = lk.Problem("digits", timing_only=True, seed=seed)
        fault = lk.Slow("worker-2", 5, at=1.0, until=2.0)
        run = simulated(
            lk.AsyncPS(), fault, seconds=4.0, problem=problem, compute=lk.distributions.Exponential(0.1)
        ).wait()
        back, above = (
            re.search(text, run.sentence()) for text in (r"is back to (\d+)%", r"is (\d+)% of what it was before")
        )
        assert (int(back[1]) <= 100) if back else int(above[1]) >= 103
        found.add(bool(back))
    assert found == {True, False}


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_a_run_without_applied_gradients_says_so(name):
    for record in (True, False):
        fault = lk.Slow("worker-0", 2, at=0.35, until=0.45)
        run = simulated(STRATEGIES[name](), fault, seconds=3.0, record=record)
        for _ in range(8):
            run.advance(0.125)
            nothing = lk.ledger(run.trace)["applied"] == 0
            assert ("No gradient has been applied yet" in run.sentence()) <= nothing, run.sentence()
            assert not re.search("[1-9].* gradients per second.*No gradient has", run.sentence())


def test_lost_roles_are_named():
    run = simulated(lk.AsyncPS()).advance(6.0)
    run.engine.trace.event(ev.RoleKilled(5 * NANO, "worker-1"))
    assert sentence(run.trace).startswith("w1 is down. Asynchronous: ")
    run.engine.trace.event(ev.RoleFrozen(5 * NANO + 1, "worker-2"))
    assert sentence(run.trace).startswith("w1 is down and w2 is frozen. ")
    run.engine.trace.event(ev.RoleRestarted(5 * NANO + 2, "worker-1", 1))
    run.engine.trace.event(ev.RoleThawed(5 * NANO + 2, "worker-2"))
    assert sentence(run.trace).startswith("w1 and w2 are back; throughput is back to ")


def test_lost_roles_are_named_until_they_are_restarted():
    run = simulated(lk.AsyncPS()).advance(6.0)
    event = run.engine.trace.event
    event(ev.LinkCut(5 * NANO, "worker-1", None))
    event(ev.LinkCut(5 * NANO, "worker-2", "server-0"))
    assert sentence(run.trace).startswith("w1 is cut off. ")
    event(ev.RoleLost(5 * NANO + 1, "worker-1", 0, "was silent for 5 s"))
    event(ev.RoleLeft(5 * NANO + 1, "worker-1"))
    assert sentence(run.trace).startswith("w1 is lost. ")
    event(ev.LinkReconnected(5 * NANO + 2, "worker-1", None))
    assert sentence(run.trace).startswith("w1 is lost. ")  # that was its earlier incarnation
    event(ev.RoleLeft(5 * NANO + 3, "worker-2"))
    assert sentence(run.trace).startswith("w1 is lost and w2 has left. ")
    event(ev.RoleRestarted(5 * NANO + 4, "worker-1", 1))
    event(ev.RoleJoined(5 * NANO + 4, "worker-2", 1))
    assert sentence(run.trace).startswith("w1 and w2 are back")


def test_the_sentence_reports_that_no_gradient_is_applied():
    """A thousand times slower: no worker receives new weights within the time."""
    text = sentence(simulated(lk.SyncPS(), lk.Slow("worker-2", 1000, at=AT)).wait().trace)
    assert "Synchronous: no gradient is applied." in text


def test_the_sentence_of_a_diverged_run_names_the_divergence():
    problem = lk.Problem("digits", hidden=(16,))
    run = simulated(lk.AsyncPS(learning_rate=10.0, optimizer=lk.Momentum(0.99)), problem=problem).wait()
    assert run.stopped_by == "diverged"
    assert re.match(
        r"AsyncPS diverged: the loss is no longer a finite number at update \d+, learning_rate 10\. ", run.sentence()
    )
    assert "diverged" not in run.sentence(0.05)


def test_the_sentence_of_a_deadlocked_run_names_the_deadlock():
    class Stuck(lk.SyncPS):
        async def server(self, ctx, shard):
            async for _ in ctx.inbox(lk.Push, lk.Pull):
                pass

    run = simulated(Stuck())
    with pytest.raises(lk.Deadlock):
        run.wait()
    assert re.match(r"Deadlock after 0\.000 s: .*\. 4 workers\. ", run.sentence())


# the same at the time and later ---------------------------------------------------------------------------------------


def test_the_sentence_of_a_past_time_equals_the_one_shown_at_that_time():
    for name in ("async-ps", "sync-ps", "ring-all-reduce", "backup-workers", "local-sgd", "pipeline"):
        trace, going = slowed(name), simulated(STRATEGIES[name](), lk.Slow("worker-2", 5, at=AT))
        for t in (0.0, 0.33, 2.0, 4.95, 5.05, 6.5, 8.0, 11.0):
            going.advance(t - going.engine.seconds)
            assert sentence(trace, round(t * NANO)) == going.sentence() == going.sentence(t), (name, t)


def test_totals_without_rows_are_enough_for_a_sentence():
    """Without rows the past is unknown, and no value is invented for it."""
    run = simulated(lk.AsyncPS(), lk.Slow("worker-2", 5, at=AT), record=False).wait()
    assert run.sentence() == "w2 computes 5x slower than the others. Asynchronous: no worker waits."
