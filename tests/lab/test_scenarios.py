"""Every scenario in virtual time: it ends without intervention, and its effect is as large as its formula predicts.

The formulas are evaluated here from the rows of the traces, without labkit's panels and derived numbers.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import labkit as lk
from labkit.errors import BadInput
from labkit.lab.page.content import player
from labkit.lab.processes import Processes
from labkit.lab.scenario_runner import ScenarioRunner
from labkit.lab.scenarios import SCENARIOS, scenario_by_name
from labkit.lab.scenarios.scenario import Scenario, ScenarioStep
from labkit.lab.session import Session
from labkit.lab.settings import Settings
from labkit.lab.view import make_view
from labkit.views import PANELS
from tests.models.own_models import Linear
from tests.results.test_overlap import first_step

pytestmark = pytest.mark.sample(3)

NAMES = tuple(SCENARIOS)
S = 1_000_000_000
COMPUTE = 0  # the first of the phases
TICK = 0.25


@dataclass
class Played:
    """One step as it was shown."""

    settings: Settings
    trace: object
    reference: object


def play(scenario, answer=0):
    """{number of the step: Played} and the runner, once it has finished. The test moves the clock."""
    now, steps = 0.0, {}
    session = Session(Settings(), Processes(), lambda: now)
    runner = ScenarioRunner(session, scenario)
    runner.start()
    while True:
        steps.setdefault(runner.step, Played(session.next_run.settings, session.displayed.trace, session.reference))
        pause = runner.advance()
        if runner.asked and runner.answer is None:
            steps["asked"] = session.displayed.run.engine.seconds
            runner.commit(answer)
            runner.show_result()
        elif pause is None:
            return steps, runner
        now += TICK
        assert now < 300, "the scenario does not end"


@cache
def played_once(name):
    """One of labkit's scenarios, run to its end once for all tests; each question gets its second answer."""
    return play(SCENARIOS[name], answer=1)


def steps_of(name):
    steps, _ = played_once(name)
    return [steps[k] for k in range(len(SCENARIOS[name].steps))]


def traces(name):
    return [step.trace for step in steps_of(name)]


def applied(trace, first, last, sender=None):
    """Gradients applied in (first, last] seconds, each counted once."""
    role, time, who, count = trace.column("applies", "role", "time", "sender", "count")
    seen = (time > first * S) & (time <= last * S) & (role == trace.observed[0])
    return int(count[seen & (True if sender is None else who == trace.roles.index(sender))].sum())


def spans(trace, worker):
    """(start, end) in ns of the gradients of one worker, in order."""
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    mine = (role == trace.roles.index(worker)) & (phase == COMPUTE)
    order = np.argsort(start[mine], kind="stable")
    return start[mine][order], end[mine][order]


def training_bytes(trace, sender=None, before=math.inf):
    who, size, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    seen = (category == 0) & (sent < before)
    return int(size[seen & (True if sender is None else who == trace.roles.index(sender))].sum())


# what a scenario is ------------------------------------------------------------------------------------------------------


def test_scenarios_cannot_be_changed_and_have_the_names_they_are_listed_under():
    with pytest.raises(TypeError):
        SCENARIOS["mine"] = SCENARIOS["bubble"]
    assert NAMES[0] == "first-minute"
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())
    assert len({scenario.title for scenario in SCENARIOS.values()}) == len(SCENARIOS)


def test_a_scenario_by_its_name():
    assert scenario_by_name("bubble") is SCENARIOS["bubble"]
    with pytest.raises(BadInput, match=r"no scenario 'bubbel'. Did you mean 'bubble'\? Allowed: .*first-minute"):
        scenario_by_name("bubbel")
    with pytest.raises(BadInput, match="no scenario 3"):
        scenario_by_name(3)


def test_after_a_scenario_the_user_s_strategy_data_and_model_can_be_chosen_again():
    class Mine(lk.AsyncPS):
        pass

    arrays = lk.from_arrays(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2)
    own, cluster = {"strategy": Mine(), "data": arrays, "model": Linear()}, lk.SimulatedCluster(workers=2)
    with lk.Lab(lk.Problem(arrays, model=own["model"]), own["strategy"], cluster, lk.Budget(updates=5)) as lab:
        lab.play("buckets").stop()
        assert lab.settings.problem.model is None
        for kind in own:
            (name,) = lab.settings.own_by_name(kind)
            lab.set(**{kind: name})
        chosen = {kind: lab.settings.spec.value(kind) for kind in own} | {"data": lab.settings.problem.data}
        assert chosen == own | {"strategy": "Mine"}


