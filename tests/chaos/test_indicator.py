"""The ledger is compared with the parameters, in seeded schedules of faults in virtual time, over all strategies.

`indicator.py` describes the method. The quick suite tries one schedule for each strategy, the slow suites those that have found
defects and some more, and `LABKIT_TESTS=whole pytest -m slow tests/chaos` all 400.
"""

import random

import pytest

import labkit as lk
from labkit.nn.index_sets import Boxes
from labkit.strategies import STRATEGIES
from labkit.trace.ledger import ledger
from tests.accounts import balanced
from tests.chaos import indicator
from tests.chaos.indicator import indicated, problem_for
from tests.chaos.schedules import schedule
from tests.chaos.test_simulated import goes_on

pytestmark = pytest.mark.sample(5, slow=3)

SEEDS = [*range(21), 421]  # schedules take the strategies in turn; 421 is the first one of BucketedAllReduce
MORE_SEEDS = range(21, 421)


def started(strategy, folder, shape, updates, seed=0, faults=()):
    """A run whose gradients are marks."""
    shape = shape | (
        {"bandwidth": 1e8} if shape.get("bandwidth", 0) < 1e8 else {}
    )  # marks are long, and must be sent as fast
    room = 3 * updates * (shape.get("max_workers") or shape["workers"]) + 1500
    problem = problem_for(type(strategy), shape.get("servers") or 1, room)
    cluster = lk.SimulatedCluster(**shape)
    return lk.train(problem, indicated(strategy, folder), cluster, lk.Budget(updates=updates), seed=seed, faults=faults)


def check(run, folder):
    """Assert that the ledger agrees with the parameters and with what was computed."""
    plan, entries = run.plan, balanced(run)
    assert indicator.mistakes(folder) == []
    assert entries["computed"] == indicator.computed(folder), entries
    held = []
    if run.engine.parameters is not None:
        held.append(indicator.held_by_model(run, run.result().parameters, folder))
    if plan.strategy.name != "SparsePS" and "returned" not in run.trace.ending:
        held.append(held_by_shards(run, folder))
    for found in held:
        if plan.layout.replication == "local":
            assert (entries["applied"], entries["partly_applied"]) == (len(found.somewhere), 0), entries
        else:
            partly = len(found.somewhere - found.everywhere)
            if lacks_rows(run):  # a gradient all of whose rows are known counts as partly applied, too
                assert entries["applied"] == 0, entries
                assert entries["partly_applied"] == len(found.somewhere), entries
            else:
                assert (entries["applied"], entries["partly_applied"]) == (len(found.everywhere), partly), entries


def lacks_rows(run):
    """Whether the returned parameters are those of an evaluation on the rows of the held-out samples."""
    if run.plan.strategy.name != "SparsePS" or not run.trace.ending.get("returned"):
        return False
    returned = {shard for shard, _ in run.trace.ending["returned"]["contained"]}
    shards = [role.shard for role in run.engine.roles.values() if role.spec.kind == "server"]
    touched = {shard.index: shard.parameters.table.touched() for shard in shards}
    known = set(run.engine.parameters.ids.tolist())
    return any(not set(rows.tolist()) <= known for index, rows in touched.items() if index in returned)


def held_by_shards(run, folder):
    """The gradients that the shards of present roles hold at the end."""
    plan, records = run.plan, indicator.Records(str(folder))
    start = plan.problem.objective().start(plan.seed)
    there = [role for role in run.engine.roles.values() if role.shard is not None and not role.down]
    return indicator.Held({
        role.spec.shard: indicator.keys(plan, role.spec.shard, role.shard.values - Boxes.of(role.spec.part).take(start), records)
        for role in there
    })  # fmt: skip


def check_schedule(seed, folder):
    plan = schedule(seed, marks=True)
    print(plan)
    updates = min(plan.budget.updates, 60 if plan.strategy.name in indicator.SPLIT else 120)
    run = started(plan.strategy, folder, plan.shape, updates, seed, plan.faults)
    goes_on(run)
    if not run.done:
        run.stop()
    check(run, folder)


