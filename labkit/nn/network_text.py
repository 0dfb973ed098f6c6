"""The architecture and the size of a model as text."""

from __future__ import annotations

from typing import Any

from ..formatting import bytes_text, count_text
from .network import LOSSES, Network
from .objective import NullObjective
from .quadratic import QuadraticObjective
from .recommender import Recommender


def network_text(objective: Any) -> str:
    """Return the architecture as text: `64-128-10, relu, cross-entropy`."""
    match objective:
        case Network():
            widths = "-".join(str(width) for width in [objective.inputs, *(b.dense.outputs for b in objective.blocks)])
            activations = dict.fromkeys(type(b.activation).__name__.lower() for b in objective.blocks if b.activation)
            losses = [name for name, loss in LOSSES.items() if isinstance(objective.loss, loss)]
            return ", ".join([widths, *activations, *losses])
        case Recommender(bag=bag):
            return f"embedding table {bag.rows:,} x {bag.columns}, then {network_text(objective.tower)}"
        case QuadraticObjective():
            return f"quadratic function of {count_text(objective.size, 'dimension')}"
        case NullObjective(network=network) if network is not None:
            return network_text(network)
    return type(objective).__name__


def size_text(objective: Any) -> str:
    """Return the number of parameters, and their size: `9,610 parameters, 38.4 kB as float32`."""
    size = bytes_text(objective.size * objective.dtype.itemsize)
    return f"{count_text(objective.size, 'parameter')}, {size} as {objective.dtype}"


def input_text(objective: Any) -> str:
    """Return the shape of the input of `predict`: `(n, 64)`."""
    match objective:
        case Recommender(bag=bag):
            return f"ids, shape (n, {bag.fields})"
        case Network():
            return f"samples, shape (n, {objective.inputs})"
    return f"samples, shape (n, {objective.size})"
