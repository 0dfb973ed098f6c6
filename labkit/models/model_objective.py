"""The objective of a NumPy model. Roles know one flat vector; the model's named arrays are views of it.

What the model must not change is read-only. Its exceptions are raised again with the place in the model and the shape of the
samples. Nothing is kept between calls, so all roles of a simulated run share one objective.
"""

from __future__ import annotations

import dataclasses
import json
import os
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..content_digest import code_digest, is_users
from ..errors import BadInput, LabkitError, shown
from ..formatting import call_text
from ..nn import ParameterLayout, ScoredObjective, SoftmaxCrossEntropy, SquaredError
from ..nn.network import ROWS_AT_ONCE
from ..nn.objective import StageSequence, check_rows, check_vector
from ..random_streams import INITIAL_VALUES, data_stream
from .numpy_model import Array, DataShape, NumpyModel, NumpyStage, check_fields


class ModelObjective(ScoredObjective):
    """The `Objective` of a model for data of a shape. Raises `BadInput` if its arrays or stages are not allowed.

    `multiply_adds`: those of the stages; without stages the number of parameters, as of dense layers.
    """

    def __init__(self, model: NumpyModel, data: DataShape, dtype: str) -> None:
        check_fields(model)
        self.model, self.data = model, data
        self.name = model._title
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.inputs, self.outputs = data.features, data.outputs
        self.loss = SquaredError() if data.classes is None else SoftmaxCrossEntropy()
        self.code = model._code(data, dtype)
        self.stochastic = bool(self.code.stochastic)
        self.is_whole = self._defines("gradient")  # else the stages compute scores and gradient
        self._check_methods()
        self.layout = self._layout()
        self.size = self.layout.size
        self.arrays = NamedArrays(self.layout, self.layout.names)
        self.stages = self._stages()
        self.multiply_adds = sum(stage.multiply_adds for stage in self.stages) or self.size
        text = call_text(*model._identity())
        self.architecture = f"{text}, layers {', '.join(self.layout.groups())}"

    def _defines(self, method: str) -> bool:
        return getattr(type(self.code), method, None) not in (None, getattr(NumpyModel, method))

    def _check_methods(self) -> None:
        """Raise `BadInput` if the model lacks a method."""
        whole = ("stages",) if self._defines("stages") else ("scores", "gradient")
        missing = [name for name in ("shapes", "init", *whole) if not self._defines(name)]
        if missing:
            also = " (or stages instead of scores and gradient)" if "gradient" in missing or "scores" in missing else ""
            raise BadInput(f"{self.name} has to define {', '.join(missing)}{also}.")

    def _layout(self) -> ParameterLayout:
        shapes = self.call(self.code.shapes, self.data)
        if not isinstance(shapes, Mapping) or not all(map(_is_shape, shapes, shapes.values())):
            raise BadInput(
                f"{self.name}.shapes returned {shown(shapes)}; names and shapes are needed, as {{'conv.weight': (9, 8)}}."
            )
        made = ParameterLayout({name: tuple(shape) for name, shape in shapes.items()})
        if not made.size:
            raise BadInput(f"{self.name}.shapes returned no array with numbers: there is nothing to train.")
        return made

    def _stages(self) -> tuple[ModelStage, ...]:
        """Return the stages of the model. Raises `BadInput` unless they have all its layers in order."""
        given: Sequence[NumpyStage] = tuple(self.call(self.code.stages, self.data))
        own = [name for name in ("scores", "gradient") if self._defines(name)]
        if not given and len(own) == 2:
            return ()
        if not given or not all(isinstance(stage, NumpyStage) for stage in given):
            raise BadInput(
                f"{self.name}.stages returned {shown(given, 60)}; a list of lk.NumpyStage objects is needed."
            )
        if isinstance(self.code, NumpyModel) and (own or self.stochastic):
            what = " and ".join(own) if own else "stochastic = True"
            raise BadInput(
                f"{self.name} has stages and {what}. Scores and gradient of a model with stages are computed by them: leave out "
                "one of both."
            )
        layers = [layer for stage in given for layer in stage.layers]
        if layers != list(self.layout.groups()) or not all(stage.layers for stage in given):
            raise BadInput(
                f"The stages of {self.name} have the layers {', '.join(layers)}. Together they need the layers of its arrays, "
                f"each once and in this order: {', '.join(self.layout.groups())}; and every stage at least one."
            )
        if given[-1].outputs != self.outputs:
            raise BadInput(
                f"The last stage of {self.name} has {given[-1].outputs} outputs; the data need {self.outputs}."
            )
        widths = [self.inputs, *(stage.outputs for stage in given)]
        return tuple(ModelStage(self, stage, width) for stage, width in zip(given, widths))

    def call(self, method: Callable[..., Any], *arguments: Any, x: Array | None = None) -> Any:
        """Call a method of the model. An exception is raised again as `BadInput`, which says where. `x`: the samples."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return method(*arguments)
        except LabkitError:
            raise
        except Exception as error:
            owner, samples = (
                getattr(method, "__self__", self.model),
                "" if x is None else f" on {len(x)} rows of {x.shape[1]} numbers",
            )
            raise BadInput(
                f"{type(owner).__name__}.{method.__name__} raised {type(error).__name__}: {error}{samples}{place(error)}."
                f"{read_only_hint(str(error))}"
            ) from error

    def describe(self) -> dict[str, Any]:
        """Return what identifies the model, as plain values: its name, its options, and the shapes of its arrays."""
        name, options = self.model._identity()
        shapes = {name: list(shape) for name, shape in self.layout.shapes.items()}
        return {"name": name, "options": options, "shapes": shapes}

    def to_plain(self) -> dict[str, Any]:
        """Return the model as JSON values: what identifies it, with a digest of its code, and the shape of the data."""
        identity = self.describe() | {"code": code_digest(self.model)}
        return {"model": identity, "data": dataclasses.asdict(self.data), "dtype": str(self.dtype)}

    @classmethod
    def from_plain(cls, saved: dict[str, Any], model: NumpyModel, where: str) -> ModelObjective:
        """Return the objective of `model`, which is the one in `saved`, a result of `to_plain` in the file `where`.

        Raises `BadInput` if it is another model. Warns if its code has changed.
        """
        before, shape = saved["model"], tuple(saved["data"]["sample_shape"])
        data = DataShape(**(saved["data"] | {"sample_shape": shape}))
        made = cls(model, data, saved["dtype"])
        now = made.describe()
        for part in ("name", "options", "shapes"):
            if json.dumps(now[part]) != json.dumps(before[part]):
                raise BadInput(
                    f"{where} holds the parameters of {call_text(before['name'], before['options'])}. model={shown(model)} is "
                    f"another model; the difference is its {part}: {shown(now[part])} instead of {shown(before[part])}."
                )
        code = code_digest(model)
        if code["python"] == before["code"]["python"] and code != before["code"]:
            warnings.warn(
                f"{where}: the code of {made.name} is not what it was when the file was written.", stacklevel=4
            )
        return made

    def start(self, seed: int) -> Array:
        """Return initial parameters, shape (size,), drawn by `init`. Those that it leaves out are NaN."""
        params = np.full(self.size, np.nan, self.dtype)
        self.call(self.code.init, self.arrays.views(params), data_stream(seed, INITIAL_VALUES))
        return params

    def gradient(self, params: Array, x: Array, y: Array, out: Array, rng: np.random.Generator | None = None) -> float:
        check_vector("params", params, self.size, self.dtype)
        check_vector("out", out, self.size, self.dtype)
        x = read_only(check_rows(x, self.inputs, self.dtype))
        y = read_only(self.loss.check(y, len(x), self.outputs))
        if not self.is_whole:
            return self._staged_gradient(params, x, y, out)
        arguments = (self.arrays.views(read_only(params)), x, y, self.arrays.views(out))
        more = (rng,) if self.stochastic else ()
        loss = self.call(self.code.gradient, *arguments, *more, x=x)
        if not isinstance(loss, float) and (
            not isinstance(loss, np.number | np.ndarray) or np.ndim(loss) or np.asarray(loss).dtype.kind not in "fiu"
        ):
            raise BadInput(f"{self.name}.gradient returned {shown(loss, 60)}; the mean loss is needed, a number.")
        return float(loss)

    def _staged_gradient(self, params: Array, x: Array, y: Array, out: Array) -> float:
        whole = StageSequence(self.stages)
        scores, saved = whole.forward(params, x)
        dy = np.empty_like(scores)
        with np.errstate(over="ignore", invalid="ignore"):
            loss = self.loss.gradient(scores, y, dy)
        whole.backward(params, saved, dy, out, dx=False)
        return loss

    def scores(self, params: Any, x: Array) -> Array:
        check_vector("params", params, self.size, self.dtype)
        x = read_only(check_rows(x, self.inputs, self.dtype))
        scores = np.empty((len(x), self.outputs), self.dtype)
        for i in range(0, len(x), ROWS_AT_ONCE):
            scores[i : i + ROWS_AT_ONCE] = self._scores(params, x[i : i + ROWS_AT_ONCE])
        return scores

    def _scores(self, params: Array, x: Array) -> Array:
        if not self.is_whole:
            return StageSequence(self.stages).forward(params, x)[0]
        scores = self.call(self.code.scores, self.arrays.views(read_only(params)), x, x=x)
        return rows_of_numbers(f"{self.name}.scores", scores, (len(x), self.outputs), self.dtype)

    def evaluate(self, params: Any, x: Array, y: Array) -> tuple[float, float | None]:
        """Return the loss and the accuracy of the model's own `evaluate`, if it has one; else those of the scores."""
        check_vector("params", params, self.size, self.dtype)
        rows = read_only(check_rows(x, self.inputs, self.dtype))
        labels = read_only(self.loss.check(y, len(rows), self.outputs))
        own = self.call(self.code.evaluate, self.arrays.views(read_only(params)), rows, labels, x=rows)
        if own is None:
            return super().evaluate(params, x, y)
        if not isinstance(own, tuple) or len(own) != 2:
            raise BadInput(f"{self.name}.evaluate returned {shown(own, 60)}; (loss, accuracy or None) is needed.")
        loss, accuracy = own
        return float(loss), None if accuracy is None else float(accuracy)

    def __repr__(self) -> str:
        return f"<ModelObjective {self.architecture}, {self.dtype}, {self.size} parameters>"


