"""The journal of a run: small JSON files with checksums, stored beside the states of its roles.

    run.json        the run manifest (written by labkit/manifest.py)
    commands.json   the command log of a run in virtual time; durable, written at every command
    reached.json    the engine time reached, and what stopped the run

A run in virtual time is determined by its manifest and its commands, so these files are sufficient to resume it.
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

__all__ = ["RunJournal", "read_commands", "read_json", "read_reached", "save_commands", "save_reached", "write_json"]

COMMANDS, REACHED = "commands.json", "reached.json"


class RunJournal:
    """Writes the journal of a run in virtual time into `store`. Writes nothing if `store` is None.

    If writing fails, `warn(text)` is called, but only once with the same text, and the run continues.
    """

    def __init__(self, store: Store | None, warn: Callable[[str], None]):
        self.store, self._warn, self._last_warning = store, warn, ""

    def commands(self, log: Iterable[Executed], now: float) -> None:
        """Save the command log after a command: see `save_commands`."""
        self._try(lambda store: save_commands(store, log, now))

    def reached(self, now: float, stopped_by: str | None = None) -> None:
        """Save the progress, after the run was advanced or has ended: see `save_reached`."""
        self._try(lambda store: save_reached(store, now, stopped_by))

    def state(self, role: str, state: Mapping[str, Any], tag: int) -> None:
        """Save the state of a role: see `Store.write`."""
        self._try(lambda store: store.write(role, state, tag))

    def _try(self, write: Callable[[Store], None]) -> None:
        try:
            if self.store is not None:
                write(self.store)
        except OSError as error:
            text = f"What is needed to resume this run could not be written: {error}"
            if text != self._last_warning:
                self._last_warning = text
                self._warn(text)


def save_commands(store: Store, log: Iterable[Executed], now: float) -> None:
    """Save the command log of a run, durably; `now`: virtual seconds. Raises `OSError` if it cannot be written; the previous
    log is then unchanged.
    """
    write_json(store, COMMANDS, {"format": 2, "commands": [entry.to_dict() for entry in log], "now": now})


def save_reached(store: Store, now: float, stopped_by: str | None = None) -> None:
    """Save the time that a run has reached (engine seconds) and, if it is over, what stopped it.

    During a run this is written after every move. It is therefore not synced (it survives a killed process, but perhaps not a
    crash of the machine), and not written at all to a URL, where writes are slow.
    """
    if stopped_by is not None or store.local:
        values = {"now": now, "stopped_by": stopped_by}
        write_json(store, REACHED, values, durable=stopped_by is not None)


def read_commands(store: Store) -> tuple[list[Executed], float]:
    """Return (the command log, the virtual seconds reached); `([], 0.0)` if there is none. Raises `BadInput` if it is damaged
    or of an unknown format. Known formats: 1, lists (seconds, name, arguments, turn); 2, dicts.
    """
    found = read_json(store, COMMANDS) or {"commands": [], "now": 0.0}
    if found.get("format", 1) not in (1, 2):
        where = f"{COMMANDS} in {shown(store.location)}"
        raise BadInput(f"{where} has another format than 1 or 2: it was written by another version of labkit.")
    entries = [read_entry(plain) for plain in found["commands"]]
    log = [entry if isinstance(entry, Executed) else Executed(entry) for entry in entries]
    return log, max(found["now"], read_reached(store)[0])


def read_reached(store: Store) -> tuple[float, str | None]:
    """Return (engine seconds, what stopped the run or None); (0.0, None) if the file is missing or damaged."""
    try:
        found = read_json(store, REACHED) or {}
    except BadInput:
        found = {}
    return found.get("now", 0.0), found.get("stopped_by")


def write_json(store: Store, name: str, values: Any, durable: bool = True) -> None:
    """Write plain values as the JSON file `name`, atomically."""
    text = json.dumps({"said": values, "sha256": _digest(values)}, indent=1, default=_number)
    store.files.put(name, [text.encode()], durable)


def read_json(store: Store, name: str) -> Any:
    """Return the values that `write_json` wrote; None if there is no such file. Raises `BadInput` if it is damaged."""
    try:
        data = store.files.get(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{name} in {shown(store.location)} cannot be read ({reason(error)}).") from None
    try:
        found = json.loads(data)
        values, digest = found["said"], found["sha256"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{name} in {shown(store.location)} is damaged: it cannot be read.") from None
    if digest != _digest(values):
        raise BadInput(f"{name} in {shown(store.location)} is damaged: its checksum does not match.")
    return values


def _digest(values: Any) -> str:
    plain = json.dumps(values, sort_keys=True, default=_number)
    return hashlib.sha256(plain.encode()).hexdigest()


def _number(value: Any) -> Any:
    """Return a NumPy scalar as a Python number. Raises `BadInput` if JSON cannot represent the value."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise BadInput(f"{shown(value)} is no plain value: it cannot be stored in a log.")
