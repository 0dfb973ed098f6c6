"""Modules of PyTorch as models: `from_torch`, and the code that ModelObjective calls for them. PyTorch is imported when a model
is made.

A module has its parameters, and so each thread has a module of its own, whose parameters are overwritten in each call. They are
copied: the received ones are read-only, which a tensor cannot be, and may change before the backward pass of a pipeline.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import BadInput, LabkitError, check_installed, shown
from ..formatting import call_text
from ..nn import SoftmaxCrossEntropy, SquaredError
from ..nn.losses import Loss
from ..nn.network import ROWS_AT_ONCE
from .model_objective import place
from .numpy_model import Array, Arrays, DataShape, NumpyModel, NumpyStage

IDS = "ids"
LOSSES = {"cross-entropy": "labels", "squared-error": "values"}  # {name: what is predicted}
TRIAL = 2  # samples of the forward pass in which a module is examined
GENERATOR = threading.Lock()  # PyTorch's default generator, from which dropout draws, is one for all threads


def from_torch(
    make: Callable[[], Any],
    *,
    loss: str | Callable[[Any, Any], Any] | None = None,
    input: Sequence[int] | str | None = None,
    device: str = "cpu",
) -> NumpyModel:
    """Make a model of a PyTorch module, as ``lk.Problem("digits", model=lk.from_torch(LeNet))``.

    Parameters
    ----------
    make : callable
        A function without arguments, or a class, that returns a new `torch.nn.Module`: each role and thread makes one.
    loss : str or callable, optional
        "cross-entropy", "squared-error" (half of the squared error), or a criterion: a function of the scores and the labels or
        values that returns their mean loss as a tensor. By default the loss of the data set.
    input : sequence of int or str, optional
        The shape in which the module takes a sample, as (3, 32, 32). "ids": whole numbers, int64. By default grey images
        are (1, height, width), and other samples have the shape that they have in the data set.
    device : str, default "cpu"
        The device that computes, as "cuda:0".

    Returns
    -------
    NumpyModel
        The model.

    Raises
    ------
    BadInput
        If a value is not allowed, or PyTorch is not installed. A `Problem` raises it when its objective is made: if the device
        is not available, or if the module does not suit the data or has state besides parameters.

    See Also
    --------
    NumpyModel : A model in NumPy.
    check_model : Checks a model.

    Notes
    -----
    The optimizer is the one of the strategy, because parameter servers apply it to their shards; PyTorch's is not used.

    Stages of a `torch.nn.Sequential` are its children with parameters, if `loss` is no criterion and no random numbers are drawn.
    Other modules are one piece.

    Examples
    --------
    >>> def make():
    ...     from torch import nn
    ...
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    >>> lk.from_torch(make, loss="cross-entropy")
    from_torch(make=make, loss=cross-entropy)
    """
    shape = tuple(input) if isinstance(input, list | tuple) else input
    return TorchModel(make, loss, shape, device)  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class TorchModel(NumpyModel):
    """What `from_torch` was given."""

    make: Callable[[], Any]
    loss: str | Callable[[Any, Any], Any] | None = None
    input: tuple[int, ...] | str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if _is_module(self.make) or not callable(self.make):
            why = ": each role and thread makes a module of its own" if _is_module(self.make) else ""
            kind = type(self.make).__name__ if _is_module(self.make) else shown(self.make)
            example = kind if _is_module(self.make) else "LeNet"
            raise BadInput(
                f"from_torch: make={kind}; give a function that returns a new torch.nn.Module, as {example} or "
                f"lambda: {example}(){why}."
            )
        if self.loss is not None and not callable(self.loss) and self.loss not in tuple(LOSSES):
            raise BadInput(
                f"from_torch: loss={shown(self.loss)}; give {' or '.join(map(repr, LOSSES))}, or a criterion, as "
                "torch.nn.CrossEntropyLoss()."
            )
        whole = isinstance(self.input, tuple) and all(type(n) is int and n > 0 for n in self.input)
        if self.input is not None and self.input != IDS and not whole:
            raise BadInput(
                f"from_torch: input={shown(self.input)}; give the shape of a sample, as (1, 28, 28), or {IDS!r}."
            )
        if not isinstance(self.device, str):
            raise BadInput(f"from_torch: device={shown(self.device)}; give a name, as 'cpu' or 'cuda:0'.")

    @property
    def _title(self) -> str:
        return _name_of(self.make)

    def _identity(self) -> tuple[str, dict[str, Any]]:
        given = {"loss": self.loss, "input": self.input, "device": self.device}
        usual = {"loss": None, "input": None, "device": "cpu"}
        options = {name: value for name, value in given.items() if value != usual[name]}
        if callable(self.loss):
            options["loss"] = _name_of(self.loss)
        if isinstance(self.input, tuple):
            options["input"] = str(self.input)
        return "from_torch", {"make": _name_of(self.make), **options}

    def _code(self, data: DataShape, dtype: str) -> TorchCode:
        return TorchCode(TorchNet(self, data, dtype))

    def __repr__(self) -> str:
        return call_text(*self._identity())


class TorchNet:
    """The modules of a model for data of a shape, one for each thread. It is pickled and copied without them."""

    def __init__(self, model: TorchModel, data: DataShape, dtype: str) -> None:
        self.model, self.data, self.dtype = model, data, dtype
        self.name = _name_of(model.make)
        check_installed("from_torch needs", "torch")
        import torch

        self.torch = torch
        self._process_threads = threads_of(torch)
        self.kind = getattr(torch, dtype)
        self.device = self._device()
        self.shape = self._input_shape()
        self.loss: Loss = SquaredError() if data.classes is None else SoftmaxCrossEntropy()
        self.criterion = model.loss if callable(model.loss) else None
        self._check_loss()
        self._threads = threading.local()
        self._first: Any = None
        own = self._first = self.new()
        with self.scope(), self.seeded(0):
            self.shapes, self.stochastic = self._examined(own)
            self.pieces = self._pieces(own)
        self._threads.module = Module(self, own)

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchNet, (self.model, self.data, self.dtype)

    # what the options mean ---------------------------------------------------------------------------------------------

    def _device(self) -> Any:
        try:
            device = self.torch.device(self.model.device)
            self.torch.ones(1, device=device).cpu()
        except Exception as error:
            raise BadInput(
                f"from_torch: device={self.model.device!r} is not available on this machine ({_line(error)}). Leave device= "
                "out to compute on the CPU."
            ) from None
        return device

    def _input_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample."""
        image, features, given = self.data.image_shape, self.data.features, self.model.input
        if given is None:
            return (1, *image) if image else self.data.sample_shape or (features,)
        shape = given if isinstance(given, tuple) else (features,)
        if math.prod(shape) != features:
            raise BadInput(
                f"from_torch: input={shape} has {math.prod(shape)} numbers; a sample of the data has {features}."
            )
        return shape

    def _check_loss(self) -> None:
        """Raise `BadInput` if the loss of this name does not suit the data."""
        given, values = self.model.loss, self.data.classes is None
        if isinstance(given, str) and (LOSSES[given] == "values") != values:
            what = "values" if values else "labels"
            raise BadInput(f"from_torch: loss={given!r} predicts {LOSSES[given]}; the data have {what}.")

    # modules -----------------------------------------------------------------------------------------------------------

    def scope(self, gradients: bool = True) -> Scope:
        """Return the block in which a module computes."""
        return Scope(self.torch, self._process_threads, gradients)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw the random numbers of a seed. The generator of the process is restored."""
        torch, others = self.torch, [] if self.device.type == "cpu" else [self.device.index or 0]
        kind = self.device.type if others else "cuda"  # without others, no device of this kind is used
        with GENERATOR, torch.random.fork_rng(others, device_type=kind):
            torch.manual_seed(seed) if others else torch.default_generator.manual_seed(seed)
            yield

    def new(self, seed: int = 0) -> Any:
        """Return a new module. Raises `BadInput` if `make` does not return one."""
        with self.scope(), self.seeded(seed):
            module = self.users("make", self.model.make)
            if not isinstance(module, self.torch.nn.Module):
                raise BadInput(f"{self.name} returned {shown(module, 60)}; a torch.nn.Module is needed.")
            if module is self._first:
                raise BadInput(
                    f"{self.name} returned the same module again. It has to make a new one in each call, because each role and "
                    "thread trains its own: lambda: Net(), not lambda: net."
                )
            module.to(device=self.device, dtype=self.kind)
            if any(map(self.torch.nn.parameter.is_lazy, module.parameters())):
                self.forward(module, self._trial())
        return module

    def _trial(self) -> Any:
        """Return samples to examine a module."""
        kind = self.torch.int64 if self.model.input == IDS else self.kind
        return self.torch.ones((TRIAL, *self.shape), dtype=kind, device=self.device)

    def forward(self, module: Any, x: Any) -> Any:
        """Return the output of a module for a tensor."""
        return self.users("forward", module, x)

    def users(self, what: str, function: Callable[..., Any], *tensors: Any) -> Any:
        """Call code of the user. An exception is raised again as `BadInput`, which says where."""
        try:
            return function(*tensors)
        except LabkitError:
            raise
        except Exception as error:
            shapes = f" on shape {tuple(tensors[0].shape)}" if tensors else ""
            hint = ""
            if "cannot be multiplied" in str(error) and len(self.shape) > 1 and self.model.input is None:
                hint = f" For dense layers begin with torch.nn.Flatten(), or give from_torch input=({self.data.features},)."
            elif "Long" in str(error) and "embedding" in str(error).lower() and self.model.input != IDS:
                hint = f" Ids are whole numbers with from_torch(..., input={IDS!r})."
            raise BadInput(
                f"{self.name}: {what} raised {type(error).__name__}: {_line(error)}{shapes}{place(error)}.{hint}"
            ) from error

    def _examined(self, module: Any) -> tuple[dict[str, tuple[int, ...]], bool]:
        """Return the shapes of the parameters, and whether a forward pass draws random numbers. Raises `BadInput` if it writes to
        parameters or buffers, or if the output has another shape than the scores.
        """
        # max_norm writes in each pass, and changes values only when a norm is too large; an attribute may be a new tensor
        before = {name: (values._version, values.clone()) for name, values in _all_values(module)}
        generator = self._drawn()
        module.train()
        scores = self.forward(module, self._trial())
        stochastic = self._drawn() != generator
        for name, values in _all_values(module):
            version, old = before.get(name, (None, None))
            if values._version != version or not self.torch.equal(values, old):
                self._refuse_state(name, name in dict(module.named_parameters()))
        needed = (TRIAL, self.data.outputs)
        if not isinstance(scores, self.torch.Tensor) or tuple(scores.shape) != needed:
            what = f"shape {tuple(scores.shape)}" if hasattr(scores, "shape") else type(scores).__name__
            raise BadInput(
                f"{self.name} returned {what} for {TRIAL} samples of shape {self.shape}; the data need a tensor of scores "
                f"of shape {needed}."
            )
        shapes = {name: tuple(values.shape) for name, values in module.named_parameters() if values.requires_grad}
        return shapes, stochastic

    def _refuse_state(self, name: str, is_parameter: bool) -> None:
        if is_parameter:
            raise BadInput(
                f"{self.name}: a forward pass changes the parameter {name!r}, as max_norm of an embedding does. "
                "Only the optimizer may change parameters, which are those of the server."
            )
        raise BadInput(
            f"{self.name}: a forward pass changes {name!r}, which is a buffer and no parameter: it would differ between workers, "
            "and is not sent. Instead of BatchNorm use torch.nn.GroupNorm or torch.nn.LayerNorm."
        )

    def _drawn(self) -> bytes:
        """Return the state of the generator from which a module draws."""
        generator = self.torch.get_rng_state()
        if self.device.type != "cpu":
            generator = getattr(self.torch, self.device.type).get_rng_state()
        return generator.numpy().tobytes()

    def module(self) -> Module:
        """Return the module of this thread."""
        found = getattr(self._threads, "module", None)
        if found is None:
            found = self._threads.module = Module(self, self.new())
        return found

    def samples(self, x: Array) -> Any:
        """Return samples as a tensor. Raises `BadInput` if they have to be ids, and are not."""
        if self.model.input == IDS:
            x, given = x.astype(np.int64), x
            if not np.array_equal(x, given):
                raise BadInput(
                    f"from_torch: input={IDS!r}, and the samples are not whole numbers. Give Problem or from_arrays "
                    "standardize=False."
                )
        return self.tensor(x, (len(x), *self.shape))

    def tensor(self, values: Array, shape: tuple[int, ...]) -> Any:
        """Return a copy of an array as a tensor of this shape."""
        made = self.torch.empty(shape, dtype=self.kind if values.dtype.kind == "f" else self.torch.int64)
        np.copyto(made.numpy(), values.reshape(shape))
        return made.to(self.device)

    # stages ------------------------------------------------------------------------------------------------------------

    def _pieces(self, module: Any) -> tuple[TorchStage, ...]:
        """Return the stages of a Sequential: each of its children with parameters, and what follows it. () for one piece."""
        if type(module) is not self.torch.nn.Sequential or self.stochastic or self.criterion is not None:
            return ()
        owners: dict[str, list[str]] = {}  # {child: layers}
        for name in self.shapes:
            layers = owners.setdefault(name.partition(".")[0], [])
            if name.rpartition(".")[0] not in layers:
                layers.append(name.rpartition(".")[0])
        children, parameters = dict(module.named_children()), {id(values) for values in module.parameters()}
        counts = sum(len({id(values) for values in child.parameters()}) for child in children.values())
        if len(owners) < 2 or counts != len(parameters) or len(children) != len(module):
            return ()  # children that share parameters are in one piece
        names = list(children)
        begins = [0, *(names.index(name) for name in list(owners)[1:])]
        x, stages = self._trial(), list[TorchStage]()
        for begin, end, layers in zip(begins, [*begins[1:], len(names)], owners.values()):
            shape = tuple(x.shape[1:])
            x, operations = self._counted(module[begin:end], x.detach().requires_grad_(begin > 0))
            if not isinstance(x, self.torch.Tensor) or x.ndim < 1 or len(x) != TRIAL:
                return ()
            outputs = math.prod(x.shape[1:])
            stages.append(
                TorchStage(
                    layers=tuple(layers), outputs=outputs, multiply_adds=operations, net=self, begin=begin, end=end,
                    shape=shape, first=not stages,
                )
            )  # fmt: skip
        return tuple(stages)

    def _counted(self, part: Any, x: Any) -> tuple[Any, int | None]:
        """Return the output of some of the children, and the multiplications of one sample, if they are known."""
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            y = self.forward(part, x)
        return y, counter.get_total_flops() // (2 * TRIAL) or None


class Scope:
    """Compute with one thread, with gradients or without. The settings of the process are restored: `threads` of PyTorch.

    One thread is set in any case. A run in virtual time has limited OpenMP, whose number PyTorch returns as its own; but that of
    MKL is another one since it was set, and two threads on busy cores are many times slower than one.
    """

    def __init__(self, torch: Any, threads: int, gradients: bool = True) -> None:
        self._torch, self._threads, self._gradients = torch, threads, gradients

    def __enter__(self) -> None:
        self._before = self._torch.is_grad_enabled()
        COMPUTING.begin(self._torch)
        self._torch.set_grad_enabled(self._gradients)

    def __exit__(self, *error: object) -> None:
        COMPUTING.end(self._torch, self._threads)
        self._torch.set_grad_enabled(self._before)


class Computing:
    """How many threads of this process compute with modules. PyTorch's number of threads is one until the last of them ends."""

    def __init__(self) -> None:
        self._lock, self._count = threading.Lock(), 0

    def begin(self, torch: Any) -> None:
        """Begin a computation in this thread."""
        with self._lock:
            self._count += 1
            torch.set_num_threads(1)

    def end(self, torch: Any, threads: int) -> None:
        """End it. The last one sets the number of threads again."""
        with self._lock:
            self._count -= 1
            if not self._count:
                torch.set_num_threads(threads)


