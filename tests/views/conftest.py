"""Sample traces: every kind of run that a view must draw. Made once; views do not change a trace."""

from __future__ import annotations

import pytest

import labkit as lk

RANDOM_TIMES = lk.distributions.LogNormal(0.1, 0.25)
DIGITS = lk.Problem("digits", hidden=(16,))
TIMING = lk.Problem("digits", timing_only=True)
SLOWED = [lk.Slow("worker-2", 5, at=1.5), lk.Slow("worker-2", 1, at=2.5)]
DONE = [lk.Slow(f"worker-{k % 3}", factor, at=0.5 + 0.24 * k) for k, factor in enumerate((5, 3, 8, 1, 1, 2, 1, 4))]


def _run(strategy, seconds=3.0, problem=DIGITS, faults=(), accuracy=None, **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": RANDOM_TIMES, **cluster})
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds, accuracy=accuracy), faults=faults)


def _started(seconds):
    return _run(lk.AsyncPS(), slow={"worker-1": 3}).advance(seconds)


def _harmed(strategy, server="server-0", **cluster):
    """A run with faults: a worker, a server and the chief are lost once; one role is frozen, one cut off, one stays away."""
    run = _run(
        strategy, seconds=6.0, **{"checkpoint_every": 0.7, "latency": 0.002, "heartbeat_timeout": 1.0, **cluster}
    ).advance(1.05)
    for role, stays in (("worker-2", False), (server, True), ("chief", False)):
        if role:
            run.kill(role, restart=not stays).advance(0.6)
        if stays and role:
            run.restart(role).advance(0.3)
    run.freeze("worker-1").advance(0.4).thaw("worker-1")
    run.cut("worker-0").advance(0.5).kill("worker-3", restart=False).advance(1.3).reconnect("worker-0")
    return run.wait()


MAKERS = {
    "async, slowed and healed": lambda: _run(lk.AsyncPS(), faults=SLOWED).wait(),
    "sync, slow from the start": lambda: _run(lk.SyncPS(), slow={"worker-2": 5}).wait(),
    "ring": lambda: _run(lk.RingAllReduce(), accuracy=0.9).wait(),
    "three servers with work and wires": lambda: _run(
        lk.AsyncPS(), servers=3, server_time=lk.distributions.Deterministic(0.01), latency=0.01, bandwidth=1e6
    ).wait(),
    "one worker": lambda: _run(lk.AsyncPS(), workers=1).wait(),
    "thousand workers, timing only": lambda: _run(
        lk.AsyncPS(), seconds=0.3, problem=TIMING, workers=1000, slow={"worker-500": 5}
    ).wait(),
    "ring of fifty": lambda: _run(lk.RingAllReduce(), seconds=0.3, workers=50).wait(),
    "fast": lambda: _run(lk.AsyncPS(), seconds=0.2, compute=lk.distributions.Deterministic(0.001)).wait(),
    "totals only": lambda: _run(lk.AsyncPS(), seconds=1.0, record=False).wait(),
    "regression": lambda: _run(
        lk.AsyncPS(learning_rate=0.001), seconds=1.0, problem=lk.Problem("linear-regression")
    ).wait(),
    "diverged": lambda: _run(lk.AsyncPS(learning_rate=10.0), seconds=5.0).wait(),
    "pipeline": lambda: _run(
        lk.Pipeline(micro_batches=4), seconds=0.6, problem=lk.Problem("digits", hidden=(16, 16, 16))
    ).wait(),
    "one gradient": lambda: _run(
        lk.AsyncPS(), seconds=0.1, workers=1, compute=lk.distributions.Deterministic(0.1)
    ).wait(),
    "much done to sixteen": lambda: _run(lk.AsyncPS(), workers=16, faults=DONE).wait(),
    "losses, asynchronous": lambda: _harmed(lk.AsyncPS()),
    "losses, two servers with backups": lambda: _harmed(lk.AsyncPS(), servers=2, replicas=1),
    "losses, bounded staleness": lambda: _harmed(lk.SSP(s=2)),
    "losses, synchronous": lambda: _harmed(lk.SyncPS(on_loss="continue")),
    "losses, ring": lambda: _harmed(lk.RingAllReduce(on_loss="continue"), server=None),
    "losses, under way": lambda: _run(lk.AsyncPS()).advance(1.0).kill("worker-1", restart=False).advance(0.5),
    "not begun": lambda: _started(0.0),
    "under way": lambda: _started(1.234),
}

# One of each kind; the others are drawn by the slow suites.
QUICK = (
    "async, slowed and healed", "ring", "three servers with work and wires", "totals only", "pipeline", "one gradient",
    "losses, two servers with backups", "losses, synchronous", "not begun",
)  # fmt: skip


@pytest.fixture(scope="session", params=[
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MAKERS
])  # fmt: skip
def trace(request):
    """The trace of each sample run in turn."""
    return MAKERS[request.param]().trace


@pytest.fixture(scope="session")
def slowed_trace():
    """Asynchronous; w2 was slowed after 1.5 s and healed after 2.5 s."""
    return MAKERS["async, slowed and healed"]().trace


@pytest.fixture(scope="session")
def sync_trace():
    """Synchronous; w2 is slow from the start."""
    return MAKERS["sync, slow from the start"]().trace
