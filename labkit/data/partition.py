"""Partitions: how the training samples are distributed over the workers.

`Even`, `ByWeight`, `BySize` and `ByLabel` assign every sample to exactly one worker and at least one sample to every
worker. `Shared` and `GlobalBatch` assign all samples to all workers. A partition is a pure function of (labels or
their number, workers, seed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput, nearest, shown
from ..options import HasOptions, as_number, option
from ..random_streams import PARTITION, PARTITION_BY_LABEL, data_stream
from .checks import check_seed, check_whole
from .mapped import selected


class DataPartition(HasOptions):
    """The base class of partitions.

    A partition of your own defines `owners`, or, as a subclass of `Sized`, `sizes`.

    Attributes
    ----------
    shares_all : bool
        Whether every worker has every sample.
    divides_batch : bool
        Whether all workers draw the same batches, of which each computes on an equal part.
    """

    shares_all: ClassVar[bool] = False
    divides_batch: ClassVar[bool] = False

    def split(self, labels_or_n: np.ndarray | int, workers: int, seed: int) -> list[np.ndarray]:
        """Return the samples of every worker.

        Parameters
        ----------
        labels_or_n : ndarray or int
            The labels, of shape (n,), or the number of samples if the partition does not depend on labels.
        workers : int
            The number of workers.
        seed : int
            Determines the random draws.

        Returns
        -------
        list of ndarray
            The sorted indices of the samples of each worker, int64.

        Raises
        ------
        BadInput
            If there are fewer samples than workers.
        """
        owners = self.owners(labels_or_n, workers, seed)
        order = np.argsort(owners, kind="stable").astype(np.int64)
        return np.split(order, np.cumsum(np.bincount(owners, minlength=workers))[:-1])

    def owners(self, labels_or_n: np.ndarray | int, workers: int, seed: int) -> np.ndarray:
        """Return the worker of every sample.

        Parameters
        ----------
        labels_or_n : ndarray or int
            The labels, of shape (n,), or the number of samples if the partition does not depend on labels.
        workers : int
            The number of workers.
        seed : int
            Determines the random draws.

        Returns
        -------
        ndarray
            The number of a worker for each sample, int64 of shape (n,).
        """
        raise NotImplementedError


class Sized(DataPartition):
    """A partition defined by the number of samples per worker; the samples are drawn at random."""

    def sizes(self, n: int, workers: int) -> np.ndarray:
        """Return the number of samples of each worker.

        Parameters
        ----------
        n : int
            The number of samples.
        workers : int
            The number of workers.

        Returns
        -------
        ndarray
            The numbers, int64 of shape (workers,), at least 1 each. Their sum is `n`.

        Raises
        ------
        BadInput
            If there are fewer samples than workers.
        """
        raise NotImplementedError

    def owners(self, labels_or_n: np.ndarray | int, workers: int, seed: int) -> np.ndarray:
        owners = np.repeat(np.arange(workers), self.sizes(_count(labels_or_n), workers))
        return data_stream(check_seed(seed), PARTITION).permutation(owners)


@dataclass(frozen=True)
class Even(Sized):
    """Assigns the same number of samples to every worker. This is the default.

    The numbers differ by at most one. The samples are drawn at random.

    Examples
    --------
    >>> [len(part) for part in lk.partitions.Even().split(10, workers=4, seed=0)]
    [3, 3, 2, 2]
    """

    def sizes(self, n: int, workers: int) -> np.ndarray:
        _check_enough_samples(n, workers)
        return np.full(workers, n // workers, dtype=np.int64) + (np.arange(workers) < n % workers)


@dataclass(frozen=True)
class ByWeight(Sized):
    """Assigns samples in proportion to given weights, as the speeds of machines.

    The numbers are rounded by largest remainders; ties go to the first worker. Every worker gets at least one sample.

    If the weights are the speeds of the workers' machines, an epoch takes the same time on every worker. With an even
    partition a fast worker of an asynchronous run completes more epochs, so the fast worker's samples have more weight.

    Parameters
    ----------
    weights : sequence of float
        One finite number above 0 for each worker; only their ratios matter.

    See Also
    --------
    labkit.DaskCluster.speeds : Measure the speeds of a cluster.

    Examples
    --------
    >>> [len(part) for part in lk.partitions.ByWeight((1, 2, 4)).split(70, workers=3, seed=0)]
    [10, 20, 40]
    """

    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        try:
            weights = tuple(float("nan" if as_number(w) is None else w) for w in self.weights)
        except TypeError:  # not a sequence
            weights = ()
        if not weights or not all(0 < w < float("inf") for w in weights):
            raise BadInput(
                f"ByWeight: weights={shown(self.weights)} is not allowed; weights are finite numbers above 0, one for each "
                "worker, as lk.partitions.ByWeight((1, 2, 4))."
            )
        object.__setattr__(self, "weights", weights)

    def sizes(self, n: int, workers: int) -> np.ndarray:
        _check_enough_samples(n, workers)
        if len(self.weights) != workers:
            raise BadInput(f"ByWeight has {len(self.weights)} weights for {workers} workers; it needs one for each.")
        return _in_proportion(n, np.array(self.weights))


@dataclass(frozen=True)
class BySize(Sized):
    """Assigns unequal numbers of samples: those of worker i are in proportion to (i + 1) ** -skew.

    The numbers are rounded by largest remainders. Every worker gets at least one sample. For arbitrary proportions use
    `ByWeight`.

    Examples
    --------
    >>> [len(part) for part in lk.partitions.BySize(skew=1).split(110, workers=3, seed=0)]
    [60, 30, 20]
    """

    skew: float = option(1.0, low=0.0, high=10.0, help="0: even; larger: more unequal")

    def sizes(self, n: int, workers: int) -> np.ndarray:
        _check_enough_samples(n, workers)
        return _in_proportion(n, np.arange(1, workers + 1) ** -self.skew)


@dataclass(frozen=True)
class ByLabel(DataPartition):
    """Assigns samples so that workers have different distributions of labels (data that is not identically distributed).

    The samples of each label are split over the workers in proportions drawn from a Dirichlet(alpha) distribution. With a large
    alpha every worker has samples of every label. With a small alpha one or two workers have most samples of a label. A worker
    without samples gets one from the worker that has most.

    Notes
    -----
    From Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", 2019 (arXiv 1909.06335). They draw proportions of the labels for each worker; here proportions of
    the workers are drawn for each label.

    Examples
    --------
    >>> labels = np.repeat([0, 1], 100)  # 100 samples of each
    >>> for part in lk.partitions.ByLabel(alpha=1).split(labels, workers=3, seed=1):
    ...     print(np.bincount(labels[part], minlength=2))
    [ 0 25]
    [93 20]
    [ 7 55]
    """

    alpha: float = option(0.5, low=1e-3, high=1e6, log=True, help="small: few labels a worker; large: all of them")

    def owners(self, labels_or_n: np.ndarray | int, workers: int, seed: int) -> np.ndarray:
        n = _count(labels_or_n)
        _check_enough_samples(n, workers)
        labels = np.asarray(labels_or_n)
        if labels.ndim != 1:
            raise BadInput(
                "by-label needs class labels; a regression has none. Allowed: even, by-weight, by-size, shared, global-batch."
            )
        rng = data_stream(check_seed(seed), PARTITION_BY_LABEL)
        owners = np.empty(n, dtype=np.int64)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            share = rng.dirichlet(np.full(workers, self.alpha))
            owners[rows] = np.searchsorted(np.cumsum(share)[:-1], (np.arange(len(rows)) + 0.5) / len(rows))
        counts = np.bincount(owners, minlength=workers)
        for i in np.flatnonzero(counts == 0):
            richest = int(np.argmax(counts))
            owners[rng.choice(np.flatnonzero(owners == richest))] = i
            counts[richest] -= 1
            counts[i] = 1
        return owners


@dataclass(frozen=True)
class Shared(DataPartition):
    """Gives all samples to every worker, which draws its batches from them with its own random stream.

    Adding a worker changes no other worker's batches.

    Examples
    --------
    >>> [len(part) for part in lk.partitions.Shared().split(10, workers=2, seed=0)]
    [10, 10]
    """

    shares_all: ClassVar[bool] = True

    def split(self, labels_or_n: np.ndarray | int, workers: int, seed: int) -> list[np.ndarray]:
        workers, n = check_whole("workers", workers, 1), _count(labels_or_n)
        if n < 1:
            raise BadInput("There are no samples; at least 1 is needed.")
        return [np.arange(n)] * workers


@dataclass(frozen=True)
class GlobalBatch(Shared):
    """Divides each batch among the workers: ``batch_size`` is the number of samples of all workers together.

    All workers draw the same batches from all samples, and each computes on an equal part. Strategies that average one gradient
    of every worker therefore take the same steps with any number of workers (strong scaling). With the other partitions N
    workers take steps of N times as many samples (weak scaling), for which the learning rate has to be larger.

    A number of workers that does not divide the batch is refused, because the gradients of all workers count equally. After a
    restart, a worker draws its parts from other batches.

    See Also
    --------
    Shared : Every worker draws separate batches.

    Notes
    -----
    Goyal et al., "Accurate, large minibatch SGD: training ImageNet in 1 hour", 2017.

    Examples
    --------
    >>> problem = lk.Problem("moons", batch_size=256, partition=lk.partitions.GlobalBatch())
    >>> [len(next(batches).x) for batches in problem.batches(workers=4)]
    [64, 64, 64, 64]
    """

    divides_batch: ClassVar[bool] = True


def samples_of_workers(
    dataset: Any, partition: DataPartition, workers: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (x, y) of the training samples of each worker. A share of all samples is not copied."""
    whole = dataset.training
    indices = partition.split(dataset.y_train if dataset.classes is not None else dataset.n_train, workers, seed)
    return [whole if len(i) == len(whole[0]) else (selected(whole[0], i), selected(whole[1], i)) for i in indices]