COMPUTING = Computing()


def threads_of(torch: Any) -> int:
    """Return the number of threads of PyTorch, also where that of OpenMP is limited."""
    mkl = re.search(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
    return max(torch.get_num_threads(), int(mkl[1]) if mkl else 1)


class Module:
    """The module of one thread, and its parameters by name. `loaded`: counts how often stages have got parameters."""

    def __init__(self, net: TorchNet, module: Any) -> None:
        self.net, self.module, self.children = net, module, tuple(module.children())
        self._engine = net.torch.autograd.Variable._execution_engine
        self.parameters = {name: values for name, values in module.named_parameters() if values.requires_grad}
        self._on_host = net.device.type == "cpu"
        if self._on_host:
            self._memory = {name: values.detach().numpy() for name, values in self.parameters.items()}
        self._loaded: dict[str, int] = dict.fromkeys(self.parameters, 0)

    def load(self, p: Arrays) -> int:
        """Overwrite the parameters in `p`. Returns the number of this call for them."""
        name = ""
        for name, values in p.items():
            if self._on_host:
                np.copyto(self._memory[name], values)
            else:
                self.parameters[name].data.copy_(self.net.tensor(values, values.shape))
        self._loaded[name] += 1
        return self._loaded[name]

    def has(self, p: Arrays, number: int) -> bool:
        """Return whether no other call of `load` for these parameters came after that of this number."""
        return self._loaded[[*p][-1]] == number

    def train(self, training: bool) -> Any:
        """Return the module in this mode."""
        if self.module.training is not training:
            self.module.train(training)
        return self.module

    def differentiate(self, y: Any, dy: Any, g: Arrays, x: Any = None) -> Any:
        """Write the derivatives of y, times dy, with respect to the parameters to the arrays of `g`. Returns that with respect to
        x, if it is given.
        """
        inputs = tuple([self.parameters[name] for name in g] + ([] if x is None else [x]))
        # `torch.autograd.grad` calls the same method. Before, it checks dy: in 20 to 40 us, and at first it imports SymPy.
        found = self._engine.run_backward(
            (y,), (dy,), False, False, inputs, allow_unreachable=True, accumulate_grad=False
        )
        for derivative, values in zip(found, g.values()):
            np.copyto(values, 0 if derivative is None else as_array(derivative))
        return found[-1]


def as_array(tensor: Any) -> Array:
    """Return the numbers of a tensor."""
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    if tensor.requires_grad:
        tensor = tensor.detach()
    return (tensor if tensor.is_cpu else tensor.cpu()).numpy()


class TorchCode:
    """The methods of a NumpyModel for a module. It may have stages besides `scores` and `gradient`, which compute the same."""

    def __init__(self, net: TorchNet) -> None:
        self.net, self.stochastic = net, net.stochastic

    def shapes(self, data: DataShape) -> Mapping[str, tuple[int, ...]]:
        return self.net.shapes

    def init(self, p: Arrays, rng: np.random.Generator) -> None:
        """Write the values that a new module has."""
        parameters = dict(self.net.new(int(rng.integers(2**63))).named_parameters())
        for name, values in p.items():
            values[...] = as_array(parameters[name])

    def scores(self, p: Arrays, x: Array) -> Array:
        own, net = self.net.module(), self.net
        own.load(p)
        with net.scope(gradients=False):
            return as_array(net.forward(own.train(False), net.samples(x)))

    def gradient(self, p: Arrays, x: Array, y: Array, g: Arrays, rng: np.random.Generator | None = None) -> float:
        own, net = self.net.module(), self.net
        own.load(p)
        draws = contextlib.nullcontext() if rng is None else net.seeded(int(rng.integers(2**63)))
        with net.scope(), draws:
            scores = net.forward(own.train(True), net.samples(x))
            if net.criterion is not None:
                loss = self._criterion(scores, y)
                own.differentiate(loss, net.torch.ones_like(loss), g)
                return float(loss.detach())
            dy = scores.detach().to("cpu", copy=True).contiguous()
            value = net.loss.gradient(dy.numpy(), y, dy.numpy())
            own.differentiate(scores, dy.to(net.device), g)
            return value

    def _criterion(self, scores: Any, y: Array) -> Any:
        """Return the loss of the user's criterion."""
        net = self.net
        assert net.criterion is not None
        labels = net.torch.tensor(y, dtype=net.kind if net.data.classes is None else None, device=net.device)
        loss = net.users("loss", net.criterion, scores, labels)
        if not isinstance(loss, net.torch.Tensor) or loss.ndim:
            what = f"a tensor of shape {tuple(loss.shape)}" if hasattr(loss, "shape") else shown(loss, 60)
            raise BadInput(
                f"{net.name}: loss returned {what}; the mean loss is needed, a tensor with one number (reduction='mean')."
            )
        return loss

    def evaluate(self, p: Arrays, x: Array, y: Array) -> tuple[float, float | None] | None:
        """Return the loss of a criterion and the accuracy; None with the loss of the data set."""
        net = self.net
        if net.criterion is None:
            return None
        total, right, own = 0.0, 0, net.module()
        own.load(p)
        with net.scope(gradients=False):
            for i in range(0, len(x), ROWS_AT_ONCE):
                labels = y[i : i + ROWS_AT_ONCE]
                scores = net.forward(own.train(False), net.samples(x[i : i + ROWS_AT_ONCE]))
                total += float(self._criterion(scores, labels)) * len(labels)
                if net.data.classes is not None:
                    right += int((as_array(scores).argmax(axis=1) == labels).sum())
        return total / len(x), None if net.data.classes is None else right / len(x)

    def stages(self, data: DataShape) -> tuple[TorchStage, ...]:
        return self.net.pieces


@dataclass(frozen=True, kw_only=True)
class TorchStage(NumpyStage):
    """Consecutive children of a Sequential, `begin` to `end`, of which the first takes samples of this `shape`."""

    net: TorchNet = field(repr=False)
    begin: int
    end: int
    shape: tuple[int, ...]
    first: bool

    def forward(self, p: Arrays, x: Array) -> tuple[Array, Any]:
        net = self.net
        own = net.module()
        number = own.load(p)
        with net.scope():
            given = net.samples(x) if self.first else net.tensor(x, (len(x), *self.shape)).requires_grad_()
            y = given
            for child in own.children[self.begin : self.end]:
                y = net.forward(child, y)
        return as_array(y).reshape(len(x), -1), (given, y, own, number)

    def backward(self, p: Arrays, saved: Any, dy: Array, g: Arrays, dx: bool) -> Array | None:
        x, y, own, number = saved
        if not own.has(p, number):
            own.load(p)  # the tensors of the forward pass share the memory of the parameters
        with self.net.scope():
            found = own.differentiate(y, self.net.tensor(dy, y.shape), g, x if dx else None)
        return as_array(found).reshape(len(dy), -1) if dx else None


def _all_values(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, tensor) of all parameters and buffers."""
    for name, values in itertools.chain(module.named_parameters(), module.named_buffers()):
        yield name, values.detach()


def _is_module(value: object) -> bool:
    """Return whether this is a module of PyTorch, without an import of it."""
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(value).__mro__)


def _name_of(function: Any) -> str:
    """Return the name of a function or class; of a partial one, with its arguments."""
    if isinstance(function, functools.partial):
        given = [*map(shown, function.args), *(f"{name}={shown(value)}" for name, value in function.keywords.items())]
        return f"{_name_of(function.func)}({', '.join(given)})"
    name = getattr(function, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if name else shown(function)


def _line(error: Exception) -> str:
    """Return the first line of an error."""
    return (str(error).splitlines() or [""])[0].rstrip(".")
