"""An independent ledger: recorded by instrumenting labkit, and compared with labkit's ledger.

`Oracle.watch(monkeypatch)` wraps a few functions: those that add gradients to a shard's parameters, save and restore a
shard, compute gradients, deliver messages, and record events. It never changes arguments or results. Each violation of a
guarantee is a sentence in `wrong`.
"""

from __future__ import annotations

from typing import Any

from labkit.engines.simulated.network import SimulatedNetwork
from labkit.engines.simulated.role import SimulatedRole
from labkit.roles.applied_log import AppliedLog
from labkit.roles.evaluator import Evaluator
from labkit.roles.gradient import Gradient, Model
from labkit.roles.layerwise import LayerwiseModel
from labkit.roles.messages import Joined, Left
from labkit.roles.shard import Shard
from labkit.roles.sparse.row_shard import RowShard
from labkit.roles.sparse.rows import RowModel
from labkit.trace.events import Event, RoleLost
from labkit.trace.schema import nanoseconds
from labkit.trace.trace import Trace

HELD = "held, for the tests"  # an entry of a shard's state


class Oracle:
    """Ground truth of a run in virtual time."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.computed = 0  # gradients, by all incarnations of all roles
        self.shown: dict[tuple[int, int, int], frozenset[Any]] = {}  # (shard, incarnation, version) -> what it held
        self.returned: list[frozenset[Any]] = []  # what each shard's part of the evaluated parameters holds
        self.ended: dict[tuple[int, int], int] = {}  # (role, incarnation) -> when it was lost, ns
        self.steps: dict[int, list[tuple[int, int]]] = {}  # role -> [(ns, version that it led to)] of its present shard
        # of each restored shard: role, incarnation, when (ns) its restored state was current, and when the steps
        # undone were made
        self.undone: list[tuple[int, int, int, list[int]]] = []

    def watch(self, monkeypatch: Any) -> Oracle:
        """Record until the test is over."""
        for name in (
            "_watch_steps",
            "_watch_evaluations",
            "_watch_states",
            "_watch_work",
            "_watch_mail",
            "_watch_rows",
        ):
            getattr(self, name)(monkeypatch)
        return self

    # the parameters ---------------------------------------------------------------------------------------------------

    def _watch_steps(self, monkeypatch: Any) -> None:
        record, begin = AppliedLog.record, Shard.__init__

        def begun(shard: Any, *args: Any, **more: Any) -> None:
            begin(shard, *args, **more)
            shard.log.shard_of_the_tests = shard

        def recorded(log: Any, gradients: Any, *more: Any) -> Any:
            self._hold(log.shard_of_the_tests, gradients)
            return record(log, gradients, *more)

        monkeypatch.setattr(Shard, "__init__", begun)
        monkeypatch.setattr(AppliedLog, "record", recorded)

    def _watch_evaluations(self, monkeypatch: Any) -> None:
        evaluate = Evaluator.evaluate

        def shown(method: Any) -> Any:
            def snapshot(shard: Any, *more: Any) -> Any:
                key = (shard.index, shard.recorder.incarnation, shard.version)
                self.shown[key] = frozenset(shard.__dict__.get(HELD, ()))
                return method(shard, *more)

            return snapshot

        def evaluated(evaluator: Any, snapshots: Any) -> Any:
            if evaluator.layout.replication != "local":
                self.returned = [self.shown[s.shard, s.incarnation, s.version] for s in snapshots]
            return evaluate(evaluator, snapshots)

        for kind in (Shard, RowShard):
            monkeypatch.setattr(kind, "snapshot", shown(kind.snapshot))
        monkeypatch.setattr(Evaluator, "evaluate", evaluated)

    def _hold(self, shard: Any, gradients: Any) -> None:
        """The parameters of `shard` hold these from now on."""
        held = shard.__dict__.setdefault(HELD, set())
        self.steps.setdefault(shard.recorder.role, []).append((shard.clock(), shard.version))
        for g in gradients:
            keys = _keys(shard, g)
            if held & keys:
                self.wrong.append(f"shard {shard.index} applies {sorted(held & keys)} twice")
            held |= keys

    def _watch_states(self, monkeypatch: Any) -> None:
        to_state, restore = Shard.to_state, Shard.restore
        states: list[frozenset[Any]] = []

        def saved(shard: Any) -> Any:
            states.append(frozenset(shard.__dict__.get(HELD, ())))
            return {**to_state(shard), HELD: len(states) - 1}  # a number, which can be part of a message to a backup

        def restored(shard: Any, state: Any, same: bool = False) -> None:
            restore(shard, state, same)
            shard.__dict__[HELD] = set() if state is None else set(states[state[HELD]])
            self._note_loss(shard)

        monkeypatch.setattr(Shard, "to_state", saved)
        monkeypatch.setattr(Shard, "restore", restored)

    def _note_loss(self, shard: Any) -> None:
        role, instance = shard.recorder.role, shard.recorder.incarnation
        steps = self.steps.get(role, [])
        kept = [step for step in steps if step[1] <= shard.version]
        undone = [time for time, version in steps if version > shard.version]
        began = max([0, *(time for time, _ in kept)])
        self.undone.append((role, instance, began, undone))
        self.steps[role] = [*kept, (shard.clock(), shard.version)]  # from now on its checkpoints are counted

    # work -------------------------------------------------------------------------------------------------------------

    def _watch_work(self, monkeypatch: Any) -> None:
        for name in ("gradient", "cancelled"):
            monkeypatch.setattr(Model, name, self._counted(getattr(Model, name)))
        monkeypatch.setattr(RowModel, "gradient", self._counted(RowModel.gradient))
        forward, backward = LayerwiseModel.forward, LayerwiseModel.backward
        begun: dict[int, Gradient] = {}

        def remembered(model: Any, *args: Any) -> Gradient:
            begun[id(model)] = forward(model, *args)
            return begun[id(model)]

        def counted_once(model: Any, piece: Any) -> None:
            # the piece of the first layer is the last one
            self.computed += piece.part.start == 0 and begun[id(model)].complete
            backward(model, piece)

        monkeypatch.setattr(LayerwiseModel, "forward", remembered)
        monkeypatch.setattr(LayerwiseModel, "backward", counted_once)

    def _counted(self, method: Any) -> Any:
        def counted(*args: Any) -> Any:
            made = method(*args)
            self.computed += made is None or made.complete  # not a part of an accumulated gradient
            return made

        return counted

    # incarnations -----------------------------------------------------------------------------------------------------

    def _watch_mail(self, monkeypatch: Any) -> None:
        send, deliver, release = SimulatedNetwork.send, SimulatedRole.deliver, SimulatedRole.resume
        released: list[Any] = []  # the role that receives messages which arrived earlier

        def sent(network: Any, role: Any, *more: Any) -> Any:
            if role.down or (role.id, role.recorder.incarnation) in self.ended or role.suspended:
                self.wrong.append(f"{role.name}#{role.recorder.incarnation} speaks, and is {role.down or 'frozen'}")
            return send(network, role, *more)

        def delivered(role: Any, message: Any) -> Any:
            if message.__class__ not in (Left, Joined) and role not in released:
                instance = (role.ids[message.sender], message.incarnation)
                if instance in self.ended:
                    self.wrong.append(f"{role.name} hears {message.sender}#{instance[1]}, which was lost before")
            if role.down:
                self.wrong.append(f"{role.name} hears {message.__class__.__name__}, and is away")
            return deliver(role, message)

        def freed(role: Any) -> None:
            released.append(role)
            release(role)
            released.remove(role)

        monkeypatch.setattr(SimulatedRole, "resume", freed)
        monkeypatch.setattr(SimulatedNetwork, "send", sent)
        monkeypatch.setattr(SimulatedRole, "deliver", delivered)

    def _watch_rows(self, monkeypatch: Any) -> None:
        record, append = Trace.event, Trace.append

        def recorded(trace: Trace, event: Event) -> None:
            if isinstance(event, RoleLost):
                self.ended[trace.roles.index(event.name), event.incarnation] = event.time
            record(trace, event)

        def appended(trace: Trace, batch: dict[str, Any]) -> Any:
            instance = (batch["role"], batch["incarnation"])
            if instance in self.ended and batch["until"] > self.ended[instance]:
                self.wrong.append(f"{trace.roles[instance[0]]}#{instance[1]} reports after it was lost")
            return append(trace, batch)

        monkeypatch.setattr(Trace, "event", recorded)
        monkeypatch.setattr(Trace, "append", appended)

    def costs_little(self, run: Any) -> None:
        """A lost server costs the gradients applied since its last checkpoint, which was not overdue."""
        cluster = run.engine.cluster
        cost, every = nanoseconds(cluster.checkpoint_time), cluster.checkpoint_every
        every = max(nanoseconds(1.0), 19 * cost) if every is None else nanoseconds(every)
        for role, instance, saved, undone in (
            self.undone if not run.plan.layout.replication and not cluster.replicas else ()
        ):
            lost = max(time for (who, before), time in self.ended.items() if who == role and before < instance)
            overdue = [time for time in undone if saved + cost + every <= time < lost - cost]
            assert not overdue, f"{run.trace.roles[role]}#{instance}: saved at {saved} ns, and not at {overdue}"

    def agrees(self, run: Any, entries: dict[str, Any]) -> None:
        """Compare labkit's ledger with this one. Replicas, pieces of split models, and centres to which positions are
        pushed are
        checked by `test_indicator.py`, from their parameters.
        """
        replication = run.plan.layout.replication
        split = any(role.model is not None for role in run.plan.layout.roles) and run.plan.strategy.name != "SparsePS"
        if not split:
            assert entries["computed"] == self.computed, (entries, self.computed)
        if replication or run.plan.layout.positions or not self.returned:
            return
        everywhere, somewhere = frozenset.intersection(*self.returned), frozenset.union(*self.returned)
        assert (entries["applied"], entries["partly_applied"]) == (len(everywhere), len(somewhere - everywhere)), (
            entries
        )


def _keys(shard: Any, g: Any) -> set[tuple[Any, ...]]:
    """The gradients in `g`, each with its sender's incarnation."""
    if g.__class__ is not Gradient:
        return {(g.sender, g.incarnation, step) for step in range(g.step - g.count + 1, g.step + 1)}
    sender = "everyone" if g.all_workers else shard.recorder.role
    return {(sender, shard.recorder.incarnation, g.step)}
