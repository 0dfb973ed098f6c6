"""An oracle that reads the parameters: every gradient is replaced by a unique mark, so the model shows what was applied.

`indicated(strategy, folder)` is the same strategy whose workers compute marks. Each call of a gradient function
appends one
record (role, incarnation, number) to a file in `folder`; the place of the record in the file is the gradient's number m,
and the gradient is 1 in coordinate m of every shard's part of the parameters, 0 elsewhere. Plain SGD subtracts rate x
mark (x 1/n in a mean of n), so at the end coordinate m of a part differs from its start if and only if that part holds
gradient m. Pieces of a split model mark their own part, and a record contains the mini-batch of the mark.

Nothing here reads labkit's counters: calls are counted by the length of the files (also those of processes that were
killed a moment later), applied gradients are
read from parameters, and a gradient that is applied twice to one state is detected by the optimizer, whose state is
saved and restored with the parameters. Only public interfaces of labkit are used: a data set, a strategy's `layout`,
`RoleSpec.model`, and an optimizer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import labkit as lk
from labkit.nn import SGD
from labkit.nn.index_sets import Boxes
from labkit.roles.gradient import Model
from labkit.roles.layout import Layout, RoleSpec, shard_slices
from labkit.roles.model_parallel.stages import ShardedLayers
from labkit.roles.sparse.rows import RowModel

SPLIT = ("FSDP", "Hybrid", "PipeDream", "Pipeline", "TensorParallel")
RATE = 1e-3


@dataclass(frozen=True)
class Records:
    """Files of (role, incarnation, number), to which any process on this machine appends."""

    folder: str

    def add(self, name: str, role: int, incarnation: int, number: int) -> int:
        """Append a record; returns its place in the file, from 0."""
        row = np.array([role, incarnation, number], np.int64).tobytes()
        file = os.open(Path(self.folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, row)  # one write to a file opened for appending is not torn, and moves the offset to its end
            return os.lseek(file, 0, os.SEEK_CUR) // len(row) - 1
        finally:
            os.close(file)

    def read(self, name: str) -> np.ndarray:
        """All records of a file, shape (records, 3)."""
        path = Path(self.folder, name)
        raw = path.read_bytes() if path.exists() else b""
        return np.frombuffer(raw, np.int64).reshape(-1, 3)


# models of roles ------------------------------------------------------------------------------------------------------------


class MarkedModel(Model):
    """A worker whose gradients are marks. `accumulate`: mini-batches of a gradient; the last one makes the mark."""

    def __init__(self, *args: Any, records: Records, accumulate: int, **more: Any):
        super().__init__(*args, **more)
        self.records, self.calls = records, 0
        self.accumulate, self.batches = accumulate, 0
        self.objective = MarkedObjective(self.objective, self)

    def cancelled(self) -> None:
        super().cancelled()
        self.batches = 0
        _call(self)


class MarkedObjective:
    """The objective of a worker, whose gradients are marks, whether the worker computes them at once or in pieces."""

    def __init__(self, objective: Any, model: MarkedModel):
        self._objective, self._model = objective, model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def gradient(self, params: Any, x: Any, y: Any, out: np.ndarray) -> float:
        model, loss = self._model, self._objective.gradient(params, x, y, out)
        out[:] = 0.0
        model.batches += 1
        if model.batches == model.accumulate:
            model.batches, mark = 0, _call(model)
            for part in model.parts:
                if part.start + mark < part.stop:  # workers that go on after the end of the budget need no marks
                    out[part.start + mark] = model.accumulate  # 1 in the mean
        return float(loss)


class MarkedRowModel(RowModel):
    """A worker of a sparse model whose gradients are marks: one row of every server, and one number of the dense part."""

    def __init__(self, *args: Any, records: Records, rows: Sequence[np.ndarray], **more: Any):
        super().__init__(*args, **more)
        self.records, self.calls, self.rows, self.mark = records, 0, rows, -1

    def rows_needed(self, batch: Any) -> Any:
        self.mark = self.records.add("marks", self.recorder.role, self.recorder.incarnation, 0)
        mine = np.array([rows[self.mark] for rows in self.rows], np.int64)
        made = super().rows_needed(SimpleNamespace(x=np.concatenate([batch.x.reshape(-1), mine])))
        made.x = made.x[: batch.x.size].reshape(batch.x.shape)
        return made

    def gradient(self, parameters: Any, batch: Any) -> Any:
        made, wanted = super().gradient(parameters, batch), parameters.rows_needed
        _call(self, self.mark)
        mine = np.isin(wanted.ids, [rows[self.mark] for rows in self.rows])
        made.values[:] = 0.0
        made.values[: wanted.table].reshape(-1, wanted.columns)[mine] = 1.0
        made.values[wanted.table + self.mark] = 1.0
        return made


class MarkedPiece:
    """A piece of a split model whose parts of gradients are marks. Mixed into the piece's own class."""

    records: Records

    def count(self: Any, samples: int) -> None:
        super().count(samples)
        if self.leads:
            self.records.add("calls", self.recorder.role, self.recorder.incarnation, self.step)

    def gradient(self: Any, weights: Any, step: int | None = None) -> Any:
        number = self.step if step is None else step
        group = int(self.group.partition("-")[2] or 0)
        mark = self.records.add(f"part {self.index}", group, self.recorder.incarnation, number)
        self.values[:] = 0.0
        self.values[mark] = 1.0
        return super().gradient(weights, step)


