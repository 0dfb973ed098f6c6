"""Declaration of options. Validation, the command line, widgets, the share text and the documentation use the same declaration.

An option is a field of a frozen dataclass, made with `option(default, low=..., high=..., unit=..., help=...)`. `low` and `high`
are limits: a value outside of them is rejected, not clipped. `live=True`: the option may change during a run. An option whose
values are objects also declares how they are read from text and written as text.

The base class `HasOptions` checks the values of all options, and adds the section "Parameters" to the docstring of the class.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, overload

import numpy as np

from .errors import BadInput, lacks, shown
from .formatting import bytes_from_text

T = TypeVar("T")

if TYPE_CHECKING:
    Value = TypeVar("Value")
    Other = TypeVar("Other")

    class Converted(Generic[Value, Other]):
        """The type of a field that is given as a `Value` or `Other`, and is converted to a `Value`.

        `compute: Converted[Distribution, float | str]` accepts a number; the attribute is a `Distribution`. For type checkers the
        field is a descriptor: `__set__` has the type of the parameter, `__get__` that of the attribute. At run time it is a plain
        attribute.
        """

        @overload
        def __get__(self, instance: None, owner: type) -> Value: ...
        @overload
        def __get__(self, instance: object, owner: type) -> Value: ...
        def __get__(self, instance: object, owner: type) -> Value: ...
        def __set__(self, instance: object, value: Value | Other) -> None: ...

else:
    Converted = Annotated

RATE = "bytes/s"
TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Option:
    """The declaration of one option.

    - `low`, `high`: limits; None: no limit. `unit`: "s", "bytes" or "bytes/s".
    - `log`: a slider should have a logarithmic scale. `live`: the option may change during a run.
    - `choices`: the allowed values. `optional`: None is allowed. A number of "bytes/s" may be given as text: "10MB/s".
    - For options whose values are objects: `names`, the classes that can be named in text; `read(text)` returns the value of a
      text or raises `BadInput`; `write(value)` returns the text of a value, or None if it has no text.
    """

    name: str
    type: type
    default: Any
    low: float | None = None
    high: float | None = None
    log: bool = False
    live: bool = False
    choices: tuple[Any, ...] | None = None
    optional: bool = False
    help: str = ""
    unit: str = ""
    names: Mapping[str, Any] | None = None
    read: Callable[[str], Any] | None = None
    write: Callable[[Any], str | None] | None = None


@overload  # an object, which can also be given as text
def option(
    default: Any = ...,
    *,
    factory: Callable[[], Any] = ...,
    help: str = "",
    unit: str = "",
    names: Mapping[str, Any] | None = None,
    read: Callable[[str], Any],
    write: Callable[[Any], str | None],
) -> Any: ...
@overload  # a number that can also be given as text
def option(default: float | None, *, low: float, high: float, unit: Literal["bytes/s"], help: str = "") -> Any: ...
@overload
def option(
    default: T,
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    live: bool = False,
    choices: tuple[T, ...] | None = None,
    help: str = "",
    unit: str = "",
) -> T: ...
@overload
def option(*, factory: Callable[[], T], help: str = "") -> T: ...
@overload  # without a default
def option(
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    live: bool = False,
    help: str = "",
    unit: str = "",
) -> dataclasses.Field[Any]: ...
def option(
    default: Any = dataclasses.MISSING,
    *,
    factory: Any = dataclasses.MISSING,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    live: bool = False,
    choices: tuple[Any, ...] | None = None,
    help: str = "",
    unit: str = "",
    names: Mapping[str, Any] | None = None,
    read: Callable[[str], Any] | None = None,
    write: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare a field of a dataclass as an option, as of a strategy of your own.

    Validation, the command line, the controls of the lab, the share text and the documentation use this declaration.

    Parameters
    ----------
    default : object, optional
        The default value. Without a default the option is required; declare it as `wait: float =
        dataclasses.field(metadata=lk.option(low=0.0).metadata)`, because for type checkers only `dataclasses.field` can be a
        field without a default.
    factory : callable, optional
        Makes the default value, if that is mutable, as a dict.
    low, high : float, optional
        The limits. A value outside of them is rejected, not clipped.
    log : bool, default False
        Whether a slider has a logarithmic scale.
    live : bool, default False
        Whether the option may change during a run, by `Run.set`.
    choices : tuple, optional
        The allowed values.
    help : str, default ""
        What the option means, without a full stop.
    unit : str, default ""
        The unit of a number: "s", "bytes" or "bytes/s".
    names : mapping of str to type, optional
        The classes that can be named in text, for options whose values are objects.
    read : callable, optional
        Returns the value that a text means, or raises `BadInput`.
    write : callable, optional
        Returns the text of a value; None if it has no text.

    Returns
    -------
    dataclasses.Field
        The field.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Delayed(lk.AsyncPS):
    ...     wait: float = lk.option(0.01, low=0.0, high=1.0, unit="s", help="pause of a worker after each step")
    >>> Delayed(wait=0.5).wait
    0.5
    >>> Delayed(wait=2)
    Traceback (most recent call last):
        ...
    labkit.errors.BadInput: Delayed: wait=2 is not allowed; wait is a number from 0 to 1 s.
    """
    about = {
        "low": low, "high": high, "log": log, "live": live, "choices": choices, "help": help, "unit": unit, "names": names,
        "read": read, "write": write,
    }  # fmt: skip
    return dataclasses.field(default=default, default_factory=factory, metadata={"option": about})


