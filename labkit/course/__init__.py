"""Course work: functions for the test cells of assignments (`from labkit import course`), and tools that release and grade them.

`sandbox` runs submitted code. `grading` reads submissions, runs the tests and writes reports. `authoring` checks a
reference notebook and makes the release. Each of these packages imports only the packages listed before it. All use the
modules about the format of assignments: `schema`, `regions`, `variants`, `bundle`.
"""

from __future__ import annotations

from .scheduled_pipeline import ScheduledPipeline
from .testing import CheckFailed, Trial, expect, same_parameters, small_problem, trial

__all__ = ["CheckFailed", "ScheduledPipeline", "Trial", "expect", "same_parameters", "small_problem", "trial"]
