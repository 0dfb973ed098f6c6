"""Data sets, partitions and mini-batches.

`load` returns a data set by name; `from_arrays`, `from_npy`, `from_csv` and `from_dask` make a data set from a user's data. A
`DataPartition` distributes the training samples over the workers; `Batches` makes mini-batches of a worker's share.
"""

from .batches import Batch, Batches, NullBatches, batches_of_worker
from .checks import by_name, check_class_weights, class_factors
from .clicks import Clicks, draw_zipf
from .dataset import Dataset
from .lazy import DaskDataset, from_dask
from .mapped import MappedSamples
from .partition import (
    ByLabel,
    BySize,
    ByWeight,
    DataPartition,
    Even,
    GlobalBatch,
    Shared,
    partition_as_text,
    partition_by_name,
    samples_of_workers,
)
from .registry import NAMES, OWN, dataset_options, load, recipe_of
from .tables import from_arrays, from_csv, from_npy

__all__ = [
    "NAMES",
    "OWN",
    "Batch",
    "Batches",
    "ByLabel",
    "BySize",
    "ByWeight",
    "Clicks",
    "DaskDataset",
    "Dataset",
    "Even",
    "MappedSamples",
    "NullBatches",
    "DataPartition",
    "GlobalBatch",
    "Shared",
    "batches_of_worker",
    "by_name",
    "check_class_weights",
    "class_factors",
    "draw_zipf",
    "from_arrays",
    "from_csv",
    "from_dask",
    "from_npy",
    "load",
    "dataset_options",
    "partition_as_text",
    "partition_by_name",
    "recipe_of",
    "samples_of_workers",
]
