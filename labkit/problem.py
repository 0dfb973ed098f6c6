"""The learning problem: data, network, batch size, seed. It is independent of strategy and cluster.

A `Problem` is a frozen value; its data set, objective and initial weights are made on demand and are the same in every
process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import data, nn
from .data import Batches, DaskDataset, DataPartition, Dataset, Even, Shared, partition_as_text, partition_by_name
from .data.partition import PARTITIONS
from .description import Description, HasDescription
from .errors import BadInput, lacks, nearest, shown
from .formatting import count_text
from .models.model_objective import ModelObjective
from .models.numpy_model import DataShape, NumpyModel
from .nn import Objective
from .options import Converted, HasOptions, check_option, option

DTYPES = ("float32", "float64")
QUICK_ROWS = 100_000  # a data set with more rows is not made only to be displayed


def widths_from_text(text: str) -> tuple[Any, ...]:
    """Convert `"64, 32"` to `(64, 32)` and `"none"` to `()`. Other parts stay text, which `Problem` rejects."""
    words = [word.strip() for word in text.replace("none", "").split(",")]
    return tuple(
        int(word) if word.isdecimal() and word.isascii() and len(word) < 10 else word for word in words if word
    )


def widths_as_text(widths: tuple[int, ...]) -> str:
    """Return the text that `widths_from_text` reads as `widths`."""
    return ",".join(map(str, widths)) or "none"


def class_weights_from_text(text: str) -> Any:
    """Convert `"1,5"` to `("1", "5")` and `"spam:5"` to `{"spam": "5"}`, which `Problem` checks. Other text is returned."""
    words = [word.strip() for word in text.split(",")]
    if all(":" in word for word in words):
        return {name: _number_or_text(weight) for name, _, weight in (word.rpartition(":") for word in words)}
    return text if text == "balanced" else tuple(map(_number_or_text, words))


def class_weights_as_text(weights: str | tuple[float, ...] | dict[str, float]) -> str | None:
    """Return the text that `class_weights_from_text` reads as `weights`; None if a name has a comma."""
    if isinstance(weights, str):
        return weights
    if isinstance(weights, dict):
        written = ",".join(f"{name}:{weight!r}" for name, weight in weights.items())
        return written if class_weights_from_text(written) == weights else None
    return ",".join(map(repr, weights))


def _number_or_text(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


@dataclass(frozen=True)
class Problem(HasOptions, HasDescription):
    """The learning problem: a data set, a network, the batch size, and the assignment of samples to workers.

    It is a frozen value: it starts nothing, and can be used for any number of runs.

    Parameters
    ----------
    hidden : tuple of int, default: (128,)
        Widths of the hidden layers, as (64, 32). Without hidden layers, (), the model is linear.

    Raises
    ------
    BadInput
        If a value is not allowed.

    See Also
    --------
    from_arrays, from_csv, from_npy, from_dask : Data sets from your own data, for `data`.

    Notes
    -----
    With `timing_only` arrays have a size but use no memory, so a run of many workers or of a large network is quick.

    Examples
    --------
    >>> problem = lk.Problem("digits", hidden=(64, 32), batch_size=64)
    >>> problem.dataset.features, problem.dataset.classes, problem.dataset.n_train
    (64, 10, 1438)
    >>> problem.objective().size  # parameters
    6570
    """

    data: str | Dataset | DaskDataset = option(
        "digits",
        help=f"the data set: {', '.join(data.NAMES)}; or what from_arrays, from_csv, from_npy or from_dask returned",
    )
    hidden: Converted[tuple[int, ...], Sequence[int] | int] = option(
        (128,),
        read=widths_from_text,
        write=widths_as_text,
        help="widths of the hidden layers, as 64,32; none: a linear model",
    )
    batch_size: int = option(
        32, low=1, high=1_000_000, help="samples in a mini-batch; of all workers together with partition global-batch"
    )
    seed: int = option(0, low=0, high=2**63 - 1, help="decides every random draw")
    activation: str = option("relu", choices=("relu", "tanh"), help="activation function of the hidden layers")
    dtype: str = option(
        "", choices=("", *DTYPES), help="type of all numbers: float32, or float64 for checks to the last digit"
    )
    partition: Converted[DataPartition, str] = option(
        Even(), names=PARTITIONS, read=partition_by_name, write=partition_as_text,
        help="who has which samples: even, by-label:0.5, by-size, by-weight:1,2,4, shared, global-batch",
    )  # fmt: skip
    standardize: bool = option(True, help="shift and scale every feature to mean 0, deviation 1")
    test_fraction: float = option(0.2, low=0.01, high=0.9, help="share of the samples that is held out for evaluation")
    validation: float = option(
        0.0,
        low=0.0,
        high=0.9,
        help="share of the training samples on which rules of the budget are evaluated, not the test set",
    )
    timing_only: bool = option(False, help="compute nothing: only when and where things happen")
    options: dict[str, Any] = option(factory=dict, help="options of the data set, as rows of clicks")
    class_weights: Converted[
        str | tuple[float, ...] | dict[str, float] | None, Sequence[float] | Mapping[Any, float] | str | None
    ] = option(
        None, read=class_weights_from_text, write=class_weights_as_text,
        help="factors of the losses of the classes in the gradient, scaled to mean 1 over the training samples: balanced (every "
        "class weighs the same); a number for each class, as 1,5; or numbers by class, as spam:5",
    )  # fmt: skip
    model: NumpyModel | None = option(None, help="a model of your own, instead of a network of dense layers")

    def __post_init__(self) -> None:
        super().__post_init__()
        hidden = tuple(self.hidden) if isinstance(self.hidden, (tuple, list)) else (self.hidden,)
        if not all(type(width) is int and 1 <= width <= 100_000 for width in hidden):
            raise BadInput(
                f"hidden={shown(self.hidden)}: the widths of the hidden layers are whole numbers from 1 to 100000."
            )
        object.__setattr__(self, "hidden", hidden)
        if not isinstance(self.partition, DataPartition):
            raise BadInput(
                f"partition={shown(self.partition)}: give a name, as 'by-label:0.5', or a partition, as lk.partitions.Even()."
            )
        if isinstance(self.data, str):
            if self.data not in data.NAMES:
                raise nearest("data set", self.data, data.NAMES, data.OWN)
            if not self.dtype:
                object.__setattr__(self, "dtype", "float64" if self.data == "quadratic" else "float32")
        elif not hasattr(self.data, "n_train"):
            raise BadInput(
                f"data={type(self.data).__name__}: give a name ({', '.join(data.NAMES)}) or what from_arrays, from_csv, "
                "from_npy or from_dask returned."
            )
        else:
            kind = np.dtype(self.data.dtype)
            object.__setattr__(self, "dtype", self.dtype or (str(kind) if kind.kind == "f" else "float32"))
        self._check_options()
        self._check_model()
        object.__setattr__(self, "class_weights", data.check_class_weights(self.class_weights))
        if not isinstance(self.data, str):
            self._check_class_weights()
        self._check_validation()

    def _check_validation(self) -> None:
        if self.validation and (self.data == "quadratic" or isinstance(self.data, DaskDataset)):
            why = (
                "has no samples"
                if self.data == "quadratic"
                else "is a data set of Dask, whose samples stay on the cluster"
            )
            raise BadInput(
                f"validation={self.validation:g}: {self.name} {why}, so no validation part can be taken from it; leave it out"
                + ("." if self.data == "quadratic" else ", or give the samples to from_arrays.")
            )

    def _check_model(self) -> None:
        """Raise `BadInput` if an own model is given together with what describes a network, or its data do not suit it."""
        if self.model is None:
            return
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name in ("hidden", "activation") if getattr(self, name) not in ((), fields[name])]
        if given:
            raise BadInput(
                f"model={shown(self.model)} with {' and '.join(given)}: these describe labkit's network of dense layers, which "
                "the model replaces. Leave one of both out."
            )
        if self.data in ("quadratic", "clicks"):
            what = (
                "has no samples to predict" if self.data == "quadratic" else "has ids of an embedding table as samples"
            )
            raise BadInput(f"model={shown(self.model)}: the data set {self.data!r} {what}, and has a model of its own.")
        object.__setattr__(self, "hidden", ())

    def _check_class_weights(self) -> tuple[float, ...]:
        """Return the factor of each class in the loss; () without weights. Raises `BadInput` if they do not suit the data."""
        if self.class_weights is None:
            return ()
        counts = self.dataset.class_counts
        if counts is None:
            why = "its targets are numbers" if self.dataset.classes is None else "it has too many classes to count them"
            raise BadInput(
                f"class_weights={shown(self.class_weights)}: {self.name} has no weights of classes, because {why}."
            )
        return data.class_factors(self.class_weights, self.dataset.class_names, counts[0])

    def _check_options(self) -> None:
        if not isinstance(self.options, Mapping):
            raise BadInput(f"options={shown(self.options)}: give the data set's options by name, as {{'noise': 0.1}}.")
        known, checked = data.dataset_options(self.data) if isinstance(self.data, str) else {}, {}
        for name, value in self.options.items():
            if not known:
                raise BadInput(f"options: {self.name} has none, and was given {shown(name)}.")
            if name not in known:
                raise lacks(self.name, "option", name, known)
            checked[name] = check_option(self.name, known[name], value)
        object.__setattr__(self, "options", checked)

    @cached_property
    def dataset(self) -> Dataset | Any:  # Any: a DaskDataset, which has no arrays, only if the problem was given one
        """The `Dataset`, or the `DaskDataset`.

        A data set given by name is split by the seed and standardised as the options say. `validation` takes its part from the
        training samples.
        """
        found: Any = self.data
        if isinstance(self.data, str):
            found = data.load(
                self.data, seed=self.seed, test_fraction=self.test_fraction, standardize=self.standardize, dtype=self.dtype,
                **self.options,
            )  # fmt: skip
        return found.with_validation(self.validation, self.seed) if self.validation else found

    def objective(self) -> Objective:
        """Return a new objective: the network and its loss.

        Every role that computes needs a separate one, because it has buffers.

        Returns
        -------
        Network, Recommender, Quadratic, ModelObjective or NullObjective
            The objective; its `size` is the number of parameters.
        """
        if self.timing_only:
            whole = self._with_values.objective()
            return nn.NullObjective(whole.size, whole.layout, self.dtype, whole)
        made, factors = self._unweighted(), self._check_class_weights()
        given = [] if factors == () else [f"class_weights={shown(self.class_weights)}"]
        given += ["sample_weights"] if self.dataset.has_sample_weights else []
        if given and isinstance(made, ModelObjective) and not made.stages:
            raise BadInput(
                f"{' and '.join(given)}: {made.name}.gradient computes its own loss, to which labkit "
                "cannot give weights. Make them options of the model and use them there, or give it `stages` instead."
            )
        if factors:
            made.loss = nn.SoftmaxCrossEntropy(factors)
        return made

    def _unweighted(self) -> Any:
        d = self.dataset
        if "curvature" in d.extra:
            return nn.QuadraticObjective(np.asarray(d.extra["curvature"]), d.extra.get("start", 1.0), self.dtype)
        if "embedding" in d.extra:
            return nn.Recommender(
                **d.extra["embedding"], hidden=self.hidden, activation=self.activation, dtype=self.dtype
            )
        if self.model is not None:
            return ModelObjective(self.model, DataShape.of(d), self.dtype)
        loss = "squared-error" if d.classes is None else "cross-entropy"
        return nn.Network.mlp(d.features, self.hidden, d.outputs, self.activation, loss, self.dtype)

    @cached_property
    def _with_values(self) -> Problem:
        """The same problem without `timing_only`, with the same data set, which its objective needs."""
        whole = replace(self, timing_only=False)
        whole.__dict__["dataset"] = self.dataset
        return whole

    def batches(self, workers: int = 1) -> list[Batches]:
        """Return the mini-batches that the workers of a run draw, to repeat a run in a loop of your own.

        Parameters
        ----------
        workers : int, optional
            The number of workers among which the partition divides the training samples.

        Returns
        -------
        list of Batches
            One endless iterator per worker. Each yields batches with the arrays ``x``, shape (batch_size, features), and
            ``y``, shape (batch_size,) or (batch_size, outputs). If samples have weights, ``y`` has the fields "y" and "weight".

        Examples
        --------
        >>> import labkit as lk
        >>> first, second = lk.Problem("digits", batch_size=32).batches(workers=2)
        >>> next(first).x.shape
        (32, 64)
        """
        d = self.dataset.gathered() if hasattr(self.dataset, "gathered") else self.dataset
        shares = data.samples_of_workers(d, self.partition, workers, self.seed)
        size, parts = self.of_worker(workers).batch_size, workers if self.partition.divides_batch else None
        return [data.batches_of_worker(x, y, size, self.seed, i, parts=parts) for i, (x, y) in enumerate(shares)]

    def of_worker(self, workers: int) -> Problem:
        """Return the problem with the `batch_size` of one of several workers, if the partition is a `GlobalBatch`.

        Parameters
        ----------
        workers : int
            The number of workers that draw mini-batches. The stages of a pipeline count as one worker.

        Returns
        -------
        Problem
            With a `GlobalBatch`, a problem whose workers draw separate batches of this size; otherwise this problem.

        Raises
        ------
        BadInput
            If the batch cannot be divided equally.

        Examples
        --------
        >>> lk.Problem("digits", batch_size=256, partition="global-batch").of_worker(4).batch_size
        64
        """
        if not self.partition.divides_batch:
            return self
        whole = self.batch_size
        if whole % workers:
            least = whole - whole % workers
            sizes = " or ".join(str(size) for size in (least, least + workers) if size)
            counts = ", ".join(str(count) for count in range(1, min(whole, 64) + 1) if whole % count == 0)
            raise BadInput(
                f"batch_size={whole} with partition='global-batch' cannot be divided equally among {workers} workers, whose "
                f"gradients count equally. Use batch_size={sizes}, or a number of workers that divides {whole}: {counts}."
            )
        made = replace(self, batch_size=whole // workers, partition=Shared())
        made.__dict__.update({name: self.__dict__[name] for name in ("dataset",) if name in self.__dict__})
        return made

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.data if isinstance(self.data, str) else self.data.name

    def describe(self) -> dict[str, Any]:
        """Return the problem as plain values, for the header of a trace.

        Returns
        -------
        dict
            The value of each field by its name; a data set and a partition as text.
        """
        weights = self.class_weights
        given = {
            "class_weights": None if weights is None else class_weights_as_text(weights) or repr(weights),
            "validation": self.validation or None,
        }
        return {
            "data": self.name,
            **self._model_described(),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "dtype": self.dtype,
            "partition": repr(self.partition),
            "standardize": self.standardize,
            "test_fraction": self.test_fraction,
            "timing_only": self.timing_only,
            "options": {k: v if isinstance(v, (int, float, str, bool)) else repr(v) for k, v in self.options.items()},
            **{name: value for name, value in given.items() if value is not None},
        } | self._curvature()

    def _model_described(self) -> dict[str, Any]:
        """Return what decides the model: that of the user, or the layers of a network."""
        if self.model is None:
            return {"hidden": list(self.hidden), "activation": self.activation}
        return {"model": ModelObjective(self.model, DataShape.of(self.dataset), self.dtype).describe()}

    def _described(self) -> Description:
        rows = [("data set", self.name), ("batch", self._batch_text())]
        if self.timing_only:
            rows.append(("timing only", "no gradient is computed"))
        if self._quickly_made():
            try:
                rows[:2] = self._data_rows(self.dataset)
            except (BadInput, MemoryError) as why:
                rows.append(("error", str(why)))
        else:
            layers = ", ".join(map(str, self.hidden)) or "none"
            network = (
                ("hidden layers", f"{layers}; {self.activation}") if self.model is None else ("model", repr(self.model))
            )
            rows[:1] = ("data set", f"{self.name}, not made yet"), network
        if self.class_weights is not None:
            rows.append(("class weights", class_weights_as_text(self.class_weights) or repr(self.class_weights)))
        if self.options:
            rows.append(("options", ", ".join(f"{name}={value}" for name, value in self.options.items())))
        rows += [("partition", partition_as_text(self.partition) or repr(self.partition)), ("seed", str(self.seed))]
        return Description(f"Problem {self.name}", tuple(rows))

    def _quickly_made(self) -> bool:
        """Return whether the data set is known, or takes no noticeable time to make."""
        if not isinstance(self.data, str) or "dataset" in self.__dict__:
            return True
        known = data.dataset_options(self.data)
        counts = [self.options.get(name, k.default) for name, k in known.items() if k.type is int]
        return max(counts, default=0) <= QUICK_ROWS

    def _data_rows(self, d: Any) -> list[tuple[str, str]]:
        """Return the rows that need the data set: its size, the network, and the batches of an epoch."""
        kind = count_text(d.outputs, "target") if d.classes is None else f"{d.classes} classes"
        shape = (
            f" ({' x '.join(map(str, d.sample_shape))}{' pixels' if d.image_shape else ''})" if d.sample_shape else ""
        )
        part = f", {d.n_validation:,} validation" if self.validation else ""
        held = f"{d.n_train:,} training{part} and {d.n_test:,} held-out samples"
        objective = self.objective()
        batches = -(-d.n_train // self.batch_size)
        unit = "step" if self.partition.divides_batch else "gradient"
        if d.has_standardised_targets:
            kind += ", standardised: losses are those of mean 0 and deviation 1"
        if d.has_sample_weights:
            kind += ", weighted samples"
        return [
            ("data set", f"{self.name}: {held}, {count_text(d.features, 'feature')}{shape}, {kind}"),
            ("network", f"{objective.architecture}: {nn.size_text(objective)}"),
            ("batch", f"{self._batch_text()}; an epoch is {count_text(batches, unit)}"),
        ]

    def _batch_text(self) -> str:
        samples = count_text(self.batch_size, "sample")
        return f"{samples} of all workers together" if self.partition.divides_batch else f"{samples} per gradient"

    def _curvature(self) -> dict[str, Any]:
        """Return `{"curvature": [smallest, largest]}` if the data set is a quadratic bowl, else `{}`."""
        if self.name != "quadratic" or "curvature" not in getattr(self.dataset, "extra", {}):
            return {}
        known = np.asarray(self.dataset.extra["curvature"], np.float64)
        return {"curvature": [float(known.min()), float(known.max())]}
