"""The record of a run: events and table schema, recorder, trace, queries, ledger, exports."""

from __future__ import annotations

from .gradient_noise import GradientNoise, gradient_noise
from .ledger import ledger
from .query import staleness, staleness_identity, time_to_accuracy, updates
from .recorder import Counters, Recorder
from .summary import summary
from .trace import RunOrTrace, Trace, TraceTable

__all__ = [
    "Counters",
    "GradientNoise",
    "Recorder",
    "RunOrTrace",
    "TraceTable",
    "Trace",
    "gradient_noise",
    "ledger",
    "staleness",
    "staleness_identity",
    "summary",
    "time_to_accuracy",
    "updates",
]
