"""What people read about a command: on its button, in the log of the page while it is executed, and when it can be undone."""

from __future__ import annotations

from dataclasses import dataclass

from .commands import Command, Cut, Freeze, Kill, Reconnect, Restart, Slow, Thaw


@dataclass(frozen=True)
class CommandWords:
    """The words of a command. `progress`: what happens to a role while it is executed. `label`, `tip`: of its button; `{}` is the
    role. `noun`, `undone_by`: of a command that can be undone, and the command that undoes it.
    """

    progress: str
    label: str = ""
    tip: str = ""
    noun: str = ""
    undone_by: type[Command] | None = None


WORDS: dict[type[Command], CommandWords] = {
    Slow: CommandWords("slowing", noun="slowdown", undone_by=Slow),
    Kill: CommandWords("stopping", "Kill", "kill the process of {}; it stays down until Restart", "kill", Restart),
    Restart: CommandWords("restarting", "Restart", "restart {} from its last checkpoint"),
    Freeze: CommandWords(
        "freezing", "Freeze", "suspend the process of {}; after the heartbeat timeout it is declared lost", "freeze", Thaw
    ),
    Thaw: CommandWords("thawing", "Thaw", "resume {}; it is shut down if it was declared lost meanwhile"),
    Cut: CommandWords(
        "cutting off", "Cut off",
        "cut the links between {} and the others; after the heartbeat timeout it is declared lost", "cut", Reconnect,
    ),
    Reconnect: CommandWords("reconnecting", "Reconnect", "reconnect {} with the others"),
}  # fmt: skip
# a command with a button, and the one that takes its place on it
PAIRS = {kind: words.undone_by for kind, words in WORDS.items() if words.label and words.undone_by is not None}
