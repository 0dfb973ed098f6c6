"""Small networks in NumPy over one flat parameter vector, with losses, optimizers, schedules and codecs.

Reading order: `layout` (one vector, named slices), `layers`, `losses`, `network` (stages), `optimizers`, `schedules`.
The package is independent of workers, servers, clocks and messages, and imports only NumPy and the standard library.
"""

from __future__ import annotations

from .clip import clip_by_norm, decay_weights
from .embedding import EmbeddingBag
from .files import load_model, save_model
from .layers import Dense, Layer, ReLU, Tanh
from .layout import ParameterLayout
from .losses import Loss, SoftmaxCrossEntropy, SquaredError, separated
from .network import Block, Network, Stage
from .objective import NullObjective, Objective, ScoredObjective, size_text
from .optimizers import SGD, Adagrad, Adam, Momentum, Nesterov, Optimizer, optimizer_by_name
from .quadratic import QuadraticObjective
from .recommender import Recommender
from .rows import SparseParameters
from .schedules import Constant, Cosine, Schedule, StepDecay, Warmup, schedule_by_name

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Block",
    "Constant",
    "Cosine",
    "Dense",
    "EmbeddingBag",
    "Layer",
    "Loss",
    "Momentum",
    "Nesterov",
    "Network",
    "NullObjective",
    "Objective",
    "Optimizer",
    "ParameterLayout",
    "QuadraticObjective",
    "ReLU",
    "Recommender",
    "Schedule",
    "ScoredObjective",
    "SoftmaxCrossEntropy",
    "SparseParameters",
    "SquaredError",
    "Stage",
    "StepDecay",
    "Tanh",
    "Warmup",
    "clip_by_norm",
    "decay_weights",
    "load_model",
    "optimizer_by_name",
    "save_model",
    "schedule_by_name",
    "separated",
    "size_text",
]