def test_scenarios_have_valid_names_titles_summaries_and_panels():
    for name in NAMES:
        scenario = SCENARIOS[name]
        assert name == name.lower()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz-")
        assert len(scenario.title) <= 40, name  # it is shown in a menu
        for words in (scenario.summary, *(step.text for step in scenario.steps)):
            assert 20 <= len(words) <= 130, words
            assert words[-1] in ".?", words
            assert not words[0].islower(), words
        assert len(scenario.steps) >= 2, name  # there is something to compare
        assert not set(scenario.panels or ()) - set(PANELS), name


@pytest.mark.parametrize("engine", ["simulated", "dask"])
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_valid_on_both_engines_and_fits_a_laptop(name, engine):
    scenario = SCENARIOS[name]
    paper = Settings().changed(engine=engine)
    runner = ScenarioRunner(Session(paper, Processes()))
    for number, step in enumerate(scenario.steps):
        setup = runner.settings_of(scenario, number)
        on_paper = lk.SimulatedCluster.of(setup.cluster)
        lk.train(setup.problem, setup.strategy, on_paper, setup.budget, faults=step.faults).advance(0.0)
        thin = math.isfinite(setup.cluster.bandwidth) or setup.cluster.latency > 0
        assert setup.cluster.engine == ("simulated" if thin else engine)
        assert thin or len(setup.strategy.layout(setup.problem, on_paper).nodes) <= 10
        assert setup.budget.accuracy is None  # compared intervals are equally long, or as long as declared
        assert 4 <= setup.budget.seconds <= 12 or (scenario.question is not None and number == 0)
        if not thin:  # on a cluster, every piece of work takes longer than its messages
            assert setup.value("pace") / getattr(setup.strategy, "micro_batches", 1) >= 0.05


# execution ------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(3, slow=5)
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_ends_by_itself_and_pins_what_it_says(name):
    scenario = SCENARIOS[name]
    played, (_, runner) = steps_of(name), played_once(name)
    assert not runner.session.displayed.active
    assert runner.step == len(scenario.steps) - 1
    pinned = None
    for number, (step, seen) in enumerate(zip(scenario.steps, played)):
        assert seen.reference is pinned
        waits = scenario.question is not None and number == 0
        assert seen.trace.ending["stopped_by"] == ("user" if waits else "seconds")
        if step.pin and not waits:
            pinned = seen.trace
    assert [entry.trace for entry in runner.session.table] == [seen.trace for seen in played]
    shown = sum(seen.trace.ending["time"] for seen in played[1 if scenario.question else 0 :]) / S
    assert 14 <= shown <= 25


def test_the_question_is_asked_at_15_s_and_its_answer_is_the_measured_one():
    scenario = SCENARIOS["first-minute"]
    steps, runner = played_once("first-minute")
    assert scenario.asks_at == 15.0
    assert 15.0 <= steps["asked"] <= 15.0 + TICK
    assert (runner.answer, scenario.question.answers[runner.answer]) == (1, "50%")
    slow = steps[1].trace
    left = (applied(slow, 4.7, 9.7) / 5) / (applied(slow, 1, 3) / 2)
    assert scenario.question.answers[scenario.question.right] == f"{left:.0%}" == "20%"
    verdict = scenario.question.verdict.format(answer="50%", right="20%")
    assert verdict.startswith("You answered 50%")
    assert "20%" in verdict
    assert "{" not in verdict
    with pytest.raises(BadInput, match="already answered: 50%"):
        runner.commit(2)


def test_an_unanswered_question_holds_the_scenario():
    now = 0.0
    first = SCENARIOS["first-minute"]
    short = replace(first, steps=(ScenarioStep({"seconds": 1}), *first.steps[1:]), asks_at=9.0)
    runner = ScenarioRunner(Session(Settings(), Processes(), lambda: now), short)
    runner.start()
    while runner.advance() is not None:
        now += TICK
    assert runner.asked
    assert runner.step == 0
    assert runner.answer is None


