"""`lk.Guess`: a question that the user answers before the result is measured; later both are shown side by side.

A result that was only observed seems obvious afterwards; a guess can be wrong. So a guess is committed once, before
the result is known: `committed` never changes, and nothing can be committed after `reveal`. A guess is optional: no method
waits for a click, and `reveal` reports if there was none. `commit` is equivalent to a click.

A guess has no thread and no processes, so it needs no entry in the registry of cells. Running its cell again makes a new
one.
"""

from __future__ import annotations

import contextlib
import html
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from numbers import Integral, Real
from typing import Any

import anywidget
import traitlets

from ..errors import BadInput
from .cells import output_name
from .page.widget import receive_during_cells, widget_view
from .static_page import StaticOutput

ONCE = "A guess is committed once: run its cell again for a new one."
LATE = "The result has been revealed: it is too late for a guess. Run its cell again for a new one."
# The colour of a bar beside the text. The text has the colours of the page, so it is legible in a dark theme, too.
BARS = {True: "#2a9158", False: "#cc1f1f", None: "#7a8394"}


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


class _Widget(anywidget.AnyWidget):  # type: ignore[misc]
    """The question in the browser. An answer: {"text", "state"}, the state "given", "right", "wrong" or ""."""

    _esm = _file("guess.js")
    _css = _file("guess.css")

    question = traitlets.Unicode().tag(sync=True)
    answers: Any = traitlets.List().tag(sync=True)
    accepts = traitlets.Bool(True).tag(sync=True)
    output = traitlets.Unicode().tag(sync=True)
    status = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)


class Guess:
    """A question that is answered before the result is measured.

    As the last expression of a cell it is shown with a button for each answer. `reveal` shows the answer beside the result.

    Parameters
    ----------
    question : str
        The question.
    *answers : str, or one mapping of str to float
        Two or more different texts; or {text: number}, of which the number nearest to the measured value is right.

    Raises
    ------
    BadInput
        If there are fewer than two answers, if two are equal, or if they are not texts (or not finite numbers).

    Examples
    --------
    >>> guess = lk.Guess("Which worker sets the pace?", "the fastest", "the slowest")
    >>> guess.commit("the slowest").reveal("the slowest")
    Which worker sets the pace?
    Right: you guessed the slowest; measured: the slowest.

    With numbers, the nearest answer is right:

    >>> guess = lk.Guess("How much is left?", {"80%": 0.8, "50%": 0.5, "20%": 0.2})
    >>> guess.commit("80%").reveal(0.54)
    How much is left?
    Wrong: you guessed 80%; measured: 54% (nearest: 50%).
    """

    def __init__(self, question: str, *answers: str | Mapping[str, float]):
        self.question = question
        self.answers, self._values = _answers(question, answers)
        self._committed: int | None = None
        self._revealed: Revealed | None = None
        self._lock = threading.RLock()
        self._widget = _Widget(question=question, answers=self._states())
        self._widget.on_msg(self._received)
        self._widget.output = output_name(question, *self.answers)
        self._output = StaticOutput(self._widget.model_id, self._widget.output)
        receive_during_cells(self._widget)
        self._show()

    # committing -------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> str | None:
        """The answer that was committed, or None."""
        return None if self._committed is None else self.answers[self._committed]

    def commit(self, answer: str | int) -> Guess:
        """Commit to an answer, as a click does. Idempotent.

        Parameters
        ----------
        answer : str or int
            The text of the answer, or its number, from 0.

        Returns
        -------
        Guess
            This guess.

        Raises
        ------
        BadInput
            If there is no such answer, if another one was committed before, or after `reveal`.
        """
        chosen = self._index(answer)
        with self._lock:
            if self._committed is not None and self._committed != chosen:
                raise BadInput(f"You guessed {self.committed!r} already, not {self.answers[chosen]!r}. {ONCE}")
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

    def _received(self, _: Any, message: dict[str, Any], buffers: Any) -> None:
        """A press in the browser. All but the first one are ignored, and unknown answers."""
        with self._lock, contextlib.suppress(BadInput):
            if message.get("do") == "commit" and self._committed is None and self._revealed is None:
                self.commit(message.get("answer"))  # type: ignore[arg-type]

    # revealing --------------------------------------------------------------------------------------------------------

    def reveal(self, measured: float | str, words: str = "") -> Revealed:
        """Show the guess beside the measured result.

        It may be revealed again, with another measurement.

        Parameters
        ----------
        measured : float or str
            For answers with numbers, the measured number: the nearest answer is right (by ratio if all are positive, else by
            difference). For others, the text of the right answer.
        words : str, default: ""
            A text that is shown below.

        Returns
        -------
        Revealed
            The comparison, which a notebook shows if it is the last expression of a cell.

        Raises
        ------
        BadInput
            If `measured` is neither.
        """
        true, shown = self._nearest(measured)
        value = str(measured) if self._values is None else _python(measured)
        with self._lock:
            self._revealed = Revealed(self.question, self.committed, value, shown, self.answers[true], str(words))
            self._show()
            return self._revealed

    def _nearest(self, measured: Any) -> tuple[int, str]:
        """Return (number of the right answer, the measured value as a text)."""
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
        shown = f"{_written(100 * value)}%" if percent else _written(_python(measured)) + _unit(self.answers)
        return away.index(min(away)), shown

    def record(self) -> dict[str, Any]:
        """Return the guess as plain Python values.

        Returns
        -------
        dict
            {"question", "answers", "committed", "measured", "right"}. Values that are not known (yet) are None.
        """
        seen = self._revealed
        return {
            "question": self.question, "answers": list(self.answers), "committed": self.committed,
            "measured": seen.measured if seen else None, "right": seen.right if seen else None,
        }  # fmt: skip

    # showing ----------------------------------------------------------------------------------------------------------

    def _states(self) -> list[dict[str, str]]:
        """The answers as the browser shows them."""
        states = ["" for _ in self.answers]
        if self._committed is not None:
            states[self._committed] = "given" if self._revealed is None else "wrong"
        if self._revealed is not None:
            states[self.answers.index(self._revealed.answer)] = "right"
        return [{"text": text, "state": state} for text, state in zip(self.answers, states)]

    def _status(self) -> tuple[str, str]:
        """The status, and a note."""
        if self._revealed is not None:
            return self._revealed.verdict, ""
        if self.committed is None:
            return "", "Choose an answer before you measure."
        return f"You guessed {self.committed}. Now measure.", ONCE

    def _show(self) -> None:
        status, note = self._status()
        with self._widget.hold_sync():
            self._widget.answers = self._states()
            self._widget.accepts = self._committed is None and self._revealed is None
            self._widget.status, self._widget.note = status, note
        receive_during_cells(self._widget)
        self._output.renew(self._static(), repr(self))

    def _ipython_display_(self) -> None:
        """Display the question, and below it the static output for readers without a kernel."""
        from IPython.display import display

        display(widget_view(self._widget), raw=True)
        self._output.show(self._static(), repr(self))

    def _static(self) -> str:
        """The question and its answers as HTML, for readers without a kernel."""
        look = "margin-right: 8px; padding: 4px 14px; border: 1px solid #7a8394; border-radius: 6px"
        answers = "".join(f'<span style="{look}">{html.escape(text)}</span>' for text in self.answers)
        status, note = self._status()
        return (
            '<div style="max-width: 1180px; padding: 10px 14px; border: 1px solid #2f5fe3; border-radius: 8px; '
            f'font: 14px/2 system-ui, sans-serif"><div>{html.escape(self.question)}</div><div>{answers}</div>'
            f"<div><b>{html.escape(status)}</b> {html.escape(note)}</div></div>"
        )

    def __repr__(self) -> str:
        guess = "No guess yet." if self.committed is None else f"Your guess: {self.committed}."
        return f"{self.question}\n  {' | '.join(self.answers)}\n{guess}"

    def close(self) -> None:
        """Remove the widgets from the page. The guess is kept."""
        self._widget.close()


