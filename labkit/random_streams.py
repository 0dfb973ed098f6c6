"""Random streams: the table of identifiers from which all random numbers of data sets and roles are made.

A stream is determined by a seed and an identifier. Streams with different identifiers are independent, so a new identifier does
not change the other streams. **Changing a value of this table changes every run and every data set that uses it.** The values
therefore stay as they were first written, even if the thing that they identify has been renamed.

- Streams of data sets: a seed and a text. The identifier of the samples of a generated data set is the name of the data set.
- Streams of roles: the seed of the run; the identifier is the kind and the index of the role, and a number of this table. The
  kind is used as text ("worker", "server", "chief", ...), so a renamed kind has other streams.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

# data sets: texts
SAMPLES = "{name}"  # the samples of the generated data set `name`
TRUE_WEIGHTS = "{name} weights"  # the weights from which the labels of "clicks" are generated
NOISY_LABELS = "{name} labels"  # the labels of "clicks", drawn from their probabilities
HOLD_OUT = "split"  # which samples of an array are held out
VALIDATION = "validation"  # which training samples are the validation part
BLOCK = "block {block}"  # which rows of a block of a Dask array are held out
PARTITION = "partition"  # which worker has which sample
PARTITION_BY_LABEL = "partition by label"  # the same, for `ByLabel`
LAZY_PARTITION = "deal"  # which worker has which row of a Dask array
INITIAL_VALUES = "initial values"  # the initial parameters of a user's model

# roles: numbers (3 is not used)
ROLE = 0  # `ctx.rng`
BATCHES = 1  # the order of a worker's samples; the kind in the identifier is `WORKER` for all roles with data
COMPUTE_TIME = 2  # the duration of gradients, and of evaluations in virtual time
SERVER_TIME = 4  # the duration of a server's work
CODEC = 5  # the random choices of a codec
NETWORK = 6  # lost transmissions of a link
PREEMPTION = 7  # the times of `Preempt`
SPREAD = 8  # the factors of the times of gradients, on a cluster with costs
MODEL = 10  # what a user's model draws in its gradients, as for dropout; the index is followed by the number of the gradient
# the factors of the time of all work on a core, on a cluster with costs; the kind in the identifier is `HOST`
DRIFT = 9

HOST = "host"  # the kind in the identifier of `DRIFT`; its index is that of the host, followed by that of the core
WORKER = "worker"  # the kind in the identifier of `BATCHES`, for roles of all kinds


def data_stream(seed: int, identifier: str) -> np.random.Generator:
    """Return the random stream of a data set for one purpose, a text of the table."""
    return np.random.default_rng([seed, *identifier.encode()])


def role_stream(
    seed: int, kind: str, index: int, purpose: int, incarnation: int = 0, more: Iterable[int] = ()
) -> np.random.Generator:
    """Return the random stream of role number `index` of `kind` for one purpose, a number of the table. A restarted role gets a
    new stream.

    The stream is independent of all other streams: adding a worker does not change them. `more`: further integers of the
    identifier (the other end of a link).
    """
    key = (*kind.encode(), 0, index, purpose, *([incarnation] if incarnation else ()), *more)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
