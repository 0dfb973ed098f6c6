"""Random faults while a worker computes one bucket and sums another, in virtual time: the ledger closes, and agrees with the
parameters. A step of 30 ms is spent in the buckets almost entirely.
"""

import random

import pytest

import labkit as lk
from tests.accounts import balanced
from tests.chaos.test_simulated import ends, goes_on

DEEP = lk.Problem("moons", hidden=(12, 10, 8), batch_size=8, options={"samples": 200})
STEP = 0.03


def faults_of(rng, workers):
    """One to six faults of workers, links and the chief within the first 15 steps."""
    found = []
    for _ in range(rng.randint(1, 6)):
        one, other = rng.sample([f"worker-{i}" for i in range(workers)], 2)
        at = rng.uniform(0, 15 * STEP)
        until = at + rng.uniform(0.001, 5 * STEP)
        found.append(
            rng.choice([
                lk.Kill(one, at=at), lk.Kill(one, at=at), lk.Kill("chief", at=at), lk.Freeze(one, at=at, until=until),
                lk.Partition(one, other, at=at, until=until), lk.Delay(one, other, seconds=STEP, at=at, until=until),
                lk.Limit(one, 5e4, at=at, until=until),
                lk.Slow(one, 3, at=at, until=until), lk.Drop(one, other, 0.3, at=at, until=until),
            ])
        )  # fmt: skip
    return found


@pytest.mark.sample(2, slow=10)
@pytest.mark.parametrize("seed", range(200))
def test_the_ledger_closes_after_faults_during_a_bucket(seed, oracle):
    rng = random.Random(seed)
    workers = rng.randint(2, 5)
    strategy = lk.BucketedAllReduce(
        bucket_size=rng.choice([1, 400, None]), on_loss=rng.choice(["wait", "continue"]), eval_every=rng.choice([1, 7])
    )
    cluster = lk.SimulatedCluster(
        workers=workers, compute=rng.choice([lk.distributions.Deterministic(STEP / 2), lk.distributions.Exponential(STEP / 2)]),
        latency=0.0005,
        bandwidth=2e5, restart_after=0.05, heartbeat_timeout=rng.choice([0.1, 10.0]), cores=rng.choice([1, 8]),
    )  # fmt: skip
    faults = faults_of(rng, workers)
    run = goes_on(lk.train(DEEP, strategy, cluster, lk.Budget(updates=40), seed=seed, faults=faults))
    if not run.done:
        plan = type("plan", (), {"seed": seed})
        ends(run, plan)
    assert run.stopped_by in ("updates", "user"), run.engine.error
    assert oracle.wrong == []
    oracle.agrees(run, balanced(run))
    replicas = [role.shard for role in run.engine.roles.values() if role.shard is not None and not role.down]
    for version in {replica.version for replica in replicas}:  # a step apart at most, when the run ends
        assert len({replica.values.tobytes() for replica in replicas if replica.version == version}) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["pause", "freeze", "step", "stop", "fork"])
def test_commands_in_the_middle_of_a_bucket(command, oracle):
    """The run is stopped 100 times within a few steps, and continues as if nothing had happened."""
    cluster = lk.SimulatedCluster(workers=3, compute=STEP / 2, latency=0.0005, bandwidth=2e5)

    def made():
        return lk.train(DEEP, lk.BucketedAllReduce(bucket_size=1), cluster, lk.Budget(updates=12))

    whole, run = made().wait(), made()
    for _ in range(100):
        run.advance(0.0042)
        if run.done:
            break
        if command == "freeze":
            run.freeze("worker-1").advance(0.0007)
            if not run.done:
                run.thaw("worker-1")
        elif command == "step":
            before = run.summary()["updates"]
            run.step()
            assert run.summary()["updates"] <= before + 1
        elif command == "fork":
            run = run.fork()
        elif command == "stop":
            one = run.fork().stop()
            assert balanced(one)["applied"] == 3 * one.summary()["updates"]
    run.wait()
    assert run.result().parameters.tobytes() == whole.result().parameters.tobytes()
    balanced(run)
