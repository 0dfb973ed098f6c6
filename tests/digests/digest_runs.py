"""Descriptions of the simulated runs whose digests are recorded: plain data, no import of labkit.

A `Description` names classes, options and verbs of the public interface as text. `digest_adapter` carries it out and
translates names that have changed since the descriptions were written.

`RUNS` lists all of them; `QUICK` is a subset in which every class, option, option value kind, fault, verb and data set
occurs at least once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class New:
    """An object of labkit's public interface: `New("TopK", k=0.05)` represents `lk.codecs.TopK(k=0.05)`."""

    kind: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def __init__(self, kind: str, *args: Any, **options: Any):
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class Description:
    """One run.

    `faults`: `New` objects, or texts as the command line takes them. `script`: calls on the run before it is
    waited for, as ("advance", 0.1), ("kill", "worker-1"). A verb of `Run` is called with the arguments; the others are
    explained in `digest_adapter.Execution`. `checkpoint`: the run gets a folder for checkpoints.
    """

    name: str
    problem: dict[str, Any]
    strategy: New
    cluster: dict[str, Any]
    budget: dict[str, Any]
    seed: int | None = None
    faults: tuple[Any, ...] = ()
    script: tuple[tuple[Any, ...], ...] = ()
    checkpoint: bool = False

    @property
    def times_follow_floats(self) -> bool:
        """Whether the end time of the run depends on floating-point results of the training."""
        return "accuracy" in self.budget or not self.budget

    def features(self) -> frozenset[Any]:
        """The features of this run; `QUICK` covers the union of all features."""
        found: set[Any] = {("strategy", self.strategy.kind)}
        one = ("optimizer", "schedule", "placement")  # any value of these is sufficient
        found |= {("option", k, "" if k in one else _plain(v)) for k, v in self.strategy.options.items()}
        found |= {("cluster", k, _plain(v) if k == "compute" else "") for k, v in self.cluster.items()}
        found |= {("problem", k, str(v)) for k, v in self.problem.items() if k not in ("hidden", "batch_size")}
        found |= {("budget", k) for k in self.budget}
        found |= {("fault", *_target(f)) for f in self.faults}
        found |= {("verb", step[0]) for step in self.script}
        return frozenset(found | {("checkpoint", self.checkpoint), ("family", self.name.partition("/")[0])})


def _plain(value: Any) -> str:
    """Numbers of one option count as one feature; each text and each class is a separate feature."""
    if isinstance(value, New):
        return value.kind
    return str(value) if isinstance(value, (str, bool, type(None))) else type(value).__name__


def _target(fault: Any) -> tuple[str, ...]:
    if isinstance(fault, str):
        word, _, rest = fault.partition(":")
        return (word, rest[:6])
    roles = [str(v)[:6] for v in (*fault.args, *fault.options.values()) if isinstance(v, str)]
    return (fault.kind, *roles[:1])


# parts ---------------------------------------------------------------------------------------------------------------

MOONS = {"data": "moons", "hidden": (8,), "batch_size": 8, "options": {"samples": 240}}
DEEP = {"data": "moons", "hidden": (6,) * 5, "batch_size": 8, "options": {"samples": 240}}
DIGITS = {"data": "digits", "hidden": (16,), "batch_size": 16}
BOWL = {"data": "quadratic", "batch_size": 4, "options": {"samples": 64, "dimension": 3, "noise": 0.3}}
CLICKS = {"data": "clicks", "hidden": (6,), "batch_size": 8, "options": {"rows": 300, "samples": 400, "fields": 3}}
TIMING = {"data": "digits", "hidden": (16,), "batch_size": 16, "timing_only": True}

SERVERS = ("AsyncPS", "SyncPS", "SSP", "BackupWorkers", "KSync", "KBatchSync", "KAsync", "KBatchAsync", "EASGD")
REPLICAS = ("RingAllReduce", "HalvingDoubling", "LocalSGD", "DPSGD", "ADPSGD")
SPLIT = ("TensorParallel", "Pipeline", "PipeDream", "FSDP", "Hybrid")
ALL = (*SERVERS, *REPLICAS, *SPLIT, "SparsePS")

