"""A run that goes on where another stood: with what its roles begin.

The processes of the other run are gone, and so are its books: versions, samples and what optimizers remember go on,
while every gradient of the new run is counted from the first. Law: nobody of the old run is ever heard of again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...roles.regroup import begin_together, grouped
from ..checkpoints import Store
from ..parts import Plan

__all__ = ["begin_again", "without_books"]

Handed = tuple[dict[str, Any] | None, bool]


def begin_again(plan: Plan, store: Store) -> dict[str, Handed]:
    """{role with a shard: (state, False)} to begin with: groups the newest version that all have kept, others, and the
    backups of servers, each the newest of its own. `store`: of the new run; it reads what is older, too."""
    roles = plan.layout.roles
    if grouped(plan.layout):
        absent = plan.elastic.absent if plan.elastic else ()
        members = [spec.name for spec in roles if spec.name not in absent]
        begins = begin_together(plan.layout, {}, lambda role: _kept(store, role), members)
        return {role: (_plain(state), False) for role, state in begins.items()}
    found: dict[str, Handed] = {}
    for spec in roles:
        owner = spec if spec.backs is None else roles[spec.backs]
        if owner.shard is not None or owner.kind == "chief":
            kept = store.read(owner.name)
            found[spec.name] = (None if kept is None else _plain(kept[0]), False)
    return found


def _kept(store: Store, role: str) -> dict[int, Any]:
    found = {tag: store.read(role, tag) for tag in store.known(role)}
    return {tag: state[0] for tag, state in found.items() if state is not None}


def _plain(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if state is None else without_books(state)


def without_books(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state in which nothing is said of the gradients that made it, nor of who sent them."""
    lists = ("eras", "applied", "last", "dropped", "unheard", "held")
    forgotten = {"rounds": 0, "incarnation": 0, **{name: [] for name in lists}}
    return {**state, **{name: value for name, value in forgotten.items() if name in state}}