def same_option(owner: type, name: str, *, help: str = "", **default: Any) -> Any:
    """Declare a field like the option `name` of the dataclass `owner`, but with this `default` and `help`, if they are given."""
    declared = next(field for field in dataclasses.fields(owner) if field.name == name)
    usual = {"default": declared.default, "default_factory": declared.default_factory}
    about = declared.metadata["option"] | ({"help": help} if help else {})
    return dataclasses.field(**(default or usual), metadata={"option": about})


def options_of(cls: Any) -> dict[str, Option]:
    """Return the options of a dataclass (or of an instance), by name, in the order of declaration."""
    return dict(_options(cls if isinstance(cls, type) else type(cls)))


def plain_options_of(cls: type) -> dict[str, Option]:
    """Return the options of a dataclass, and its other fields that are numbers, words, or True or False: all that can be read
    from text.
    """
    hints, declared = typing.get_type_hints(cls, include_extras=True), options_of(cls)
    found = {}
    for field in dataclasses.fields(cls):
        kind, optional = _plain_type(hints[field.name])
        known = declared.get(field.name) or Option(field.name, kind, field.default, optional=optional)
        if known.type is not object or known.read is not None:
            found[field.name] = known
    return found


@functools.lru_cache(maxsize=256)  # evaluating type hints is slow, and a lab calls this many times per second
def _options(cls: Any) -> dict[str, Option]:
    declared = [field for field in dataclasses.fields(cls) if "option" in field.metadata]
    hints = typing.get_type_hints(cls, include_extras=True) if declared else {}
    found = {}
    for field in declared:
        kind, optional = _plain_type(hints[field.name])
        factory = field.default_factory
        default = factory() if callable(factory) else field.default
        found[field.name] = Option(field.name, kind, default, optional=optional, **field.metadata["option"])
    return found


def _plain_type(hint: Any) -> tuple[type, bool]:
    """Return the type in a type hint, and whether None is allowed: (float, True) for `float | None`. `object` for any type that
    `check_option` cannot check; the class with the option checks it.
    """
    if typing.get_origin(hint) is Annotated:  # Converted
        kind, optional = _plain_type(hint.__origin__)
        return (kind if kind is float else object), optional
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return _plain_type(inner[0])[0] if len(inner) == 1 else object, len(inner) < len(typing.get_args(hint))
    return (hint if isinstance(hint, type) and hint is not Any else object), False


