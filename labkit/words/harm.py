"""What happened to roles and links, in words: a line a mark, and one line for many links that fared alike.

5.00 s w2 was killed
5.80 s w2 is back (incarnation 1)
6.00 s s0 is back (incarnation 1), restored from update 240: 12 updates are rolled back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..trace.marks import short, shortened
from ..trace.vocabulary import NANO
from . import text

__all__ = ["LINKS", "ROLES", "links_text", "role_text"]

ROLES = ("kill", "lost", "restart", "left", "joined", "freeze", "thaw", "fenced", "waits", "regroup")  # kinds of marks
LINKS = ("cut", "reconnect", "delay", "drop")
MANY = 6  # roles that are named one by one

PLAIN = {
    "freeze": "{} was frozen", "thaw": "{} was thawed", "joined": "{} joined", "left": "{} left: the others go on without it",
}  # fmt: skip


def role_text(mark: dict[str, Any]) -> str:
    """A mark of one of the kinds `ROLES`."""
    kind, name, said = mark["kind"], who(mark.get("name", "")), shortened(str(mark["text"]))
    if kind in PLAIN and name:
        return PLAIN[kind].format(name)
    if kind == "kill":
        if mark.get("down"):
            return f"{name} was to be killed, but it is away already"
        return f"{name} was killed" + ("" if mark.get("restart", True) else " and stays away")
    if kind == "lost":
        why = mark.get("why", "")
        return f"{_life(mark)} is lost" + (f": it {shortened(why)}" if why else "")
    if kind == "restart":
        _, known, how = said.partition(" is back")
        how = how if known or not said else f": {said}"
        number = mark.get("incarnation")
        return f"{name} is back" + ("" if number is None else f" (incarnation {number})") + how
    if kind == "waits":
        return said if said.startswith("the run") else f"the run {said}"
    return said or f"{kind} {name}"


def who(name: str) -> str:
    """`w2`, `the chief`."""
    return "the chief" if name == "chief" else short(name)


def _life(mark: dict[str, Any]) -> str:
    """`w2`; of a later life `w2 (incarnation 1)`."""
    number = mark.get("incarnation", 0)
    return who(mark["name"]) + (f" (incarnation {number})" if number else "")


def links_text(marks: Sequence[dict[str, Any]]) -> str:
    """Marks of one of the kinds `LINKS` that were made at one time and say the same about several links."""
    first = marks[0]
    kind, amount = first["kind"], value(first)
    if kind in ("cut", "reconnect"):
        verb = {"cut": ("cut off from", "cut off"), "reconnect": ("reconnected with", "reconnected")}[kind]
        said = []
        for names, peer in _grouped(marks):
            was = "was" if len(names) == 1 else "were"
            said.append(f"{_listed(names)} {was} " + (verb[1] if peer is None else f"{verb[0]} {who(peer)}"))
        return "; ".join(said)
    between = "; ".join(
        f"between {_listed(names)} and {'everybody' if peer is None else who(peer)}" for names, peer in _grouped(marks)
    )
    if kind == "delay":
        how = f"come {text.duration(amount * NANO)[0]} later" if amount else "come in time again"
        return f"messages {between} {how}"
    if amount:
        return f"{text.percent(amount)} of what is sent {between} is lost, and sent again"
    return f"nothing that is sent {between} is lost any more"


def value(mark: dict[str, Any]) -> float:
    """How late, or with which chance lost."""
    for name in ("seconds", "delay", "chance", "drop"):
        if name in mark:
            return float(mark[name])
    return 0.0


def _grouped(marks: Sequence[dict[str, Any]]) -> list[tuple[list[str], str | None]]:
    """(roles, the peer that they have in common)."""
    found: dict[str | None, list[str]] = {}
    for mark in marks:
        found.setdefault(mark.get("peer"), []).append(who(mark["name"]))
    joined: dict[tuple[str, ...], list[str]] = {}
    pairs: list[tuple[list[str], str | None]] = []
    for peer, names in found.items():
        if peer is None:
            pairs.append((names, None))
        else:
            joined.setdefault(tuple(names), []).append(who(peer))
    return pairs + [(list(alike), _listed(peers)) for alike, peers in joined.items()]


def _listed(names: Sequence[str]) -> str:
    return text.listed(names) if len(names) <= MANY else f"{len(names)} roles"
