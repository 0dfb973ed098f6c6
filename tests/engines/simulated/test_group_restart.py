"""Group restart in virtual time: in strategies without servers, all members begin their next incarnation together.

A gradient takes 10 ms and nothing else takes time. A role that is killed at T is back at T + 0.8.
"""

import numpy as np
import pytest

import labkit as lk
from tests.engines.simulated.test_recovery import BACK, closed, events, started

pytestmark = pytest.mark.sample(3, slow=4)

DEEP = lk.Problem("moons", hidden=(8, 8, 8), batch_size=8, options={"samples": 200})
WHOLE = [lk.RingAllReduce, lk.HalvingDoubling, lk.BucketedAllReduce, lk.LocalSGD]


def replicas(run):
    """{worker: (parameters, version)} of present workers."""
    return {
        r.name: (r.shard.values.copy(), r.shard.version) for r in run.engine.roles.values() if r.shard and not r.down
    }


def incarnations(run):
    return {r.name: r.recorder.incarnation for r in run.engine.roles.values()}


def versions(run):
    return sorted(version for _, version in replicas(run).values())


# replicas of the whole model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Adam()], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize(
    "strategy", [lk.RingAllReduce, lk.HalvingDoubling, lk.BucketedAllReduce], ids=lambda s: s.__name__
)
def test_a_waiting_ring_continues_after_the_restart_of_its_member(strategy, optimizer):
    run = started(strategy(on_loss="wait", optimizer=optimizer, learning_rate=0.01)).advance(0.505)
    kept, memory = replicas(run)["worker-0"], run.engine.roles["worker-0"].shard.to_state()
    run.kill("worker-1").advance(BACK - 0.001)
    assert versions(run) == [50, 50]
    assert incarnations(run)["worker-0"] == 0
    run.advance(0.001)
    assert set(replicas(run)) == {"worker-0", "worker-1", "worker-2"}
    for name, (values, version) in replicas(run).items():
        assert version == 50
        assert values.tobytes() == kept[0].tobytes(), name
        state = run.engine.roles[name].shard.to_state()
        assert all(state[key].tobytes() == memory[key].tobytes() for key in memory if ":" in key)
    assert incarnations(run) == {"worker-0": 1, "worker-1": 1, "worker-2": 1, "chief": 0}
    run.advance(0.5)
    assert versions(run) == [100] * 3
    assert len({values.tobytes() for values, _ in replicas(run).values()}) == 1
    assert [str(m) for m in events(run, "group restarted")] == ["3 workers restarted from update 50"]
    entries = closed(run)
    assert (entries["rolled_back"], entries["lost"]) == (0, 0)
    assert set(entries["dropped"]) <= {"cancelled"}


@pytest.mark.parametrize("strategy", [lk.RingAllReduce, lk.HalvingDoubling], ids=lambda s: s.__name__)
def test_a_ring_that_goes_on_loses_the_round_it_was_in(strategy):
    run = started(strategy(on_loss="continue")).advance(0.505).kill("worker-1")
    assert incarnations(run) == {"worker-0": 1, "worker-1": 0, "worker-2": 1, "chief": 0}
    run.advance(BACK)
    assert versions(run) == [129] * 3  # the next of two at 0.515, the last at 1.295
    assert [str(m) for m in events(run, "group restarted")] == [
        "2 workers restarted from update 50", "3 workers restarted from update 129",
    ]  # fmt: skip
    run.advance(0.5)
    assert versions(run) == [179] * 3
    assert len({values.tobytes() for values, _ in replicas(run).values()}) == 1
    # a gradient of every worker a round: 50 of three, 79 of two, 50 of three
    assert closed(run)["applied"] == 50 * 3 + 79 * 2 + 50 * 3


def test_a_ring_of_two_is_the_run_of_its_survivor():
    """A ring of one worker computes what one process computes, at the same pace."""
    run = started(lk.RingAllReduce(on_loss="continue"), 2).advance(0.505).kill("worker-1", restart=False).advance(0.5)
    assert versions(run) == [100]
    assert not events(run, "waits")
    run.restart("worker-1").advance(0.2)
    assert versions(run) == [120, 120]
    closed(run)


def test_replicas_of_their_own_go_on_from_their_mean():
    run = started(lk.LocalSGD(H=1000, on_loss="continue")).advance(0.505)
    before = replicas(run)
    assert len({values.tobytes() for values, _ in before.values()}) == 3
    run.kill("worker-1")
    mean = (before["worker-0"][0] + before["worker-2"][0]) / np.float32(2)
    for values, _ in replicas(run).values():
        assert values.tobytes() == mean.tobytes()
    run.advance(BACK)
    assert len(replicas(run)) == 3
    run.advance(0.5)
    closed(run)


