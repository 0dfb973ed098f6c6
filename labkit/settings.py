"""What a run is, kept beside what its roles keep, so that somebody else can go on with it: `run.json`.

Law: problem, strategy, cluster, budget and faults are all that a run is made of. What labkit can make again is described
(see `described`). Of what is somebody's own there is the name, and a fingerprint by which it is known when it is given
again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .described import NoDescription, described, made
from .engines.checkpoints import Store, open_store
from .engines.log import COMMANDS, REACHED, read_note, read_reached, write_note
from .engines.parts import Plan
from .errors import BadInput, shown

__all__ = ["Settings", "kept_settings", "load_settings", "save_settings"]

RUN = "run.json"
PARTS = ("problem", "strategy", "cluster")


@dataclass(frozen=True)
class Settings:
    """What `run.json` says. `parts`: {"problem": a description, or {"own": name}, ...}; `prints`: what each is known by.

    `commands`: what was to be done to the run, and when; `age`: how often it was taken up again.
    """

    parts: dict[str, Any]
    prints: dict[str, Any]
    budget: Any
    commands: tuple[tuple[Any, ...], ...]
    age: int

    def part(self, name: str, given: Any, place: str) -> Any:
        """The problem, strategy or cluster: made again, or the one that is `given` if it is the same."""
        said = self.parts[name]
        if given is None:
            if "own" in said:
                raise BadInput(
                    f"The {name} of the run in {shown(place)} is not labkit's own ({said['own']}): "
                    f"give it, as lk.resume({shown(place)}, "
                    f"{name}=...)."
                )
            return made(said)
        free = name == "cluster" and given.engine != "simulated"  # real processes are never the same again
        if not free and _print(name, given) != self.prints[name]:
            where = _differs(self.prints[name], _print(name, given))
            raise BadInput(
                f"{name}={shown(given)}: the run in {shown(place)} has another one, {where}. Only the same run can go on."
            )
        return given


@contextmanager
def kept_settings(checkpoint: Any, plan: Plan, cluster: Any, budget: Any, commands: Any) -> Iterator[None]:
    """Around the start of a run: `run.json` is there before any role keeps anything, and is not there if nothing starts.

    `checkpoint`: as `train` takes it; does nothing if it names no place. `BadInput` if the place holds a run that has not
    ended: nobody loses one by starting another.
    """
    store = open_store(checkpoint)
    if store is None:
        yield
        return
    _make_room(store)
    save_settings(store, plan, cluster, budget, commands)
    try:
        yield
    except BaseException:
        store.files.remove(RUN)
        raise


def save_settings(store: Store, plan: Plan, cluster: Any, budget: Any, commands: Any, age: int = 0) -> None:
    """Write `run.json`. `budget`: as it was given, None included; `commands`: [(seconds, name, arguments), ...]."""
    parts = {"problem": plan.problem, "strategy": plan.strategy, "cluster": cluster}
    try:
        write_note(
            store,
            RUN,
            {
                "format": 1,
                "age": age,
                "parts": {name: _part(value) for name, value in parts.items()},
                "prints": {name: _print(name, value) for name, value in parts.items()} | {"shards": shards_of(plan)},
                "budget": described(budget),
                "commands": [list(command) for command in commands],
            },
        )
    except OSError as error:
        raise BadInput(f"checkpoint={shown(store.place)}: {RUN} cannot be written ({error.strerror or error}).") from None


def load_settings(store: Store) -> Settings:
    """What `save_settings` wrote. `BadInput` if there is none, or if it is damaged."""
    said = read_note(store, RUN)
    if said is None:
        raise BadInput(
            f"There is no run in {shown(store.place)}: {RUN} is missing. "
            f"lk.train(..., checkpoint={shown(store.place)}) leaves one."
        )
    commands = tuple(tuple(command) for command in said["commands"])
    return Settings(said["parts"], said["prints"], made(said["budget"]), commands, said["age"])


def shards_of(plan: Plan) -> Any:
    """Who keeps which part of the parameters: what must be the same for states to fit."""
    return _plain([[r["name"], r["part"]] for r in plan.layout.describe()["roles"] if r["shard"] is not None])


def _make_room(store: Store) -> None:
    """Remove what an earlier run, which is over, has left."""
    known = read_note(store, RUN)
    if known is not None and read_reached(store)[1] is None:
        what = " on ".join(_name(known["prints"][part]) for part in ("strategy", "problem"))
        raise BadInput(
            f"checkpoint={shown(store.place)} holds a run that has not ended ({what}): "
            f"lk.resume({shown(store.place)}) goes on with it. "
            "For a new run give another place, or remove this one."
        )
    if known is None and store.roles():
        raise BadInput(
            f"checkpoint={shown(store.place)} holds checkpoints of {', '.join(store.roles()[:3])}, "
            f"but no {RUN}: give another place."
        )
    for name in (REACHED, COMMANDS):
        store.files.remove(name)
    store.clear()


def _name(known_by: dict[str, Any]) -> str:
    return str(known_by.get("name") or known_by.get("data"))


def _part(value: Any) -> Any:
    try:
        return described(value)
    except NoDescription as own:
        return {"own": own.name}


def _print(name: str, value: Any) -> Any:
    """What a part is known by, in plain values."""
    known_by = value.describe()
    if name == "problem":
        known_by["sha256"] = _data_print(value.data)
    return _plain(known_by)


def _data_print(data: Any) -> str | None:
    """SHA-256 of somebody's own data, if they are in memory."""
    if not isinstance(getattr(data, "x_train", None), np.ndarray):
        return None
    found = hashlib.sha256()
    for values in (data.x_train, data.y_train, data.x_test, data.y_test):
        found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()


def _plain(value: Any) -> Any:
    """As JSON gives it back; where an object lives in memory is not what it is."""
    return json.loads(re.sub(r" at 0x[0-9a-fA-F]+", "", json.dumps(value, default=str)))


def _differs(one: Any, other: Any, path: str = "") -> str:
    """Where two plain values differ first, in words."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(k for k in other if k not in one)]:
            if one.get(key) != other.get(key):
                return _differs(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    return f"{path} {shown(one)} instead of {shown(other)}"
