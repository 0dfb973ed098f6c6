"""The trained model: predictions from samples that are not standardised."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import nn
from .confusion import ConfusionMatrix, confusion_of, hidden_by_accuracy
from .data import DaskDataset, Dataset, by_name
from .data.checks import as_text_labels, check_targets
from .data.dataset import changes, unscaled
from .description import Description, HasDescription
from .errors import BadInput, nearest, shown
from .formats import ArrayForm, Form, Mismatch, check
from .formatting import call_text
from .models.model_objective import ModelObjective
from .models.numpy_model import NumpyModel
from .options import as_number, as_numbers
from .problem import QUICK_ROWS, Problem

READ_FACTOR = 20  # a model that was read in vain is read again after so many times the duration of the reading
HIDDEN = "hidden_by_accuracy"  # the entry of `Predictor.about` in a file
NAMES: Form = {"class_names?": [str], "feature_names?": [str], "column_target?": bool}


class Names(NamedTuple):
    """What a model knows about its data: the names of classes and features, empty if they have none, and whether the single
    target of a regression is a column, (n, 1), instead of (n,).
    """

    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    column_target: bool = False

    @classmethod
    def of(cls, dataset: Dataset | DaskDataset) -> Names:
        """Return the names of a data set."""
        return cls(dataset.class_names, dataset.feature_names, dataset.target_shape == (1,))

    @classmethod
    def from_dict(cls, plain: dict[str, Any], features: int, outputs: int) -> Names:
        """Remove the names from the header of a model file, and return them; those that it does not have are empty. Raises
        `Mismatch` if they do not fit the numbers of features and of outputs.
        """
        check(plain, NAMES, "header.about")
        for name, due in (("class_names", outputs), ("feature_names", features)):
            if (given := plain.get(name)) and not len(given) == len(set(given)) == due:
                raise Mismatch(f"header.about.{name} are {shown(given, 60)}, not {due} different names")
        classes, names = (tuple(plain.pop(name, ())) for name in ("class_names", "feature_names"))
        return cls(classes, names, plain.pop("column_target", False))

    def to_dict(self) -> dict[str, Any]:
        """Return the names as the header of a model file has them."""
        given = {
            "class_names": list(self.classes),
            "feature_names": list(self.features),
            "column_target": self.column_target,
        }
        return {name: value for name, value in given.items() if value}


class Predictor(HasDescription):
    """A trained model: a network and its parameters.

    It takes samples as they are in the data set, and standardises them. `Run.result` and `lk.load` make it.

    Parameters
    ----------
    problem : Problem or None
        The problem, which determines the other arguments; None if they are given.
    parameters : ndarray or SparseParameters
        The flat vector of all parameters, or `SparseParameters` if an embedding table is too large for one.
    network : Network, Recommender or ModelObjective, optional
        The network, or the objective of a model of your own.
    mean, scale : ndarray, optional
        The mean and the standard deviation of each feature, float64 of shape (d,).
    target_mean, target_scale : ndarray or float, default: 0.0 and 1.0
        Those of each target of a regression, float64 of shape () or (k,); 0 and 1 if the targets were not standardised.
    about : dict, optional
        A description of the problem in plain values.
    names : Names, optional
        What the model knows about its data.
    accuracy : float, optional
        The accuracy on held-out data, from 0 to 1.
    update, time : int and float, optional
        After which update and after how many seconds of the run the parameters were evaluated.

    Notes
    -----
    The names of classes and features are part of the model and of its file: `class_names` and `feature_names`, empty if the data
    set had none. They are used when data come in again: columns of a data frame are found by their names, and
    ``lk.from_csv(path, like=model)`` reads a file with the columns and the class ids of the model.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=50)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
    >>> model = run.result()
    >>> samples = np.zeros((3, 64))  # three empty pictures
    >>> model.predict(samples).shape, model.predict_proba(samples).shape
    ((3,), (3, 10))
    >>> path = model.save("digits.npz")
    >>> bool((lk.load(path).predict(samples) == model.predict(samples)).all())
    True
    """

    def __init__(
        self,
        problem: Problem | None,
        parameters: np.ndarray | nn.SparseParameters,
        *,
        network: nn.Network | nn.Recommender | ModelObjective | None = None,
        mean: np.ndarray | None = None,
        scale: np.ndarray | None = None,
        target_mean: np.ndarray | float = 0.0,
        target_scale: np.ndarray | float = 1.0,
        about: dict[str, Any] | None = None,
        names: Names | None = None,
        accuracy: float | None = None,
        update: int | None = None,
        time: float | None = None,
    ):
        self.parameters: Any = parameters
        self.network: Any = network if network is not None else problem.objective()  # type: ignore[union-attr]
        dataset = problem.dataset if problem is not None else None
        self.mean: Any = mean if dataset is None else dataset.mean
        self.scale: Any = scale if dataset is None else dataset.scale
        self.target_mean = target_mean if dataset is None else dataset.target_mean
        self.target_scale = target_scale if dataset is None else dataset.target_scale
        self._held_out = dataset if isinstance(dataset, Dataset) else None
        self._names = names or (Names.of(dataset) if dataset is not None else Names())
        self.about = problem.describe() if problem is not None else about or {}
        known = {"accuracy": accuracy, "update": update, "time": time}
        self.about |= {name: value for name, value in known.items() if value is not None and math.isfinite(value)}

    @property
    def update(self) -> int | None:
        """The number of the update after which the parameters were evaluated; None if unknown."""
        found = as_number(self.about.get("update"))  # a file may contain anything
        return None if found is None else int(found)

    @property
    def time(self) -> float | None:
        """The run time in seconds at which the parameters were evaluated; None if unknown."""
        return as_number(self.about.get("time"))

    @property
    def features(self) -> int:
        """The number of features of a sample; for clicks, of its ids."""
        return len(self.mean)

    @property
    def classes(self) -> int | None:
        """The number of classes; None for a regression."""
        return self.network.outputs if isinstance(self.network.loss, nn.SoftmaxCrossEntropy) else None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their ids; empty if the labels are numbers."""
        return self._names.classes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in the order of the columns; empty if they have none."""
        return self._names.features

    def __repr__(self) -> str:
        return f"<Predictor of {self.about.get('data', 'a model')}, {len(self.parameters):,} parameters>"

    def _described(self) -> Description:
        rows = [("network", self.network.architecture), ("size", nn.size_text(self.network))]
        if (accuracy := as_number(self.about.get("accuracy"))) is not None:  # a file may contain anything
            hidden = self._hidden_by_accuracy()
            rows.append(("accuracy", f"{accuracy:.1%} held out" + (f"; {hidden}" if hidden else "")))
        if self.update is not None:
            when = "" if self.time is None else f", at {self.time:.2f} s"
            rows.append(("evaluated", f"after update {self.update:,}{when}"))
        shape = f"shape (n, {self.network.inputs})"
        standardised = f"samples, {shape}, as in the data set; predict standardises them"
        rows.append(("input", f"ids, {shape}" if self.network.takes_ids else standardised))
        return Description(f"Predictor of {self.about.get('data', 'a model')}", tuple(rows))

    def _hidden_by_accuracy(self) -> str:
        """Return the class that the held-out accuracy hides, as text; "" if there is none, or the samples are not known."""
        data = self._held_out
        if data is None:  # a model from a file, which may contain anything
            saved = self.about.get(HIDDEN)
            return saved[:200] if isinstance(saved, str) else ""
        known = self.classes is not None and isinstance(self.parameters, np.ndarray)
        if not known or data.n_test > QUICK_ROWS or not np.isfinite(self.parameters).all():
            return ""
        return hidden_by_accuracy(self.confusion_matrix())

    def _prepared(self, x: ArrayLike) -> np.ndarray:
        """Return the network's input: standardised samples, or unchanged ids. Columns of a data frame are found by name."""
        x = by_name("predict: x", x, self.feature_names)
        if self.network.takes_ids:
            x = as_numbers("predict: x", x)
            return x[None] if x.shape == (self.network.inputs,) else x
        return self._standardise(x)

    def _standardise(self, x: ArrayLike) -> np.ndarray:
        x = as_numbers("predict: x", x)
        features = len(self.mean)
        if x.shape == (features,) or (x.size == features != math.prod(x.shape[1:])):
            x = x[None]
        flat = x.reshape(len(x), math.prod(x.shape[1:])) if x.ndim > 1 else x
        if flat.ndim != 2 or flat.shape[1] != features:
            raise BadInput(
                f"predict: samples of shape {x.shape}; this model takes (n, {features}), or samples that flatten to it."
            )
        if not np.isfinite(flat).all():
            row = int(np.argwhere(~np.isfinite(flat))[0][0])
            raise BadInput(f"predict: sample {row} holds a number that is not finite.")
        with np.errstate(over="ignore", invalid="ignore"):
            # in float64, as the data set: a float32 has too few digits for a feature with an offset
            standardised = ((flat - self.mean) / self.scale).astype(self.network.dtype, copy=False)
        self._check_finite(standardised, "is too far from the training data to be standardised")
        return standardised

    def _largest(self) -> str:
        return f"numbers of this model are {self.network.dtype}, at most {np.finfo(self.network.dtype).max:g}"

    def _check_finite(self, values: np.ndarray, wrong: str) -> None:
        """Raise `BadInput`, which names the first sample whose row of `values` is not finite, if there is one."""
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if not finite.all():
            raise BadInput(f"predict: sample {int(finite.argmin())} {wrong}; {self._largest()}.")

    def _scores(self, x: ArrayLike) -> np.ndarray:
        """Return the values of the network's output layer. Raises `BadInput` if they overflow for a sample.

        If the parameters are not finite, as after a run that diverged, no error is raised: predictions are NaN, or class 0.
        """
        x = self._prepared(x)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: np.ndarray = self.network.scores(self.parameters, x)
        if x.dtype.kind == "f" and np.isfinite(self.parameters).all():  # ids cannot overflow
            self._check_finite(scores, "makes the network's output infinite")
        return scores

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Predict classes, or, for a regression, values.

        Parameters
        ----------
        x : array_like
            Samples that are not standardised, of shape (n, features) or the one that they have in the source; for the held-out
            samples of a data set, `dataset.raw(dataset.x_test)`. For clicks: ids, of shape (n, fields). Of a data frame, if the
            model has `feature_names`, the columns with these names, in any order.

        Returns
        -------
        ndarray
            The classes, int64 of shape (n,), whose names are `class_names`; or, for a regression, values in the shape, (n,) or
            (n, k), and the unit that the targets in the source have.

        Raises
        ------
        BadInput
            If a number is not finite, a number or the network's output overflows the network's dtype, or `x` has a wrong shape,
            is not numeric, or lacks a column.
        """
        scores = self._scores(x)
        predicted: np.ndarray = self.network.loss.predict(scores)
        single = self.classes is None and scores.shape[1] == 1 and not self._names.column_target
        if self.classes is not None:
            return predicted
        return unscaled(predicted[:, 0] if single else predicted, self.target_mean, self.target_scale)

    def predict_proba(self, x: ArrayLike) -> np.ndarray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        x : array_like
            Samples, as for `predict`.

        Returns
        -------
        ndarray
            The probabilities, of shape (n, classes).

        Raises
        ------
        BadInput
            As `predict`, and for a regression.
        """
        scores = self._scores(x)
        return self.network.loss.probabilities(scores)

    def confusion_matrix(self, x: ArrayLike | None = None, y: ArrayLike | None = None) -> ConfusionMatrix:
        """Count how often the samples of each class are predicted as each class.

        Parameters
        ----------
        x : array_like, optional
            Samples, as for `predict`. By default the held-out samples of the run's data set.
        y : array_like, optional
            Their labels, of shape (n,): ids, or names out of `class_names`.

        Returns
        -------
        ConfusionMatrix
            The counts, with accuracy, balanced accuracy, and recall and precision of each class.

        Raises
        ------
        BadInput
            As `predict`; for a regression; if a label is no class of the model; or if the model has no held-out samples, as one
            from a file.

        Examples
        --------
        >>> model = lk.train("digits", lk.SyncPS(), lk.SimulatedCluster(workers=4), lk.Budget(updates=200)).wait().result()
        >>> found = model.confusion_matrix()  # of the held-out samples
        >>> found.counts.sum(), found.names[found.recall.argmin()] in "0123456789"
        (np.int64(359), True)
        """
        if self.classes is None:
            raise BadInput("A regression has no classes and therefore no confusion matrix; ask for predict.")
        if (x is None) != (y is None):
            raise BadInput("confusion_matrix: x and y belong together; give both or neither.")
        names = self.class_names or tuple(map(str, range(self.classes)))
        if x is not None:
            predicted = self.predict(x)
            return confusion_of(self._label_ids(y, len(predicted)), predicted, names)
        if self._held_out is None:
            raise BadInput("confusion_matrix: this model has no held-out samples in memory; give x and y.")
        predicted = self.network.predict(self.parameters, self._held_out.x_test)
        return confusion_of(self._held_out.y_test, predicted, names)

    def _label_ids(self, y: Any, samples: int) -> np.ndarray:
        """Return labels, given as ids or as names of classes, as ids."""
        texts = as_text_labels("y", y)
        if texts is not None:
            ids = {name: i for i, name in enumerate(self.class_names)}
            unknown = next((text for text in texts if text not in ids), None)
            if unknown is not None:
                raise nearest("class of this model", unknown, self.class_names)
            y = [ids[text] for text in texts]
        return check_targets("y", y, samples, self.classes)[0]

    def save(self, path: str | Path) -> Path:
        """Write the model to a file, from which `lk.load` reads it.

        Parameters
        ----------
        path : str or path-like
            The file (.npz, without pickle).

        Returns
        -------
        Path
            The path.
        """
        arrays = {"mean": np.asarray(self.mean), "scale": np.asarray(self.scale)}
        if changes(self.target_mean, self.target_scale):
            arrays |= {"target_mean": np.ravel(self.target_mean), "target_scale": np.ravel(self.target_scale)}
        hidden = {HIDDEN: text} if (text := self._hidden_by_accuracy()) else {}
        nn.save_model(path, self.network, self.parameters, self.about | self._names.to_dict() | hidden, arrays=arrays)
        return Path(path)


