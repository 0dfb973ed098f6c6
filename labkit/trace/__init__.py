"""The record of a run: events and table schema, recorder, trace, queries, ledger, exports."""

from __future__ import annotations

from .ledger import ledger
from .query import staleness, staleness_identity, time_to_accuracy, updates
from .recorder import Counters, Recorder
from .summary import summary
from .trace import RunOrTrace, Trace, TraceTable

__all__ = [
    "Counters",
    "Recorder",
    "RunOrTrace",
    "TraceTable",
    "Trace",
    "ledger",
    "staleness",
    "staleness_identity",
    "summary",
    "time_to_accuracy",
    "updates",
]
