"""The sentence on top, and the question that is asked before its answer is seen.

The strip has room for two lines whatever it says, and a problem takes the sentence's place: so the page does not jump.
The answers stay where they were pressed: what was said is filled, and when the story is over the right one is green.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...narrative import sentence
from ...trace.query import Cumulative
from .kit import Kit

if TYPE_CHECKING:
    from ..story import Question as QuestionOf
    from ..view import View

__all__ = ["Headline", "Question", "problem"]

MOST_ANSWERS = 5


def problem(text: str) -> str:
    """What went wrong, in the place of the sentence."""
    return f'<span class="lk-red" role="alert"><b>⚠</b> {html.escape(text)}</span>'


class Headline:
    """`box` is what is shown."""

    def __init__(self, kit: Kit):
        self.kit = kit
        self.box = kit.html("lk-say")
        self._counted = Cumulative(), Cumulative()

    def show(self, view: View) -> None:
        """What the story says and what the picture shows; or what went wrong."""
        if view.problem:
            text = problem(view.problem)
        else:
            computed = sentence(view.trace, view.t, view.pinned, self._counted)
            first, stop, rest = (view.says, " ", computed) if view.says else computed.partition(". ")
            text = f"<b>{html.escape(first + stop)}</b>{html.escape(rest)}"
        self.kit.say(self.box, text)
        self.kit.mark(self.box, lk_told=bool(view.says))


class Question:
    """`box` is what is shown while there is a question. `answer(number)` is called when one is pressed."""

    def __init__(self, kit: Kit, answer: Callable[[int], Any]):
        self.kit = kit
        self._text, self._verdict = kit.html("lk-text"), kit.html("lk-verdict")
        self._answers = [kit.button("", partial(answer, number), "lk-gone") for number in range(MOST_ANSWERS)]
        self.box = kit.box([self._text, kit.box(self._answers, "lk-answers"), self._verdict], "lk-asked lk-gone")

    def show(self, view: View) -> None:
        """The question of the view's story, if it is asked now."""
        kit, story = self.kit, view.story
        question = story.question if story is not None and view.asked else None
        kit.mark(self.box, lk_gone=question is None)
        if question is None or story is None:
            return
        said = view.said
        over = said is not None and view.act == len(story.acts) - 1 and view.state == "over"
        kit.say(self._text, html.escape(question.text))
        for number, button in enumerate(self._answers):
            there = number < len(question.answers)
            right, mine = over and number == question.right, number == said
            kit.put(button, description=question.answers[number] if there else "")
            kit.mark(
                button, lk_gone=not there, lk_said=mine and not over, lk_right=right, lk_wrong=over and mine and not right,
                lk_off=said is not None,
            )  # fmt: skip
        kit.say(self._verdict, _told(question, said, over))


def _told(question: QuestionOf, said: int | None, over: bool) -> str:
    """What stands under the answers."""
    if said is None:
        return '<span class="lk-grey">What do you think? Choose one before you see it.</span>'
    answer, right = question.answers[said], question.answers[question.right]
    if not over:
        return f"You said <b>{html.escape(answer)}</b>. Now see."
    return f"<b>{html.escape(question.verdict.format(said=answer, right=right))}</b>"
