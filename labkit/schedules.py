"""Learning rates that change: values of the option `schedule` of a strategy."""

from .nn.schedules import Constant, Cosine, StepDecay, Warmup

__all__ = ["Constant", "Cosine", "StepDecay", "Warmup"]
