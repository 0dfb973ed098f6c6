"""Docstrings of all public names are in numpydoc's format; `tests/test_docstrings.py` runs their examples."""

from __future__ import annotations

import dataclasses
import inspect

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

import labkit as lk
from labkit.options import HasOptions, options_of
from tests.test_docstrings import ALL, MEMBERS, NAMES, is_ours

# The checks of numpydoc, by the numbers that its documentation explains.
EVERYWHERE = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL10"),  # format; known sections, in order; not missing
    *("SS01", "SS02", "SS03", "SS04", "SS06"),  # a summary: a sentence on one line
    *("PR01", "PR02", "PR03"),  # the parameters of the signature, and no others, in their order
    *("PR04", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10"),  # each with its type and a description in sentences
    *("RT01", "RT03", "RT04", "RT05", "YD01"),  # what is returned, in sentences
    *("SA02", "SA03"),
}


def is_documented_above(path):
    """Whether a base class in labkit describes the parameters and the result of this method, or `Strategy` does, because it is a
    role: their arguments are the context and the components of the role.
    """
    if path not in MEMBERS:
        return False
    (member, owner), name = MEMBERS[path], path.rpartition(".")[2]
    if issubclass(owner, lk.Strategy) and inspect.iscoroutinefunction(member):
        return list(inspect.signature(member).parameters)[:2] == ["self", "ctx"]
    return any(vars(base)[name].__doc__ for base in owner.__mro__[1:] if is_ours(base) and name in vars(base))


def is_exempt(code, path, thing):
    """The section Parameters of a class with options is made from their declarations (GL02: it has no line after its end), and
    is not for parameters whose names begin with an underscore. `-> Self` and `-> Target` say that a method returns its object.
    What an effect yields to the engine is not for its caller.
    """
    if code in ("PR01", "RT01", "YD01") and is_documented_above(path):
        return True
    if code == "YD01":
        return bool(thing.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
    if code == "GL02":
        return isinstance(thing, type) and issubclass(thing, HasOptions)
    if code == "RT01":
        return getattr(thing, "__annotations__", {}).get("return") in ("Self", "Target")
    if code in ("PR01", "PR03"):
        doc = Validator(get_doc_object(thing))
        return list(doc.doc_all_parameters) == [name for name in doc.signature_parameters if not name.startswith("_")]
    return False


def format_errors(path):
    """What numpydoc reports about a docstring, of the checks that apply to it."""
    member, owner = MEMBERS.get(path, (NAMES.get(path), None))
    if owner is not None and not getattr(member, "__func__", member).__doc__:
        name = path.rpartition(".")[2]
        above = (vars(base).get(name) for base in owner.__mro__[1:] if is_ours(base))
        return [] if any(getattr(inherited, "__doc__", None) for inherited in above) else ["no docstring"]
    thing = Validator._load_obj(path)
    errors = validate(path)["errors"]
    return [f"{code} {text}" for code, text in errors if code in EVERYWHERE and not is_exempt(code, path, thing)]


def test_docstrings_are_in_the_format_of_numpydoc():
    assert len(ALL) > 500
    violations = [f"{path}: {error}" for path in ALL for error in format_errors(path)]
    assert not violations, "\n".join(violations)


def test_documented_defaults_are_those_of_the_options():
    checked, violations = 0, []
    for path, thing in NAMES.items():
        documented = Validator(get_doc_object(thing)).doc_all_parameters if dataclasses.is_dataclass(thing) else {}
        for name, k in options_of(thing).items() if documented else ():
            if name in documented and k.default is not dataclasses.MISSING:
                checked += 1
                if not documented[name][0].endswith(f"default: {k.default!r}"):
                    violations.append(f"{path}: {name} has the default {k.default!r}")
    assert checked > 100
    assert not violations, "\n".join(violations)
