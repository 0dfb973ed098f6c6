"""A run in words and exact numbers: the sentence on top of the pictures, the numbers below, the log, a line of a table.

All are functions of (trace, t), with t in ns and as far back as a person scrubs; None is now. They are what a screen
reader reads, and what a person quotes.
"""

from __future__ import annotations

from .log import Log, events, log_lines, straggler_text
from .numbers import numbers, state
from .sentence import sentence
from .table import run_row, runs_csv

__all__ = [
    "Log", "events", "log_lines", "numbers", "run_row", "runs_csv", "sentence", "state", "straggler_text",
]  # fmt: skip
