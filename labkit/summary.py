"""The summary of a run: a table when printed, and plain values for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .description import Description, HasDescription
from .formatting import bytes_text, count_text, number_text
from .trace import Trace, ledger, summary
from .trace.events import LinkCut, LinkDelayed, LinkLossy, RoleFrozen, RoleKilled, RoleLimited, RoleSlowed
from .trace.overlap import overlap
from .trace.schema import seconds

# commands that undo a fault are in the log only
FAULTS = (RoleKilled, RoleFrozen, RoleSlowed, RoleLimited, LinkDelayed, LinkLossy, LinkCut)
FAULTS_NAMED = 3
HIGH_BASELINE = 0.6  # accuracy of a constant answer: above that of two classes that are about equally frequent


@dataclass(frozen=True)
class Summary(HasDescription):
    """The summary of a run, which `Run.summary` returns.

    `summary["updates"]` is one of its values; `to_dict` lists all of them.

    Parameters
    ----------
    values : dict
        The result of `to_dict`.
    book : dict
        The ledger of gradients.
    why : str
        The reason of the end.
    faults : tuple of str, default: ()
        The injected faults of roles and links.
    overlap : str, default: ''
        Which share of the communication is hidden; empty if it does not overlap.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=100)
    >>> summary = lk.train("digits", lk.AsyncPS(), cluster, budget).wait().summary()
    >>> summary["strategy"], summary["workers"], summary["seconds"], summary["stopped_by"]
    ('AsyncPS', 4, 0.25, 'updates')
    """

    values: dict[str, Any]
    book: dict[str, Any]
    why: str
    faults: tuple[str, ...] = ()
    overlap: str = ""

    @classmethod
    def of(cls, trace: Trace) -> Summary:
        """Return the summary of a trace up to its last event.

        Parameters
        ----------
        trace : Trace
            The trace, as `Run.trace` or from `load_npz`.

        Returns
        -------
        Summary
            The summary.
        """
        seen = overlap(trace)
        why = (trace.ending or {}).get("why", "")
        return cls(summary(trace), ledger(trace), why, _faults(trace), seen.text if seen else "")

    def to_dict(self) -> dict[str, Any]:
        """Return all values, as `--json` prints them.

        Returns
        -------
        dict
            Among others "updates", "gradients", "seconds" (engine time), "updates_per_second", "staleness" ({"mean", "p50",
            ...}), "loss", "accuracy" (from 0 to 1; both on the test set), "validation_loss", "validation_accuracy",
            "baseline_accuracy" (that of a constant answer, the most
            frequent class of the training samples), "time_to_accuracy" (s), "bytes_sent", "communication" (of tasks: seconds that
            are "hidden" and "exposed"), "ledger", "stopped_by" and "stopped_on" (the samples on which a rule of the budget
            ended the run: "test set" or "validation part"). Values that are not known are None.
        """
        return dict(self.values)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` if there is none of this name.

        Parameters
        ----------
        key : str
            The name of the value, see `to_dict`.
        default : object, optional
            What to return instead.

        Returns
        -------
        object
            The value.
        """
        return self.values.get(key, default)

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table.

        Returns
        -------
        list of tuple
            (name, text) of each line.
        """
        v, book = self.values, self.book
        stale = v["staleness"]
        ended = v["stopped_by"] or "still running"
        if v["stopped_on"] is not None:
            ended += f", on the {v['stopped_on']}"
        sent = sum(count for kinds in v["bytes_sent"].values() for count in kinds.values())
        rows = [
            (
                "strategy",
                f"{v['strategy']}, {count_text(v['workers'], 'worker')}, {count_text(v['servers'], 'server')}, {v['engine']}, "
                f"seed {v['seed']}",
            ),
            ("stopped by", ended + (f": {self.why}" if self.why else "")),
            ("updates", f"{v['updates']:,} in {v['seconds']:.2f} s, {number_text(v['updates_per_second'])} a second"),
            ("gradients", f"{v['gradients']:,} applied, {number_text(v['gradients_per_second'])} a second"),
            (
                "staleness",
                "none yet"
                if stale["mean"] is None
                else f"mean {stale['mean']:.2f}, median {stale['p50']}, 95% within {stale['p95']}, max {stale['max']}",
            ),
            ("loss", number_text(v["loss"])),
            ("accuracy", accuracy_text(v["accuracy"], v["baseline_accuracy"])),
            ("sent", bytes_text(sent)),
            ("ledger", ledger_text(book)),
        ]
        if v["validation_loss"] is not None:
            accuracy = v["validation_accuracy"]
            right = "" if accuracy is None else f", accuracy {accuracy:.1%}"
            rows.insert(7, ("validation", f"loss {number_text(v['validation_loss'])}{right}"))
        if self.overlap:
            rows.append(("overlap", self.overlap))
        if v["time_to_accuracy"] is not None:
            rows.insert(7, ("reached after", f"{v['time_to_accuracy']:.2f} s"))
        if self.faults:
            more = len(self.faults) - FAULTS_NAMED
            rows.append(
                ("faults", "; ".join(self.faults[:FAULTS_NAMED]) + (f"; and {more:,} more" if more > 0 else ""))
            )
        return rows

    def _described(self) -> Description:
        return Description(rows=tuple(self.rows()))

    __repr__ = HasDescription.__str__


def _faults(trace: Trace) -> tuple[str, ...]:
    """Return the injected faults of roles and links as text, ordered by time: `killed worker-1 at 2.00 s`."""
    with trace.lock:
        faults = sorted((e for e in trace.events if isinstance(e, FAULTS)), key=lambda event: event.time)
    return tuple(f"{event} at {seconds(event.time):.2f} s" for event in faults)


def accuracy_text(accuracy: float | None, baseline: float | None) -> str:
    """Return the accuracy as text, with that of a constant answer if this is high, or not exceeded."""
    if accuracy is None:
        return "none"
    useful = baseline is None or (baseline < HIGH_BASELINE and baseline < accuracy)
    return f"{accuracy:.1%} held out" + ("" if useful else f"; a constant answer has {baseline:.1%}")


def ledger_text(book: dict[str, Any]) -> str:
    """Return the ledger as text: `352 computed = 348 applied + 4 in flight; closes`."""
    parts = [f"{book['applied']:,} applied"]
    parts += [
        f"{book[name]:,} {name.replace('_', ' ')}" for name in ("partly_applied", "lost", "rolled_back") if book[name]
    ]
    parts += [f"{count:,} dropped ({why})" for why, count in book["dropped"].items()]
    parts += [f"{book['in_flight']:,} in flight"]
    closes = {True: "closes", None: "still open"}.get(book["closes"], f"DOES NOT CLOSE, {book['missing']:,} missing")
    return f"{book['computed']:,} computed = {' + '.join(parts)}; {closes}"
