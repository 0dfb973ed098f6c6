"""What of a shard is saved, restored and replicated: values, optimizer, version, and the books that make pushes count once.

The books say which gradients the values hold: for each sender's life the last step applied, and the rows of drops, which
say the steps before that were not. Rows that the trace may not have when the shard is lost are part of the state
(`unheard`); the next incarnation reports them again. Without them a gradient that was dropped would pass for applied.

A restored shard opens a new generation: versions of different generations cannot be compared, so the staleness of what
was computed on the old one is unknown. Gradients that it had and has no more are rolled back; their senders have gone
on, so they are booked when these push again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..nn.optimizers import State
from ..trace.vocabulary import EVERYONE

__all__ = ["gather", "held_by", "restore", "snapshot_of", "spread", "state_of"]


def state_of(shard: Any) -> dict[str, Any]:
    """Names to arrays (copies) and plain values, as a checkpoint can hold them. Of a timing-only run: the books only."""
    books = held_by(shard) | {
        "version": shard.version, "generation": shard.generation, "samples": shard.samples,
        "gradients": shard.recorder.counters.gradients,
        "last": [[sender, incarnation, step] for (sender, incarnation), step in shard._last.items()],
        "dropped": [[sender, incarnation, sorted(steps)] for (sender, incarnation), steps in shard._dropped.items()],
    }  # fmt: skip
    return books | ({} if shard.counts_only else shard.arrays())


def held_by(shard: Any) -> dict[str, Any]:
    """Which gradients the values of a shard hold now, in plain values. `unheard`: where reports may get lost."""
    recorder, counters = shard.recorder, shard.recorder.counters
    held = {
        "incarnation": recorder.incarnation, "rounds": counters.rounds,
        "eras": [[era, rounds] for era, rounds in counters.eras.items()],
        "applied": [[life, *count] for life, count in counters.applied.items()],
    }  # fmt: skip
    return held if recorder.unacknowledged is None else held | {"unheard": recorder.unheard()}


def snapshot_of(shard: Any, final: bool, time: int) -> Any:
    """The snapshot of a shard that an engine shows the chief at `time` (ns); with values it says which gradients they hold."""
    made = shard.snapshot(final, shard.looked)
    return replace(made, held=json.dumps({**held_by(shard), "time": time})) if shard.looked else made


def restore(shard: Any, state: Mapping[str, Any] | None, same: bool) -> None:
    """The other way round; `state=None`: the first weights, of which nothing was saved."""
    counters = shard.recorder.counters
    if state is not None:
        if not shard.counts_only:
            shard.take_arrays(state)
        shard.version, shard.samples = int(state["version"]), int(state["samples"])
        counters.updates = counters.version = shard.version
        counters.samples, counters.gradients = shard.samples, int(state["gradients"])
        counters.eras = {int(era): int(rounds) for era, rounds in state["eras"]}
        if state["rounds"]:
            counters.eras[int(state["incarnation"])] = int(state["rounds"])
        counters.applied = {int(life): [int(count), int(last)] for life, count, last in state["applied"]}
        shard._last = {(sender, int(era)): int(step) for sender, era, step in state["last"]}
        shard._dropped = {(sender, int(era)): set(steps) for sender, era, steps in state["dropped"]}
        rows = state.get("unheard", ())  # replicas may begin with the state of another one
        shard.recorder.repeat([[row[0] if row[0] == EVERYONE else shard.index, *row[1:]] for row in rows])
    shard.generation = int(state["generation"]) if same and state is not None else shard.recorder.incarnation
    shard._met = None if same else set()
    shard._full = shard.limits.reached(shard.version, shard.samples)


def spread(name: str, state: State) -> dict[str, np.ndarray]:
    """What an optimizer remembers, as entries of a shard's state; its work space is left out."""
    return {f"{name}:{key}": value.copy() for key, value in state.items() if not key.startswith("_")}


def gather(name: str, into: State, state: Mapping[str, Any]) -> None:
    """The other way round, into memory that is there."""
    for key, value in state.items():
        if key.startswith(f"{name}:"):
            into[key.partition(":")[2]] = np.array(value)
