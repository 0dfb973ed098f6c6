"""The sentence on top, and the question that is asked before its answer is seen.

The strip has room for two lines whatever it says, and a problem takes the sentence's place: so the page does not jump.
The answers stay where they were pressed: what was said is filled, and when the story is over the right one is green.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...words import sentence
from .kit import Kit

if TYPE_CHECKING:
    from ..view import View

__all__ = ["Headline", "Question"]

MOST_ANSWERS = 5


class Headline:
    """`box` is what is shown."""

    def __init__(self, kit: Kit):
        self.kit = kit
        self.box = kit.html("lk-say")

    def show(self, view: View) -> None:
        """What the story says and what the picture shows; or what went wrong."""
        if view.problem:
            text = f'<span class="lk-red" role="alert"><b>⚠</b> {html.escape(view.problem)}</span>'
        else:
            computed = sentence(view.trace, view.t, view.pinned)
            first, stop, rest = (view.says, " ", computed) if view.says else computed.partition(". ")
            text = f"<b>{html.escape(first + stop)}</b>{html.escape(rest)}"
        self.kit.say(self.box, text)
        self.kit.mark(self.box, lk_told=bool(view.says))


class Question:
    """`box` is what is shown while there is a question. `answer(number)` is called when one is pressed."""

    def __init__(self, kit: Kit, answer: Callable[[int], Any]):
        self.kit = kit
        self._text, self._verdict = kit.html("lk-text"), kit.html("lk-verdict")
        self._answers = [kit.button("", lambda number=i: answer(number), "lk-gone") for i in range(MOST_ANSWERS)]
        self.box = kit.box([self._text, kit.box(self._answers, "lk-answers"), self._verdict], "lk-asked lk-gone")

    def show(self, view: View) -> None:
        """The question of the view's story, if it is asked now."""
        kit = self.kit
        question = view.story.question if view.story is not None and view.asked else None
        kit.mark(self.box, lk_gone=question is None)
        if question is None or view.story is None:
            return
        said, over = view.said, view.act == len(view.story.acts) - 1 and view.state == "over" and view.said is not None
        kit.say(self._text, html.escape(question.text))
        for number, button in enumerate(self._answers):
            there = number < len(question.answers)
            kit.put(button, description=question.answers[number] if there else "")
            right, mine = over and number == question.right, number == said
            kit.mark(
                button, lk_gone=not there, lk_said=mine and not over, lk_right=right, lk_wrong=over and mine and not right,
                lk_off=said is not None,
            )  # fmt: skip
        kit.say(self._verdict, self._told(view, over))

    @staticmethod
    def _told(view: View, over: bool) -> str:
        assert view.story is not None and view.story.question is not None
        question = view.story.question
        if view.said is None:
            return '<span class="lk-grey">What do you think? Choose one before you see it.</span>'
        said = question.answers[view.said]
        if not over:
            return f"You said <b>{html.escape(said)}</b>. Now see."
        verdict = question.verdict.format(said=said, right=question.answers[question.right])
        return f"<b>{html.escape(verdict)}</b>"
