"""Measurements, formulas and figures of the lessons: `lk.lessons`. The rest of labkit, except `course`, does not use them.

pictures                    figures, each about one property of distributed training
step_costs, message_bytes   time, messages and bytes of a step
staleness_by_worker, largest_lead, updates_to_accuracy    other measurements of a run
young, daly, segment_time   the optimal checkpoint interval
amdahl, gustafson, Scalability, fit_scalability    laws of scalability
central_differences         gradients by finite differences
batch_gradients, noise_scale    the noise of mini-batch gradients
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .checkpoint_interval import daly, segment_time, young
from .finite_differences import central_differences
from .gradient_noise import batch_gradients, noise_scale
from .measurements import StepCosts, largest_lead, message_bytes, staleness_by_worker, step_costs, updates_to_accuracy
from .scaling import Scalability, amdahl, fit_scalability, gustafson

if TYPE_CHECKING:
    from . import pictures

__all__ = [
    "Scalability", "StepCosts", "amdahl", "batch_gradients", "central_differences", "daly", "fit_scalability", "gustafson",
    "largest_lead", "message_bytes", "noise_scale", "pictures", "segment_time", "staleness_by_worker", "step_costs",
    "updates_to_accuracy", "young",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "pictures":  # it imports matplotlib, which the formulas do not need
        return importlib.import_module(f"{__name__}.pictures")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