PARTITIONS: Mapping[str, type[DataPartition]] = {
    "even": Even, "by-label": ByLabel, "by-size": BySize, "by-weight": ByWeight, "shared": Shared,
    "global-batch": GlobalBatch,
}  # fmt: skip
OPTION: Mapping[type, str] = {ByLabel: "alpha", BySize: "skew", ByWeight: "weights"}  # the value after the colon


def partition_by_name(text: str | DataPartition) -> DataPartition:
    """Make a partition from its name: `"even"`, `"by-label"`, `"by-size"`, `"by-weight:1,2,4"`, `"shared"` or
    `"global-batch"`.

    A number after a colon is the option: alpha in `"by-label:0.5"`, skew in `"by-size:2"`. A `DataPartition` is returned
    unchanged. Raises `BadInput`, with the nearest name or the limits of the number, if the text is not allowed.
    """
    if isinstance(text, DataPartition):
        return text
    name, colon, number = str(text).partition(":")
    if name not in PARTITIONS:
        raise nearest("partition", text, PARTITIONS)
    kind = PARTITIONS[name]
    option = OPTION.get(kind, "")
    if not option and colon:
        raise BadInput(f"The partition {shown(text)} is not allowed; {name} takes no number.")
    many = kind is ByWeight
    if not colon and not many:
        return kind()
    try:
        numbers = tuple(float(part) for part in number.split(","))
        options: dict[str, Any] = {option: numbers if many else float(number)}
    except ValueError:
        form = f"{name}:1,2,4, one number for each worker" if many else f"{name}:{option.upper()}, a number"
        raise BadInput(f"The partition {shown(text)} is not allowed; write {form}.") from None
    return kind(**options)


