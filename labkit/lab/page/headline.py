"""The sentence on top, and the question of a scenario.

The headline always has the height of two lines, and an error replaces the sentence, so that the layout does not shift. The
answers stay in place: the given one is filled, and when the scenario is over the right one is green.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...narrative import sentence
from ...trace.query import Cumulative
from .widget_factory import WidgetFactory

if TYPE_CHECKING:
    from ..scenarios.scenario import Question
    from ..view import View

__all__ = ["Headline", "QuestionBox", "error_text"]

MOST_ANSWERS = 5


def error_text(text: str) -> str:
    """An error, in the place of the sentence."""
    return f'<span class="lk-red" role="alert"><b>⚠</b> {html.escape(text)}</span>'


class Headline:
    """The sentence or error on top. `box`: the widget."""

    def __init__(self, factory: WidgetFactory):
        self.factory = factory
        self.box = factory.html("lk-headline")
        self._counted = Cumulative(), Cumulative()

    def show(self, view: View) -> None:
        """The text of the scenario and the computed sentence; or an error."""
        if view.problem:
            text = error_text(view.problem)
        else:
            computed = sentence(view.trace, view.t, view.reference, self._counted)
            first, stop, rest = (view.text, " ", computed) if view.text else computed.partition(". ")
            text = f"<b>{html.escape(first + stop)}</b>{html.escape(rest)}"
        self.factory.write(self.box, text)
        self.factory.mark(self.box, lk_step=bool(view.text))


class QuestionBox:
    """A scenario's question. `box`: the widget, shown while there is one. `answer(number)`: called when an answer is pressed."""

    def __init__(self, factory: WidgetFactory, answer: Callable[[int], Any]):
        self.factory = factory
        self._text, self._verdict = factory.html("lk-text"), factory.html("lk-verdict")
        self._answers = [factory.button("", partial(answer, number), "lk-gone") for number in range(MOST_ANSWERS)]
        self.box = factory.box(
            [self._text, factory.box(self._answers, "lk-answers"), self._verdict], "lk-asked lk-gone"
        )

    def show(self, view: View) -> None:
        """The question of the view's scenario, if it is asked now."""
        factory, scenario = self.factory, view.scenario
        question = scenario.question if scenario is not None and view.asked else None
        factory.mark(self.box, lk_gone=question is None)
        if question is None or scenario is None:
            return
        answer = view.answer
        over = answer is not None and view.step == len(scenario.steps) - 1 and view.state == "over"
        factory.write(self._text, html.escape(question.text))
        for number, button in enumerate(self._answers):
            there = number < len(question.answers)
            right, mine = over and number == question.right, number == answer
            factory.put(button, description=question.answers[number] if there else "")
            factory.mark(
                button, lk_gone=not there, lk_given=mine and not over, lk_right=right, lk_wrong=over and mine and not right,
                lk_off=answer is not None,
            )  # fmt: skip
        factory.write(self._verdict, _verdict(question, answer, over))


def _verdict(question: Question, answer: int | None, over: bool) -> str:
    """The line below the answers."""
    if answer is None:
        return '<span class="lk-grey">Choose an answer before the result is shown.</span>'
    given, right = question.answers[answer], question.answers[question.right]
    if not over:
        return f"You answered <b>{html.escape(given)}</b>. The result follows."
    return f"<b>{html.escape(question.verdict.format(answer=given, right=right))}</b>"