@dataclass(frozen=True)
class Revealed:
    """A guess beside the result, which `Guess.reveal` returns.

    Parameters
    ----------
    question : str
        The question.
    committed : str or None
        The answer that was guessed; None if there was no guess.
    measured : float, int or str
        The result.
    shown : str
        The result as text.
    answer : str
        The right answer.
    words : str, default: ""
        A text that is shown below.

    Examples
    --------
    >>> revealed = lk.Guess("Mean staleness?", {"1": 1, "3": 3}).commit("3").reveal(2.97)
    >>> revealed.right, revealed.verdict
    (True, 'Right: you guessed 3; measured: 2.97 (nearest: 3).')
    """

    question: str
    committed: str | None
    measured: float | int | str
    shown: str  # the measured value as a text
    answer: str  # the right one
    words: str = ""

    @property
    def right(self) -> bool | None:
        """Whether the guess was right; None if there was none."""
        return None if self.committed is None else self.committed == self.answer

    @property
    def verdict(self) -> str:
        """The comparison in one sentence or two."""
        near = "" if self.shown == self.answer else f" (nearest: {self.answer})"
        if self.committed is None:
            return f"No guess was made. Measured: {self.shown}{near}."
        return f"{'Right' if self.right else 'Wrong'}: you guessed {self.committed}; measured: {self.shown}{near}."

    def _repr_html_(self) -> str:
        bar = BARS[self.right]
        more = f"<div>{html.escape(self.words)}</div>" if self.words else ""
        return (
            f'<div style="max-width: 1180px; margin: 4px 0; padding: 9px 14px; border-left: 4px solid {bar}; '
            f"background: color-mix(in srgb, {bar} 8%, transparent); color: var(--jp-content-font-color1, inherit); "
            'font: 14px/1.5 var(--jp-ui-font-family, system-ui, sans-serif)">'
            f'<div style="color: inherit">{html.escape(self.question)}</div>'
            f'<div style="font-size: 15px"><b>{html.escape(self.verdict)}</b></div>{more}</div>'
        )

    def __repr__(self) -> str:
        return f"{self.question}\n{self.verdict}" + (f"\n{self.words}" if self.words else "")


def _answers(question: Any, given: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """Return the texts of the answers, and their numbers if they have any."""
    if not isinstance(question, str) or not question:
        raise BadInput(f"Guess({question!r}): first the question, as a text, then the answers.")
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


def _unit(answers: tuple[str, ...]) -> str:
    """Return the unit of the answers with a space before it, if each is a number and the same unit (`0.1 s`), else ""."""
    units = {match[1] if (match := re.fullmatch(r"[\d.,]+( \w+)", text)) else "" for text in answers}
    return units.pop() if len(units) == 1 else ""


def _written(number: float) -> str:
    """3, 1,234, 0.214."""
    if isinstance(number, int) or abs(number) >= 100:
        return f"{number:,.0f}".replace("-", "−")
    return f"{number:.3g}".replace("-", "−")