# waiting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "synchronous", "at"), [("first-minute", 1, 3), ("slow-worker", 0, 4)])
def test_a_slow_worker_reduces_throughput_to_a_fifth_or_four_fifths(name, synchronous, at):
    """1/F = .2 where all wait; (N - 1 + 1/F)/N = .8 where none waits. Exactly, in whole gradients."""
    sync, asynchronous = traces(name)[synchronous : synchronous + 2]
    for trace, left in ((sync, 0.2), (asynchronous, 0.8)):
        assert applied(trace, 0, at) / at == pytest.approx(40, abs=1)
        assert applied(trace, 4.7, 9.7) / 5 == pytest.approx(40 * left, abs=1e-12)
    assert applied(asynchronous, 4.7, 9.7, "worker-2") == 10


def test_losing_one_of_four_workers_leaves_no_throughput_or_three_quarters_of_it():
    """From 2.55 s to 5.55 s w2 is away: 0 where all wait, (N - 1)/N where they continue; before and after 40 a second."""
    _, waits, goes_on, asynchronous = traces("worker-fails")
    for trace, left in ((waits, 0), (goes_on, 30), (asynchronous, 30)):
        assert applied(trace, 0, 2.5) / 2.5 == pytest.approx(40, abs=1)
        assert applied(trace, 2.75, 5.55) / 2.8 == pytest.approx(left, abs=1.5)
        assert applied(trace, 2.7, 5.6, "worker-2") == 0
        assert applied(trace, 6.0, 7.4) / 1.4 == pytest.approx(40, abs=3)
        assert lk.ledger(trace)["closes"]
    scenario = SCENARIOS["worker-fails"]
    assert scenario.question.answers[scenario.question.right] == "0%"
    assert scenario.asks_at <= played_once("worker-fails")[0]["asked"] <= scenario.asks_at + TICK


def test_a_lost_server_loses_the_updates_since_its_checkpoint_and_none_with_a_backup():
    """Counted from the rows: gradients that incarnation 0 applied after the first application due for a checkpoint."""
    often, backed = [], traces("server-fails")[2]
    for trace, every, dies in zip(traces("server-fails"), (2.0, 0.5), (3.55, 3.45)):
        role, time = trace.column("applies", "role", "time")
        when = np.sort(time[role == trace.roles.index("server-0")])
        when = when[when <= dies * S]
        saved, due = -1, every * S
        for k, now in enumerate(when):
            if now >= due:
                saved, due = k, now + every * S
        entries = lk.ledger(trace)
        assert entries["rolled_back"] == len(when) - 1 - saved
        assert entries["closes"]
        often.append(entries["rolled_back"])
    assert often[0] == pytest.approx(60, abs=4)  # 1.5 s at 40 a second
    assert often[1] <= 20
    entries = lk.ledger(backed)
    assert (entries["rolled_back"], entries["lost"], entries["closes"]) == (0, 0, True)
    assert "backup-0" in backed.roles
    for trace, back in zip(traces("server-fails"), (4.55, 4.45, 4.55)):
        assert applied(trace, back - 0.9, back - 0.05) == 0
        assert applied(trace, back + 0.2, back + 2.2) / 2 == pytest.approx(40, abs=3)


def test_backup_workers_are_unaffected_by_a_straggler():
    sync, backup = traces("backup-workers")
    assert applied(sync, 5, 10) / 5 == 8
    assert applied(backup, 1, 4) / 3 == applied(backup, 5, 10) / 5 == 30  # N - b = 3 gradients a step of .1 s


def test_random_times_alone_cost_the_harmonic_number():
    """A step is the largest of 8 exponential times: H_8 = 2.718 times their mean."""
    sync, asynchronous = traces("random-times")
    ends = np.array([spans(sync, f"worker-{i}")[1][:20] for i in range(8)])
    starts = np.array([spans(sync, f"worker-{i}")[0][:20] for i in range(8)])
    assert np.array_equal(
        starts[:, 1:], np.tile(ends.max(axis=0)[:-1], (8, 1))
    )  # the next begins when the last has done
    harmonic = sum(1 / k for k in range(1, 9))
    steps = applied(sync, 0, 10) / 8
    deviation = math.sqrt(sum(1 / k**2 for k in range(1, 9))) / harmonic / math.sqrt(steps)
    assert 1 / steps == pytest.approx(0.1 * harmonic / 10, rel=3 * deviation)
    assert applied(asynchronous, 0, 10) == pytest.approx(800, rel=3 / math.sqrt(800))
    assert applied(asynchronous, 0, 10) > 2 * applied(sync, 0, 10)


# staleness ------------------------------------------------------------------------------------------------------------