class ModelStage:
    """A stage of a model as an `nn.objective.ObjectiveStage`. Both halves of its backward pass are computed in the first."""

    def __init__(self, objective: ModelObjective, stage: NumpyStage, inputs: int) -> None:
        groups, layout = objective.layout.groups(), objective.layout
        self.slice = slice(groups[stage.layers[0]].start, groups[stage.layers[-1]].stop)
        self.size = self.slice.stop - self.slice.start
        self.inputs, self.outputs = inputs, stage.outputs
        self.multiply_adds = self.size if stage.multiply_adds is None else stage.multiply_adds
        self.dtype, self.call, self.stage = objective.dtype, objective.call, stage
        inside = [name for name in layout.names if (name.rpartition(".")[0] or name) in stage.layers]
        self.arrays = NamedArrays(layout, inside)

    def forward(self, params: Array, x: Array) -> tuple[Array, Any]:
        x = read_only(check_rows(x, self.inputs, self.dtype))
        returned = self.call(self.stage.forward, self.arrays.views(read_only(params)), x, x=x)
        where = f"{type(self.stage).__name__}.forward"
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise BadInput(f"{where} returned {shown(returned, 60)}; (y, saved) is needed.")
        return rows_of_numbers(where, returned[0], (len(x), self.outputs), self.dtype), returned[1]

    def backward(self, params: Array, saved: Any, dy: Array, out: Array, dx: bool = True) -> Array:
        views = self.arrays.views(read_only(params)), self.arrays.views(out)
        found = self.call(self.stage.backward, views[0], saved, read_only(dy), views[1], dx, x=dy)
        if not dx:
            return np.empty((0, self.inputs), self.dtype)
        return rows_of_numbers(f"{type(self.stage).__name__}.backward", found, (len(dy), self.inputs), self.dtype)

    def input_gradient(self, params: Array, saved: Any, dy: Array, dx: bool = True) -> tuple[Array, Array]:
        out = np.empty(self.size, self.dtype)
        return self.backward(params, saved, dy, out, dx), out

    def parameter_gradient(self, saved: Any, dys: Array, out: Array) -> None:
        out[:] = dys