@pytest.mark.sample(11)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_ledger_lists_the_gradients_that_the_parameters_hold(seed, tmp_path):
    check_schedule(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_the_ledger_of_more_schedules(seed, tmp_path):
    check_schedule(seed, tmp_path)


KILLED = [
    (name, role)
    for name, kind in STRATEGIES.items()
    for role in ("chief", "worker-1", *["server-0"] * kind.uses_servers, *["replica-0"] * (name == "adpsgd"))
]


@pytest.mark.parametrize(("name", "role"), KILLED)
def test_a_role_that_is_killed_adds_nothing_to_the_ledger(name, role, tmp_path):
    """For every kind of role: it computes no gradient, or its next incarnation computes others."""
    strategy = STRATEGIES[name]()
    workers = 4 if name == "hybrid" else 2
    shape = {"workers": workers, "servers": 1 if strategy.uses_servers else None, "compute": 0.02, "restart_after": 0.2}
    run = started(strategy, tmp_path, shape, 50)
    run.inject(lk.Kill(role, at=0.1))
    check(run.wait(), tmp_path)


@pytest.mark.parametrize("role", ["worker-1", "worker-3"])
@pytest.mark.parametrize("strategy", [lk.AsyncPS, lk.SyncPS, lk.RingAllReduce, lk.LocalSGD, lk.DPSGD, lk.EASGD])
def test_workers_that_join_and_leave(strategy, role, tmp_path):
    shape = {"workers": 3, "max_workers": 5, "compute": lk.distributions.Exponential(0.02), "restart_after": 0.2}
    run = started(strategy(on_loss="continue"), tmp_path, shape, 500 if strategy is lk.AsyncPS else 80, 3)
    run.advance(0.2).scale(5)
    run.advance(0.3).kill(role)
    run.advance(0.4).scale(2)
    run.advance(0.5).scale(4)
    check(run.wait(), tmp_path)


def test_a_centre_that_was_restored_holds_what_the_next_position_holds(tmp_path):
    """EASGD pushes positions: what the centre has lost is restored by the next one. One worker, so no other contributes."""
    shape = {"workers": 1, "servers": 1, "compute": 0.02, "restart_after": 0.2, "checkpoint_every": 0.5}
    run = started(lk.EASGD(), tmp_path, shape, 40, faults=[lk.Kill("server-0", at=1.4)]).wait()
    found, entries = indicator.held_by_model(run, run.result().parameters, tmp_path), ledger(run.trace)
    assert [event for event in run.trace.events if "rolled back" in str(event)]
    assert (entries["applied"], entries["rolled_back"], entries["closes"]) == (len(found.everywhere), 0, True)


@pytest.mark.parametrize("more", [{}, {"servers": 3}, {"replicas": 1}, {"checkpoint_every": 0.5}, {"tau": 1}], ids=str)
@pytest.mark.parametrize("worker", [None, "worker-1"])
def test_positions_bring_gradients_of_other_workers_back_to_a_restored_centre(more, worker, tmp_path):
    """What worker-0 had received from the centre before the loss is restored to the centre, though worker-1 is lost, too."""
    shape = {"workers": 2, "servers": 1, "compute": 0.02, "restart_after": 0.2, "checkpoint_every": None} | more
    strategy = lk.EASGD(tau=shape.pop("tau", 4))
    run = started(strategy, tmp_path, shape, 100 // strategy.tau)
    run.advance(0.95).kill(f"server-{shape['servers'] - 1}")
    if worker:
        run.kill(worker)
    check(run.wait(), tmp_path)
    found, calls = (
        indicator.held_by_model(run, run.result().parameters, tmp_path),
        indicator.Records(tmp_path).read("calls"),
    )
    first_worker = run.trace.roles.index("worker-1")
    brought = [m for m, (role, incarnation, _) in enumerate(calls.tolist()) if role == first_worker and not incarnation]
    assert len(found.everywhere & set(brought)) > 20  # of the first incarnation of worker-1


def restored_centres(seed):
    """(strategy, shape, updates, faults) of a run of EASGD whose servers are lost again and again."""
    rng = random.Random(f"centres {seed}")
    servers, workers = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3, 5])
    shape = {
        "workers": workers, "servers": servers,
        "compute": rng.choice([lk.distributions.Deterministic(0.02), lk.distributions.Exponential(0.02)]),
        "server_time": rng.choice([None, 0.002]), "latency": rng.choice([0.0, 0.004]), "heartbeat_timeout": 0.3,
        "restart_after": rng.choice([0.0, 0.05, 0.3]), "checkpoint_every": rng.choice([None, 0.1, 0.4]),
        "checkpoint_time": rng.choice([0.0, 0.01]), "replicas": rng.choice([0, 0, 0, 1]),
    }  # fmt: skip
    strategy = lk.EASGD(tau=rng.choice([1, 2, 4]), on_loss=rng.choice(["wait", "continue"]))
    roles = [f"server-{i}" for i in range(servers)] * 2 + [f"worker-{i}" for i in range(workers)] + ["chief"]
    faults = [lk.Kill(rng.choice(roles), at=round(rng.uniform(0.1, 2.0), 3)) for _ in range(rng.choice([2, 4, 8]))]
    faults += [lk.Freeze(rng.choice(roles), at=1.0, until=rng.choice([1.2, 1.5])) for _ in range(rng.choice([0, 1]))]
    return strategy, shape, rng.choice([40, 120]), faults


