"""What a run has told its place about itself, beside the states of its roles: small files of plain JSON, each with the
checksum of what it says.

    run.json        what the run is (labkit/manifest.py writes it)
    commands.json   what was done to a run in virtual time, and when; durable, written at every command
    reached.json    how far it has come, and whether it is over

A run in virtual time is its manifest and its commands, so these files are all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import BadInput, shown
from ...paths import reason
from ..commands import Executed, read_entry
from .store import Store

__all__ = ["RunJournal", "read_commands", "read_note", "read_reached", "save_commands", "save_reached", "write_note"]

COMMANDS, REACHED = "commands.json", "reached.json"


class RunJournal:
    """What a run in virtual time writes into its `store` as it goes on; nothing if that is None.

    What cannot be written is said by `tell(text)`, once: the run goes on.
    """

    def __init__(self, store: Store | None, tell: Callable[[str], None]):
        self.store, self._tell, self._told = store, tell, ""

    def commands(self, log: Iterable[Executed], now: float) -> None:
        """A command was executed: see `save_commands`."""
        self._try(lambda store: save_commands(store, log, now))

    def reached(self, now: float, stopped_by: str | None = None) -> None:
        """The run has been moved, or is over: see `save_reached`."""
        self._try(lambda store: save_reached(store, now, stopped_by))

    def state(self, role: str, state: Mapping[str, Any], tag: int) -> None:
        """A role's state: see `Store.write`."""
        self._try(lambda store: store.write(role, state, tag))

    def _try(self, write: Callable[[Store], None]) -> None:
        try:
            if self.store is not None:
                write(self.store)
        except OSError as error:
            text = f"What is needed to resume this run could not be written: {error}"
            if text != self._told:
                self._told = text
                self._tell(text)


def save_commands(store: Store, log: Iterable[Executed], now: float) -> None:
    """Keep the command log of a run; `now`: virtual seconds. Durable when it returns. `OSError` if it cannot be written; the
    log before is still there.
    """
    write_note(store, COMMANDS, {"format": 2, "commands": [entry.to_dict() for entry in log], "now": now})


def save_reached(store: Store, now: float, stopped_by: str | None = None) -> None:
    """Keep how far a run has come (engine seconds), and, if it is over, why.

    While it goes on this is said after every move, so it is not synced (a crash of the machine may lose it, a killed
    process does not), and not said at all at a URL, where writing takes long.
    """
    if stopped_by is not None or store.local:
        note = {"now": now, "stopped_by": stopped_by}
        write_note(store, REACHED, note, durable=stopped_by is not None)


def read_commands(store: Store) -> tuple[list[Executed], float]:
    """(the command log, virtual seconds of the last thing known), `([], 0.0)` if there is none. `BadInput` if it is damaged,
    or of a format that this labkit does not read (it reads 1, lists of (seconds, name, arguments, turn), and 2, dicts).
    """
    found = read_note(store, COMMANDS) or {"commands": [], "now": 0.0}
    if found.get("format", 1) not in (1, 2):
        raise BadInput(f"{COMMANDS} in {shown(store.place)} has another format than 1 or 2: another labkit has written it.")
    entries = [read_entry(plain) for plain in found["commands"]]
    log = [entry if isinstance(entry, Executed) else Executed(entry) for entry in entries]
    return log, max(found["now"], read_reached(store)[0])


def read_reached(store: Store) -> tuple[float, str | None]:
    """(engine seconds, what stopped the run or None). What cannot be read counts as not said."""
    try:
        found = read_note(store, REACHED) or {}
    except BadInput:
        found = {}
    return found.get("now", 0.0), found.get("stopped_by")


def write_note(store: Store, name: str, said: Any, durable: bool = True) -> None:
    """Write plain values as file `name`, in one step."""
    text = json.dumps({"said": said, "sha256": _digest(said)}, indent=1, default=_number)
    store.files.put(name, [text.encode()], durable)


def read_note(store: Store, name: str) -> Any:
    """What `write_note` wrote; None if there is no such file; `BadInput` if it is not as it was written."""
    try:
        data = store.files.get(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{name} in {shown(store.place)} cannot be read ({reason(error)}).") from None
    try:
        found = json.loads(data)
        said, digest = found["said"], found["sha256"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{name} in {shown(store.place)} is damaged: it cannot be read.") from None
    if digest != _digest(said):
        raise BadInput(f"{name} in {shown(store.place)} is damaged: its checksum is another.")
    return said


def _digest(said: Any) -> str:
    plain = json.dumps(said, sort_keys=True, default=_number)
    return hashlib.sha256(plain.encode()).hexdigest()


def _number(value: Any) -> Any:
    """A number of NumPy's as a plain one; else what JSON has no word for is refused."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise BadInput(f"{shown(value)} is no plain value: it cannot be kept in a log.")
