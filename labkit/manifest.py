"""The run manifest, `run.json`: the description of a run. It is stored with the checkpoints, so that the run can be resumed.

    {"format": 3, "age": 0, "run": {"problem": ..., "strategy": ..., "cluster": ..., "budget": ..., "faults": ...}, "shards": ...}

`run`: the result of `RunSpec.to_dict`. It contains the name and the fingerprint of a user-defined part; the part given to
`resume` must have the same fingerprint. `age`: how often the run was resumed. `shards`: which role has which part of the
parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from .engines.commands import Command, Executed
from .engines.plan import Plan
from .engines.storage.journal import COMMANDS, REACHED, read_json, read_reached, write_json
from .engines.storage.store import Store, open_store
from .errors import BadInput, shown
from .files import FileLock
from .formats import Either, Form, Number, check_format, check_json
from .serialization import difference, fingerprint
from .spec import RunSpec, decoded_part, spec_of

RUN = "run.json"
FORMAT = 3
OWN: Form = {"custom": str, "fingerprint": dict}
PART: Form = Either(OWN, {"lk": str})
CLUSTER: Form = Either({"custom": str, "fingerprint": {"engine": str}}, {"lk": str, "engine": str})
SHARDS: Form = [(str, object)]
AGE = Number(0, 1_000_000, int)  # times that a run was resumed
MANIFEST: Form = {
    "age": AGE, "shards": SHARDS,
    "run": {"problem": PART, "strategy": PART, "cluster": CLUSTER, "budget": Either(None, {"lk": str}), "faults": [dict]},
}  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """The contents of `run.json` in `location`. `run`: the result of `RunSpec.to_dict`; `shards`: the result of `shards_of`."""

    location: str
    run: dict[str, Any]
    shards: Any
    times_resumed: int

    @property
    def engine(self) -> str:
        """The cluster's engine."""
        encoded = self.run["cluster"]
        return str((encoded["fingerprint"] if "custom" in encoded else encoded)["engine"])

    @property
    def budget(self) -> Any:
        """The budget as given to `train`, possibly None."""
        return None if self.run["budget"] is None else self._decoded("budget")

    @property
    def commands(self) -> tuple[Command | Executed, ...]:
        """The commands of the run's fault schedule."""
        return tuple(self._decoded("faults"))

    def _decoded(self, name: str) -> Any:
        """Return the part `name`, decoded. Raises `BadInput` if it is damaged, or was written by another version."""
        try:
            return decoded_part(name, self.run[name])
        except BadInput as error:
            raise BadInput(f"{RUN} in {shown(self.location)} cannot be used: {error}") from None

    def part(self, name: str, given: Any) -> Any:
        """Return the problem, strategy or `ClusterSpec` of the run. `given`: the part given to `resume`, or None.

        A given part is returned if it has the same fingerprint as the part of the run; otherwise `BadInput` is raised. (Clusters
        of real processes are not compared.) If none is given, the part is decoded; a user-defined part cannot be decoded, so
        `BadInput` is raised.
        """
        encoded = self.run[name]
        own = "custom" in encoded
        if given is None:
            if own:
                raise BadInput(
                    f"The {name} of the run in {shown(self.location)} is not labkit's own ({encoded['custom']}): "
                    f"give it, as lk.resume({shown(self.location)}, {name}=...)."
                )
            return self._decoded(name)
        if name == "cluster" and not given.virtual_time:  # real processes are not compared
            return given
        before, now = encoded["fingerprint"] if own else fingerprint(self._decoded(name)), fingerprint(given)
        if before != now:
            raise BadInput(
                f"{name}={shown(given)}: the run in {shown(self.location)} has another one, {difference(before, now)}. "
                "Only the same run can be resumed."
            )
        return given


@contextmanager
def written_manifest(
    checkpoint: Any, plan: Plan, cluster: Any, budget: Any, commands: Any
) -> Iterator[FileLock | None]:
    """Context manager for the start of a run. Locks the location, writes `run.json` before any role writes a checkpoint, and
    undoes both if the start fails. Its value is the lock, for the run to hold.

    `checkpoint`: the argument of `train`; nothing is written if it names no location. Raises `BadInput` if the location contains
    a run that has not ended, which would be overwritten, or is locked.
    """
    store = open_store(checkpoint)
    if store is None:
        yield None
        return
    lock = store.lock()
    with ExitStack() as undone:
        if lock is not None:
            undone.callback(lock.release)
        _remove_previous_run(store)
        save_manifest(store, plan, cluster, budget, commands)
        undone.callback(store.files.remove, RUN)
        yield lock
        undone.pop_all()


def save_manifest(store: Store, plan: Plan, cluster: Any, budget: Any, commands: Any, times_resumed: int = 0) -> None:
    """Write `run.json`. `budget`: as given to `train`, possibly None; `commands`: the fault schedule, as commands."""
    run = RunSpec(plan.problem, plan.strategy, spec_of(cluster), budget, tuple(commands))
    try:
        write_json(
            store, RUN, {"format": FORMAT, "age": times_resumed, "run": run.to_dict(), "shards": shards_of(plan)}
        )
    except OSError as error:
        raise BadInput(
            f"checkpoint={shown(store.location)}: {RUN} cannot be written ({error.strerror or error})."
        ) from None


def load_manifest(store: Store) -> Manifest:
    """Read the manifest. Raises `BadInput` if it is missing or damaged, or has another format."""
    encoded = read_json(store, RUN)
    if encoded is None:
        raise BadInput(
            f"There is no run in {shown(store.location)}: {RUN} is missing. "
            f"lk.train(..., checkpoint={shown(store.location)}) writes one."
        )
    where = f"{RUN} in {shown(store.location)}"
    check_json(where, encoded, {"format": int})
    check_format(where, encoded["format"], FORMAT)
    check_json(where, encoded, MANIFEST)
    return Manifest(store.location, encoded["run"], encoded["shards"], encoded["age"])


def shards_of(plan: Plan) -> Any:
    """Return which role has which part of the parameters, as plain values. States saved with other parts do not fit."""
    kept = [[role.name, role.part] for role in plan.layout.recorded().roles if role.shard is not None]
    return json.loads(json.dumps(kept, default=str))


def _remove_previous_run(store: Store) -> None:
    """Remove the files of an earlier run that is over. Raises `BadInput` if it has not ended."""
    known = read_json(store, RUN)
    if known is not None and read_reached(store)[1] is None:
        run = load_manifest(store).run
        strategy, problem = (_display_name(run[part]) for part in ("strategy", "problem"))
        raise BadInput(
            f"checkpoint={shown(store.location)} holds a run that has not ended ({strategy} on {problem}): "
            f"lk.resume({shown(store.location)}) resumes it. "
            "For a new run give another folder or URL, or remove this one."
        )
    if known is None and store.roles():
        raise BadInput(
            f"checkpoint={shown(store.location)} holds checkpoints of {', '.join(store.roles()[:3])}, "
            f"but no {RUN}: give another folder or URL."
        )
    for name in (REACHED, COMMANDS):
        store.files.remove(name)
    store.clear()


def _display_name(encoded: dict[str, Any]) -> str:
    """Return the name of an encoded strategy, or of an encoded problem's data."""
    known = encoded["fingerprint"] if "custom" in encoded else encoded
    return str(known.get("data") or known.get("name") or known["lk"])
