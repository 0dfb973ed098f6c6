"""The journal of a run: small JSON files with checksums, stored beside the states of its roles.

    run.json        the run manifest (written by labkit/manifest.py)
    commands.json   the command log of a run in virtual time; durable, written at every command
    reached.json    the engine time reached, what stopped the run, and the newest evaluation

A run in virtual time is determined by its manifest and its commands, so these files are sufficient to resume it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import BadInput, shown
from ...formats import Either, Form, Number, check_format, check_json, from_json
from ...paths import reason
from ...trace.schema import seconds
from ...trace.trace import Trace
from ..commands import Executed, read_entry
from .store import Store

COMMANDS, REACHED = "commands.json", "reached.json"
FORMAT = 2  # of the command log
SECONDS = Number(0, 1e12)  # of engine time
PROGRESS: Form = {"now": SECONDS, "stopped_by": Either(None, str), "past": str}


class RunJournal:
    """Writes the journal of a run in virtual time into `store`. Writes nothing if `store` is None.

    If writing fails, `warn(text)` is called, but only once with the same text, and the run continues.
    """

    def __init__(self, store: Store | None, warn: Callable[[str], None]):
        self.store, self._warn, self._last_warning = store, warn, ""

    def commands(self, log: Iterable[Executed], now: float) -> None:
        """Save the command log after a command: see `save_commands`."""
        self._try(lambda store: save_commands(store, log, now))

    def reached(self, now: float, past: Callable[[], str], stopped_by: str | None = None) -> None:
        """Save the progress, after the run was advanced or has ended: see `save_reached`. `past` is called if it is needed."""
        self._try(lambda store: save_reached(store, now, stopped_by, past))

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
    write_json(store, COMMANDS, {"format": FORMAT, "commands": [entry.to_dict() for entry in log], "now": now})


def save_reached(store: Store, now: float, stopped_by: str | None = None, past: Callable[[], str] = str) -> None:
    """Save the time that a run has reached (engine seconds) and, if it is over, what stopped it. `past()`: see `past_text`.

    During a run this is written after every move. It is therefore not synced (it survives a killed process, but perhaps not a
    crash of the machine), and not written at all to a URL, where writes are slow.
    """
    if stopped_by is not None or store.local:
        values = {"now": now, "stopped_by": stopped_by, "past": past()}
        write_json(store, REACHED, values, durable=stopped_by is not None)


def read_commands(store: Store) -> tuple[list[Executed], float]:
    """Return (the command log, the virtual seconds of its newest entry); `([], 0.0)` if there is none. Raises `BadInput` if it is
    damaged or has another format.
    """
    found = read_json(store, COMMANDS, {"format": int})
    if found is None:
        return [], 0.0
    where = f"{COMMANDS} in {shown(store.location)}"
    check_format(where, found["format"], FORMAT)
    check_json(where, found, {"commands": [read_entry], "now": SECONDS})
    entries = [read_entry(plain) for plain in found["commands"]]
    return [entry if isinstance(entry, Executed) else Executed(entry) for entry in entries], float(found["now"])


def read_reached(store: Store) -> tuple[float, str | None, str]:
    """Return (engine seconds, what stopped the run or None, what is wrong with the file or ""); (0.0, None, ...) if the file is
    missing or damaged.
    """
    try:
        found = read_json(store, REACHED, PROGRESS) or {}
    except BadInput as error:
        return 0.0, None, str(error)
    return float(found.get("now", 0.0)), found.get("stopped_by"), ""


def read_past(store: Store) -> str:
    """Return the past that a run in virtual time has recorded, see `past_text`; "" if there is none."""
    try:
        found = read_json(store, REACHED, PROGRESS) or {}
    except BadInput:
        return ""
    return str(found.get("past", ""))


def past_text(trace: Trace, now: int) -> str:
    """Return the newest evaluation before `now` (ns) as text with all digits; "" if there was none.

    A run that is repeated has the same text, unless the machine computes other numbers. Events at `now` itself do not count: a
    run may have been left in the middle of an instant.
    """
    time, update, loss, accuracy = trace.column("evaluations", "time", "update", "loss", "accuracy")
    before = np.flatnonzero(np.asarray(time) < now)
    if not before.size:
        return ""
    i = before[-1]
    about = f", accuracy {float(accuracy[i])!r}" if np.isfinite(accuracy[i]) else ""
    return f"update {int(update[i])} at {seconds(int(time[i]))!r} s, loss {float(loss[i])!r}{about}"


def write_json(store: Store, name: str, values: Any, durable: bool = True) -> None:
    """Write plain values as the JSON file `name`, atomically."""
    text = json.dumps({"said": values, "sha256": _digest(values)}, indent=1, default=_number)
    store.files.put(name, [text.encode()], durable)


def read_json(store: Store, name: str, form: Form = object) -> Any:
    """Return the values that `write_json` wrote; None if there is no such file. Raises `BadInput` if it is damaged, or if the
    values have another form.
    """
    where = f"{name} in {shown(store.location)}"
    try:
        data = store.files.get(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInput(f"{where} cannot be read ({reason(error)}).") from None
    found: Any = from_json(data, {"said": object, "sha256": str}, where)
    values = found["said"]
    if found["sha256"] != _digest(values):
        raise BadInput(f"{where} is damaged: its checksum does not match.")
    check_json(where, values, form)
    return values


def _digest(values: Any) -> str:
    plain = json.dumps(values, sort_keys=True, default=_number)
    return hashlib.sha256(plain.encode()).hexdigest()


def _number(value: Any) -> Any:
    """Return a NumPy scalar as a Python number. Raises `BadInput` if JSON cannot represent the value."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise BadInput(f"{shown(value)} is no plain value: it cannot be stored in a log.")