def replay(trace):
    """(staleness of each gradient, its sender), counted anew: updates since the sender's own last one; and what is
    outstanding at the end.
    """
    time, who, stale = trace.column("applies", "time", "sender", "staleness")
    order = np.argsort(time, kind="stable")
    read, found = dict.fromkeys(trace.role_ids("worker"), 0), []
    for version, sender in enumerate(who[order].tolist()):
        found.append(version - read[sender])
        read[sender] = version + 1
    assert found == stale[order].tolist()
    return np.array(found), who[order], sum(len(found) - version for version in read.values())


def test_mean_staleness_is_n_minus_1_for_any_slow_worker():
    """sum(staleness) = (N - 1) T - (gradients outstanding at the end): an identity in whole numbers."""
    for trace, workers in zip(traces("staleness"), (4, 4, 8)):
        found, _, residual = replay(trace)
        assert found.sum() == (workers - 1) * len(found) - residual
        assert found.mean() == pytest.approx(workers - 1, abs=0.12)
    found, who, _ = replay(traces("staleness")[1])
    slow = who == traces("staleness")[1].roles.index("worker-2")
    late = np.arange(len(found)) > len(found) / 2
    assert found[late & slow].mean() > 10
    assert found[late & ~slow].mean() < 3


def edge(staleness):
    return 2 * math.sin(math.pi / (2 * (2 * staleness + 1)))


def test_stale_and_fast_explodes_and_the_same_rate_with_fewer_workers_does_not():
    """The loss of w(k + 1) = w(k) - a w(k - tau) in the first weight, at every evaluation."""
    inside, outside, again = traces("stale-and-fast")
    assert edge(7) == pytest.approx(0.209057, abs=1e-6)
    assert edge(3) == pytest.approx(0.445042, abs=1e-6)
    for trace, workers, rate in ((inside, 8, 0.15), (outside, 8, 0.25), (again, 4, 0.25)):
        assert set(trace.column("applies", "staleness").tolist()) == set(range(workers))  # the first round, then N - 1
        w = [1.0]
        for k in range(700):
            w.append(w[-1] - rate * w[max(0, k - workers + 1)])
        update, loss = trace.column("evaluations", "update", "loss")
        assert len(update) > 50
        assert loss == pytest.approx(0.5 * np.array(w)[update.astype(int)] ** 2, rel=1e-6, abs=1e-30)
        swings = np.abs(w)
        grows = swings[400:].max() > swings[:100].max()
        assert grows == (rate > edge(workers - 1))
    assert outside.column("evaluations", "loss")[-1] > 1e6 > 1e-6 > inside.column("evaluations", "loss")[-1]


def leads(trace):
    """At each begin of a gradient: gradients its worker has finished, less the fewest that any has."""
    workers = trace.kinds.count("worker")
    both = [spans(trace, f"worker-{i}") for i in range(workers)]
    found = []
    for start, end in both:
        # the next gradient begins when the last is done, unless a gate holds the worker
        begun = np.append(start, end[-1:])
        slowest = np.min([np.searchsorted(other, begun, "right") for _, other in both], axis=0)
        own = np.arange(len(begun))
        found.append((own - slowest)[: len(start)])
    return found


def test_a_bound_limits_the_lead_of_a_fast_worker():
    """5 times faster from 2 s to 8 s: (5 - 1) 6/.1 = 240 ahead without a bound, 3 with it. And 80/s against 40/s."""
    free, bounded = traces("runaway")
    assert max(leads(free)[2]) == pytest.approx(240, abs=2)
    assert max(map(max, leads(bounded))) == 3
    assert all(max(lead) == 0 for k, lead in enumerate(leads(bounded)) if k != 2)
    assert applied(free, 3, 8) / 5 == pytest.approx(80, abs=1)
    assert applied(bounded, 3, 8) / 5 == pytest.approx(40, abs=1)


# links ----------------------------------------------------------------------------------------------------------------

M = 4 * (64 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10)  # bytes of digits, hidden (64, 32)


def step_of(trace, worker="worker-0"):
    """Seconds from one step to the next, once it runs evenly."""
    start, _ = spans(trace, worker)
    return float(np.median(np.diff(start)[3:])) / S


