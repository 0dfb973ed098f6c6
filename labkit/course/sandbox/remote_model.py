"""Remote models: in the grader's notebook they replace a submission's model.

The methods of a remote model run in student processes, which get arrays and return arrays. Parameters, samples, the loss and the
engine belong to the grader, and a process keeps nothing that matters: gradients are computed in another process than scores,
which therefore depend on parameters and samples only, and not on labels that a gradient has seen.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import BadInput
from ...models import DataShape, NumpyModel
from ...models.model_objective import read_only_hint
from ...models.numpy_model import Array, Arrays
from .remote import MAX_ITEMS, called_by_hidden_test, check_option, malformed
from .session import SubmittedCode

MAX_PARAMETERS = 1_000_000  # the grader holds several vectors of this size
MAX_DIMENSIONS = 32


def remote_model(code: SubmittedCode, name: str, options: dict[str, Any], about: dict[str, Any]) -> type[NumpyModel]:
    """Return a model class with the methods that the submission's class `name` defines."""
    try:
        own = [str(method) for method in about["methods"]]
        stochastic = bool(about["stochastic"])
    except (TypeError, ValueError, KeyError) as why:
        raise malformed(name, why) from None
    for option in options:
        check_option(name, option, NumpyModel)
    body = {method: made for method, made in _methods(code, name).items() if method in own or method[0] == "_"}
    body |= {"stochastic": stochastic, "__module__": __name__, "_is_checked_at_start": False}
    fields = [(option, Any, dataclasses.field(default=value)) for option, value in options.items()]
    return dataclasses.make_dataclass(name, fields, bases=(NumpyModel,), namespace=body, frozen=True)


def _methods(code: SubmittedCode, name: str) -> dict[str, Any]:
    """Return the methods of a remote model. Each object has processes of its own, as a model has a copy in each process."""

    def __post_init__(self: Any) -> None:
        weakref.finalize(self, code.unused.append, id(self)).atexit = False

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return dataclasses.replace(self)

    def ask(self: Any, method: str, *args: Any) -> tuple[Any, Any]:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        purpose = (id(self), method == "gradient", called_by_hidden_test())
        try:
            answer = code.ask(purpose, "compute", name, options, method, list(args))
        except BadInput as error:
            raise BadInput(f"{name}.{method} raised {error}.{read_only_hint(str(error))}") from None
        if type(answer) is not tuple or len(answer) != 2:
            raise malformed(name, TypeError("it has no arrays"))
        return answer

    def shapes(self: Any, data: DataShape) -> Any:
        found, _ = ask(self, "shapes", data)
        if isinstance(found, Mapping):
            _check_size(name, found)
        return found

    def init(self: Any, p: Arrays, rng: np.random.Generator) -> None:
        _write(f"{name}.init", p, ask(self, "init", p, rng)[1])

    def scores(self: Any, p: Arrays, x: Array) -> Any:
        return ask(self, "scores", p, x)[0]

    def gradient(self: Any, p: Arrays, x: Array, y: Array, g: Arrays) -> Any:
        loss, arrays = ask(self, "gradient", p, x, y, g)
        _write(f"{name}.gradient", g, arrays)
        return loss

    def stages(self: Any, data: DataShape) -> Any:
        raise BadInput(
            f"{name} has stages, which are not available in graded code: define scores and gradient instead."
        )

    return {each.__name__: each for each in (__post_init__, __deepcopy__, shapes, init, scores, gradient, stages)}


def _check_size(name: str, shapes: Mapping[Any, Any]) -> None:
    """Raise `BadInput` if the arrays are too large for the grader. The model's objective checks the rest."""
    known = [shape for shape in shapes.values() if isinstance(shape, tuple | list)]
    if len(shapes) > MAX_ITEMS or any(len(shape) > MAX_DIMENSIONS for shape in known):
        raise BadInput(
            f"{name}.shapes returned more than {MAX_ITEMS} arrays, or more than {MAX_DIMENSIONS} dimensions."
        )
    if not all(isinstance(key, str) and len(key) <= MAX_ITEMS for key in shapes):
        raise BadInput(f"{name}.shapes returned a name that is no text of up to {MAX_ITEMS} characters.")
    size = sum(math.prod(map(int, shape)) for shape in known if all(isinstance(n, int | np.integer) for n in shape))
    if size > MAX_PARAMETERS:
        raise BadInput(f"{name}.shapes returned more than {MAX_PARAMETERS:,} parameters, the limit in graded code.")


def _write(where: str, own: Arrays, received: Any) -> None:
    """Write the received arrays to the grader's. Raises `BadInput` unless there is one for each, of its shape and dtype."""
    for name, values in own.items():
        array = received.get(name) if type(received) is dict else None
        if not isinstance(array, np.ndarray) or array.shape != values.shape or array.dtype != values.dtype:
            raise BadInput(f"{where} sent something else than its arrays.")
        values[...] = array