class MarkedLayers:
    """A worker of FSDP, every one of whose gradients marks the parts of all workers. Mixed into the piece's own class."""

    records: Records

    def count(self: Any, samples: int) -> None:
        super().count(samples)
        self.mark = self.records.add("calls", self.recorder.role, self.recorder.incarnation, self.step)

    def backward(self: Any, params: Any, work: Any, dy: Any, out: np.ndarray) -> Any:
        dx = super().backward(params, work, dy, out)
        out[:] = 0.0
        workers = len(shard_slices(len(out), self.workers))
        for owner in range(workers):  # coordinate `mark` of the owner's vector, if it is in this layer
            before = 0
            for layer, stage in enumerate(self.stages):
                chunk = shard_slices(stage.size, self.workers)[owner]
                if layer == work.chunk and before <= self.mark < before + chunk.stop - chunk.start:
                    out[chunk.start + self.mark - before] = 1.0
                before += chunk.stop - chunk.start
        return dx


def _call(model: Any, mark: int | None = None) -> int:
    """A gradient was computed."""
    place = model.records.add("calls", model.recorder.role, model.recorder.incarnation, model.calls)
    model.calls += 1
    return place if mark is None else mark


def _whole(parts: Any, records: Records, *, objective: Any, recorder: Any, clock: Any, strategy: Any) -> Any:
    return MarkedModel(
        objective, recorder, clock, parts, records=records, accumulate=getattr(strategy, "accumulate", 1)
    )


def _rows(make: Any, rows: Any, records: Records, **given: Any) -> Any:
    return MarkedRowModel(*make.args, records=records, rows=rows, **(make.keywords | given))


def _piece(make: Any, mixin: type, workers: int, records: Records, **given: Any) -> Any:
    made = make(**given)
    made.__class__ = type(f"Marked{type(made).__name__}", (mixin, type(made)), {})
    made.records, made.workers = records, workers
    return made


# the optimizer ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched(SGD):
    """SGD that records a gradient applied again to parameters that hold it, or with a wrong weight."""

    folder: str = ""

    def state(self, size: int, dtype: Any) -> Any:
        return super().state(size, dtype) | {"held": np.zeros(size, dtype)}

    def apply(self, params: Any, gradient: Any, learning_rate: float, state: Any, step: int) -> None:
        super().apply(params, gradient, learning_rate, state, step)
        marks = np.flatnonzero(gradient)
        weights = gradient[marks]
        if len(marks) and (state["held"][marks] > 0).any():
            Records(self.folder).add("applied twice", step, int(marks[0]), 0)
        if len(marks) and not (np.allclose(weights, weights[0]) and weights[0] <= 1.0):
            Records(self.folder).add("weights", step, int(marks[0]), 0)
        state["held"][marks] += 1


# the strategy ---------------------------------------------------------------------------------------------------------------


