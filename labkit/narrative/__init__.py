"""A run as text: the sentence above the panels, the exact numbers below the panels, the log, and rows of the table of
runs.

All texts are functions of (trace, t), where t is any time of the run in ns; None is now. Screen readers read these texts.
"""

from __future__ import annotations

from .log import Log, events, log_lines, straggler_text
from .numbers import numbers, state
from .sentence import sentence
from .table import run_row, runs_csv

__all__ = [
    "Log", "events", "log_lines", "numbers", "run_row", "runs_csv", "sentence", "state", "straggler_text",
]  # fmt: skip