EXP, LOGN = New("Exponential", 0.02), New("LogNormal", 0.02, 0.7)
FIXED = {"workers": 4, "compute": 0.02}
RANDOM = {"workers": 4, "compute": EXP}
WIRED = {"workers": 4, "compute": EXP, "latency": 0.001, "bandwidth": 1e6, "server_time": 0.0005}
UNEQUAL = {"workers": 4, "compute": LOGN, "slow": {"worker-1": 3.0}, "latency": 0.0005, "bandwidth": 5e6}


def problem_of(strategy: str) -> dict[str, Any]:
    """A small problem that the strategy can train."""
    return CLICKS if strategy == "SparsePS" else DEEP if strategy in SPLIT else MOONS


def run(name: str, strategy: str | New, cluster: Any = None, updates: int = 40, **more: Any) -> Description:
    """A description with the usual problem and a budget of updates."""
    made = New(strategy) if isinstance(strategy, str) else strategy
    more.setdefault("problem", problem_of(made.kind))
    more.setdefault("budget", {"updates": updates})
    return Description(name, strategy=made, cluster=dict(RANDOM if cluster is None else cluster), **more)


# families ------------------------------------------------------------------------------------------------------------


def every_strategy() -> Iterator[Description]:
    """Each strategy on four kinds of cluster."""
    for name in ALL:
        yield run(f"plain/{name}/fixed", name, FIXED)
        yield run(f"plain/{name}/random", name, RANDOM, seed=3)
        yield run(f"plain/{name}/wired", name, WIRED)
        yield run(f"plain/{name}/unequal", name, UNEQUAL, seed=11)


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "AsyncPS": [
        {"fused": False}, {"n_push": 3}, {"n_fetch": 2}, {"n_push": 2, "n_fetch": 3, "fused": False},
        {"staleness_aware": True}, {"compensation": "adaptive"}, {"compensation": "constant:0.1"}, {"on_loss": "wait"},
        {"codec": "top-k:0.1"}, {"codec": "sign-sgd"}, {"codec": "qsgd:4"}, {"codec": "float16"}, {"codec": "power-sgd:2"},
        {"codec": New("QSGD", bits=3, bucket=16)}, {"codec": New("TopK", 5), "n_push": 2}, {"eval_every": 1},
        {"chief_works": True}, {"clip_norm": 0.05}, {"weight_decay": 0.05}, {"optimizer": "momentum"},
        {"optimizer": New("Nesterov", 0.8)}, {"optimizer": "adagrad"}, {"optimizer": "adam", "learning_rate": 0.01},
        {"schedule": New("Step", 10, 0.5)}, {"schedule": New("Cosine", 40)}, {"schedule": New("Warmup", 10)}, {"accumulate": 4},
    ],
    "SyncPS": [
        {"reduce": "sum"}, {"codec": "top-k:0.1"}, {"codec": "sign-sgd"}, {"codec": "qsgd:4"}, {"codec": "power-sgd:1"},
        {"on_loss": "continue"}, {"chief_works": True}, {"optimizer": "adam", "clip_norm": 0.1}, {"eval_every": 7},
        {"schedule": "cosine:40", "weight_decay": 0.01}, {"accumulate": 3},
    ],
    "SSP": [{"s": 0}, {"s": 1}, {"s": 10, "staleness_aware": True}, {"codec": "float16"}, {"compensation": "constant:0.04"},
            {"accumulate": 2}],
    "BackupWorkers": [{"b": 0}, {"b": 2}, {"give_up": False}, {"b": 2, "give_up": False, "codec": "sign-sgd"}],
    "KSync": [{"K": 1}, {"K": 3}, {"K": 4}, {"give_up": False}, {"K": 3, "codec": "top-k:0.2"}],
    "KBatchSync": [{"K": 1}, {"K": 5}, {"give_up": False}, {"K": 3, "optimizer": "momentum"}],
    "KAsync": [{"K": 1}, {"K": 4}, {"K": 3, "staleness_aware": True}, {"codec": "qsgd:6"}, {"accumulate": 2}],
    "KBatchAsync": [{"K": 1}, {"K": 6}, {"compensation": "adaptive"}, {"on_loss": "wait"}, {"accumulate": 2}],
    "EASGD": [{"tau": 1}, {"tau": 7, "rho": 0.3}, {"rho": 3.0, "learning_rate": 0.05}, {"optimizer": "momentum"},
              {"beta": 0.3}, {"beta": 1.5, "tau": 2}],
    "RingAllReduce": [
        {"reduce": "sum"}, {"codec": "float16"}, {"codec": "power-sgd:2"}, {"optimizer": "adam", "clip_norm": 0.1},
        {"chief_works": True}, {"on_loss": "continue"}, {"accumulate": 2, "codec": "power-sgd:2"},
    ],
    "HalvingDoubling": [{"reduce": "sum"}, {"codec": "float16"}, {"optimizer": "nesterov"}, {"eval_every": 3}],
    "BucketedAllReduce": [{"bucket_size": 1}, {"reduce": "sum"}, {"optimizer": "adam", "clip_norm": 0.1}, {"accumulate": 3}],
    "LocalSGD": [{"H": 1}, {"H": 10}, {"post_local": 10}, {"algorithm": "halving-doubling"}, {"optimizer": "momentum"},
                 {"outer": "nesterov", "outer_rate": 0.7}],
    "DPSGD": [{"graph": "grid"}, {"graph": "complete"}, {"optimizer": "momentum"}],
    "ADPSGD": [{"graph": "grid"}, {"graph": "complete"}, {"weight_decay": 0.01}],
    "TensorParallel": [{"clip_norm": 0.05}, {"optimizer": "adam"}, {"chief_works": True}],
    "Pipeline": [
        {"micro_batches": 1}, {"micro_batches": 8}, {"order": "gpipe"}, {"order": "zb-h1"},
        {"order": "interleaved", "chunks": 1}, {"schedule": "gpipe"}, {"clip_norm": 0.05}, {"stages": 4},
    ],
    "PipeDream": [{"optimizer": "momentum"}, {"weight_decay": 0.01}, {"schedule": New("Step", 10)}],
    "FSDP": [{"optimizer": "adagrad"}, {"eval_every": 4}, {"weight_decay": 0.02}],
    "Hybrid": [
        {"shape": "2x2", "between": "server"}, {"split": "tensor"}, {"split": "tensor", "between": "server"},
        {"algorithm": "halving-doubling"}, {"micro_batches": 2, "order": "gpipe"}, {"order": "zb-h1"},
        {"shape": "4x1"}, {"shape": "1x4"},
    ],
    "SparsePS": [
        {"dense": "server"}, {"dense": "server", "synchronous": False}, {"placement": "range"},
        {"placement": "consistent-hash"}, {"placement": New("HashPlacement", 3)}, {"reduce": "sum"},
        {"optimizer": New("SGD")}, {"dense": "server", "synchronous": False, "staleness_aware": True},
    ],
}  # fmt: skip


