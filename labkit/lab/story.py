"""What a story is: a few acts, each a run that shows one thing, and sometimes a question before the answer is seen.

A story is a value. It drives nothing: the `Teller` plays it. The stories themselves are in `stories/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Act", "Question", "Story"]


@dataclass(frozen=True)
class Question:
    """Something to commit to before it is seen. `right`: the number of the right answer.

    `verdict`: what is said when it has been seen; "{said}" and "{right}" stand for the two answers.
    """

    text: str
    answers: tuple[str, ...]
    right: int
    verdict: str


@dataclass(frozen=True)
class Act:
    """One run of a story.

    `settings`: what differs from the story's own (names as `Settings.changed` takes them). `faults`: what happens in it
    (`lk.Slow("worker-2", 5, at=4)`). `pin`: when it is over it is pinned, and the next act is drawn over it. `says`: the
    sentence on top while it is played, before the computed one.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Any, ...] = ()
    pin: bool = True
    says: str = ""


@dataclass(frozen=True)
class Story:
    """`title` is what the menu says, `shows` one sentence on what there is to see; `settings` hold for all acts.

    `panels`: what is shown, in order (None: the first view). With a `question`: the first act is played, the question is
    asked `asks_at` engine seconds into it, and the other acts are played when it is answered.
    """

    name: str
    title: str
    shows: str
    acts: tuple[Act, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[str, ...] | None = None
    question: Question | None = None
    asks_at: float = 0.0
