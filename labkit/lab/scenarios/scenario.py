"""A scenario: a few runs that together show one effect, and sometimes a question that is answered before the result is
shown.

A scenario is a value. `ScenarioRunner` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Question:
    """A question with a few answers. `right`: the number of the right answer.

    `verdict`: the text that is shown with the result. "{answer}" and "{right}" are replaced by the given and the right
    answer.
    """

    text: str
    answers: tuple[str, ...]
    right: int
    verdict: str


@dataclass(frozen=True)
class ScenarioStep:
    """One run of a scenario.

    `settings`: {name: value} of the settings that differ from those of the scenario (names of `Settings.changed`).
    `faults`: the injected faults, for example `lk.Slow("worker-2", 5, at=4)`. `pin`: whether the run, when it is over,
    becomes the reference run of the next step. `text`: the sentence at the top of the page during the step, before the
    computed sentence.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Any, ...] = ()
    pin: bool = True
    text: str = ""


@dataclass(frozen=True)
class Scenario:
    """A scenario.

    `name`: its name in Python. `title`: its name in the menu. `summary`: its effect in one sentence. `settings`: the
    settings of all steps.

    `panels`: the displayed panels, in order (None: the first view). If there is a `question`, it is asked `asks_at`
    engine seconds after the start of the first step, and the other steps are played after the answer.
    """

    name: str
    title: str
    summary: str
    steps: tuple[ScenarioStep, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[str, ...] | None = None
    question: Question | None = None
    asks_at: float = 0.0
