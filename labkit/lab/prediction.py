"""`lk.Prediction`: a question that the user answers before the result is measured. Later, answer and result are shown
together.

A result that was only observed seems obvious afterwards, but a prediction can be wrong. Therefore a prediction is
committed once, before the result is known: `committed` never changes, and nothing can be committed after `reveal`. A
prediction is optional: no method waits for a click, and `reveal` reports if no answer was chosen. `commit` is equivalent
to a click.

A prediction has no thread and no processes, so it needs no entry in the registry of cells. Running its cell again creates
a new prediction.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

from ..errors import BadInput
from .page.stylesheet import ROOT, stylesheet
from .page.widget_factory import WidgetFactory

__all__ = ["Prediction", "Revealed"]

ONCE = "A prediction is committed once: run its cell again for a new one."
LATE = "The result has been revealed: it is too late for a prediction. Run its cell again for a new one."
# The style of a lab without the frame. Answers are as wide as their texts.
LOOKS = (
    f".{ROOT}.lk-predicts {{ box-shadow: none; background: none; }} "
    f".{ROOT}.lk-predicts .lk-asked {{ margin: 0; }} "
    f".{ROOT}.lk-predicts .lk-answers button {{ flex: 0 1 auto; min-width: 130px; max-width: 100%; height: auto; "
    "min-height: 38px; padding: 3px 16px; line-height: 1.3; white-space: normal; }"
)
# {whether the prediction was right: colour of the bar beside the text}. The text itself has the colours of the page, so
# that it is legible in a dark theme, too.
BARS = {True: "#2a9158", False: "#cc1f1f", None: "#7a8394"}


class Prediction:
    """A question with a few answers. It is displayed, with a button for each answer, if it is the last expression of a
    cell.

    `Prediction("Which worker sets the pace?", "the fastest", "the slowest")` has answers without numbers.
    `Prediction("How much is left?", {"80%": 0.8, "50%": 0.5, "20%": 0.2})` has answers with numbers: the right answer is
    the one nearest to the measured value.

    Raises `BadInput` if there are fewer than two answers, if two answers are equal, or if an answer is not a text (or a
    number is not finite).
    """

    def __init__(self, question: str, *answers: str | Mapping[str, float]):
        self.question = question
        self.answers, self._values = _answers(question, answers)
        self._committed: int | None = None
        self._revealed: Revealed | None = None
        self._factory = factory = WidgetFactory()
        self._verdict = factory.html("lk-verdict")
        self._buttons = [factory.button(text, partial(self._click, k)) for k, text in enumerate(self.answers)]
        parts = [
            factory.html("lk-text", html.escape(question)), factory.box(self._buttons, "lk-answers"), self._verdict,
        ]  # fmt: skip
        self.box = factory.box(
            [factory.html("lk-css", f"{stylesheet({})}<style>{LOOKS}</style>"), factory.box(parts, "lk-asked")],
            f"{ROOT} lk-col lk-predicts",
        )
        self._show()

    # committing -------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> str | None:
        """The text of the committed answer; None if there is none."""
        return None if self._committed is None else self.answers[self._committed]

    def commit(self, answer: str | int) -> Prediction:
        """Commit to an answer, and return the prediction. `answer`: its text, or its number, from 0. Idempotent.

        Raises `BadInput` if the answer is unknown, if another answer was committed before, or if the result has been
        revealed.
        """
        chosen = self._index(answer)
        with self._factory.lock:
            if self._committed is not None and self._committed != chosen:
                raise BadInput(f"You predicted {self.committed!r} already, not {self.answers[chosen]!r}. {ONCE}")
            if self._committed is None and self._revealed is not None:
                raise BadInput(LATE)
            self._committed = chosen
            self._show()
        return self

    def _index(self, answer: Any) -> int:
        if isinstance(answer, str) and answer in self.answers:
            return self.answers.index(answer)
        if isinstance(answer, Integral) and not isinstance(answer, bool) and 0 <= int(answer) < len(self.answers):
            return int(answer)
        raise BadInput(
            f"{answer!r} is not one of the answers: {_listed(self.answers)} (or 0 to {len(self.answers) - 1})."
        )

    def _click(self, chosen: int) -> None:
        with self._factory.lock:
            if self._committed is None and self._revealed is None:  # a second click is ignored
                self.commit(chosen)

    # revealing --------------------------------------------------------------------------------------------------------

    def reveal(self, measured: float | str, words: str = "") -> Revealed:
        """Return the prediction with the measured result. It is displayed if it is the last expression of a cell.

        `measured`: for answers with numbers, the measured number; the right answer is the nearest, by ratio if all
        numbers are positive, otherwise by difference. For answers without numbers, the text of the right answer. `words`:
        a text that is shown below the result. `reveal` may be called again with another measurement. Raises `BadInput` if
        `measured` is of another kind.
        """
        true, shown = self._nearest(measured)
        value = str(measured) if self._values is None else _python(measured)
        with self._factory.lock:
            self._revealed = Revealed(self.question, self.committed, value, shown, self.answers[true], str(words))
            self._show()
            return self._revealed

    def _nearest(self, measured: Any) -> tuple[int, str]:
        """Return (number of the right answer, measured value as text)."""
        if self._values is None:
            if isinstance(measured, str) and measured in self.answers:
                return self.answers.index(measured), measured
            raise BadInput(f"reveal({measured!r}): give the right answer: {_listed(self.answers)}.")
        if isinstance(measured, bool) or not isinstance(measured, Real) or not math.isfinite(measured):
            raise BadInput(f"reveal({measured!r}): the answers are numbers; give the number that was measured.")
        value = float(measured)
        ratio = value > 0 and min(self._values) > 0
        away = [abs(math.log(v / value)) if ratio else abs(v - value) for v in self._values]
        percent = all(text.endswith("%") for text in self.answers)
        return away.index(min(away)), f"{_written(100 * value)}%" if percent else _written(_python(measured))

    def record(self) -> dict[str, Any]:
        """Return {question, answers, committed, measured, right} as plain Python values. Unknown values are None."""
        seen = self._revealed
        return {
            "question": self.question, "answers": list(self.answers), "committed": self.committed,
            "measured": seen.measured if seen else None, "right": seen.right if seen else None,
        }  # fmt: skip

    # showing ----------------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        factory, seen = self._factory, self._revealed
        for k, button in enumerate(self._buttons):
            true, mine = seen is not None and self.answers[k] == seen.answer, k == self._committed
            factory.mark(
                button, lk_given=mine and seen is None, lk_right=true, lk_wrong=mine and seen is not None and not true,
                lk_off=self._committed is not None or seen is not None,
            )  # fmt: skip
        factory.write(self._verdict, self._status())

    def _status(self) -> str:
        if self._revealed is not None:
            return f"<b>{html.escape(self._revealed.verdict)}</b>"
        if self.committed is None:
            return '<span class="lk-grey">Choose an answer before you measure.</span>'
        return f'You predicted <b>{html.escape(self.committed)}</b>. Now measure. <span class="lk-grey">{ONCE}</span>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle = self.box._repr_mimebundle_(include=include, exclude=exclude)
        data, more = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self)}, more

    def __repr__(self) -> str:
        prediction = "No prediction yet." if self.committed is None else f"Your prediction: {self.committed}."
        return f"{self.question}\n  {' | '.join(self.answers)}\n{prediction}"

    def close(self) -> None:
        """Remove the widgets from the page. The committed answer is kept."""
        self._factory.close()


@dataclass(frozen=True)
class Revealed:
    """A prediction with its result. If no answer was committed, `committed` and `right` are None."""

    question: str
    committed: str | None
    measured: float | int | str
    shown: str  # the measured value as a text
    answer: str  # the right answer
    words: str = ""

    @property
    def right(self) -> bool | None:
        """Whether the prediction was right; None if there was none."""
        return None if self.committed is None else self.committed == self.answer

    @property
    def verdict(self) -> str:
        """The comparison of prediction and result, as text."""
        near = "" if self.shown == self.answer else f" (nearest: {self.answer})"
        if self.committed is None:
            return f"No prediction was made. Measured: {self.shown}{near}."
        return (
            f"{'Right' if self.right else 'Wrong'}: you predicted {self.committed}; measured: {self.shown}{near}."
        )

    def _repr_html_(self) -> str:
        bar = BARS[self.right]
        more = f"<div>{html.escape(self.words)}</div>" if self.words else ""
        return (
            f'<div style="max-width: 1180px; margin: 4px 0; padding: 9px 14px; border-left: 4px solid {bar}; '
            f"background: color-mix(in srgb, {bar} 8%, transparent); color: var(--jp-content-font-color1, inherit); "
            'font: 14px/1.5 var(--jp-ui-font-family, system-ui, sans-serif)">'
            f'<div style="color: var(--jp-content-font-color2, inherit)">{html.escape(self.question)}</div>'
            f'<div style="font-size: 15px"><b>{html.escape(self.verdict)}</b></div>{more}</div>'
        )

    def __repr__(self) -> str:
        return f"{self.question}\n{self.verdict}" + (f"\n{self.words}" if self.words else "")


def _answers(question: Any, given: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """Check the arguments, and return (texts of the answers, their numbers or None)."""
    if not isinstance(question, str) or not question:
        raise BadInput(f"Prediction({question!r}): first the question, as a text, then the answers.")
    numbers = given[0] if len(given) == 1 and isinstance(given[0], Mapping) else None
    texts = tuple(numbers) if numbers is not None else given
    if len(texts) < 2 or len(set(map(str, texts))) < len(texts) or not all(isinstance(t, str) and t for t in texts):
        raise BadInput(
            f"answers {_listed(texts)}: give two or more different texts, or one dictionary of texts and numbers."
        )
    if numbers is None:
        return texts, None
    values = tuple(numbers.values())
    if any(isinstance(v, bool) or not isinstance(v, Real) or not math.isfinite(v) for v in values):
        raise BadInput(f"answers {dict(numbers)!r}: every text needs a (finite) number.")
    return texts, tuple(float(v) for v in values)


def _listed(answers: tuple[Any, ...]) -> str:
    return ", ".join(repr(answer) for answer in answers) or "(none)"


def _python(number: Any) -> float | int:
    return int(number) if isinstance(number, Integral) else float(number)


def _written(number: float) -> str:
    """Format a number: 3, 1,234, 0.214."""
    if isinstance(number, int) or abs(number) >= 100:
        return f"{number:,.0f}".replace("-", "−")
    return f"{number:.3g}".replace("-", "−")
