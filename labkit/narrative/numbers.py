"""The exact numbers below the panels, as of a time."""

from __future__ import annotations

from typing import Any

from ..formatting import bytes_text
from ..trace.header import RecordedCluster
from ..trace.ledger import ledger
from ..trace.query import bytes_sent_until, sampled, staleness_until
from ..trace.schema import NANO
from ..trace.trace import Trace


def numbers(trace: Trace, t: int | None = None) -> list[tuple[str, str]]:
    """Return (name, value) of each number at `t` (ns; None is now).

    Current values come from counters and are exact even if rows were skipped. Values of an earlier time come from rows.
    They are left out if rows are missing, or marked with "~" if they come from a sample of the rows.
    """
    known = trace.watermark()
    now = t is None or t >= known
    t = known if t is None or now else t
    book, stale, sent = ledger(trace, None if now else t), staleness_until(trace, t), bytes_sent_until(trace, t)
    found = [(name.replace("_", " "), book[name]) for name in ("applied", "in_flight")]
    found.append(("dropped", sum(book["dropped"].values())))
    found += [(name.replace("_", " "), book[name]) for name in ("partly_applied", "lost", "rolled_back") if book[name]]
    said = [(name, f"{count:,}") for name, count in found if count is not None]
    said.append(("ledger", _ledger_state(book)))
    if stale["mean"] is not None:
        about = "~" if not now and sampled(trace, "applies") else ""
        said.append(("staleness mean", f"{about}{stale['mean']:.2f}"))
        said += [(name, f"{about}{stale[name]}") for name in ("p95", "max")]
    if sent is not None:
        said.append(("sent", bytes_text(sent)))
    return [*said, _time(trace.header.cluster)]


def _ledger_state(book: dict[str, Any]) -> str:
    """Return, as text, whether the ledger balances. This is checked at the end of a run."""
    if book["closes"] is None:
        return "still counting"
    return "complete ✓" if book["closes"] else f"INCOMPLETE, {book['missing']:,} missing"


def _time(cluster: RecordedCluster) -> tuple[str, str]:
    """Return (name, value) of the distribution that determines the duration of a gradient. It is always shown."""
    if not cluster.compute:
        return "pace", "none, full speed"
    kind, _, seconds = cluster.compute.partition(":")
    return "simulated" if cluster.simulated else "paced", f"{seconds} s" if kind == "deterministic" else cluster.compute


def state(trace: Trace, t: int | None = None) -> str:
    """Return the time and the reason of the end as text: `9.6 s` for a live run, `12.0 s, ended: seconds` for an ended
    run.
    """
    known = trace.watermark()
    at = f"{(known if t is None else min(t, known)) / NANO:.1f} s"
    return at if trace.ending is None or (t is not None and t < known) else f"{at}, ended: {trace.ending['stopped_by']}"
