"""How long each worker's newest gradient is, layer by layer, and how long the step is that it makes against the weights.

A worker writes both lengths down now and then. What it wrote last before a time is what was known then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace.trace import Trace
from .event_labels import option_steps
from .ordered import Ordered

__all__ = ["NONE", "Norms", "medians", "newest_norms", "relative_steps"]

NONE = -1.0  # in the place of a length that nobody has written down; NaN is one that was computed


class Norms:
    """Follows the trace that it is asked about: what is new is laid over what was known. A shortcut, and no state."""

    def __init__(self) -> None:
        self._rows = Ordered("norms", "time")
        self._of: Any = None
        self._count = 0
        self._known = np.empty((0, 0, 2))

    def newest(self, trace: Trace, t: int) -> tuple[list[int], np.ndarray]:
        """(workers, lengths of shape (workers, layers, 2)) of each worker's newest row of each layer up to `t` ns: of the
        gradient, and of the weights that it was computed on. `NONE` where there is no row.
        """
        data, columns = self._rows.follow(trace), trace.tables["norms"].columns
        role, layer, *lengths = (columns.index(name) for name in ("role", "layer", "gradient", "weight"))
        workers = trace.role_ids("worker") or sorted(set(data[:, role].astype(int).tolist()))
        layers = max(len(trace.header["layers"]), int(data[:, layer].max(initial=-1)) + 1)
        count = int(self._rows.times.searchsorted(t, side="right"))
        of = trace, tuple(workers), layers
        again = self._of is None or self._of[0] is not trace or self._of[1:] != of[1:]
        if again or min(count, self._rows.sorted_from) < self._count:
            self._of, self._count = of, 0
            self._known = np.full((len(workers), layers, 2), NONE)
        new = data[self._rows.rows[self._count : count]]
        place = np.full(len(trace.roles), -1)
        place[workers] = np.arange(len(workers))
        row = place[new[:, role].astype(int)]
        mine = row >= 0  # rows are in order of time: of several for one place the last one stays
        self._known[row[mine], new[mine, layer].astype(int)] = new[mine][:, lengths]
        self._count = count
        return workers, self._known.copy()


def newest_norms(trace: Trace, t: int) -> tuple[list[int], np.ndarray]:
    """(workers, norms of shape (workers, layers)) of each worker's newest recorded gradient; NaN where none is."""
    workers, lengths = Norms().newest(trace, t)
    return workers, np.where(lengths[..., 0] == NONE, np.nan, lengths[..., 0])


def relative_steps(trace: Trace, t: int, lengths: np.ndarray) -> tuple[str, np.ndarray]:
    """(what it is, the median worker's length of a step over the length of the weights, layer by layer), NaN where not
    known. `lengths`: as from `Norms.newest`. Only with plain SGD at a constant rate is a step the rate times the
    gradient (here: the worker's own, before any mean over workers); else the gradient itself is compared.
    """
    knobs = trace.header["strategy"].get("knobs", {})
    plain = knobs.get("optimizer") == "SGD()" and knobs.get("schedule") == "Constant()"
    rates = option_steps(trace, "learning_rate", t) if plain else []
    rate = rates[-1][1] if rates else 1.0
    with np.errstate(all="ignore"):
        lengths = np.where(lengths == NONE, np.nan, lengths)
        ratio = rate * lengths[..., 0] / lengths[..., 1]
    return ("step" if rates else "grad."), medians(ratio)


def medians(values: np.ndarray, share: float = 50.0) -> np.ndarray:
    """The share (in %) of the finite values of each column; NaN for a column that has none."""
    found = np.full(values.shape[1], np.nan)
    for k, column in enumerate(values.T):
        kept = column[np.isfinite(column)]
        if len(kept):
            found[k] = np.percentile(kept, share)
    return found
