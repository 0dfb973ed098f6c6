"""The run manifest, `run.json`: the description of a run, stored beside its checkpoints, so that it can be resumed.

    {"format": 2, "age": 0, "run": {"problem": ..., "strategy": ..., "cluster": ..., "budget": ..., "faults": ...}, "shards": ...}

`run` is `RunSpec.to_dict`; a user-defined part is a name and a fingerprint, against which the part given to `resume` is
checked. `age`: how often the run was resumed. `shards`: which role has which part of the parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .engines.commands import Command, Executed, read_entry
from .engines.plan import Plan
from .engines.storage.journal import COMMANDS, REACHED, read_json, read_reached, write_json
from .engines.storage.store import Store, open_store
from .errors import BadInput, shown
from .serialization import NOT_IDENTIFYING, difference, fingerprint, from_dict, to_dict
from .spec import RunSpec, spec_of

__all__ = ["Manifest", "load_manifest", "save_manifest", "shards_of", "written_manifest"]

RUN = "run.json"
FORMAT = 2


@dataclass(frozen=True)
class Manifest:
    """The contents of `run.json` in `location`. `run`: as `RunSpec.to_dict` wrote it; `shards`: as `shards_of`."""

    location: str
    run: dict[str, Any]
    shards: Any
    times_resumed: int

    @property
    def engine(self) -> str:
        """The cluster's engine."""
        encoded = self.run["cluster"]
        return str((encoded["fingerprint"] if "own" in encoded else encoded)["engine"])

    @property
    def budget(self) -> Any:
        """The budget as given to `train`, possibly None."""
        return from_dict(self.run["budget"])

    @property
    def commands(self) -> tuple[Command | Executed, ...]:
        """The commands of the run's fault schedule."""
        return tuple(from_dict(command) for command in self.run["faults"])

    def part(self, name: str, given: Any) -> Any:
        """The problem, strategy or `ClusterSpec`: decoded, or `given`, if its fingerprint is equal."""
        encoded = self.run[name]
        own = "own" in encoded
        if given is None:
            if own:
                raise BadInput(
                    f"The {name} of the run in {shown(self.location)} is not labkit's own ({encoded['own']}): "
                    f"give it, as lk.resume({shown(self.location)}, {name}=...)."
                )
            return from_dict(encoded)
        if name == "cluster" and not given.virtual_time:  # real processes are not compared
            return given
        before, now = encoded["fingerprint"] if own else fingerprint(from_dict(encoded)), fingerprint(given)
        if before != now:
            raise BadInput(
                f"{name}={shown(given)}: the run in {shown(self.location)} has another one, {difference(before, now)}. "
                "Only the same run can be resumed."
            )
        return given


@contextmanager
def written_manifest(checkpoint: Any, plan: Plan, cluster: Any, budget: Any, commands: Any) -> Iterator[None]:
    """Context manager for the start of a run. Writes `run.json` before any role writes a checkpoint, and removes it if
    the start fails.

    `checkpoint`: as `train` takes it; no effect if it names no location. `BadInput` if the location holds a run that has not
    ended, so that no run is overwritten.
    """
    store = open_store(checkpoint)
    if store is None:
        yield
        return
    _remove_previous_run(store)
    save_manifest(store, plan, cluster, budget, commands)
    try:
        yield
    except BaseException:
        store.files.remove(RUN)
        raise


def save_manifest(store: Store, plan: Plan, cluster: Any, budget: Any, commands: Any, times_resumed: int = 0) -> None:
    """Write `run.json`. `budget`: as given to `train`, possibly None; `commands`: of the fault schedule."""
    run = RunSpec(plan.problem, plan.strategy, spec_of(cluster), budget, tuple(commands))
    try:
        write_json(store, RUN, {"format": FORMAT, "age": times_resumed, "run": run.to_dict(), "shards": shards_of(plan)})
    except OSError as error:
        raise BadInput(f"checkpoint={shown(store.location)}: {RUN} cannot be written ({error.strerror or error}).") from None


def load_manifest(store: Store) -> Manifest:
    """Read the manifest. `BadInput` if there is none, if it is damaged, or if its format is unknown."""
    encoded = read_json(store, RUN)
    if encoded is None:
        raise BadInput(
            f"There is no run in {shown(store.location)}: {RUN} is missing. "
            f"lk.train(..., checkpoint={shown(store.location)}) writes one."
        )
    encoded = _of_this_format(encoded, store.location)
    return Manifest(store.location, encoded["run"], encoded["shards"], encoded["age"])


def _of_this_format(encoded: Any, location: str) -> dict[str, Any]:
    """The manifest in format 2; format 1 is converted, another one raises `BadInput`."""
    known = encoded.get("format") if isinstance(encoded, dict) else None
    if known == 1:
        return _from_format_1(encoded)
    if known != FORMAT:
        raise BadInput(
            f"{RUN} in {shown(location)} has format {shown(known)}, and this labkit reads formats 1 and {FORMAT}: the run was "
            "started by another version, which can resume it. For a new run give another folder or URL, or remove this one."
        )
    return dict(encoded)


def _from_format_1(encoded: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had the parts and their fingerprints side by side, clusters under the names of their classes, and commands as
    lists of (seconds, name, arguments).
    """
    run: dict[str, Any] = {}
    for name, part in encoded["parts"].items():
        described = {key: v for key, v in encoded["prints"][name].items() if key not in NOT_IDENTIFYING}
        prints = {"options" if key == "knobs" else key: v for key, v in described.items()}
        run[name] = {"own": part["own"], "fingerprint": prints} if "own" in part else part
    cluster = dict(run["cluster"])
    kind = cluster.get("lk")
    if kind == "DaskCluster":
        cluster["scheduler"], cluster["compute"] = cluster.pop("target"), cluster.pop("pace")
    if kind in ("SimulatedCluster", "DaskCluster"):
        cluster |= {"lk": "ClusterSpec", "engine": encoded["prints"]["cluster"]["engine"]}
    faults = [to_dict(read_entry(command)) for command in encoded["commands"]]
    run |= {"cluster": cluster, "budget": encoded["budget"], "faults": faults}
    return {"format": FORMAT, "age": encoded["age"], "run": run, "shards": encoded["prints"]["shards"]}


def shards_of(plan: Plan) -> Any:
    """Which role has which part of the parameters, in plain values; saved states fit only if it is the same."""
    kept = [[role["name"], role["part"]] for role in plan.layout.describe()["roles"] if role["shard"] is not None]
    return json.loads(json.dumps(kept, default=str))


def _remove_previous_run(store: Store) -> None:
    """Remove the files of an earlier run that is over; `BadInput` if it has not ended."""
    known = read_json(store, RUN)
    if known is not None and read_reached(store)[1] is None:
        run = _of_this_format(known, store.location)["run"]
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
    """The name of a strategy, or of a problem's data."""
    known = encoded["fingerprint"] if "own" in encoded else encoded
    return str(known.get("data") or known.get("name") or known["lk"])
