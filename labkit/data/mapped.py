"""Samples in a .npy file that is mapped into memory: rows are read, and standardised, when they are used.

Every process maps the file itself; what is sent to it is the path, and which rows of the file its samples are. The pages of the
file that are in memory belong to the system, which takes them back when it needs memory. So data need memory for labels, for the
order of the samples and for a mini-batch only.

The file is read twice when the data set is made: for the checks and the digest of its contents, and for mean and deviation. Then
it must stay as it is. Every read compares size and time of the last change (a microsecond). A process that finds another time, as
that of a copy on another machine, compares the contents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BadInput, ClusterError, shown
from ..paths import as_path, reason

BLOCK_VALUES = 1 << 22  # values that are standardised at once: their float64 intermediate results are 32 MB


class MappedFile:
    """The array in a .npy file. `what`: the argument that was the `path`, for messages.

    Raises `BadInput` if the file cannot be read, or its array not be mapped.
    """

    def __init__(self, what: str, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(as_path(what, path))
        try:
            self._state = self._found()
            self._array: np.ndarray | None = self._map(what)
        except OSError as error:
            raise BadInput(f"{what}: the file {shown(self.path)} cannot be read: {reason(error)}.") from None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_array": None}

    @property
    def array(self) -> np.ndarray:
        """The array, read-only; mapped into the memory of this process when it is first used."""
        if self._array is None:
            self.open("This process")
        assert self._array is not None
        return self._array

    @cached_property
    def _contents(self) -> tuple[str, np.ndarray]:
        """The SHA-256 of the file, and the smallest and the largest value of each feature, (2, d). Reads the file, once."""
        samples = self.array.reshape(len(self.array), -1)
        step = max(1, BLOCK_VALUES // samples.shape[1])
        digest, low, high = hashlib.sha256(), samples[0], samples[0]
        with open(self.path, "rb") as file, np.errstate(invalid="ignore"):
            digest.update(file.read(self._start))
            for begin in range(0, len(samples), step):
                block = samples[begin : begin + step]
                digest.update(block.view(np.uint8).data)
                low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
            file.seek(self._start + samples.nbytes)
            digest.update(file.read())
        return digest.hexdigest(), np.stack([low, high])

    @property
    def sha256(self) -> str:
        """Of the file, with the description of its array."""
        return self._contents[0]

    @property
    def bounds(self) -> np.ndarray:
        """The smallest and the largest value of each feature, (2, d), of the numbers in the file; NaN if one of them is NaN."""
        return self._contents[1]

    def open(self, who: str) -> None:
        """Map the file in this process, which messages call `who`. Raises `ClusterError` if there is no such file here."""
        if self._array is not None:
            return
        try:
            found = self._found()
            if found != self._state:
                with open(self.path, "rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                        raise ClusterError(
                            f"{who} has another file {shown(self.path)} than the one from which the data set was made. Make the "
                            "data set again if the file was changed; if it is a copy, copy it again."
                        )
                self._state = found
            self._array = self._map(self.path)
        except OSError as error:
            raise ClusterError(
                f"{who} cannot read {shown(self.path)}: {reason(error)}. Every process reads the file itself: put it, or "
                "a copy of it, at this path on all machines."
            ) from None

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return samples as a new array (m, d). Raises `BadInput` if the file has changed since the data set was made."""
        array = self.array
        try:
            state = self._found()
        except OSError:
            state = None
        if state != self._state:
            raise BadInput(
                f"The file {shown(self.path)} {'was changed' if state else 'is gone'}, but a data set reads its samples from it. "
                "Leave the file as it is until the run has ended; make a new data set of a file that has changed."
            )
        found: np.ndarray = array[rows].reshape(len(rows), -1)
        return found

    def _found(self) -> tuple[int, int]:
        """Return the size and the time of the last change."""
        found = os.stat(self.path)
        return found.st_size, found.st_mtime_ns

    def _map(self, what: str) -> np.ndarray:
        try:
            array = np.lib.format.open_memmap(self.path, mode="r")
        except ValueError as error:
            raise BadInput(f"{what}: {shown(self.path)} {self._why_not(str(error))}") from None
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            raise BadInput(
                f"{what}: {shown(self.path)} holds its array column by column (Fortran order), so a sample is scattered over the "
                f"file; write it row by row: np.save(path, np.ascontiguousarray({what}))."
            )
        self._start: int = array.offset  # of the values, in the file
        return np.asarray(array)

    def _why_not(self, why: str) -> str:
        """Return why the file cannot be mapped, `why` for NumPy, and what to do."""
        with open(self.path, "rb") as file:
            start = file.read(6)
        if start.startswith(b"PK"):
            return "is an archive of arrays (.npz), which cannot be mapped; write each array with np.save."
        if start != b"\x93NUMPY":
            return "is no .npy file, as np.save writes it. A CSV file is read by from_csv, other arrays are taken by from_arrays."
        if "object" in why:
            return "holds Python objects, which cannot be mapped; write numbers: np.save(path, x.astype('float32'))."
        return f"cannot be mapped: {why}. It is empty, or was not written to its end; write it again."


def blocks(x: Any, rows: np.ndarray, width: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (places in `rows`, x at these rows) for blocks of x in its order, so that a file is read from begin to end.

    `width`: of a row, which decides the size of the blocks.
    """
    number = rows // max(1, BLOCK_VALUES // max(1, width))
    order = np.argsort(number, kind="stable")
    for places in np.split(order, np.cumsum(np.bincount(number))[:-1]):
        if places.size:
            yield places, x[rows[places]]


def standardised(values: np.ndarray, mean: np.ndarray, scale: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the values with mean 0 and deviation 1, in `dtype`; computed in float64."""
    found = values - mean
    found /= scale
    return found.astype(dtype, copy=False)


class MappedSamples:
    """Standardised samples, of shape (n, d): the `rows` of a file, each of which is read when it is used.

    An array-like object: `samples[rows]` and `samples.take(rows)` return new arrays, `np.asarray(samples)` reads all.
    """

    ndim = 2

    def __init__(
        self, file: MappedFile, rows: np.ndarray, mean: np.ndarray, scale: np.ndarray, dtype: np.dtype[Any]
    ) -> None:
        self.file, self.rows, self.mean, self.scale, self.dtype = file, rows, mean, scale, dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.mean)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, rows: Any) -> MappedSamples:
        """Return these samples without reading them."""
        return MappedSamples(self.file, self.rows[rows], self.mean, self.scale, self.dtype)

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return these samples as a new array. `axis`: as in NumPy; 0."""
        return standardised(self.file[self.rows[rows]], self.mean, self.scale, self.dtype)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *columns = key if isinstance(key, tuple) else (key,)
        one = np.ndim(self.rows[rows]) == 0
        found = np.asarray(self.select([rows] if one else rows))
        found = found[0] if one else found
        return found[(..., *columns)] if columns else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Samples in a file are copied into an array.")
        found = np.empty(self.shape, self.dtype)
        for places, values in blocks(self.file, self.rows, len(self.mean)):
            found[places] = standardised(values, self.mean, self.scale, self.dtype)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dask_tokenize__(self) -> Any:
        return "labkit-samples", self.file.sha256, self.rows, self.mean, self.scale, str(self.dtype)

    def __repr__(self) -> str:
        return f"<{len(self):,} samples of {shown(self.file.path)}>"


def selected(values: np.ndarray | MappedSamples, rows: np.ndarray) -> Any:
    """Return rows of samples or labels, read-only; those of a file without reading them."""
    if isinstance(values, MappedSamples):
        return values.select(rows)
    found = values[rows]
    found.flags.writeable = False
    return found