def test_one_link_saturates_and_many_do_not():
    """c + (N + 1) M b, or c + 2 (N - 1)/N M b; the busiest link is busy for N M b, N M b / 4, 2 (N - 1)/N M b of it."""
    workers, c, b = 16, 0.1, 1 / 8e5
    one, four, ring = traces("saturated-link")
    assert M == 26_280
    assert step_of(one) == pytest.approx(c + (workers + 1) * M * b, rel=1e-6)
    around = 2 * (workers - 1) * math.ceil(M / 4 / workers) * 4 * b  # the longest chunk sets the pace
    assert step_of(ring) == pytest.approx(c + around, rel=0.005)
    assert c + (workers / 4 + 1) * M * b <= step_of(four) <= c + (workers / 4 + 2) * M * b
    busy = [workers * M * b / step_of(one), workers * M / 4 * b / step_of(four), around / step_of(ring)]
    assert busy[0] > 0.75
    assert max(busy[1:]) < 0.55
    for trace, node, share in ((one, "server-0", busy[0]), (four, "server-3", busy[1]), (ring, "worker-5", busy[2])):
        sent = training_bytes(trace, node, before=5 * S) * b / 5
        assert sent == pytest.approx(share, rel=0.15)


def test_eight_local_steps_send_an_eighth_of_the_messages():
    workers, c, b, steps = 8, 0.1, 1 / 5e5, 8
    ring, local = traces("local-steps")
    around = 2 * (workers - 1) * math.ceil(M / 4 / workers) * 4 * b
    assert step_of(ring) == pytest.approx(c + around, rel=0.005)
    start, _ = spans(local, "worker-0")
    begun = start[::steps]  # of every round
    assert np.diff(begun) / S == pytest.approx(steps * c + around, rel=0.005)
    rounds, ring_steps = len(begun) - 1, len(spans(ring, "worker-0")[0]) - 1
    last = [float(spans(trace, "worker-0")[0][k]) for trace, k in ((ring, ring_steps), (local, rounds * steps))]
    bytes_a_gradient = [
        training_bytes(trace, "worker-0", before=time) / gradients
        for trace, time, gradients in ((ring, last[0], ring_steps), (local, last[1], rounds * steps))
    ]
    assert bytes_a_gradient[0] / bytes_a_gradient[1] == pytest.approx(8, rel=0.01)


def test_buckets_hide_communication_and_pay_latencies():
    """One bucket, one for each layer, three. The recurrence is that of tests/results/test_overlap.py."""
    workers, c, hidden, wires = 4, 0.4, (64,) * 9, {"latency": 0.005, "bandwidth": 1e6}
    found = []
    for trace, size in zip(traces("buckets")[1:], (10**9, 1, 40_000)):
        expected = first_step(hidden, size, workers, **wires, compute=c, inputs=64, outputs=10)
        steps = len(spans(trace, "worker-0")[0]) // (1 if size == 10**9 else 11) - 1
        role, time = trace.column("applies", "role", "time")
        ends = time[role == trace.roles.index("worker-0")]
        assert ends[steps] - ends[steps - 1] == pytest.approx(expected[-1][1], rel=1e-3)
        found.append(expected[-1][1])
    scenario = SCENARIOS["buckets"]
    assert scenario.question.answers[scenario.question.right] == "a few layers together"
    assert found.index(min(found)) == 2
    said = [f"{time / S:.2f} s" for time in found]
    assert f"{said[2]} instead of {said[0]}" in scenario.question.verdict


def test_fewer_bytes_for_the_same_gradient():
    """float16: half. Rank 2: 2 (n + m) values for every n x m matrix of weights, biases as they are."""
    workers, c, b = 8, 0.1, 1 / 2e5
    full = M / 4
    thin = sum(2 * (n + m) + m for n, m in ((64, 64), (64, 32), (32, 10)))
    for trace, values, size in zip(traces("fewer-bytes"), (full, full, thin), (4, 2, 4)):
        assert step_of(trace) == pytest.approx(c + 2 * (workers - 1) / workers * values * size * b, rel=0.02)
        steps = len(spans(trace, "worker-0")[0]) - 1
        sent = training_bytes(trace, before=float(spans(trace, "worker-0")[0][steps]))
        assert sent / steps == pytest.approx(2 * (workers - 1) * values * size, rel=0.01)
    final = [trace.ending["accuracy"] for trace in traces("fewer-bytes")]
    assert final == sorted(final)
    assert final[2] > final[0] + 0.1


