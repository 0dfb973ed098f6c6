"""A program of a user, without mistakes. Each `assert_type` is the type that a type checker knows."""

# pyright: strict, reportUnknownMemberType=false, reportUnknownArgumentType=false

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import labkit as lk
from labkit.data import DataPartition, Dataset
from labkit.engines.distributions import Distribution
from labkit.forecasts.advice.advise import Advice
from labkit.nn import SparseParameters
from labkit.summary import Summary
from labkit.views import LabFigure, Plots

# problems

problem = lk.Problem("digits", hidden=(8,))
lk.Problem("digits", hidden=[64, 32], batch_size=16, partition="by-label:0.5", dtype="float64")
lk.Problem("clicks", options={"rows": 1000}, partition=lk.partitions.ByWeight((1, 2)), timing_only=True)
assert_type(problem.hidden, tuple[int, ...])
assert_type(problem.partition, DataPartition)
data = lk.from_arrays(np.zeros((10, 2)), [0, 1] * 5, classes=2)
assert_type(data, Dataset)
lk.Problem(data)
assert_type(lk.from_csv(Path("points.csv"), target="label"), Dataset)
assert_type(lk.from_csv("more.csv", classes=["no", "yes"], missing=["", "-"], like=data), Dataset)
assert_type(replace(problem, seed=1), lk.Problem)

# strategies

strategy = lk.AsyncPS(
    learning_rate=0.05,
    optimizer=lk.Momentum(0.9),
    schedule=lk.schedules.Warmup(50, after=lk.schedules.Cosine(1000)),
    codec="top-k:0.01",
    compensation=lk.DelayCompensation(0.04),
    clip_norm=None,
)
lk.SSP(s=3, optimizer="adam", schedule="cosine:1000", codec=lk.codecs.TopK(0.01))
assert_type(strategy.learning_rate, float)
assert_type(strategy.changed(learning_rate=0.1), lk.AsyncPS)
assert_type(strategy.mean_staleness(4), float | None)
lk.SyncPS(schedule=lambda update: 1 / (1 + update))


@dataclass(frozen=True)
class TwoPoints(Distribution):
    """A distribution of the user."""

    fast: float = 0.01
    slow: float = lk.option(0.1, low=0.0, high=10.0, unit="s", help="time of a slow gradient")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < 0.5, self.fast, self.slow)


# clusters

cluster = lk.SimulatedCluster(workers=4, servers=2, compute=0.1, latency=1e-3, slow={"worker-2": 5})
lk.SimulatedCluster(compute=TwoPoints(slow=0.2), server_time=lk.distributions.Exponential(0.01), restart_after=None)
lk.SimulatedCluster(compute="lognormal:0.01:0.5", checkpoint_every=None, record=False)
assert_type(cluster.compute, Distribution | None)
assert_type(cluster.workers, int)
assert_type(cluster.slow, dict[str, float])
lk.DaskCluster(workers=3, pace=lk.distributions.Exponential(0.1), heartbeat_timeout=2.0, place={"server-0": "10.0.0.2"})
lk.DaskCluster("tcp://10.0.0.1:8786", pace=0.1, max_workers=8, may_kill=True)

# runs

faults = [lk.Kill("worker-1", at=2.0), lk.Freeze("worker-2", during=(1, 3))]
run = lk.train(
    problem, strategy, cluster, lk.Budget(accuracy=0.95, seconds=20), seed=1, faults=faults, checkpoint=Path("run")
)
lk.train("digits", lk.SyncPS(), cluster, faults=lk.Partition("worker-1", during=(2, None)), checkpoint=False)
lk.train("digits", lk.SyncPS(), cluster, faults=["delay:worker-1:server-0:0.1", lk.Preempt(0.01)])
assert_type(run.wait(timeout=60), lk.Run)
assert_type(run.done, bool)
assert_type(run.stopped_by, str | None)
assert_type(run.trace, lk.Trace)
assert_type(run.advance(1).fork(at=0.5), lk.Run)
run.inject(lk.Drop(("worker-0", "worker-1"), "server", 0.05)).slow("worker-2", 5).set(learning_rate=0.1)
with lk.train("digits", lk.RingAllReduce(codec="float16"), cluster) as other:
    other.kill("worker-1", restart=False).restart("worker-1").stop()
assert_type(other.cut("worker-1", peer="server-0"), lk.Run)
assert_type(lk.resume("run", cluster=cluster), lk.Run)

# results

summary = run.summary()
assert_type(summary, Summary)
assert_type(summary.to_dict(), dict[str, Any])
assert_type(run.sentence(reference=other), str)
predictor = run.result()
assert_type(predictor, lk.Predictor)
predictor.predict(np.zeros((1, 8, 8))).tolist()
assert_type(lk.from_csv("more.csv", like=predictor), Dataset)
predictor.predict_proba([[0.0] * 64]).max()
assert_type(lk.load(predictor.save("model.npz")), lk.Predictor)
assert_type(run.plot, Plots)
assert_type(run.plot.staleness(t=4.2, reference=other), LabFigure)
run.plot.overview(reference=other.trace).savefig("run.svg")
run.plot.compare([other, other.trace], labels=["one", "two"])
lk.lessons.pictures.straggler(run, other)
lk.lessons.pictures.mean_staleness({4: run, 8: other.trace})
lk.lessons.pictures.side_by_side("timeline", {"one": run, "two": other})
lk.to_perfetto(run.trace, "run.json")
lk.save_npz(run.trace, "run.npz")
assert_type(lk.load_npz("run.npz"), lk.Trace)

# advice

advice = lk.advise("digits", cluster, [lk.SyncPS(), "ring-all-reduce"], compute=0.1, memory=1e9)
assert_type(advice, Advice)
assert_type(lk.lessons.young(1.0, 100.0), float)
assert_type(lk.lessons.fit_scalability({1: 10.0, 2: 19.0, 4: 35.0}).peak, float)
lk.lessons.amdahl(0.1, np.arange(1, 9)).max()

# the lab

lab = lk.Lab("digits", "ssp", cluster, lk.Budget(updates=100), controls=["s", "workers"], panels="progress", speed=10)
assert_type(lab.run(), lk.Lab)
assert_type(lab.slow("worker-2", 5).set(learning_rate=0.01).wait(), lk.Lab)
assert_type(lab.share_text(), str)
assert_type(lk.Lab.scenarios(), dict[str, str])
lk.Lab(scenario="slow-worker")
assert_type(run.watch(speed=1.0), lk.Lab)

# tables

lk.Table(["strategy", "updates/s"], [["SyncPS", 10.5], ["AsyncPS", 80]], title="Throughput")

parameters: np.ndarray | SparseParameters = predictor.parameters