def partition_as_text(partition: DataPartition) -> str | None:
    """Return the text that `partition_by_name` reads as this partition; None for a user-defined partition."""
    for name, kind in PARTITIONS.items():
        if type(partition) is kind:
            option = OPTION.get(kind, "")
            value = getattr(partition, option) if option else ()
            numbers = value if isinstance(value, tuple) else (value,)
            return name + (":" if option else "") + ",".join(repr(float(n)).removesuffix(".0") for n in numbers)
    return None


def _in_proportion(n: int, weights: np.ndarray) -> np.ndarray:
    """Divide n samples by largest remainders: (workers,) int64. A part of 0 becomes 1, taken from the largest part."""
    exact = n * (weights / weights.max()) / np.sum(weights / weights.max())
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: n - sizes.sum()]] += 1
    for i in np.flatnonzero(sizes == 0):
        sizes[np.argmax(sizes)] -= 1
        sizes[i] = 1
    return sizes


def _count(labels_or_n: np.ndarray | int) -> int:
    return int(labels_or_n) if isinstance(labels_or_n, (int, np.integer)) else len(labels_or_n)


def _check_enough_samples(n: int, workers: int) -> None:
    check_whole("workers", workers, 1)
    if n < workers:
        raise BadInput(f"There are {n} samples for {workers} workers; every worker needs at least one sample.")