# the last two: positions that were refused after the end, and are applied by a restored centre
CENTRES = [*range(8), 21, 123]


@pytest.mark.parametrize(
    "seed", [*CENTRES, *(pytest.param(n, marks=pytest.mark.slow) for n in range(150) if n not in CENTRES)]
)
def test_the_ledger_of_centres_that_are_lost_again_and_again(seed, tmp_path):
    strategy, shape, updates, faults = restored_centres(seed)
    print(strategy, shape, [fault.text() for fault in faults])
    check(started(strategy, tmp_path, shape, updates, seed, faults).wait(), tmp_path)


@pytest.mark.parametrize("options", [{}, {"dense": "server"}, {"dense": "server", "synchronous": False}], ids=str)
@pytest.mark.parametrize("victim", ["worker-0", "server-0"])
def test_rows_that_no_evaluation_has_seen_are_not_in_the_returned_table(options, victim, tmp_path):
    """The run waits for a role that is lost for good, and is stopped: there is no final evaluation, which has all rows."""
    lacking = 0
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        shape = {"workers": 3, "servers": 2, "compute": lk.distributions.Exponential(0.02), "restart_after": 0.05}
        faults = [lk.Kill("worker-1", at=0.06 + 0.01 * number)]
        run = started(lk.SparsePS(eval_every=1, **options), folder, shape, 120, number, faults)
        run.advance(0.3).kill(victim, restart=False).advance(0.05).stop()
        check(run, folder)
        lacking += lacks_rows(run)
    assert lacking or (victim == "worker-0" and options)  # then all servers answer


STOPPED = [
    lk.RingAllReduce,
    lk.HalvingDoubling,
    lk.Hybrid,
    lk.FSDP,
    lk.TensorParallel,
    lk.Pipeline,
    lk.PipeDream,
    lk.LocalSGD,
]


@pytest.mark.sample(3, slow=3)
@pytest.mark.parametrize("strategy", STOPPED)
def test_a_run_that_is_stopped_between_the_rounds_of_its_replicas(strategy, tmp_path):
    """Some replicas have made the step, and others have not yet: the ledger and the rates are those of the returned model."""
    between = 0
    for number in range(3, 9):
        folder = tmp_path / str(number)
        folder.mkdir()
        shape = {"workers": 4, "compute": lk.distributions.Exponential(0.02), "latency": 0.003}
        run = started(strategy(eval_every=4), folder, shape, 200)
        run.advance(0.3 + 0.0037 * number).stop()
        between += len({role.shard.version for role in run.engine.roles.values() if role.shard is not None}) > 1
        check(run, folder)
        found, reported = indicator.held_by_model(run, run.result().parameters, folder), run.summary()
        held = len(found.somewhere) if run.plan.layout.replication == "local" else min(map(len, found.parts.values()))
        assert round(reported["samples_per_second"] * reported["seconds"]) == held * run.plan.problem.batch_size
    assert between or strategy in (lk.FSDP, lk.TensorParallel)  # whose pieces make a step at one instant


@pytest.mark.parametrize("strategy", [lk.AsyncPS, lk.SyncPS, lk.RingAllReduce, lk.LocalSGD, lk.DPSGD, lk.PipeDream])
@pytest.mark.parametrize("ends", ["while a shard is lost", "after a long evaluation"])
def test_the_ledger_describes_the_parameters_that_were_evaluated_last(strategy, ends, tmp_path):
    """Not the shards, which have applied more since, or are lost."""
    lost = ends == "while a shard is lost"
    servers = 2 if strategy.uses_servers else None
    shape = {"workers": 3, "servers": servers, "compute": 0.02, "evaluation_time": 0.05 if lost else 0.3}
    run = started(strategy(eval_every=4), tmp_path, shape | {"restart_after": None}, 200)
    run.advance(0.5)
    if lost:
        run.kill("server-1" if servers else "worker-1")
    run.stop()
    found, entries = indicator.held_by_model(run, run.result().parameters, tmp_path), ledger(run.trace)
    partly = 0 if run.plan.layout.replication == "local" else len(found.somewhere - found.everywhere)
    assert (entries["applied"] + entries["partly_applied"], entries["partly_applied"]) == (
        len(found.somewhere),
        partly,
    ), entries
    assert run.summary()["updates"] == run.trace.ending["update"]
    held = len(found.somewhere) if run.plan.layout.replication == "local" else min(map(len, found.parts.values()))
    reported = run.summary()
    assert round(reported["samples_per_second"] * reported["seconds"]) == held * run.plan.problem.batch_size
    if strategy is lk.AsyncPS:  # an update is one gradient
        assert run.summary()["updates"] == len(found.everywhere)
    check(run, tmp_path)
