"""Course work: what the checks of an assignment use (`from labkit import course`), and how it is handed out and graded."""

from __future__ import annotations

from .pipelines import Scheduled
from .trial import Trial, Wrong, expect, same, small, trial

__all__ = ["Scheduled", "Trial", "Wrong", "expect", "same", "small", "trial"]
