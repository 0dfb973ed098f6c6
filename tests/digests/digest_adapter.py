"""Carries out run descriptions and takes their digests: the only module of this suite that uses labkit's names.

A digest does not depend on names. A name that changes in labkit is entered here, once, and all digests stay unchanged:

- `PUBLIC`: names in descriptions (classes, verbs, options) -> today's names.
- `COUNTERS`, `LEDGER`, `SUMMARY`, `EVENT_VALUES`: the digest's names -> where the value is found today.
- `MESSAGES`: today's kinds of message that have other names in the digest -> the name in the digest.
- `TABLES`: the digest's tables and columns -> those of the trace.
- `EVENTS`: today's kinds of events that have other names in the digest -> the name in the digest.

Counters, ledger places or fields of events that labkit adds are not part of any digest until they are entered here (which is an
intended change of all runs that have them).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from digest_runs import Description, New

import labkit as lk
from labkit.errors import LabkitError
from labkit.trace.ledger import ledger
from labkit.trace.summary import summary

PUBLIC: dict[str, str] = {"Step": "StepDecay", "patience": "heartbeat_timeout"}

MESSAGES: dict[str, str] = {
    "Position": "Push", "CentreWeights": "Weights",  # EASGD
    "SnapshotRequest": "Look", "CopyRequest": "Want", "ReplicaAck": "Logged",
}  # fmt: skip

# kinds of message that a strategy listed when the digests were recorded, and lists no more because it never sends them:
# {strategy: (its place among the kinds, the name)}
UNUSED_KINDS: dict[str, tuple[int, str]] = {"AsyncPS": (5, "Ack")}  # of Downpour, which was part of it

SECTIONS = (
    "layout", "ending", "ledger", "summary", "counters", "events", "spans", "applies", "messages", "drops", "evaluations",
    "order", "losses", "norms", "predictions", "parameters",
)  # fmt: skip
FLOATS = frozenset({"losses", "norms", "predictions", "parameters"})  # sections that follow from floating-point results

# integer tables: section -> (table of the trace, columns that make a row)
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "spans": ("spans", ("role", "phase", "start", "end", "step")),
    "applies": ("applies", ("role", "shard", "time", "sender", "step", "count", "samples", "staleness", "version")),
    "messages": ("messages", ("role", "sender", "kind", "category", "bytes", "sent", "received")),
    "drops": ("drops", ("role", "shard", "time", "sender", "incarnation", "step", "count", "why")),
}
# what each role recorded, in its order, without times
ORDER: dict[str, tuple[str, ...]] = {
    "spans": ("role", "phase", "step"),
    "applies": ("role", "shard", "sender", "step", "version"),
    "messages": ("role", "sender", "kind", "bytes"),
    "drops": ("role", "sender", "step", "why"),
}
COUNTERS: dict[str, str] = {
    name: name
    for name in (
        "phases", "bytes", "drops", "messages", "computed", "handed", "steps", "shard", "updates", "gradients", "samples",
        "version", "rounds", "duplicates", "outstanding", "residual", "activations", "stashed", "rows", "row_pulls",
        "row_pushes", "hot", "applied", "staleness", "reads", "taken", "eras",
    )
} | {"handed": "released", "taken": "last_received", "eras": "rounds_by_incarnation"}  # fmt: skip
LEDGER: dict[str, str] = {
    name: name
    for name in (
        "computed", "applied", "partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing", "closes",
    )
}  # fmt: skip
# of the summary: what counts gradients belongs to the section of the ledger
SUMMARY: dict[str, str] = {
    name: name
    for name in (
        "workers", "servers", "seed", "updates", "seconds", "updates_per_second", "samples_per_second", "staleness",
        "bytes_sent", "phases", "stopped_by",
    )
}  # fmt: skip
SUMMARY_OF_LEDGER: dict[str, str] = {"gradients": "gradients", "gradients_per_second": "gradients_per_second"}
EVENTS: dict[str, str] = {  # kind of today -> kind in the digest
    "killed": "kill", "restarted": "restart", "frozen": "freeze", "thawed": "thaw", "slowed": "slow", "reconnected": "reconnect",
    "delayed": "delay", "lossy": "drop", "group restarted": "regroup", "paused": "pause", "gradient refused": "refused",
    "connection refused": "refused",
}  # fmt: skip
NO_EVENTS = frozenset({"warning", "set"})  # display text only; options are visible in their effects
# kind of today -> the fields that belong to the digest, the digest's name first
EVENT_VALUES: dict[str, dict[str, str]] = {
    kind: {name: name for name in names}
    for kind, names in {
        "killed": ("name", "restart"), "lost": ("name", "incarnation"), "restarted": ("name", "incarnation"), "left": ("name",),
        "joined": ("name", "incarnation"), "frozen": ("name",), "thawed": ("name",), "fenced": ("name",),
        "slowed": ("name", "factor"), "cut": ("name", "peer"), "reconnected": ("name", "peer"),
        "delayed": ("name", "peer", "seconds"), "lossy": ("name", "peer", "chance"), "note": ("numbers",),
        "gradient refused": ("name",),
    }.items()
}  # fmt: skip
ENDING: dict[str, str] = {name: name for name in ("stopped_by", "time", "update", "in_flight", "lost")}


FAMILIES = (lk.codecs, lk.distributions, lk.partitions, lk.placements, lk.schedules)

# carrying out --------------------------------------------------------------------------------------------------------


def build(value: Any) -> Any:
    """The object that a description's plain value represents."""
    if isinstance(value, New):
        name, given = today(value.kind, value.options)
        return public(PUBLIC.get(name, name))(*(build(v) for v in value.args), **options(given))
    if isinstance(value, tuple):
        return tuple(build(v) for v in value)
    return value


