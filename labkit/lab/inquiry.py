"""Ask the model: one sample, and what the newest evaluated weights of the displayed run predict for it.

The sample is drawn, chosen among the held-out ones, or given by its values; it is never standardised here, because the predictor
does that. Nothing is computed while nothing is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data import Dataset
from ..description import Description, HasDescription
from ..errors import BadInput, LabkitError, shown
from ..options import as_numbers
from ..predictor import LivePredictor, outputs_of
from ..run import Run
from ..trace.schema import NANO
from .input_form import InputForm
from .session import Session

MOST_NUMBERS = 100_000  # that a browser may send for one sample
MOST_NAMED = 10  # classes in the description of an answer

Given = int | np.ndarray | tuple[np.ndarray, ...]  # the number of a held-out sample, a sample, or strokes


@dataclass(frozen=True, eq=False, repr=False)
class Answer(HasDescription):
    """What a model predicts for one sample; `Lab.ask` returns it.

    Attributes
    ----------
    inputs : InputForm
        What the samples of the data set are like.
    sample : ndarray, shape (features,)
        The sample, not standardised.
    held_out : int or None
        The number of the held-out sample; None if it is none of them.
    truth : int, ndarray or None
        The id of its class, or its targets; None if they are not known.
    names : tuple of str
        The names of the classes, or of the values of a regression.
    values : ndarray or None
        The probabilities of the classes, or the predicted values; None if there are none.
    update : int or None
        After which update the weights that have answered were evaluated.
    time : float or None
        When, in seconds of the run.
    problem : str
        Why there is no answer, or "".
    """

    inputs: InputForm
    sample: np.ndarray
    held_out: int | None
    truth: Any
    names: tuple[str, ...]
    values: np.ndarray | None = None
    update: int | None = None
    time: float | None = None
    problem: str = ""

    @property
    def classes(self) -> bool:
        """Whether the model predicts classes."""
        return self.inputs.dataset.classes is not None

    @property
    def predicted(self) -> str | None:
        """The most probable class; None for a regression, and without an answer."""
        return self.names[int(self.values.argmax())] if self.classes and self.values is not None else None

    @property
    def title(self) -> str:
        """What the sample is."""
        if self.held_out is None:
            return "your sample" if self.inputs.kind != "picture" else "your drawing"
        return f"held-out sample {self.held_out + 1:,} of {self.inputs.held_out:,}"

    @property
    def right(self) -> str:
        """The class or the targets of a held-out sample as text, or ""."""
        if self.truth is None:
            return ""
        if self.classes:
            return f"class {self.names[int(self.truth)]}"
        return ", ".join(f"{value:.4g}" for value in np.ravel(self.truth))

    def __repr__(self) -> str:
        return f"<Answer for {self.title}: {self.problem or self.predicted or shown(self.values)}>"

    def _described(self) -> Description:
        rows = [("sample", f"{self.title}{f', {self.right}' if self.right else ''}")]
        if self.update is not None:
            rows.append(("weights", f"of update {self.update:,}, at {self.time or 0:.2f} s"))
        if self.values is None:
            return Description("Answer", (*rows, ("no answer", self.problem)))
        order = np.argsort(-self.values, kind="stable")[:MOST_NAMED] if self.classes else range(len(self.values))
        text = "{:.1%}" if self.classes else "{:.4g}"
        rows += [(self.names[k], text.format(self.values[k])) for k in order]
        return Description("Answer", tuple(rows))


class Inquiry:
    """The question to the model. `open`: whether the page shows it.

    Any thread may call its methods.
    """

    def __init__(self, session: Session):
        self._session = session
        self._given: Given = 0
        self.open = False
        self._lock = threading.RLock()  # a model of a user need not be safe to call from two threads
        self._live: tuple[Run, LivePredictor] | None = None
        self._inputs: InputForm | None = None
        self._last: tuple[tuple[Any, ...], Answer] | None = None

    def ask(self, sample: Any) -> None:
        """Ask for this sample: the number of a held-out one, or its values. Raises `BadInput` if it does not fit the data."""
        with self._lock:
            inputs = self._of_data()
        if isinstance(sample, int | np.integer) and not isinstance(sample, bool):
            if not 0 <= sample < inputs.held_out:
                allowed = f"0 to {inputs.held_out - 1}" if inputs.held_out else "no number: none are in memory"
                raise BadInput(f"ask({sample}): the number of a held-out sample is {allowed}.")
            self._given = int(sample)
        else:
            values, due = as_numbers("ask: sample", sample), inputs.dataset.features
            if values.size != due:
                raise BadInput(
                    f"ask: a sample of shape {values.shape}; a sample of {inputs.dataset.name} has {due} numbers."
                )
            if not np.isfinite(values).all():
                raise BadInput("ask: the sample holds a number that is not finite.")
            self._given = values.ravel() if inputs.whole else values.ravel().astype(float)
        self.open = True

    def receive(self, given: Mapping[str, Any]) -> None:
        """Do what the browser asks for: {"sample": number}, {"values": numbers}, {"ink": shares of the pixels},
        {"strokes": [[x, y, x, y, ...], ...]} with shares of the width and height, {} to continue with the present sample, or
        {"open": False}. Raises `BadInput` if it does not fit the data, and `TypeError`, `ValueError` or `LookupError` if it is
        malformed.
        """
        if not isinstance(given, Mapping):
            raise TypeError("no question")
        if "strokes" in given:
            strokes = tuple(np.array(stroke, dtype=float).reshape(-1, 2) for stroke in given["strokes"] if stroke)
            if sum(stroke.size for stroke in strokes) > MOST_NUMBERS or not all(np.isfinite(s).all() for s in strokes):
                raise ValueError("strokes that no pen has drawn")
            with self._lock:
                self._of_data().drawable()
            self._given = tuple(np.clip(stroke, -1.0, 2.0) for stroke in strokes)
        elif "ink" in given:
            with self._lock:
                self.ask(self._of_data().inked(np.array(given["ink"], dtype=float)))
        elif "sample" in given or "values" in given:
            self.ask(given["sample"] if "sample" in given else list(given["values"]))
        self.open = bool(given.get("open", True))
        if not self.open:
            self.close()

    def close(self) -> None:
        """Ask nothing any more, and release the run."""
        with self._lock:
            self.open, self._live, self._last, self._inputs = False, None, None, None

    def answer(self) -> Answer:
        """Return the answer for the present sample at the displayed time."""
        with self._lock:
            return self._answer()

    def _answer(self) -> Answer:
        run, given, inputs = self._session.displayed.run, self._given, self._of_data()
        try:
            model, problem = self._live_model(run).current(), ""
        except LabkitError as error:
            model, problem = None, str(error)
        position = self._session.playback.position
        if model is not None and position is not None and (model.time or 0.0) > position / NANO:
            problem = (
                f"The weights of {position / NANO:.2f} s are not kept, only the newest: of update {model.update:,}, at "
                f"{model.time or 0.0:.2f} s. Back to live asks them."
            )
        key = inputs, given, model, problem
        last = self._last
        if last is not None and all(a is b for a, b in zip(last[0][:3], key)) and last[0][3] == problem:
            return last[1]
        found = self._asked(inputs, given, model if not problem else None, problem)
        self._last = key, found
        return found

    def _asked(self, inputs: InputForm, given: Given, model: Any, problem: str) -> Answer:
        dataset, held_out, truth = inputs.dataset, None, None
        if isinstance(given, np.ndarray) and given.size == dataset.features:
            sample = given
        elif isinstance(given, tuple) and inputs.kind == "picture":
            sample = inputs.written(given)
        elif inputs.held_out:
            assert isinstance(dataset, Dataset)
            held_out = given if isinstance(given, int) and given < inputs.held_out else 0
            sample, truth = inputs.sample(held_out), dataset.y_test[held_out]
            truth = truth if dataset.classes is not None else dataset.raw_targets(truth)
        else:
            sample = np.array(dataset.mean)
        if dataset.classes is not None:
            names = dataset.class_names or tuple(map(str, range(dataset.outputs)))
        else:
            names = ("value",) if dataset.outputs == 1 else tuple(f"value {k + 1}" for k in range(dataset.outputs))
        values, update, time = None, None, None
        if model is not None:
            update, time = model.update, model.time
            try:
                outputs, problem = outputs_of(model, sample[None])
                values = None if problem else np.ravel(outputs).astype(float)
            except LabkitError as error:  # of a model of the user, or a sample far from the data
                problem = str(error)
        return Answer(inputs, sample, held_out, truth, names, values, update, time, problem)

    def _of_data(self) -> InputForm:
        """Return what the samples of the displayed run, or of the next one, are like."""
        run = self._session.displayed.run
        dataset = (self._session.displayed.settings.problem if run is None else run.plan.problem).dataset
        if self._inputs is None or self._inputs.dataset is not dataset:
            self._inputs = InputForm(dataset)
        return self._inputs

    def _live_model(self, run: Run | None) -> LivePredictor:
        """Return the model of this run. Raises `BadInput` if there is none."""
        if run is None:
            raise BadInput("There is no model yet: press Run.")
        if self._live is None or self._live[0] is not run:
            self._live = run, run.predictor(live=True)
        return self._live[1]