def indicated(strategy: Any, folder: Any) -> Any:
    """The same strategy, whose gradients are marks. `folder`: an empty one, where all processes can write."""
    kind, records = type(strategy), Records(str(folder))

    def layout(self: Any, problem: Any, cluster: Any) -> Layout:
        made = kind.layout(self, problem, cluster)
        workers = sum(role.computes for role in made.roles)
        return replace(made, roles=tuple(_with_marks(role, made, problem, workers, records) for role in made.roles))

    marked = type(
        kind.__name__, (kind,), {"layout": layout, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    )
    changed = {"learning_rate": RATE, "optimizer": Watched(str(folder))}
    if kind is lk.EASGD and hasattr(strategy, "rho"):
        changed["rho"] = 0.1 / RATE
    made = object.__new__(marked)
    made.__dict__.update(vars(replace(strategy, **changed)))
    return made


def _with_marks(role: RoleSpec, layout: Layout, problem: Any, workers: int, records: Records) -> RoleSpec:
    if not role.computes:
        return role
    make: Any = role.model
    if make is None:
        return replace(role, model=partial(_whole, layout.parts, records))
    if make.func is RowModel:
        return replace(role, model=partial(_rows, make, rows_of(make, problem), records))
    mixin = MarkedLayers if make.func is ShardedLayers else MarkedPiece
    return replace(role, model=partial(_piece, make, mixin, workers, records))


def rows_of(make: Any, problem: Any) -> list[np.ndarray]:
    """Of every server, the rows that it owns: mark m is its row m."""
    placement, parts = make.args[:2]
    owner = placement.owner(np.arange(problem.objective().bag.rows), len(parts))
    return [np.flatnonzero(owner == server) for server in range(len(parts))]


def problem_for(kind: type, servers: int = 1, room: int = 2000) -> Any:
    """A problem for a run of this strategy that computes up to `room` gradients (split models and SparsePS: 500)."""
    if kind is lk.SparsePS:
        options = {"rows": 30_000, "samples": 400}
        return lk.Problem("clicks", hidden=(500,), batch_size=8, dtype="float64", options=options)
    if kind.__name__ in SPLIT:
        return lk.Problem("moons", hidden=(60,) * 12, batch_size=8, dtype="float64")
    options = {"dimension": servers * room, "start": 0.0, "samples": 16}
    return lk.Problem("quadratic", batch_size=1, options=options)


# the end of a run -----------------------------------------------------------------------------------------------------------


class Held:
    """The gradients that the parameters of a run hold. `parts`: {shard: keys of the gradients that it holds}.

    The key of a gradient is its number; in split models (group, incarnation, mini-batch).
    """

    def __init__(self, parts: dict[Any, set[Any]]):
        self.parts = parts
        self.everywhere = set.intersection(*parts.values())
        self.somewhere = set.union(*parts.values())


def computed(folder: Any) -> int:
    """Number of gradients computed by all incarnations of all roles, also those that were never sent."""
    return len(Records(str(folder)).read("calls"))


def mistakes(folder: Any) -> list[str]:
    """Errors detected by the optimizers."""
    records = Records(str(folder))
    return [f"{name}: {rows.tolist()[:5]}" for name in ("applied twice", "weights") if len(rows := records.read(name))]


def held_by_model(run: Any, parameters: Any, folder: Any) -> Held:
    """The gradients that the parameters of a whole model hold, part by part."""
    plan, records = run.plan, Records(str(folder))
    if plan.strategy.name == "SparsePS":
        return _held_by_rows(plan, parameters)
    moved = np.asarray(parameters) - plan.problem.objective().start(plan.seed)
    if plan.strategy.name in SPLIT:
        owners = {str(role.part): role for role in plan.layout.roles if role.shard is not None}
        each = {role.shard: Boxes.of(role.part).take(moved) for role in owners.values()}
    else:
        each = {i: moved[part] for i, part in enumerate(plan.layout.parts)}
    return Held({i: keys(plan, i, values, records) for i, values in each.items()})


def keys(plan: Any, part: int, moved: np.ndarray, records: Records) -> set[Any]:
    """The gradients in the values of one part (less their start), flat."""
    marks = np.flatnonzero(np.abs(moved) > (0 if plan.strategy.name not in SPLIT else RATE / 1000))
    if plan.strategy.name not in SPLIT or plan.strategy.name == "FSDP":
        return set(marks.tolist())
    parts = len({str(role.part) for role in plan.layout.roles if role.shard is not None})
    return {tuple(row) for row in records.read(f"part {part % parts}")[marks].tolist()}


def _held_by_rows(plan: Any, parameters: Any) -> Held:
    spec = next(role for role in plan.layout.roles if role.computes)
    rows = spec.model.args[1]
    bag = parameters.bag if hasattr(parameters, "bag") else plan.problem.objective().bag
    found: dict[Any, set[Any]] = {}
    for server, mine in enumerate(rows):
        mine = mine[:2000]
        now = (
            parameters.table(mine)
            if hasattr(parameters, "table")
            else np.asarray(parameters)[: bag.size].reshape(-1, bag.columns)[mine]
        )
        moved = np.abs(now - bag.start(plan.seed, mine, now.dtype)).max(axis=1)
        found[server] = set(np.flatnonzero(moved > RATE / 1000).tolist())
    dense = parameters.dense if hasattr(parameters, "dense") else np.asarray(parameters)[bag.size :]
    moved = np.abs(dense - plan.problem.objective().start(plan.seed)[bag.size :])
    found["dense"] = set(np.flatnonzero(moved > RATE / 1000).tolist())
    return Held(found)
