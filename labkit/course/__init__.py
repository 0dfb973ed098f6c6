"""Course work: functions for the test cells of assignments (`from labkit import course`), and tools that release and grade them.

`sandbox` runs submitted code. `grading` reads submissions, runs the tests and writes reports. `authoring` checks a
reference notebook and makes the release. Each of these packages imports only the packages listed before it. All use the
modules about the format of assignments: `schema`, `regions`, `variants`, `bundle`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..lessons import central_differences
    from .model_checks import check_model
    from .scheduled_pipeline import ScheduledPipeline, activations_held, schedule_seconds
    from .testing import CheckFailed, Trial, expect, expect_close, likely_mistake, same_parameters, small_problem, trial

__all__ = [
    "CheckFailed", "ScheduledPipeline", "Trial", "activations_held", "central_differences", "check_model", "expect",
    "expect_close", "likely_mistake", "same_parameters", "schedule_seconds", "small_problem", "trial",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported when they are used: the processes that run a submission need modules of this package, and not all strategies, whose
    # import took a third of their time.
    if name in __all__:
        for module in (".testing", ".model_checks", ".scheduled_pipeline", "..lessons"):
            found = importlib.import_module(module, __name__)
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
