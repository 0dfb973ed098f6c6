"""Data that stays on the cluster: Dask arrays, split, standardised and distributed to workers block by block.

The client receives only small results: the length of each block, mean and variance (8 bytes per feature each), the
number of samples of each class, and the first error. Samples are not sent to the client, with two exceptions:
`gathered()`, and the labels (8 bytes per sample) for a partition by label. The client sends tasks, which recompute from
(seed, block) which rows they need. For a partition by label the client also sends the worker of each sample (4 bytes
per sample).

Assignment. The n training samples have positions p = 0..n-1, block after block, shuffled within a block. If a is
coprime to n, q = (a p + c) mod n is a permutation of 0..n-1. The numbers q are divided into one interval per worker, as
long as the worker's number of samples, and the worker whose interval contains q gets position p. Therefore the sizes
are exact. Because a is near 0.618 n, every block is spread over all workers. (a p must fit into 63 bits, so n < 3e9.)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BadInput
from ..formatting import count_text
from ..random_streams import LAZY_PARTITION, data_stream
from .blocks import HoldOut, Survey, join, labels_of, merge, survey, take
from .checks import check_classes, check_dtype, check_fraction, check_name, check_seed, check_truth, check_whole
from .dataset import Dataset, Described, sizes_text
from .partition import DataPartition, Sized, partition_by_name

FAN_IN = 16  # surveys of blocks that one task merges


@dataclass(frozen=True, eq=False, repr=False)
class DaskDataset(Described):
    """Training and held-out samples as Dask blocks; `from_dask` makes it.

    It has the attributes of `Dataset`, except the arrays. Blocks are computed again at each use: call `x.persist()` first if
    that is expensive.

    Parameters
    ----------
    name : str
        The name of the data set.
    classes : int or None
        The number of classes; None for a regression.
    mean, scale : ndarray
        The mean and the standard deviation of each feature in the training samples, float64 of shape (d,).
    n_train, n_test : int
        The numbers of training and held-out samples.
    hold_out : HoldOut
        Which samples of each block are held out.
    blocks : list of tuple
        The triples (x, y, sample_weights) of delayed arrays; of the last one None without weights.
    lengths : tuple of int
        The number of rows of each block.
    offsets : tuple of int
        The position of the first training sample of each block.
    target_shape : tuple of int, default: ()
        The shape of one target of a regression: () or (k,).
    sample_shape : tuple of int, default: ()
        The shape of one sample: () for a row of x.
    about : str, default: ""
        One sentence with source and licence.
    extra : dict, optional
        Further facts.
    target_mean, target_scale : ndarray or float, default: 0.0 and 1.0
        The mean and the standard deviation of each target of a regression; 0 and 1 if they are not standardised.
    class_counts : ndarray, optional
        The numbers of training and of held-out samples of each class, of shape (2, classes), if there are at most 10,000 classes.
    mean_weight : float, optional
        The mean weight of the training samples, by which weights are divided; None without weights.

    Examples
    --------
    >>> import dask.array as da
    >>> x, y = da.zeros((100, 2), chunks=(50, 2)), da.arange(100, chunks=50) % 2
    >>> data = lk.from_dask(x, y, classes=2)
    >>> data.lengths, data.n_train + data.n_test
    ((50, 50), 100)
    """

    name: str
    classes: int | None
    mean: np.ndarray
    scale: np.ndarray
    n_train: int
    n_test: int
    hold_out: HoldOut
    blocks: list[tuple[Any, Any, Any]]
    lengths: tuple[int, ...]
    offsets: tuple[int, ...]
    target_shape: tuple[int, ...] = ()
    sample_shape: tuple[int, ...] = ()
    about: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    target_mean: np.ndarray | float = 0.0
    target_scale: np.ndarray | float = 1.0
    class_counts: np.ndarray | None = None
    mean_weight: float | None = None

    @property
    def has_sample_weights(self) -> bool:
        return self.mean_weight is not None

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.hold_out.dtype)

    def __repr__(self) -> str:
        blocks = f"{count_text(len(self.blocks), 'block')} on a Dask cluster"
        return f"<DaskDataset {self.name}: {sizes_text(self)}, in {blocks}>"

    def shares(
        self,
        workers: int,
        how: str | DataPartition = "even",
        seed: int = 0,
        addresses: Sequence[str] | None = None,
    ) -> list[Any]:
        """Return the training samples of every worker.

        Every training sample is in exactly one share; with `Shared` every share has all training samples. A partition by label
        computes the labels and sends them to the client, 8 bytes per sample.

        Parameters
        ----------
        workers : int
            The number of workers.
        how : str or Partition, default: "even"
            The partition.
        seed : int, default: 0
            Determines the random draws.
        addresses : sequence of str, optional
            The Dask worker on which each share is assembled. The blocks are not restricted to workers.

        Returns
        -------
        list of dask.delayed
            One lazy pair (x, y) per worker, contiguous and standardised, which can be unpacked: `x, y = share`. If samples have
            weights, y has the fields "y" and "weight".

        Raises
        ------
        BadInput
            If `DataPartition.split` would raise it.
        """
        how, workers = partition_by_name(how), check_whole("workers", workers, 1)
        if addresses is not None and len(addresses) != workers:
            raise BadInput(f"There are {len(addresses)} addresses for {workers} workers; one for each is needed.")
        plans = self._plans(how, workers, check_seed(seed))
        made = []
        for i in range(workers):
            part = None if how.shares_all else i
            made.append(self._joined([(plan, part) for plan in plans], addresses[i] if addresses else None))
        return made

    def test(self, address: str | None = None) -> Any:
        """Return the held-out samples.

        Parameters
        ----------
        address : str, optional
            The Dask worker on which they are assembled.

        Returns
        -------
        dask.delayed
            A lazy pair (x, y), standardised.
        """
        return self._joined([("test", None)] * len(self.blocks), address)

    def gathered(self) -> Dataset:
        """Compute all samples and send them to the client, for the simulator, which has no cluster.

        Returns
        -------
        Dataset
            The data set in memory, which must have room for it.
        """
        import dask

        (x, y), (x_test, y_test) = dask.compute(self.shares(1, "shared")[0], self.test())
        y, weights = (y["y"].copy(), y["weight"].copy()) if self.has_sample_weights else (y, None)
        for array in (x, y, x_test, y_test, *(() if weights is None else (weights,))):
            array.flags.writeable = False
        extra = dict(self.extra)
        return Dataset(
            self.name, x, y, x_test, y_test, self.classes, self.mean, self.scale, about=self.about, extra=extra,
            target_mean=self.target_mean, target_scale=self.target_scale, sample_weights=weights,
        )  # fmt: skip

    def _plans(self, how: DataPartition, workers: int, seed: int) -> list[Any]:
        """Return for each block a lazy array with the worker of each training sample; None if every worker gets all samples."""
        import dask

        if how.shares_all:
            return [None] * len(self.blocks)
        if isinstance(how, Sized):
            rule = dask.delayed(BlockAssignment.draw(how.sizes(self.n_train, workers), seed), pure=True, traverse=False)
            assignment, ends = dask.delayed(BlockAssignment.owners, pure=True), (*self.offsets[1:], self.n_train)
            return [assignment(rule, start, end - start) for start, end in zip(self.offsets, ends)]
        if self.classes is None:
            how.owners(np.empty((self.n_train, 1)), workers, seed)  # raises the error for missing labels
        fetch = dask.delayed(labels_of, pure=True)
        labels = dask.compute(*[fetch(b, y, self.hold_out) for b, (_, y, _) in enumerate(self.blocks)])
        owners = how.owners(np.concatenate(labels), workers, seed).astype(np.int32)
        return [dask.delayed(part, pure=True) for part in np.split(owners, self.offsets[1:])]

    def _joined(self, plans: list[tuple[Any, int | None]], address: str | None) -> Any:
        """Return a task that joins, on `address`, the rows taken by one task per block."""
        import dask

        piece = dask.delayed(take, pure=True)
        numbers = (self.mean, self.scale, self.target_mean, self.target_scale, self.mean_weight)
        standard = dask.delayed(numbers, pure=True, traverse=False)
        pieces = [
            piece(b, x, y, weights, self.hold_out, standard, plan, part)
            for b, ((x, y, weights), (plan, part)) in enumerate(zip(self.blocks, plans))
            if self.lengths[b]
        ]
        place = dask.annotate(workers=[address], allow_other_workers=False) if address else contextlib.nullcontext()
        with place:
            return dask.delayed(join, pure=False, nout=2)(pieces)


@dataclass(frozen=True)
class BlockAssignment:
    """The function position -> worker, computed without a table: position p has the number (a p + c) mod n."""

    sizes: np.ndarray
    a: int
    c: int

    @classmethod
    def draw(cls, sizes: np.ndarray, seed: int) -> BlockAssignment:
        """Draw a random assignment in which worker i gets sizes[i] samples; the seed determines the draw."""
        n, rng = int(sizes.sum()), data_stream(seed, LAZY_PARTITION)
        a = max(int(0.618 * n) + int(rng.integers(max(n // 50, 1))), 1)
        # Only if a and n have no common divisor do all positions get different numbers.
        while math.gcd(a, n) != 1:
            a += 1
        return cls(sizes, a, int(rng.integers(n)))

    def owners(self, start: int, count: int) -> np.ndarray:
        """Return the workers of positions start, start + 1, ...: (count,) int64."""
        ends = np.cumsum(self.sizes)
        position = np.arange(start, start + count, dtype=np.int64)
        return np.searchsorted(ends, (self.a * position + self.c) % int(ends[-1]), side="right")


def from_dask(
    x: Any,
    y: Any,
    *,
    classes: int | Sequence[str] | None,
    sample_weights: Any = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
    name: str = "dask",
) -> DaskDataset:
    """Make a data set from Dask arrays, which stay on the cluster.

    The data is read once, on the current scheduler, for lengths, mean, variance and checks. The held-out part is drawn block by
    block: `test_fraction` of each, rounded up or down at random.

    Parameters
    ----------
    x : dask.array.Array
        The features, of shape (n, d). The number n may be unknown; then `x` and `y` must have the same blocks.
    y : dask.array.Array
        The labels, of shape (n,), or, for a regression, floats of shape (n,) or (n, k).
    classes : int, sequence of str or None
        The number of classes, or the name of each label; None for a regression.
    sample_weights : dask.array.Array, optional
        A weight for each sample, of shape (n,); see `from_arrays`.
    seed : int, default: 0
        Determines which samples are held out.
    test_fraction : float, default: 0.2
        The part of the samples that is held out, above 0 and below 1.
    standardize : bool, default: True
        Whether every feature, and every target of a regression, is shifted and scaled to mean 0 and standard deviation 1 of the
        training samples, as by `from_arrays`.
    dtype : {"float32", "float64"}, default: "float32"
        The type of the features, and of the targets of a regression.
    name : str, default: "dask"
        The name of the data set.

    Returns
    -------
    DaskDataset
        The data set, for `Problem(data=...)`.

    Raises
    ------
    BadInput
        If `from_arrays` would raise it. The message names the first bad row.

    See Also
    --------
    from_arrays : Copy arrays of this process.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.random.default_rng(0).normal(size=(1000, 2), chunks=(250, 2))
    >>> data = lk.from_dask(x, (x[:, 0] > x[:, 1]).astype(int), classes=2)
    >>> len(data.blocks), data.features, data.n_train + data.n_test
    (4, 2, 1000)
    """
    kind, fraction = check_dtype(dtype), check_fraction(test_fraction)
    (count, names), name, standardize = (
        check_classes(classes),
        check_name(name),
        check_truth("standardize", standardize),
    )
    x, y = _aligned(x, y, count)
    hold_out = HoldOut(check_seed(seed), fraction, count, kind.name)
    x_blocks, y_blocks, weights = x.to_delayed().ravel(), y.to_delayed().ravel(), repeat(None)
    if sample_weights is not None:
        weights = _aligned_weights(x, sample_weights).to_delayed().ravel()
    blocks = list(zip(x_blocks, y_blocks, weights))
    seen = _survey_blocks(blocks, hold_out, standardize)
    if sample_weights is not None and not 0 < seen.weight < math.inf:
        raise BadInput("sample_weights: no training sample has a weight above 0, or their sum is infinite.")
    n_train, columns = seen.moments.samples, len(seen.moments.mean)
    mean, scale = seen.moments.standard() if standardize else (np.zeros(columns), np.ones(columns))
    width, shape = x.shape[1], tuple(int(length) for length in y.shape[1:])
    targets = (0.0, 1.0) if count is not None else (mean[width:].reshape(shape), scale[width:].reshape(shape))
    return DaskDataset(
        name=name,
        classes=count,
        mean=mean[:width],
        scale=scale[:width],
        target_mean=targets[0],
        target_scale=targets[1],
        hold_out=hold_out,
        blocks=blocks,
        lengths=seen.rows,
        n_train=n_train,
        n_test=sum(seen.rows) - n_train,
        offsets=tuple(accumulate(seen.train[:-1], initial=0)),
        target_shape=shape,
        about=f"{name}: {sum(seen.rows)} samples on a Dask cluster; source and licence are their owner's.",
        extra={"class_names": names} if names else {},
        class_counts=seen.labels if seen.labels.size else None,
        mean_weight=None if sample_weights is None else seen.weight / n_train,
    )


def _aligned(x: Any, y: Any, classes: int | None) -> tuple[Any, Any]:
    """Return x and y with the same blocks of rows, each of whole rows. Raises `BadInput` if that is impossible."""
    _check_array("x", x)
    _check_array("y", y, ": replace words by whole numbers from 0, and name these (classes=[...])")
    if x.ndim != 2 or math.isnan(x.shape[1]) or x.shape[1] < 1:
        raise BadInput(f"x has shape {x.shape}; it must be (samples, features), with a known number of features.")
    if y.ndim not in ((1,) if classes else (1, 2)) or (y.ndim == 2 and not y.shape[1] >= 1):
        raise BadInput(f"y has shape {y.shape}; it must be (samples,), or (samples, k) for a regression.")
    y = _with_rows_of(x, "y", y)
    x = x.rechunk({1: -1}) if x.numblocks[1] > 1 else x
    return x, (y.rechunk({1: -1}) if y.ndim == 2 and y.numblocks[1] > 1 else y)


def _aligned_weights(x: Any, weights: Any) -> Any:
    _check_array("sample_weights", weights)
    if weights.ndim != 1:
        raise BadInput(
            f"sample_weights has shape {weights.shape}; one number for each sample is needed, shape (samples,)."
        )
    return _with_rows_of(x, "sample_weights", weights)


def _check_array(what: str, a: Any, hint: str = "") -> None:
    import dask.array as da

    if not isinstance(a, da.Array):
        raise BadInput(f"{what} is a {type(a).__name__}; it must be a dask array (data frame: df.to_dask_array()).")
    if a.dtype.kind not in "biuf":
        raise BadInput(f"{what} has dtype {a.dtype}; it must hold real numbers (floats, integers or booleans){hint}.")


def _with_rows_of(x: Any, what: str, a: Any) -> Any:
    """Return `a` with the blocks of rows of x. Raises `BadInput` if that is impossible."""
    known = not (math.isnan(x.shape[0]) or math.isnan(a.shape[0]))
    if known and x.shape[0] != a.shape[0]:
        raise BadInput(f"x has {x.shape[0]} rows and {what} has {a.shape[0]}; both must have the same number.")
    if known and x.chunks[0] != a.chunks[0]:
        a = a.rechunk({0: x.chunks[0]})
    if x.numblocks[0] != a.numblocks[0]:
        raise BadInput(
            f"x has {x.numblocks[0]} blocks of rows and {what} has {a.numblocks[0]}; both must have the same."
        )
    return a


def _survey_blocks(blocks: list[tuple[Any, Any, Any]], hold_out: HoldOut, standardize: bool) -> Survey:
    """Read the data once, by a tree of tasks with small results. Raises `BadInput` if a value or a shape is wrong."""
    import dask

    survey_task, fold = dask.delayed(survey, pure=True), dask.delayed(merge, pure=True)
    found = [survey_task(b, *block, hold_out, standardize) for b, block in enumerate(blocks)]
    while len(found) > 1:
        found = [fold(found[i : i + FAN_IN]) for i in range(0, len(found), FAN_IN)]
    (seen,) = dask.compute(found[0])
    _raise_first_error(seen)
    return seen


def _raise_first_error(seen: Survey) -> None:
    if seen.error:
        block, row, text = seen.error
        place = f"row {sum(seen.rows[:block]) + row}" if row is not None else f"block {block}"
        raise BadInput(f"At {place} (counted from 0), {text}.")
    n_train = seen.moments.samples
    held = sum(seen.rows) - n_train
    if n_train < 1 or held < 1:
        raise BadInput(
            f"Of {sum(seen.rows)} samples {held} are held out and {n_train} remain; both need at least one "
            "(more samples, or another test_fraction)."
        )
    if not np.isfinite(seen.moments.m2).all():
        raise BadInput("Some values are too large to standardise in float64; scale them down.")
