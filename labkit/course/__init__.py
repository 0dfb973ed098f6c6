"""Course work: functions for the test cells of assignments (`from labkit import course`), and tools that release and grade them.

The packages, each of which imports those before it: `sandbox` (runs submitted code), `grading` (reads submissions, runs the
tests, writes reports), `authoring` (checks a reference notebook and makes the release). All use
the format of assignments: `schema`,
`regions`, `variants`, `bundle`.
"""

from __future__ import annotations

from .scheduled_pipeline import ScheduledPipeline
from .testing import CheckFailed, Trial, expect, same_parameters, small_problem, trial

__all__ = ["CheckFailed", "ScheduledPipeline", "Trial", "expect", "same_parameters", "small_problem", "trial"]
