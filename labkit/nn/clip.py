"""Gradient clipping and weight decay. Both work in place."""

from __future__ import annotations

import math

import numpy as np

from ..errors import BadInput, shown
from .objective import Array


def clip_by_norm(gradient: Array, max_norm: float) -> float:
    """Scale the gradient (any shape) to Euclidean length `max_norm` if it is longer, and return the original length.

    Pascanu, Mikolov and Bengio 2013, algorithm 1. If the length is not finite, the gradient is not changed, because
    scaling would turn infinities into nan and hide the overflow. Raises `BadInput` unless max_norm is positive.
    """
    if not max_norm > 0:
        raise BadInput(f"max_norm={shown(max_norm)} is not allowed; it is a number above 0.")
    flat = gradient.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = math.sqrt(float(np.dot(flat, flat)))
    if math.isfinite(norm) and norm > max_norm:
        gradient *= max_norm / norm
    return norm


def decay_weights(params: Array, learning_rate: float, weight_decay: float) -> None:
    """Multiply params by 1 - learning_rate x weight_decay, before the optimizer's update (Loshchilov and Hutter 2019).

    For SGD this is the same as adding weight_decay x params to the gradient. For other optimizers it is not the same;
    this "decoupled" form shrinks all weights at one rate. Raises `BadInput` if the weight decay is below 0.
    """
    if not weight_decay >= 0:
        raise BadInput(f"weight_decay={shown(weight_decay)} is not allowed; it is a number, at least 0.")
    if weight_decay:
        params *= 1 - float(learning_rate) * float(weight_decay)
