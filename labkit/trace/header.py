"""The header of a trace: what was run, in plain values.

Numbers, figures and texts are made from the trace alone, so the header has all that they need to know of the problem, the
strategy, the cluster and the layout. It refers to no object of the run: a distribution or an optimizer is a text here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from ..formatting import call_text

RULES = ("accuracy", "loss", "patience")  # limits of a budget that depend on an evaluation
OptionValue = bool | int | float | str | None
Box = tuple[int, int, int, int, int]  # offset, rows, stride, low, high: see `labkit.nn.index_sets`
SIMULATED_ONLY = ("latency", "bandwidth", "cores", "restart_after", "checkpoint_time", "evaluation_time")
Replication = Literal["", "synchronized", "local"]
NOT_RECORDED = "not recorded in this run"


@dataclass(frozen=True, kw_only=True)
class RecordedPart:
    """A part of a header. Only the export and the import of traces convert it."""

    def to_dict(self) -> dict[str, Any]:
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the part from JSON values of its declared form. Unknown names are ignored, and missing ones have defaults."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: _made(value) for name, value in plain.items() if name in names})


def _plain(value: object) -> object:
    if isinstance(value, RecordedPart):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _made(value: Any) -> Any:
    """Return JSON values with tuples instead of lists."""
    if isinstance(value, list):
        return tuple(map(_made, value))
    return {name: _made(one) for name, one in value.items()} if isinstance(value, dict) else value


@dataclass(frozen=True, kw_only=True)
class RecordedProblem(RecordedPart):
    data: str  # the name of the data set
    hidden: tuple[int, ...] = ()  # widths of the hidden layers
    batch_size: int  # samples of one mini-batch
    seed: int = 0
    activation: str = "relu"
    dtype: str  # of the parameters: float32 or float64
    partition: str = "Even()"
    standardize: bool = True
    test_fraction: float = 0.2
    validation: float | None = None  # share of the training samples to which rules of the budget apply; None: no part
    timing_only: bool = False  # no gradient was computed, and nothing was evaluated
    options: Mapping[str, OptionValue] = field(default_factory=dict)  # of the data set
    curvature: tuple[float, float] | None = None  # smallest and largest, of a quadratic bowl
    class_weights: str | None = None  # as text
    model: Mapping[str, Any] | None = None  # of the user, instead of a network: its name, options and shapes

    @property
    def architecture(self) -> tuple[str, str]:
        """The option that decides the model, and its value: ("hidden", "64x32") or ("model", "CNN(channels=8)")."""
        if self.model is None:
            return "hidden", "x".join(map(str, self.hidden))
        return "model", call_text(self.model["name"], self.model["options"])

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON values, without what it does not have, and a model instead of a network."""
        without = {
            name for name in ("curvature", "class_weights", "validation", "model") if getattr(self, name) is None
        }
        without |= set() if self.model is None else {"hidden", "activation"}
        return {name: value for name, value in super().to_dict().items() if name not in without}


@dataclass(frozen=True, kw_only=True)
class RecordedStrategy(RecordedPart):
    name: str
    description: str = ""  # one sentence, with options as capital letters
    options: Mapping[str, OptionValue] = field(default_factory=dict)  # their values at the start of the run
    usual: Mapping[str, OptionValue] = field(default_factory=dict)  # their defaults
    mean_staleness: float | None = None  # in theory, in updates; None: there is no formula


@dataclass(frozen=True, kw_only=True)
class RecordedCluster(RecordedPart):
    """The cluster: the options of `lk.SimulatedCluster` or `lk.DaskCluster`. Distributions are texts (mean in s)."""

    engine: str  # "simulated" or "dask"
    workers: int  # at the start
    servers: int | None = None  # None: as many as the strategy needs
    compute: str | None = None  # time of one gradient (`pace` of a `DaskCluster`); None: at full speed
    server_time: str | None = None  # time of one piece of server work
    latency: float = 0.0  # s, of every message from node to node
    bandwidth: float | None = None  # bytes/s that a node can send, and receive; None: unlimited
    slow: Mapping[str, float] = field(default_factory=dict)  # {role: how many times slower it is}
    cores: int = 1  # of every node
    replicas: int = 0  # backups of every server
    max_workers: int | None = None  # at a time, if workers join and leave; None: as many as `workers`
    heartbeat_timeout: float = 5.0  # s of silence after which a role counts as lost
    restart_after: float | None = None  # s until a lost role is back; None: it does not come back by itself
    checkpoint_every: float | None = None  # s between two checkpoints of a shard
    checkpoint_time: float = 0.0  # s to save a checkpoint
    evaluation_time: float = 0.0  # s of one evaluation
    costs: Mapping[str, Any] | None = None  # of processes: `lk.Costs` as plain values

    @property
    def simulated(self) -> bool:
        return self.engine == "simulated"

    def to_dict(self) -> dict[str, Any]:
        """Return the options that the engine has, under its names for them."""
        left_out = {*(() if self.simulated else SIMULATED_ONLY), *(() if self.costs is not None else ("costs",))}
        pace = "compute" if self.simulated else "pace"
        plain = super().to_dict().items()
        return {pace if name == "compute" else name: value for name, value in plain if name not in left_out}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        return super().from_dict({"compute" if name == "pace" else name: value for name, value in plain.items()})