def every_option() -> Iterator[Description]:
    """Each option of each strategy, on a cluster of random times."""
    for name, variants in OPTIONS.items():
        for number, options in enumerate(variants):
            words = "+".join(f"{k}={v.kind if isinstance(v, New) else v}" for k, v in options.items()) or "defaults"
            yield run(
                f"option/{name}/{words}", New(name, **options), UNEQUAL if number % 3 == 2 else RANDOM, seed=number
            )


def clusters() -> Iterator[Description]:
    """Distributions of time, networks, servers, cores, replicas of servers."""
    durations = {
        "deterministic": New("Deterministic", 0.013), "exponential": New("Exponential", 0.013),
        "shifted": New("ShiftedExponential", 0.005, 0.01), "uniform": New("Uniform", 0.005, 0.03),
        "lognormal": New("LogNormal", 0.013, 1.0), "pareto": New("Pareto", 0.005, 1.5),
        "measured": New("Measured", (0.01, 0.011, 0.012, 0.05)), "text": "shifted-exponential:0.004:0.01",
    }  # fmt: skip
    for word, duration in durations.items():
        yield run(f"cluster/compute-{word}", "AsyncPS", {"workers": 5, "compute": duration}, seed=4)
        yield run(f"cluster/server-time-{word}", "SyncPS", {**RANDOM, "server_time": duration}, updates=25)
    for servers in (2, 3, 5):
        for name in ("AsyncPS", "SyncPS", "KBatchAsync", "EASGD", "SparsePS"):
            yield run(f"cluster/servers-{servers}/{name}", name, {**WIRED, "servers": servers}, updates=30)
    for name in ("AsyncPS", "SyncPS", "SSP", "KSync", "KAsync", "BackupWorkers"):
        yield run(f"cluster/replicas/{name}", name, {**WIRED, "servers": 2, "replicas": 1}, updates=30)
    yield run("cluster/cores", New("SyncPS", chief_works=True), {**WIRED, "cores": 2})
    yield run("cluster/one-worker", "AsyncPS", {"workers": 1, "compute": EXP})
    yield run("cluster/many-workers", "SSP", {"workers": 12, "compute": LOGN})
    yield run("cluster/no-rows", "AsyncPS", {**WIRED, "record": False})
    yield run("cluster/no-rows-ring", "RingAllReduce", {**WIRED, "record": False})
    for latency, bandwidth in ((0.0, 2e5), (0.05, 1e9), (0.002, 1e5)):
        network = {"workers": 4, "compute": EXP, "latency": latency, "bandwidth": bandwidth}
        for name in ("AsyncPS", "RingAllReduce", "Pipeline", "DPSGD"):
            yield run(f"cluster/latency-{latency:g}-bandwidth-{bandwidth:g}/{name}", name, network, updates=20)
    for every, took in ((0.05, 0.01), (0.2, 0.0)):
        kept = {**WIRED, "checkpoint_every": every, "checkpoint_time": took}
        yield run(f"cluster/checkpoint-{every:g}", "AsyncPS", kept, budget={"seconds": 1.0})
        yield run(f"cluster/checkpoint-{every:g}/sync", "SyncPS", kept, budget={"seconds": 1.0})
    for name in ("AsyncPS", "SyncPS", "LocalSGD"):
        for works in (True, False):
            made = New(name, chief_works=works, eval_every=5)
            yield run(f"cluster/evaluation-time/{name}/{works}", made, {**WIRED, "evaluation_time": 0.004}, 60)