class HasOptions:
    """Base class of frozen dataclasses whose fields are options.

    The values are checked and converted when an instance is made. The docstring of a subclass lists all parameters, in the format
    of numpydoc: the entries of options are made from their declarations. An entry in the text of the docstring takes precedence;
    it is for fields without `help`. If `_notes` returns a text, it is the section "Notes".
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__doc__ = _Docstring(cls.__dict__.get("__doc__"))  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_options(self)

    @classmethod
    def _notes(cls) -> str:
        """Return the text of the section "Notes" for a docstring without this section; "" for none."""
        return ""


class _Docstring:
    """The value of `__doc__` in a class with options, until its fields are known.

    When it is read (`dataclass` reads it last), it is replaced by the complete text, because `pydoc` does not call descriptors of
    abstract classes. The signature of the class then shows the types that its parameters accept: `A | B` for `Converted[A, B]`.
    """

    def __init__(self, text: str | None):
        self.text = text

    def __get__(self, instance: Any, owner: type) -> str | None:
        if "__dataclass_fields__" not in vars(owner):
            return self.text
        types = getattr(vars(owner).get("__init__"), "__annotations__", {})
        types.update({name: _given_type(kind) for name, kind in types.items() if isinstance(kind, str)})
        if not self.text:
            return self.text
        owner.__doc__ = _completed(inspect.cleandoc(self.text), owner)
        return owner.__doc__


def _completed(text: str, cls: Any) -> str:
    """Return the docstring `text` of the dataclass `cls`, with its notes, and with an entry for every parameter that has an entry
    or a `help`.
    """
    before, *sections = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n-{3,}\n)", text)
    given = {}
    if sections and sections[0].startswith("Parameters\n"):
        entries = re.split(r"\n(?=\w)", sections.pop(0))[1:]
        given = {entry.partition(" :")[0]: entry for entry in entries}
    entries = [given.get(field.name) or _parameter_entry(field) for field in dataclasses.fields(cls) if field.init]
    if any(entries):
        sections.insert(0, "\n".join(["Parameters", "----------", *filter(None, entries)]))
    notes = cls._notes()
    if notes and not any(section.startswith("Notes\n") for section in sections):
        last = [i for i, section in enumerate(sections) if section.startswith(("References\n", "Examples\n"))]
        sections.insert(min(last, default=len(sections)), f"Notes\n-----\n{notes}")
    return "\n\n".join([before, *sections])


def _parameter_entry(field: dataclasses.Field[Any]) -> str:
    """Return the numpydoc entry of a field that is an option with a `help`; "" for other fields."""
    about = field.metadata.get("option", {})
    if not about.get("help"):
        return ""
    kind = _given_type(getattr(field.type, "__name__", str(field.type)).replace("Any", "object"))
    if about["choices"]:
        kind = "{" + ", ".join(map(repr, about["choices"])) + "}"
    default = field.default_factory() if callable(field.default_factory) else field.default
    required = isinstance(default, type(dataclasses.MISSING))
    text = f"{about['help'][0].upper()}{about['help'][1:]}".removesuffix(".") + "."
    low, high, unit = about["low"], about["high"], f" {about['unit']}".rstrip()
    if low is not None and high is not None and high < math.inf:
        text += f" From {limit_text(low)} to {limit_text(high)}{unit}."
    elif low is not None:
        text += f" At least {limit_text(low)}{unit}."
    elif unit:
        text += " In seconds." if unit == " s" else f" In{unit}."
    if about["names"]:
        text += f" Also by name: {', '.join(map(repr, about['names']))}."
    if about["live"]:
        text += " Can change during a run."
    return f"{field.name} : {kind}{'' if required else f', default: {default!r}'}\n    {text}"


def _given_type(annotation: str) -> str:
    """Return the type of the parameter of a field: `A | B | None` for `Converted[A | None, B]`."""
    parsed = ast.parse(annotation, mode="eval").body
    if (
        isinstance(parsed, ast.Subscript)
        and isinstance(parsed.slice, ast.Tuple)
        and ast.unparse(parsed.value) == "Converted"
    ):
        kinds = [kind for part in parsed.slice.elts for kind in _united(part)]
        return " | ".join(sorted(kinds, key="None".__eq__))
    return annotation


def _united(parsed: ast.expr) -> list[str]:
    """Return the types that a parsed annotation unites: ["A", "B"] for `A | B`."""
    return _united(parsed.left) + _united(parsed.right) if isinstance(parsed, ast.BinOp) else [ast.unparse(parsed)]


def limit_text(limit: float) -> str:
    """Return a limit as it is written by hand: `0.000001`, `1,000,000`, `10**12`, `2**63 - 1`."""
    if limit == 0 or 1e-7 < abs(limit) < 1e7:
        return f"{int(limit):,}" if limit == int(limit) else f"{limit:.6f}".rstrip("0")
    for base in (10, 2) if 0 < limit < math.inf else ():
        for less in (0, 1):
            if base ** round(math.log(limit + less, base)) - less == limit:
                return f"{base}**{round(math.log(limit + less, base))}" + (" - 1" if less else "")
    return f"{limit:g}"


def describe(k: Option) -> str:
    """Return the allowed values of an option as text: "a number from 0.0001 to 1.0"."""
    if k.choices:
        text = "one of " + ", ".join(repr(c) for c in k.choices)
    elif k.type is bool:
        text = "True or False"
    elif k.type in (int, float):
        text = "a whole number" if k.type is int else "a number"
        if k.low is not None and k.high is not None:
            text += f" from {limit_text(k.low)} to {limit_text(k.high)}"
        elif k.low is not None:
            text += f", at least {limit_text(k.low)}"
        elif k.high is not None:
            text += f", at most {limit_text(k.high)}"
        text += f" {k.unit}" if k.unit else ""
        text += " (or a text, as '10MB/s')" if k.unit == RATE else ""
    elif k.type is str:
        text = f"text, as {k.default!r}"
    else:
        text = f"a {k.type.__name__}"
    return text + (" or None" if k.optional else "")


def as_number(value: Any, kind: type = float) -> Any:
    """Return the `int` or `float` (`kind`) that is exactly equal to `value`; None if there is no such number.

    Booleans, text, bytes and arrays are not numbers. NaN and values that no float is equal to give None, too.
    """
    if isinstance(value, (bool, str, bytes, bytearray, np.bool_)) or getattr(value, "ndim", 0) != 0:
        return None
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value else None


def as_numbers(what: str, values: Any) -> np.ndarray:
    """Return `values` as an array of real numbers or booleans. Raises `BadInput` if they are anything else. `what`: their name
    in errors. Missing values in nullable columns of pandas become NaN.
    """
    package = type(values).__module__.split(".")[:2]
    if package == ["scipy", "sparse"]:
        raise BadInput(f"{what} is a sparse {type(values).__name__}; labkit takes dense arrays: give {what}.toarray().")
    if package[0] == "pandas" and hasattr(values, "iloc"):
        values = _of_pandas(what, values)
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        place = tuple(int(p) for p in np.argwhere(np.ma.getmaskarray(values))[0])
        raise BadInput(
            f"{what} is a masked array with {np.ma.count_masked(values):,} masked values, the first at {place} (counted from 0); "
            "every value counts here: leave these samples out, or fill the values in."
        )
    try:
        array = np.asarray(values)
    except ValueError:
        raise BadInput(f"{what} has rows of different lengths; it must be a rectangular array of numbers.") from None
    except (TypeError, RuntimeError):  # a tensor of PyTorch with a gradient, or on another device
        raise BadInput(f"{what}={shown(values)} is not allowed; it must be an array of numbers.") from None
    if array.dtype.kind not in "biuf":
        hint = f": give {what}.astype(float) if they are numbers written as text" if array.dtype.kind in "USO" else ""
        raise BadInput(
            f"{what} has dtype {array.dtype}; it must hold real numbers (floats, integers or booleans){hint}."
        )
    return array


def _of_pandas(what: str, values: Any) -> Any:
    """Return a frame or series as an array of numbers. Raises `BadInput` with the name of a column that does not hold numbers."""
    columns, arrays = [values.iloc[:, i] for i in range(values.shape[1])] if values.ndim == 2 else [values], []
    for column in columns:
        kind = getattr(column.dtype, "kind", "O")  # a nullable dtype has the kind of its numbers
        if isinstance(column.dtype, np.dtype) or kind not in "biuf":
            array = np.asarray(column)
        elif column.isna().any():
            array = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            array = column.to_numpy(dtype=np.float64 if kind == "f" else np.int64)
        if array.dtype.kind not in "biuf":
            name = "it" if values.ndim == 1 else f"its column {shown(column.name)}"
            raise BadInput(
                f"{what}: {name} has dtype {column.dtype}, and must hold real numbers (floats, integers or booleans): convert it "
                "(astype, pandas.get_dummies), or leave it out."
            )
        arrays.append(array)
    return arrays[0] if values.ndim == 1 else np.column_stack(arrays) if arrays else values.to_numpy()


def check_number(
    name: str, value: Any, low: float, high: float = math.inf, *, unit: str = "a number", infinite: bool = False
) -> float:
    """Return `value` as a float. Raises `BadInput`, with the argument's `name`, if it is not a number from `low` to `high`.

    `unit`: the quantity, as "a number of seconds". `infinite`: infinity is allowed.
    """
    number = as_number(value)
    if number is None or not low <= number <= high or not (infinite or math.isfinite(number)):
        limits = (
            f" from {limit_text(low)} to {limit_text(high)}" if high < math.inf else f", at least {limit_text(low)}"
        )
        raise BadInput(f"{name}={shown(value)} is not allowed; it is {unit}{limits}.")
    return float(number)


def check_option(owner: str, k: Option, value: Any) -> Any:
    """Return `value`, converted to the option's type. Raises `BadInput`, with the owner and the option, if it is not allowed."""
    if value is None and k.optional:
        return None
    if isinstance(value, str) and k.read is not None and k.names is not None:
        value = k.read(value)  # an object given by name
        if value is None:
            return None
    converted = value
    if k.choices is not None:
        allowed = is_one_of(value, k.choices)
    elif k.type is bool:
        allowed = isinstance(value, bool)
    elif k.type in (int, float):
        in_bytes = bytes_from_text(value) if isinstance(value, str) and k.unit == RATE else None
        converted = as_number(in_bytes or value, k.type)
        allowed = (
            converted is not None
            and (k.type is int or math.isfinite(converted) or k.high == math.inf)
            and (k.low is None or converted >= k.low)
            and (k.high is None or converted <= k.high)
        )
    elif isinstance(value, type):
        raise BadInput(f"{owner}: {k.name}={value.__name__} is a class; write {value.__name__}().")
    else:
        allowed = k.type is object or isinstance(value, k.type)
    if not allowed:
        raise BadInput(f"{owner}: {k.name}={shown(value)} is not allowed; {k.name} is {describe(k)}.")
    return converted