@dataclass(frozen=True, kw_only=True)
class RecordedBudget(RecordedPart):
    """The budget: the run ended at the first of these limits. None: no limit."""

    updates: int | None = None
    samples: int | None = None  # in applied gradients
    epochs: float | None = None
    seconds: float | None = None  # of engine time
    # on the validation part, or on the test set without one
    accuracy: float | None = None  # 0 to 1
    loss: float | None = None  # at most this
    patience: int | None = None  # evaluations in a row without a lower loss
    min_delta: float | None = None  # by how much lower; None: 0

    @property
    def target_accuracy(self) -> float:
        """The accuracy of the budget, or 0.95 if it has none."""
        return 0.95 if self.accuracy is None else self.accuracy

    def to_dict(self) -> dict[str, Any]:
        return {name: limit for name, limit in super().to_dict().items() if limit is not None}


@dataclass(frozen=True, kw_only=True)
class RecordedRole(RecordedPart):
    name: str
    kind: str
    node: str  # roles of a node share a process
    shard: int | None = None  # the number of its shard
    part: tuple[int, int] | tuple[Box, ...] | None = None  # of the parameters: (start, stop), or boxes
    data: int | None = None  # the number of its share of the data; roles with the same number draw the same batches

    @property
    def parameters(self) -> int:
        match self.part:
            case None:
                return 0
            case (int(start), int(stop)):
                return stop - start
            case boxes:
                return sum(rows * (high - low) for _, rows, _, low, high in boxes)


@dataclass(frozen=True, kw_only=True)
class RecordedLayout(RecordedPart):
    """The roles, and how their shards are related; see `lk.Layout`."""

    roles: tuple[RecordedRole, ...]  # in the order of their numbers in the trace
    observed: tuple[str, ...]  # the roles whose shards make up the evaluated model
    replication: Replication = ""  # how the shards are related
    positions: bool = False  # workers push weights, not gradients
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # {name: roles}, of stages and of replicas

    @property
    def replicated(self) -> bool:
        """Whether a gradient counts as applied only when every shard has applied it."""
        return bool(self.replication)

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON values, with `replicated`."""
        plain = super().to_dict()
        return {name: plain.pop(name) for name in ("roles", "observed")} | {"replicated": self.replicated} | plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        return super().from_dict({**plain, "roles": tuple(map(RecordedRole.from_dict, plain["roles"]))})


@dataclass(frozen=True, kw_only=True)
class RecordedPlane(RecordedPart):
    """The plane of a data set of two features: what the predictions of the model are drawn on. Coordinates are not
    standardized.
    """

    low: tuple[float, float]  # the lowest corner of the grid
    high: tuple[float, float]
    side: int  # cells along a side of the grid; 0: there is no grid
    points: tuple[tuple[float, float], ...]  # some training samples
    labels: tuple[int, ...]  # their classes


@dataclass(frozen=True, kw_only=True)
class RecordedSamples(RecordedPart):
    labels: tuple[int, ...]  # their classes
    classes: int  # the number of classes
    shape: tuple[int, int] | None = None  # (height, width) of a picture; None: these are not pictures
    features: tuple[tuple[float, ...], ...] | None = None  # not standardized; None: more than two, and no pictures
    names: tuple[str, ...] | None = None  # of the classes
    plane: RecordedPlane | None = None  # None: there are not two features

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        plane = plain["plane"]
        return super().from_dict({**plain, "plane": None if plane is None else RecordedPlane.from_dict(plane)})


@dataclass(frozen=True, kw_only=True)
class RecordedShares(RecordedPart):
    shares: int  # into how many the data are divided
    shared: bool  # all workers have all samples, and there is one row
    first: tuple[int, ...]  # of each row, its first share; a row is one share, or the sum of neighbouring ones
    classes: int  # columns of a row; 0: it has one number, because there are no classes, or too many
    names: tuple[str, ...] | None = None  # of the classes
    counts: tuple[tuple[int, ...], ...]  # samples, of each row


@dataclass(frozen=True, kw_only=True)
class TraceHeader(RecordedPart):
    """What was run: the object `trace.header`.

    `samples` and `shares` are texts if there are none: the reason.
    """

    problem: RecordedProblem
    strategy: RecordedStrategy
    cluster: RecordedCluster
    budget: RecordedBudget
    seed: int
    layout: RecordedLayout
    absent: tuple[str, ...] = ()  # roles that were absent at the start, and may have joined later
    layers: tuple[str, ...]  # groups of parameters, in the order of their numbers in the table "norms"
    messages: tuple[str, ...]  # kinds of messages, in the order of their numbers in the table "messages"
    samples: RecordedSamples | str = NOT_RECORDED
    shares: RecordedShares | str = NOT_RECORDED
    baseline_accuracy: float | None = None  # of a constant answer, on held-out data; None: there is no accuracy

    @property
    def batches_per_gradient(self) -> int:
        """The number of mini-batches over which a worker averages a gradient."""
        return int(self.strategy.options.get("accumulate") or 1)

    @property
    def samples_per_gradient(self) -> int:
        """The samples of a gradient: those of its mini-batches."""
        return self.problem.batch_size * self.batches_per_gradient

    def to_dict(self) -> dict[str, Any]:
        plain = super().to_dict()
        return plain | {name: {"none": plain[name]} for name in ("samples", "shares") if isinstance(plain[name], str)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the header from JSON values of the form `file_form.HEADER`."""
        parts: dict[str, type[RecordedPart]] = {
            "problem": RecordedProblem, "strategy": RecordedStrategy, "cluster": RecordedCluster, "budget": RecordedBudget,
            "layout": RecordedLayout,
        }  # fmt: skip
        read = {name: part.from_dict(plain[name]) for name, part in parts.items()}
        described: dict[str, type[RecordedPart]] = {"samples": RecordedSamples, "shares": RecordedShares}
        for name, part in described.items():
            if name in plain:
                read[name] = plain[name].get("none") or part.from_dict(plain[name])
        return super().from_dict({**plain, **read})