FAULTY = {"compute": EXP, "latency": 0.001, "patience": 0.3, "restart_after": 0.1, "checkpoint_every": 0.1}


def faults() -> Iterator[Description]:
    """Every kind of fault on every kind of role."""
    short = {"updates": 50, "seconds": 4.0}
    for name in ALL:
        shape = {"workers": 4, **FAULTY} | ({"servers": 2} if name in SERVERS else {})
        for role in ("worker-1", "chief", *(["server-0"] if name in (*SERVERS, "SparsePS") else [])):
            yield run(f"kill/{name}/{role}", name, shape, budget=short, faults=(New("Kill", role, at=0.15),), seed=2)
    gone = New("Kill", "worker-1", at=0.1, restart=False)
    for name in ("AsyncPS", "SyncPS", "SSP", "KSync", "RingAllReduce", "LocalSGD", "DPSGD", "SparsePS"):
        for on_loss in ("wait", "continue"):
            made = New(name, on_loss=on_loss)
            yield run(f"gone/{name}/{on_loss}", made, {"workers": 4, **FAULTY}, budget=short, faults=(gone,))
    both = (New("Kill", "server-0", at=0.1), New("Kill", "backup-1", at=0.2), New("Kill", "worker-0", at=0.2))
    for name in ("AsyncPS", "SyncPS", "KSync"):
        shape = {"workers": 3, "servers": 2, "replicas": 1, **FAULTY}
        yield run(f"backup/{name}", name, shape, budget=short, faults=both)
    kinds: dict[str, tuple[Any, ...]] = {
        "freeze": (New("Freeze", "worker-2", during=(0.05, 0.2)),),
        "freeze-long": (New("Freeze", "worker-2", during=(0.05, 0.9)),),
        "freeze-server": (New("Freeze", "server-0", at=0.05, until=0.25),),
        "freeze-chief": (New("Freeze", "chief", at=0.05, until=0.25),),
        "slow": (New("Slow", "worker-1", 5, at=0.05, until=0.4),),
        "slow-server": (New("Slow", "server-0", 4, at=0.05),),
        "delay": (New("Delay", "worker-1", "server-0", 0.03, at=0.02, until=0.3),),
        "drop": (New("Drop", "worker", "server", 0.2),),
        "cut": (New("Partition", "worker-1", "*", during=(0.05, 0.2)),),
        "cut-long": (New("Partition", "worker-1", "*", during=(0.05, 0.9)),),
        "cut-link": (New("Partition", "worker-0", "server-0", during=(0.05, 0.3)),),
        "preempt": (New("Preempt", 1.5, during=(0.0, 1.0)),),
        "preempt-all": (New("Preempt", 0.7, "*", during=(0.0, 1.0)),),
        "together": tuple(New("Kill", role, at=0.12) for role in ("chief", "server-0", "worker-0", "worker-3")),
        "text": ("slow:worker-2:5@0.05-0.3", "kill:worker-1@0.1", "kill:worker-0:for-good@0.3", "drop:worker-2:server-0:0.1"),
    }  # fmt: skip
    for word, made in kinds.items():
        for name in ("AsyncPS", "SyncPS", "BackupWorkers"):
            server = {"server_time": 0.001, "servers": 1, "workers": 4, **FAULTY}
            yield run(f"fault/{word}/{name}", name, server, budget=short, faults=made, seed=5)
    peers: dict[str, tuple[Any, ...]] = {
        "freeze": (New("Freeze", "worker-2", during=(0.05, 0.2)),),
        "slow": (New("Slow", "worker-1", 5, at=0.05, until=0.4),),
        "drop": (New("Drop", "worker", "worker", 0.2),),
        "cut": (New("Partition", "worker-1", "worker-2", during=(0.05, 0.2)),),
        "cut-long": (New("Partition", "worker-1", "*", during=(0.05, 0.9)),),
        "twice": (New("Kill", "worker-1", at=0.1), New("Kill", "worker-1", at=0.3)),
    }
    for word, made in peers.items():
        for name in ("RingAllReduce", "LocalSGD", "ADPSGD", "Pipeline", "FSDP"):
            yield run(f"fault/{word}/{name}", name, {"workers": 4, **FAULTY}, budget=short, faults=made, seed=6)