def public(name: str) -> Any:
    """The public object of labkit with this name, which may be in one of its modules."""
    return next(getattr(m, name) for m in (lk, *FAMILIES) if name in m.__all__)


def today(kind: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The class and options that have taken the place of those in a description."""
    if kind == "AsyncPS" and {"fused", "n_push", "n_fetch"} & set(given):  # as `labkit.serialization` reads them
        return "Downpour", {name: value for name, value in given.items() if name != "fused"}
    if kind == "Pipeline" and given.get("schedule") == "gpipe":
        return kind, {"order": "gpipe"}
    return kind, given


def options(given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments, with today's names."""
    return {PUBLIC.get(name, name): build(value) for name, value in given.items()}


class Execution:
    """Carries out one description. `runs`: the run, and those that were forked from it, repeated or resumed, in order.

    Verbs beside those of `Run`: ("wait",) to the end; ("fork", at): a fork, with which the script continues; ("replay",):
    the run advances to its end and a new one is made from its command log; ("resume_folder", budget): the run is left where it
    stands, and resumed from its folder.
    """

    def __init__(self, description: Description, folder: str):
        self.description, self.folder = description, folder if description.checkpoint else None
        self.errors: list[str] = []
        self.runs = [self._train()]
        for verb, *arguments in description.script:
            self._do(verb, arguments)
        for run in self.runs:
            self._guarded(run.wait)

    def _train(self) -> Any:
        d = self.description
        return lk.train(
            lk.Problem(**options(d.problem)), build(d.strategy), lk.SimulatedCluster(**options(d.cluster)),
            lk.Budget(**options(d.budget)), seed=d.seed, faults=list(build(d.faults)), checkpoint=self.folder,
        )  # fmt: skip

    def _do(self, verb: str, arguments: list[Any]) -> None:
        run = self.runs[-1]
        if verb == "fork":
            self.runs.append(run.fork(*arguments))
        elif verb == "replay":
            self._guarded(run.wait)
            engine = run.engine.cluster.start(run.plan, commands=run.engine.commands)
            self.runs.append(type(run)(run.plan, engine))
        elif verb == "resume_folder":
            del run, self.runs[-1]  # its program is gone
            budget = lk.Budget(**options(arguments[0])) if arguments else None
            self.runs.append(lk.resume(self.folder, budget=budget))
        elif verb == "set":
            self._guarded(lambda: run.set(**options(arguments[0])))
        elif verb == "inject":
            self._guarded(lambda: run.inject(list(build(arguments[0]))))
        else:
            self._guarded(lambda: getattr(run, PUBLIC.get(verb, verb))(*build(tuple(arguments))))

    def _guarded(self, act: Any) -> None:
        """Refusals and failures are part of the digest: the class of the error."""
        try:
            act()
        except LabkitError as error:
            self.errors.append(type(error).__name__)


# digests -------------------------------------------------------------------------------------------------------------


def digests(description: Description) -> dict[str, str]:
    """{section: digest} of the run, ten hexadecimal digits each."""
    with tempfile.TemporaryDirectory() as folder:
        done = Execution(description, folder + "/run")
    made = {name: hashlib.blake2b(digest_size=5) for name in SECTIONS}
    for run in done.runs:
        for name, parts in contents(run).items():
            for part in parts:
                made[name].update(part)
    made["ending"].update(plain(done.errors))
    return {name: made[name].hexdigest() for name in SECTIONS}


def plain(value: Any) -> bytes:
    """Numbers, texts, lists and dicts as bytes: integers exactly, floats to the last bit."""
    return json.dumps(_exact(value), sort_keys=True).encode() + b"\n"


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, dict):
        return {str(k): _exact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _array(values: np.ndarray) -> bytes:
    kind = "<i8" if values.dtype.kind in "iu" else "<f8"
    return str(values.shape).encode() + np.ascontiguousarray(values, kind).tobytes()


def contents(run: Any) -> dict[str, Iterable[bytes]]:
    """The content from which the digest of each section is computed."""
    trace = run.trace
    numbers, book, ending = summary(trace), ledger(trace), trace.ending or {}
    rows = {table: _rows(trace, table, columns) for table, columns in TABLES.values()}
    layout = [[name, kind, node] for name, kind, node in zip(trace.roles, trace.kinds, trace.nodes)]
    kinds = [MESSAGES.get(name, name) for name in trace.header.messages]
    unused = UNUSED_KINDS.get(trace.header.strategy.name)
    if unused is not None:
        kinds.insert(*unused)
    evaluations = trace.tables["evaluations"].rows()
    columns = trace.tables["evaluations"].columns
    when = evaluations[:, [columns.index("time"), columns.index("update")]].astype(np.int64)
    values = evaluations[:, [columns.index("loss"), columns.index("accuracy")]]
    made: dict[str, Iterable[bytes]] = {
        "layout": [plain([layout, kinds])],
        "ending": [plain({name: ending.get(where) for name, where in ENDING.items()})],
        "ledger": [
            plain({name: book[where] for name, where in LEDGER.items()}),
            plain({name: numbers[where] for name, where in SUMMARY_OF_LEDGER.items()}),
        ],
        "summary": [plain({name: numbers[where] for name, where in SUMMARY.items()})],
        "counters": [
            plain([life, {name: _counter(counters, where) for name, where in COUNTERS.items()}])
            for life, counters in sorted(trace.instances.items())
        ],
        "events": [plain(event) for event in _events(trace)],
        "evaluations": [_array(when)],
        "losses": [_array(values), plain([ending.get("loss"), ending.get("accuracy")])],
        "norms": [_array(_by_role(trace.tables["norms"].rows()))],
        "predictions": [plain([entry.time, entry.update]) + entry.samples + entry.grid for entry in trace.predictions],
        "parameters": [plain(ending.get("parameters_sha256")), *_parameters(run)],
        "order": [],
    }
    for section, (table, _) in TABLES.items():
        ordered = rows[table]
        made[section] = [_array(ordered[np.lexsort(ordered.T[::-1])])]
    made["order"] = [_array(_by_role(_rows(trace, table, columns))) for table, columns in ORDER.items()]
    return made


def _rows(trace: Any, table: str, columns: tuple[str, ...]) -> np.ndarray:
    rows = np.stack(trace.column(table, *columns), axis=1)
    unused = UNUSED_KINDS.get(trace.header.strategy.name)
    if unused is not None and table == "messages":
        kind = rows[:, columns.index("kind")]
        kind += kind >= unused[0]
    return rows


def _by_role(rows: np.ndarray) -> np.ndarray:
    """Rows in the order in which each role recorded them; independent of when they were added to the trace."""
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _counter(counters: Any, where: str) -> Any:
    value = getattr(counters, where)
    return sorted((k, v) for k, v in value.items()) if isinstance(value, dict) else value


def _events(trace: Any) -> list[Any]:
    """[time, role, kind, values] of each event, by time and role."""
    found = []
    for event in trace.events:
        if event.kind not in NO_EVENTS:
            fields = EVENT_VALUES.get(event.kind, {})
            values = {name: getattr(event, where) for name, where in fields.items()}
            found.append([event.time, event.recorder, EVENTS.get(event.kind, event.kind), values])
    return sorted(found, key=lambda event: (event[0], event[1]))


def _parameters(run: Any) -> list[bytes]:
    """The bytes of the model that the run returns, if it has one."""
    values = run.engine.parameters
    if values is None or run.plan.timing_only:
        return []
    return [np.ascontiguousarray(values).tobytes()] if isinstance(values, np.ndarray) else []