def outer_state(run, name):
    state = run.engine.roles[name].shard.to_state()
    return state["outer:velocity"].tobytes(), int(state["outer_steps"][0])


@pytest.mark.parametrize("killed", [("worker-1",), ("worker-0", "worker-1", "worker-2", "chief")], ids=len)
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_replicas_keep_one_outer_optimizer(on_loss, killed):
    """An average is due every 40 ms. A restarted member has the outer velocity of the others, or of the last checkpoint."""
    strategy = lk.LocalSGD(H=4, outer="nesterov:0.9", outer_rate=0.7, on_loss=on_loss)
    run = started(strategy, checkpoint_every=0.1, budget=lk.Budget(updates=300)).advance(0.505)
    before = outer_state(run, "worker-0")
    assert before[1] == 12
    for name in killed:
        run.kill(name)
    run.advance(BACK + 0.001)
    states = {outer_state(run, f"worker-{i}") for i in range(3)}
    assert len(states) == 1
    if on_loss == "wait" and len(killed) == 1:
        assert states == {before}
    assert states.pop()[1] >= 10
    run.advance(0.041)  # the next average
    assert len({values.tobytes() for values, _ in replicas(run).values()}) == 1
    assert len({outer_state(run, f"worker-{i}") for i in range(3)}) == 1
    run.wait()
    closed(run)


@pytest.mark.parametrize("strategy", [*WHOLE, lk.DPSGD, lk.ADPSGD], ids=lambda s: s.__name__)
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_all_members_are_killed_and_restarted(strategy, on_loss):
    run = started(strategy(on_loss=on_loss), checkpoint_every=0.1, budget=lk.Budget(updates=300)).advance(0.505)
    for name in [r.name for r in run.engine.roles.values()]:
        run.kill(name)
    run.wait()
    assert run.stopped_by == "updates"
    assert len(events(run, "restarted")) == len(run.engine.roles)
    assert run.trace.ending["lost"] == []
    closed(run)


@pytest.mark.parametrize("strategy", [*WHOLE, lk.DPSGD, lk.ADPSGD], ids=lambda s: s.__name__)
@pytest.mark.parametrize("on_loss", ["wait", "continue"])
@pytest.mark.parametrize("record", [True, False])
def test_workers_lost_one_after_the_other_are_restarted(strategy, on_loss, record):
    faults = [f"kill:worker-{i % 4}@{0.2 + 0.3 * i}" for i in range(6)]
    run = started(strategy(on_loss=on_loss), 4, budget=lk.Budget(updates=200), faults=faults, record=record).wait()
    assert run.stopped_by == "updates"
    closed(run)


# split models ---------------------------------------------------------------------------------------------------------

SPLIT = [(lk.Pipeline(), 3), (lk.TensorParallel(), 2), (lk.FSDP(), 3), (lk.PipeDream(), 3), (lk.Hybrid(), 4)]


@pytest.mark.parametrize(("strategy", "workers"), SPLIT, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("at", [0.05, 2.2])
def test_parts_of_a_split_model_go_on_from_a_version_that_all_have(strategy, workers, at):
    run = started(strategy, workers, problem=DEEP).advance(0)
    first = {name: values for name, (values, _) in replicas(run).items()}
    run.advance(at)
    common = set.intersection(*(set(run.engine.checkpoints.of(name)) for name in first))
    saved = {name: dict(run.engine.checkpoints.of(name)) for name in first}
    run.kill("worker-1").advance(BACK)
    assert set(replicas(run)) == set(first)
    goal = max(common, default=0)
    assert goal % 50 == 0
    assert bool(goal) == (at > 1)
    for name, (values, version) in replicas(run).items():
        wanted = saved[name][goal]["values"] if goal else first[name]
        assert version == goal
        assert values.tobytes() == wanted.tobytes()
    (event,) = events(run, "group restarted")
    assert str(event) == f"{workers} workers restarted from update {goal}"
    run.advance(1)
    assert min(versions(run)) > goal
    closed(run)


@pytest.mark.parametrize(("strategy", "workers"), SPLIT, ids=lambda v: getattr(v, "name", ""))
def test_a_split_model_waits_for_a_lost_part(strategy, workers):
    run = started(strategy, workers, problem=DEEP).advance(0.3).kill("worker-0", restart=False).advance(1)
    assert [str(m) for m in events(run, "waits")] == ["waits for worker-0, which was killed"]
    with pytest.raises(
        lk.ClusterError, match="waits for worker-0, which was killed, and it is not restarted automatically"
    ):
        run.wait()
    closed(run)