def random_faults() -> Iterator[Description]:
    """Schedules of several faults, drawn from a seed."""
    for number in range(24):
        luck = random.Random(f"digest faults {number}")
        name = ALL[number % len(ALL)]
        servers = luck.choice([1, 2, 2]) if name in SERVERS else None
        roles = ["chief", *(f"worker-{i}" for i in range(4)), *(f"server-{i}" for i in range(servers or 0))]
        made: list[Any] = []
        for _ in range(luck.choice([2, 3, 4, 6])):
            role, at = luck.choice(roles), round(luck.uniform(0, 0.8), 3)
            span = round(luck.uniform(0.02, 0.6), 3)
            made.append(
                luck.choice([
                    New("Kill", role, at=at), New("Kill", role, at=at), New("Freeze", role, at=at, until=at + span),
                    New("Slow", role, luck.choice([0.5, 4.0]), at=at, until=at + span),
                    New("Partition", role, "*", at=at, until=at + span), New("Drop", role, "*", 0.3, at=at, until=at + span),
                    New("Delay", role, "*", 0.05, at=at, until=at + span),
                ])
            )  # fmt: skip
        shape = {"workers": 4, "servers": servers, **FAULTY, "restart_after": luck.choice([0.0, 0.05, 0.4])}
        shape |= {"checkpoint_every": luck.choice([None, 0.05, 2.0]), "checkpoint_time": luck.choice([0.0, 0.01])}
        strategy = New(name, on_loss=luck.choice(["wait", "continue"]))
        yield run(
            f"random/{number}/{name}",
            strategy,
            shape,
            budget={"updates": 80, "seconds": 5.0},
            faults=tuple(made),
            seed=number,
        )


