"""What happened in a run: vocabulary, recorder, trace, measures, ledger, exports."""

from __future__ import annotations

from .ledger import ledger
from .measures import staleness, staleness_identity, summary, time_to_accuracy, updates
from .recorder import Counters, Recorder
from .trace import Table, Trace

__all__ = [
    "Counters",
    "Recorder",
    "Table",
    "Trace",
    "ledger",
    "staleness",
    "staleness_identity",
    "summary",
    "time_to_accuracy",
    "updates",
]
