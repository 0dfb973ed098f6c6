"""A scenario: a few steps, each a run that shows one effect, and sometimes a question to answer before the result is shown.

A scenario is a value. `ScenarioRunner` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Question", "Scenario", "Step"]


@dataclass(frozen=True)
class Question:
    """A question with a few answers. `right`: the number of the right answer.

    `verdict`: the text that is shown with the result; "{answer}" and "{right}" stand for the given and the right answer.
    """

    text: str
    answers: tuple[str, ...]
    right: int
    verdict: str


@dataclass(frozen=True)
class Step:
    """One run of a scenario.

    `settings`: changes of the scenario's settings (names as `Settings.changed` takes them). `faults`: faults that are
    injected (`lk.Slow("worker-2", 5, at=4)`). `pin`: when the run is over it becomes the reference run of the next step. `text`:
    the sentence on top of the page during the step, before the computed one.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Any, ...] = ()
    pin: bool = True
    text: str = ""


@dataclass(frozen=True)
class Scenario:
    """`title`: its name in the menu. `summary`: one sentence on what it shows. `settings`: hold for all steps.

    `panels`: the panels that are shown, in order (None: the first view). With a `question`: the first step is played, the
    question is asked `asks_at` engine seconds into it, and the other steps are played after the answer.
    """

    name: str
    title: str
    summary: str
    steps: tuple[Step, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[str, ...] | None = None
    question: Question | None = None
    asks_at: float = 0.0