def scripts() -> Iterator[Description]:
    """Runs that are moved, changed, forked, repeated and resumed."""
    lively: tuple[tuple[Any, ...], ...] = (
        ("advance", 0.05), ("slow", "worker-2", 3), ("step",), ("set", {"learning_rate": 0.03}), ("advance", 0.1),
        ("slow", "worker-0", 2), ("slow", "worker-0", 1), ("advance", 0.07),
    )  # fmt: skip
    for name in ("AsyncPS", "SyncPS", "SSP", "RingAllReduce", "LocalSGD", "KSync", "Pipeline", "DPSGD", "EASGD"):
        yield run(f"script/lively/{name}", name, UNEQUAL, 60, script=lively)
        yield run(f"script/fork/{name}", name, RANDOM, 60, script=(*lively, ("fork", 0.12), ("slow", "worker-1", 9)))
        yield run(f"script/replay/{name}", name, RANDOM, 60, script=(*lively, ("kill", "worker-1"), ("replay",)))
        resumed = (*lively, ("resume_folder",), ("advance", 0.05), ("slow", "worker-3", 2))
        yield run(f"script/resume/{name}", name, RANDOM, 60, script=resumed, checkpoint=True)
    yield run("script/steps", "AsyncPS", RANDOM, script=(("step",),) * 12 + (("pause",), ("resume",), ("stop",)))
    yield run("script/stop", "SyncPS", WIRED, script=(("advance", 0.3), ("stop",)))
    yield run("script/stop-at-zero", "AsyncPS", WIRED, script=(("stop",),))
    yield run(
        "script/fork-of-fork", "SSP", RANDOM, 60, script=(*lively, ("fork", 0.2), ("fork", 0.1), ("set", {"s": 0}))
    )
    yield run(
        "script/fork-here", "KAsync", RANDOM, script=(("step",), ("slow", "worker-1", 2), ("fork", None), ("step",))
    )
    yield run("script/ssp-opens", New("SSP", s=0), UNEQUAL, script=(("advance", 0.1), ("set", {"s": 5})))
    kills = (
        ("advance", 0.1),
        ("kill", "worker-1", False),
        ("advance", 0.6),
        ("restart", "worker-1"),
        ("kill", "server-0"),
    )
    yield run("script/kills", "AsyncPS", {**RANDOM, **FAULTY}, 80, script=kills)
    links = (
        ("advance", 0.05), ("cut", "worker-0", "server-0"), ("delay", "worker-1", 0.02), ("drop", "worker-2", 0.3),
        ("advance", 0.1), ("reconnect", "worker-0"), ("freeze", "worker-3"), ("advance", 0.1), ("thaw", "worker-3"),
        ("delay", "worker-1", 0.0), ("drop", "worker-2", 0.0),
    )  # fmt: skip
    for name in ("AsyncPS", "SyncPS"):
        yield run(f"script/links/{name}", name, {**WIRED, **FAULTY}, 60, script=links)
        yield run(f"script/links-replayed/{name}", name, {**WIRED, **FAULTY}, 60, script=(*links, ("replay",)))
    injected = (("advance", 0.1), ("inject", ("kill:worker-1@0.05", "slow:worker-2:4@0.02-0.3")), ("advance", 0.02))
    yield run("script/inject", "AsyncPS", {**RANDOM, **FAULTY}, 60, script=injected)
    yield run("script/inject-forked", "RingAllReduce", {**RANDOM, **FAULTY}, 60, script=(*injected, ("fork", None)))
    over = (("wait",), ("resume_folder", {"updates": 60}))
    yield run("script/resume-longer", "AsyncPS", RANDOM, 30, script=over, checkpoint=True)
    yield run("script/resume-over", "SyncPS", RANDOM, 30, script=(("wait",), ("resume_folder",)), checkpoint=True)
    later = (("advance", 0.2), ("resume_folder",))
    planned = (New("Kill", "worker-1", at=0.1), New("Slow", "worker-0", 3, at=0.4))
    yield run("script/resume-faults", "LocalSGD", {**RANDOM, **FAULTY}, script=later, faults=planned, checkpoint=True)


def elastic() -> Iterator[Description]:
    """Workers join and leave."""
    moves = (("advance", 0.1), ("scale", 6), ("advance", 0.3), ("scale", 1), ("advance", 0.2), ("scale", 4))
    shape = {"workers": 2, "max_workers": 6, **FAULTY}
    for name in ("AsyncPS", "SyncPS", "SSP", "KAsync", "BackupWorkers", "EASGD", "RingAllReduce", "HalvingDoubling",
                 "LocalSGD", "DPSGD"):  # fmt: skip
        yield run(f"elastic/{name}", name, {**shape, "workers": 3}, 90, script=moves)
    yield run("elastic/kill", "AsyncPS", shape, 120, script=(*moves, ("kill", "worker-1"), ("replay",)))
    yield run("elastic/by-label", "SyncPS", shape, 60, script=moves, problem={**MOONS, "partition": "by-label:0.5"})
    yield run("elastic/shared", "AsyncPS", shape, 60, script=moves, problem={**MOONS, "partition": "shared"})