class NamedArrays:
    """Arrays of consecutive slices of a layout, whose first one is at the beginning of the vectors."""

    def __init__(self, layout: ParameterLayout, names: Sequence[str]) -> None:
        first = layout.slices[names[0]].start
        self._parts = [
            (name, slice(layout.slices[name].start - first, layout.slices[name].stop - first), layout.shapes[name])
            for name in names
        ]

    def views(self, vector: Array) -> dict[str, Array]:
        """Return the arrays as views of `vector`, by name; read-only if it is."""
        return {name: vector[own].reshape(shape) for name, own, shape in self._parts}


def _is_shape(name: object, shape: object) -> bool:
    """Return whether these are the name and the shape of an array."""
    numbers = shape if isinstance(shape, tuple | list) else (None,)
    return isinstance(name, str) and all(isinstance(n, int | np.integer) for n in numbers)


def read_only_hint(error: str) -> str:
    """Return a sentence that explains an error of NumPy at a write to an argument of a model; "" for other errors."""
    return " Parameters and samples must not be changed: write to g only." if "read-only" in error else ""


def place(error: Exception) -> str:
    """Return the innermost line of a user's code that was executed when an exception was raised, as text."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_users(frame.f_globals.get("__name__")):
            found = f" ({os.path.basename(frame.f_code.co_filename)}, line {line})"
    return found


def read_only(array: Array) -> Array:
    """Return a view to which nothing can be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def rows_of_numbers(where: str, values: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return an array of this shape and dtype. Raises `BadInput` if a model returned something else."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of several lengths, for example
        array = np.asarray(None)
    if array.shape != shape or array.dtype.kind not in "fiu":
        returned = shown(values, 60) if array.dtype.kind not in "fiu" else f"numbers of shape {array.shape}"
        raise BadInput(
            f"{where} returned {returned}; numbers of shape {shape} are needed: {shape[0]} rows, a row per sample."
        )
    return np.ascontiguousarray(array, dtype)
