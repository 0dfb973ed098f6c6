"""The plan of a run, and the components of each role made from it, identically on every engine."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..data import NullBatches, batches_of_worker, samples_of_workers
from ..errors import BadInput, nearest
from ..models.check import check_at_start
from ..nn import Objective, Recommender, separated
from ..random_streams import CODEC, MODEL, role_stream
from ..roles.backup import BACKUP_KINDS, run_backup, run_with_backup, with_backups
from ..roles.budget import Budget, Limits
from ..roles.compressor import compressor_of
from ..roles.evaluator import Evaluator
from ..roles.gradient import Model
from ..roles.layout import Layout, RoleSpec
from ..roles.messages import Joined, Left, Snapshot, SnapshotRequest
from ..roles.probe import ProbeInputs
from ..roles.shard import Shard
from ..roles.source_check import check_source
from ..trace.header import RecordedBudget, RecordedCluster, RecordedProblem, RecordedStrategy, TraceHeader
from ..trace.recorder import Recorder
from .cluster_spec import ClusterSpec
from .data_preview import probe_inputs_of, recorded_samples, recorded_shares
from .elastic import Elastic, elastic_of
from .strategy_check import check_strategy

if TYPE_CHECKING:
    from ..problem import Problem
    from ..roles.context import Context

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """Everything about a run that is decided before it starts. Immutable and deterministic: equal inputs give equal plans."""

    problem: Problem
    strategy: Any
    layout: Layout
    budget: Budget
    limits: Limits
    seed: int
    batch_size: int
    timing_only: bool
    norms_every: int
    record: bool = True
    probe_inputs: ProbeInputs | None = None  # inputs that the chief probes at each evaluation
    elastic: Elastic | None = None  # set if workers may join and leave
    # False: replicas and centres do not pass on which gradients they contain, so there is no ledger
    ledger: bool = True
    batch_parts: int | None = None  # the number of workers that draw the same batches and divide each of them

    def without_data(self) -> Plan:
        """Return the plan without the problem, as it is sent to roles in other processes. Their data are sent separately."""
        return replace(self, problem=None)  # type: ignore[arg-type]

    def start(self, objective: Objective) -> np.ndarray:
        """Return the initial weights of the whole model: made once, read-only."""
        if "_start" not in self.__dict__:
            made = objective.start(self.seed)
            made.flags.writeable = False
            self.__dict__["_start"] = made
        values: np.ndarray = self.__dict__["_start"]
        return values

    @cached_property
    def role_ids(self) -> dict[str, int]:
        return {role.name: i for i, role in enumerate(self.layout.roles)}

    @cached_property
    def present_shares(self) -> int:
        """The number of shares of the data whose roles are present at the start."""
        absent = self.elastic.absent if self.elastic else ()
        return len({role.data for role in self.layout.roles if role.data is not None and role.name not in absent})

    def header(self, cluster: ClusterSpec) -> TraceHeader:
        mean_staleness = self.strategy.mean_staleness(self.present_shares)
        return TraceHeader(
            problem=RecordedProblem.from_dict(self.problem.describe() | {"batch_size": self.batch_size}),
            strategy=RecordedStrategy(**self.strategy.describe(), mean_staleness=mean_staleness),
            cluster=RecordedCluster.from_dict(cluster.describe()),
            budget=RecordedBudget(**self.budget.describe()),
            seed=self.seed,
            layout=self.layout.recorded(),
            absent=self.elastic.absent if self.elastic else (),
            layers=tuple(self.problem.objective().layout.groups()),
            messages=tuple(kind.__name__ for kind in self.message_kinds),
            samples=recorded_samples(self.problem, self.probe_inputs, self.record),
            shares=recorded_shares(self.problem, self.layout.shares),
            baseline_accuracy=None if self.problem.timing_only else self.problem.dataset.baseline_accuracy,
        )

    @property
    def message_kinds(self) -> tuple[type, ...]:
        """The message kinds of this run: those of the strategy, then those of the engine."""
        return (*self.strategy.messages, SnapshotRequest, Snapshot, Joined, Left, *self._of_backups)

    @cached_property
    def message_set(self) -> frozenset[type]:
        """The message kinds that a role may send."""
        return frozenset((*self.strategy.messages, SnapshotRequest, *self._of_backups))

    @property
    def _of_backups(self) -> tuple[type, ...]:
        return BACKUP_KINDS if any(role.backs is not None for role in self.layout.roles) else ()


def make_plan(
    problem: Problem, strategy: Any, cluster: ClusterSpec, budget: Budget | None = None, seed: int | None = None
) -> Plan:  # fmt: skip
    """Return the plan of a run. Raises `BadInput` if problem, strategy, cluster and budget do not fit together.

    `budget`: None for the default of the problem. `seed`: None for the problem's seed.
    """
    if seed is not None:
        problem = replace(problem, seed=seed)
    check_source(strategy)
    if not problem.timing_only:
        check_at_start(problem)
    budget = (budget or Budget()).settled(problem)
    layout = with_backups(strategy.layout(problem, cluster.widened()), cluster.replicas, strategy.name)
    elastic = elastic_of(strategy, problem, cluster, layout, problem.seed)
    of_worker, parts = problem.of_worker(layout.shares), None
    if problem.partition.divides_batch:
        parts = layout.shares
        layout = with_backups(strategy.layout(of_worker, cluster.widened()), cluster.replicas, strategy.name)
    if not problem.timing_only and any(role.shard is not None and role.store is None for role in layout.roles):
        check_fits(problem.objective())
    check_strategy(strategy, (role.kind for role in layout.roles if role.backs is None))
    if problem.timing_only and budget.updates is None and budget.seconds is None and budget.samples is None:
        raise BadInput(
            "A timing-only run needs Budget(updates=...), samples or seconds: there is no data to count epochs of."
        )
    if not problem.timing_only and not problem.partition.shares_all:
        samples = problem.dataset.n_train
        if samples < layout.shares:
            raise BadInput(
                f"{problem.name} has {samples} training samples for {layout.shares} workers: each needs at least one; use fewer "
                "workers or partition='shared'."
            )
    every = 1 if cluster.paced else 10
    return Plan(
        problem,
        strategy,
        layout,
        budget,
        budget.limits(problem),
        problem.seed,
        of_worker.batch_size,
        problem.timing_only,
        every if cluster.record else 0,
        cluster.record,
        probe_inputs_of(problem, cluster.record),
        elastic,
        batch_parts=parts,
    )


def check_fits(objective: object) -> None:
    """Raise `BadInput` if the parameter vector (as of an embedding table) is too large for strategies that send it whole."""
    if isinstance(objective, Recommender):
        objective.check_dense()


def batch_maker(
    plan: Plan, spec: RoleSpec, share: tuple[np.ndarray, np.ndarray] | None, incarnation: int = 0,
    present: Callable[[], Sequence[str]] = tuple,
) -> Callable[[], Iterator[Any]] | None:  # fmt: skip
    """Return the function behind `ctx.batches()`; None for a role without data.

    The order of the batches is determined by (seed, share, incarnation): roles with the same share draw the same batches, and a
    restarted role draws other ones than before. `present()`: the workers that take part, in elastic runs.
    """
    number = spec.data
    if number is None:
        return None
    if plan.timing_only or share is None:
        return lambda: iter(NullBatches(1, plan.batch_size))
    x, y = share
    next_epoch_samples = plan.elastic.epoch_sampler(spec.name, separated(y)[0], present) if plan.elastic else None
    return lambda: batches_of_worker(
        x, y, plan.batch_size, plan.seed, number, incarnation, next_epoch_samples, plan.batch_parts
    )


def build_parts(
    plan: Plan,
    spec: RoleSpec,
    recorder: Recorder,
    clock: Callable[[], int],
    watcher: Callable[[Shard], None],
    objective: Any,
    strategy: Any,
    test: tuple[np.ndarray, ...] | None,
    incarnation: int = 0,
) -> tuple[Any, ...]:
    """Return the components of one role, in the order of its method's arguments: model, shard, or the chief's evaluator.

    `objective`: one for each thread, because it has buffers. `strategy`: the engine's instance, whose live options may change.
    `test`: x and y of the test set, and those of the validation part if there is one (needed by the chief).
    """
    parts: list[Any] = []
    if spec.model is not None:
        parts.append(spec.model(objective=objective, recorder=recorder, clock=clock, strategy=strategy))
    elif spec.computes:
        draws = partial(_draws, plan.seed, spec, incarnation)
        compressor = compressor_of(strategy, objective, plan.layout.parts, partial(draws, CODEC))
        parts.append(
            Model(
                objective, recorder, clock, plan.layout.parts, clip_norm=strategy.clip_norm,
                norms_every=plan.norms_every, compressor=compressor, stream=partial(draws, MODEL),
            )
        )  # fmt: skip
    if spec.shard is not None:
        parts.append(_shard(spec, plan, objective, recorder, clock, watcher, strategy))
    # the copied shard has a separate recorder, which is discarded: the server records its updates
    if spec.backs is not None:
        parts.append(copied_shard(plan, plan.layout.roles[spec.backs], clock, objective, strategy))
    if spec.kind == "chief":
        # held-out samples in a file are read once, and not at each evaluation
        x, y, *validation = map(np.asarray, test) if test is not None and not plan.timing_only else (None, None)
        observed, every = plan.layout.observed, plan.strategy.eval_every
        shards = sum(role.shard is not None for role in plan.layout.roles)
        parts.append(
            Evaluator(
                objective,
                x,
                y,
                plan.budget,
                plan.limits,
                observed,
                shards,
                every,
                recorder,
                clock,
                plan.layout,
                plan.probe_inputs,
                tuple(validation),
            )
        )
    return tuple(parts)


def _draws(
    seed: int, spec: RoleSpec, incarnation: int, purpose: int, more: tuple[int, ...] = ()
) -> np.random.Generator:  # fmt: skip
    """Return the random stream of a role for a purpose."""
    return role_stream(seed, spec.kind, spec.index, purpose, incarnation, more)


def _shard(
    spec: RoleSpec, plan: Plan, objective: Any, recorder: Recorder, clock: Callable[[], int], watcher: Any, strategy: Any
) -> Shard:  # fmt: skip
    made: Shard = (spec.store or Shard.make)(
        spec=spec, plan=plan, objective=objective, recorder=recorder, clock=clock, watcher=watcher, strategy=strategy,
    )  # fmt: skip
    return made


def copied_shard(plan: Plan, server: RoleSpec, clock: Callable[[], int], objective: Any, strategy: Any) -> Shard:
    """Return a shard like that of role `server`, with a recorder of its own."""
    recorder = Recorder(plan.role_ids[server.name], record=False, roles=len(plan.layout.roles))
    return _shard(server, plan, objective, recorder, clock, lambda _: None, strategy)


def make_coroutine(
    strategy: Any, plan: Plan, spec: RoleSpec, context: Context, parts: tuple[Any, ...]
) -> Coroutine[Any, Any, None]:  # fmt: skip
    """Return the coroutine of one role: the strategy's method, wrapped if the role has a backup or is one."""
    if spec.backs is not None:
        return run_backup(context, *parts)
    method = getattr(strategy, spec.kind)
    backup = plan.layout.backup_of(spec.name)
    if backup is not None:
        return run_with_backup(method, context, parts[0], backup)
    return method(context, *parts)


def local_data(problem: Problem) -> Any:
    """Return the problem's data set in the memory of this process; Dask arrays are computed here."""
    dataset = problem.dataset
    return dataset.gathered() if hasattr(dataset, "gathered") else dataset


def split(
    dataset: Any, problem: Problem, shares: int, elastic: Elastic | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (x, y) of each share, by the problem's partition; all samples for each if they are partitioned anew at each
    epoch.
    """
    if elastic is not None:
        return [dataset.training] * shares
    return samples_of_workers(dataset, problem.partition, shares, problem.seed)


def find_role(name: str, roles: Mapping[str, T]) -> T:
    """Return the role of this name. Raises `BadInput`, with the most similar name, if there is none."""
    if not isinstance(name, str) or name not in roles:
        raise nearest("role", name, roles)
    return roles[name]