def costs() -> Iterator[Description]:
    """Processes that share the cores of a host."""
    fixed, random = New("Linear", 1e-4, 1e-9), New("LogNormal", 1.0, 0.3)
    made = New(
        "Costs", New("WorkCost", 0.002, 0.0, 1e-7), random, random, 0.05, fixed, New("WorkCost", 1e-3), fixed, fixed,
        latency=5e-5, polling=1e-3, wake=((0.001, 1e-4), (0.01, 3e-4)), cold=((0.0, 0.3),), background=0.02, cores=2,
    )  # fmt: skip
    frozen = (New("Freeze", "worker-1", during=(0.03, 0.1)),)
    for name in ("AsyncPS", "SyncPS", "RingAllReduce", "Pipeline", "BucketedAllReduce"):
        for word, compute in (("full-speed", None), ("paced", 0.02)):
            shape = {"workers": 4, "compute": compute, "costs": made}
            yield run(f"costs/{name}/{word}", name, shape, 30, problem=DEEP)
            yield run(f"costs/{name}/{word}/freeze", name, shape, 30, problem=DEEP, faults=frozen)


def problems() -> Iterator[Description]:
    """Data sets, partitions, number formats, budgets; runs that only take time; many workers."""
    made: dict[str, dict[str, Any]] = {
        "digits": DIGITS, "circles": {**MOONS, "data": "circles"}, "bowl": BOWL, "clicks": CLICKS,
        "spirals": {**MOONS, "data": "spirals", "activation": "tanh"},
        "line": {"data": "linear-regression", "hidden": (), "batch_size": 8},
        "wide": {**MOONS, "dtype": "float64"}, "raw": {**MOONS, "standardize": False, "test_fraction": 0.5},
        "by-label": {**DIGITS, "partition": "by-label:0.1"}, "by-size": {**MOONS, "partition": "by-size:1"},
        "by-weight": {**MOONS, "partition": "by-weight:1,2,4,1"}, "shared": {**MOONS, "partition": "shared"},
        "no-hidden": {**MOONS, "hidden": ()},
    }  # fmt: skip
    for word, problem in made.items():
        for name in ("AsyncPS", "SyncPS", "RingAllReduce"):
            yield run(f"problem/{word}/{name}", name, RANDOM, 30, problem=problem)
    for name in ALL:
        problem = {**CLICKS, "timing_only": True} if name == "SparsePS" else {**DEEP, "timing_only": True}
        yield run(f"timing/{name}", name, WIRED, 60, problem=problem)
    budgets: tuple[dict[str, Any], ...] = (
        {"samples": 300}, {"epochs": 1.5}, {"seconds": 0.4}, {"accuracy": 0.8, "seconds": 20.0}, {"updates": 7, "samples": 500},
    )  # fmt: skip
    for budget in budgets:
        for name in ("AsyncPS", "SyncPS", "LocalSGD", "EASGD"):
            yield run(f"budget/{'+'.join(budget)}/{name}", name, RANDOM, budget=budget)
    yield run("problem/diverges", New("AsyncPS", learning_rate=9.0), RANDOM, 400, problem={**BOWL, "options": {
        **BOWL["options"], "curvature": 3.0}})  # fmt: skip
    large = {"compute": EXP, "latency": 0.0005, "bandwidth": 1e8}
    yield run("large/AsyncPS", "AsyncPS", {"workers": 1000, **large}, 3000, problem=TIMING)
    yield run("large/SyncPS", "SyncPS", {"workers": 500, "servers": 4, **large}, 4, problem=TIMING)
    yield run("large/SSP", New("SSP", s=2), {"workers": 300, **large}, 1500, problem=TIMING)
    yield run("large/RingAllReduce", "RingAllReduce", {"workers": 48, **large}, 3, problem=TIMING)
    yield run("large/HalvingDoubling", "HalvingDoubling", {"workers": 128, **large}, 4, problem=TIMING)
    yield run("large/BackupWorkers", New("BackupWorkers", b=20), {"workers": 300, **large}, 5, problem=TIMING)


def _all() -> tuple[Description, ...]:
    families = (every_strategy, every_option, clusters, faults, random_faults, scripts, elastic, costs, problems)
    made = tuple(description for family in families for description in family())
    names = [description.name for description in made]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    return made


def _covering(runs: tuple[Description, ...]) -> tuple[Description, ...]:
    """A small subset with all features, chosen greedily: the run that adds most features next."""
    features = {description.name: description.features() for description in runs}
    missing, picked = set().union(*features.values()), set()
    while missing:
        best = max(runs, key=lambda d: len(features[d.name] & missing))
        picked.add(best.name)
        missing -= features[best.name]
    return tuple(description for description in runs if description.name in picked)


RUNS: tuple[Description, ...] = _all()
QUICK: tuple[Description, ...] = _covering(RUNS)