def test_rows_instead_of_tables_are_the_same_steps_in_fewer_bytes():
    dense, sparse = traces("sparse")
    dense_bytes, sparse_bytes = (training_bytes(trace) / applied(trace, 0, 8) for trace in (dense, sparse))
    assert dense_bytes == pytest.approx(2 * 4 * (10_000 * 8 + 178), rel=0.1)  # some are in flight at the end
    other_layers = 2 * 3 * 178 * 4 / 4  # a ring of four
    ids = (sparse_bytes - other_layers) / (2 * (8 + 4 * 8))
    batches = sparse.header.problem.batch_size * 8
    assert 150 < ids < 200 < batches == 256
    assert dense_bytes / sparse_bytes > 40
    assert applied(sparse, 1, 8) > 3.5 * applied(dense, 1, 8)
    one, other = (
        dict(zip(*(c.tolist() for c in trace.column("evaluations", "update", "loss")))) for trace in (dense, sparse)
    )
    shared = sorted(set(one) & set(other))
    assert len(shared) >= 2
    assert [one[k] for k in shared] == pytest.approx([other[k] for k in shared], rel=1e-3)


# models and data ------------------------------------------------------------------------------------------------------


def test_the_bubble_equals_its_formula():
    """(P - 1)/(M + P - 1) of the time a stage is idle; a mini-batch takes (M + P - 1)/(M P) of a gradient."""
    for trace, micro in zip(traces("bubble"), (1, 4, 16)):
        took = 2.0 * (micro + 3) / (4 * micro)
        role, time = trace.column("applies", "role", "time")
        first = time[role == trace.roles.index("worker-0")] / S
        assert first == pytest.approx(took * np.arange(1, len(first) + 1), rel=1e-6)
        whole = len(first) * took
        for stage in range(4):
            start, end = spans(trace, f"worker-{stage}")
            work = (np.minimum(end / S, whole) - np.minimum(start / S, whole)).sum()
            assert 1 - work / whole == pytest.approx(3 / (micro + 3), rel=1e-4)


def test_long_local_phases_reduce_accuracy_with_skewed_data():
    even, skewed = traces("skewed-data")
    assert even.ending["accuracy"] > skewed.ending["accuracy"] + 0.05
    labels = steps_of("skewed-data")[1].settings.problem.dataset.y_train
    partition = steps_of("skewed-data")[1].settings.problem.partition
    shares = [np.bincount(labels[mine], minlength=10) / len(mine) for mine in partition.split(labels, 4, 7)]
    assert all(np.sort(share)[-4:].sum() > 0.8 for share in shares)  # four digits are most of what a worker has


def test_a_user_defined_scenario_is_played():
    mine = Scenario(
        "mine", "Mine", "Shows nothing.", (ScenarioStep({"seconds": 1}, pin=False), ScenarioStep({"seconds": 1}))
    )
    steps, runner = play(mine)
    assert runner.step == 1
    assert steps[1].reference is None


# the question ---------------------------------------------------------------------------------------------------------


def asking(watched):
    """(runner, the function that lets seconds pass) of a scenario whose question has just been asked."""
    clock = [0.0]
    session = Session(Settings(), Processes(), lambda: clock[0], slice_s=60.0)
    runner = ScenarioRunner(session, SCENARIOS["first-minute"], lambda: watched)

    def wait(seconds):
        for _ in range(round(seconds / TICK)):
            clock[0] += TICK
            pause = runner.advance()
        return pause

    runner.start()
    while not runner.asked:
        wait(TICK)
    return runner, wait


def test_a_question_waits_for_the_answer_of_a_reader():
    runner, wait = asking(watched=True)
    asked_at = runner.session.displayed.run.engine.seconds
    assert wait(100) is None
    assert (runner.step, runner.session.displayed.run.engine.seconds) == (0, asked_at)
    shown = player(make_view(runner.session, runner))
    assert (shown["lamp"], shown["below"]) == ("paused", "answer the question to go on")
    runner.session.playback.seek(S)
    runner.session.playback.live()  # after a look at the past it still waits
    assert wait(10) is None
    assert runner.session.displayed.run.engine.seconds == asked_at
    runner.commit(0)
    runner.show_result()
    wait(1)
    assert runner.step == 1
    assert player(make_view(runner.session, runner))["lamp"] == "● LIVE"


def test_a_reader_may_let_the_run_go_on_without_an_answer():
    runner, wait = asking(watched=True)
    runner.session.playback.resume()
    wait(100)
    assert (runner.step, runner.session.displayed.run.stopped_by, runner.answer) == (0, "seconds", None)


def test_the_run_of_a_script_goes_on_while_the_question_is_asked():
    runner, wait = asking(watched=False)
    wait(100)
    assert (runner.step, runner.session.displayed.run.stopped_by) == (0, "seconds")
