"""The confusion matrix: how often samples of each class are predicted as each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .description import Description, HasDescription
from .formatting import count_text
from .table import Table

FAR_BELOW = 0.2  # a recall that is said beside the accuracy is below it by more than this
MOST = 20  # classes whose whole matrix is written


@dataclass(frozen=True, eq=False, repr=False)
class ConfusionMatrix(HasDescription):
    """Counts of samples by true and predicted class, and what follows from them; `Predictor.confusion_matrix` makes it.

    Parameters
    ----------
    counts : ndarray
        The number of samples of class i that are predicted as class j, int64 of shape (classes, classes).
    names : tuple of str
        The names of the classes, or their numbers as text.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=200)
    >>> found = lk.train("moons", lk.SyncPS(), cluster, budget).wait().result().confusion_matrix()
    >>> found.counts.shape, bool(found.recall.mean() == found.balanced_accuracy)
    ((2, 2), True)
    """

    counts: np.ndarray
    names: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of all samples whose prediction is right."""
        return float(np.trace(self.counts) / self.counts.sum())

    @property
    def recall(self) -> np.ndarray:
        """Of the samples of each class, the share that is predicted as this class; NaN for a class without samples."""
        return _shares(self.counts.diagonal(), self.counts.sum(axis=1))

    @property
    def precision(self) -> np.ndarray:
        """Of the samples that are predicted as each class, the share that is of this class; NaN for a class never predicted."""
        return _shares(self.counts.diagonal(), self.counts.sum(axis=0))

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have samples."""
        return float(np.nanmean(self.recall))

    @property
    def worst(self) -> int:
        """The class with the lowest recall."""
        return int(np.nanargmin(self.recall))

    def _described(self) -> Description:
        total = self.counts.sum(axis=1)
        share = [
            ["" if np.isnan(value) else f"{value:.1%}" for value in values] for values in (self.recall, self.precision)
        ]
        few = len(self.names) <= MOST
        head = ["class", "samples", "recall", "precision", *(f"as {name}" for name in (self.names if few else ()))]
        rows = [
            [name, int(total[i]), share[0][i], share[1][i], *(self.counts[i].tolist() if few else ())]
            for i, name in enumerate(self.names)
        ]
        first = (
            ("accuracy", f"{self.accuracy:.1%} of {count_text(int(total.sum()), 'sample')}"),
            ("balanced", f"{self.balanced_accuracy:.1%}, the mean recall of the classes"),
        )
        return Description("Confusion matrix", first, (Table(head, rows),))

    def __repr__(self) -> str:
        return f"<ConfusionMatrix of {count_text(len(self.names), 'class')}, balanced accuracy {self.balanced_accuracy:.1%}>"

    def figure(self) -> Any:
        """Draw the matrix: the darker a cell, the larger its share of the samples of the class. Right predictions are blue.

        Returns
        -------
        LabFigure
            A matplotlib Figure.
        """
        from .views.confusion import matrix

        heading = f"accuracy {self.accuracy:.1%}, balanced {self.balanced_accuracy:.1%}"
        return matrix(self.counts, self.names, self.recall, heading)


def confusion_of(labels: np.ndarray, predicted: np.ndarray, names: tuple[str, ...]) -> ConfusionMatrix:
    """Count the pairs of a label and a prediction, both below the number of names."""
    classes = len(names)
    counts = np.bincount(labels * classes + predicted, minlength=classes**2)
    return ConfusionMatrix(counts.reshape(classes, classes), names)


def hidden_by_accuracy(found: ConfusionMatrix) -> str:
    """Return the class with the lowest recall, as text, if this is far below the accuracy; else ""."""
    recall = found.recall[found.worst]
    if recall >= found.accuracy - FAR_BELOW:
        return ""
    return f"of the samples of class {found.names[found.worst]} {recall:.0%} (balanced accuracy {found.balanced_accuracy:.1%})"


def _shares(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
