"""A run as text and exact numbers: the sentence above the panels, the numbers below them, the log, a table row.

All are functions of (trace, t), with t in ns, at any time of the run; None is now. Screen readers read this text.
"""

from __future__ import annotations

from .log import Log, events, log_lines, straggler_text
from .numbers import numbers, state
from .sentence import sentence
from .table import run_row, runs_csv

__all__ = [
    "Log", "events", "log_lines", "numbers", "run_row", "runs_csv", "sentence", "state", "straggler_text",
]  # fmt: skip