def is_one_of(value: Any, choices: Collection[Any]) -> bool:
    """Return whether `value` is among `choices`; False if it cannot be hashed."""
    try:
        return hash(value) is not None and value in choices
    except TypeError:  # a list or an array
        return False


def check_options(instance: Any, owner: str = "") -> None:
    """Check and convert every option of a frozen dataclass, in its `__post_init__`. `owner`: the name of the class in errors."""
    for name, k in options_of(type(instance)).items():
        value = check_option(owner or type(instance).__name__, k, getattr(instance, name))
        object.__setattr__(instance, name, value)


def read_option(owner: str, k: Option, text: str) -> Any:
    """Return the value that `text` means for an option: "4" is 4, "none" is None, "momentum:0.9" is `Momentum(0.9)`. The value is
    checked by `check_option`.
    """
    raw = text.strip()
    value: Any = raw
    if k.optional and raw.lower() in ("none", ""):
        return None
    if k.read is not None:
        value = k.read(raw)
    elif k.type is bool:
        value = TRUTH.get(raw.lower(), raw)
    elif k.type in (int, float):
        for kind in (k.type, float):  # "4.0" is a whole number, too
            try:
                value = kind(raw)
                break
            except (ValueError, OverflowError):
                continue
    return check_option(owner, k, value)


def write_option(k: Option, value: Any) -> str:
    """Return the text that `read_option` reads as exactly this value. Raises `BadInput` if there is no such text."""
    if value is None:
        return "none"
    text = k.write(value) if k.write is not None else _plain_text(value)
    if text is None:
        raise BadInput(f"{shown(value)} was made by hand: it has no short text.")
    return text


def _plain_text(value: Any) -> str | None:
    """Return a number in the shortest exact form, or text unchanged; None for other values."""
    if isinstance(value, float):
        return "inf" if math.isinf(value) else repr(value)
    return str(value) if isinstance(value, (bool, int, str)) else None


def parse_option(owner: str, options: dict[str, Option], text: str) -> tuple[str, Any]:
    """Convert `"s=3"` to `("s", 3)`: the name and the value, in the option's type. Used by the command line."""
    name, equals, raw = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise BadInput(f"{shown(text)} is not OPTION=VALUE.")
    if name not in options:
        raise lacks(owner, "setting", name, options)
    return name, read_option(owner, options[name], raw)