class LivePredictor:
    """The newest evaluated model of a run; `Run.predictor` makes it. It can be used by several threads.

    Parameters
    ----------
    read : callable
        Returns the newest model, as `Run.result`.
    known : callable
        Returns the newest update that was evaluated (-1: none), and whether the run is over.

    See Also
    --------
    Predictor : A model that does not change.

    Notes
    -----
    Each call answers with one model. `current` returns it: parameters, update and time that belong together, which two calls of
    this object, between which the run evaluates, may not.
    """

    def __init__(self, read: Callable[[], Predictor], known: Callable[[], tuple[int, bool]]):
        self._read, self._known = read, known
        self._lock = threading.Lock()
        self._model: Predictor | None = None
        self._final = False
        self._next_read = 0.0

    def current(self) -> Predictor:
        """Return the newest evaluated model.

        Returns
        -------
        Predictor
            The model, which does not change any more.

        Raises
        ------
        BadInput
            If nothing has been evaluated yet.
        """
        update, over = self._known()
        with self._lock:
            model, began = self._model, monotonic()
            newer = model is None or (model.update or 0) < update or (over and not self._final)
            if model is not None and (not newer or (began < self._next_read and not over)):
                return model
            found = self._read()
            if model is not None and found.update == model.update:  # of processes: evaluated, but not saved yet
                self._next_read = monotonic() + READ_FACTOR * (monotonic() - began)
            self._model, self._final = found, over
            return found

    @property
    def update(self) -> int | None:
        """The number of the update after which the newest model was evaluated."""
        return self.current().update

    @property
    def time(self) -> float | None:
        """The run time in seconds at which the newest model was evaluated."""
        return self.current().time

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Predict with the newest model, see `Predictor.predict`.

        Parameters
        ----------
        x : array_like
            The samples.

        Returns
        -------
        ndarray
            The classes, or the values of a regression.
        """
        return self.current().predict(x)

    def predict_proba(self, x: ArrayLike) -> np.ndarray:
        """Predict probabilities with the newest model, see `Predictor.predict_proba`.

        Parameters
        ----------
        x : array_like
            The samples.

        Returns
        -------
        ndarray
            The probabilities, of shape (n, classes).
        """
        return self.current().predict_proba(x)


def outputs_of(model: Predictor, x: ArrayLike) -> tuple[np.ndarray, str]:
    """Return what the model predicts, the probabilities of the classes or the values of a regression, and "" or, if these are not
    finite, a sentence that says so. Raises `LabkitError` as `Predictor.predict`.
    """
    found = model.predict_proba(x) if model.classes is not None else model.predict(x)
    if np.isfinite(found).all():
        return found, ""
    return found, f"The model of update {model.update} predicts numbers that are not finite: the training diverges."


def load(path: str | Path, *, model: NumpyModel | None = None) -> Predictor:
    """Load a model that `Predictor.save` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.
    model : NumpyModel, optional
        The model with the same options, if it is one of your own: the file has its parameters, but no code.

    Returns
    -------
    Predictor
        The model.

    Raises
    ------
    BadInput
        If there is no such file, or if it is not a model, or that of another `model`.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=2), lk.Budget(updates=50)
    >>> run = lk.train("moons", lk.SyncPS(), cluster, budget).wait()
    >>> lk.load(run.result().save("moons.npz")).predict([[0.0, 1.0]]).shape
    (1,)
    """

    def own_model(saved: dict[str, Any] | None) -> ModelObjective | None:
        if saved is None and model is not None:
            raise BadInput(f"{shown(str(path))} holds a network of labkit: leave model={shown(model)} out.")
        if saved is None:
            return None
        if not isinstance(model, NumpyModel):
            text = call_text(saved["model"]["name"], saved["model"]["options"])
            raise BadInput(
                f"{shown(str(path))} holds the parameters of {text}, a model of your own, but no code: give the model, as "
                f"lk.load({shown(str(path))}, model={text})."
            )
        return ModelObjective.from_plain(saved, model, shown(str(path)))

    network, parameters, about = nn.load_model(path, own_model)
    arrays = about.pop("arrays")
    form = ArrayForm("f", None if network.takes_ids else (network.inputs,), finite=True)
    target = ArrayForm("f", (network.outputs,), finite=True)
    forms = {"array.mean": form, "array.scale": form, "array.target_mean?": target, "array.target_scale?": target}
    try:
        check({f"array.{name}": values for name, values in arrays.items()}, forms)
        names = Names.from_dict(about, len(arrays["mean"]), network.outputs)
    except Mismatch as error:
        raise BadInput(f"{shown(str(path))} is damaged or not a labkit model: {error}.") from None
    return Predictor(None, parameters, network=network, about=about, names=names, **arrays)
