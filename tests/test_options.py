"""Classes with options: the values are checked, and the docstring lists every parameter from its declaration."""

import inspect
import pickle
from dataclasses import dataclass, field
from textwrap import dedent

import pytest

from labkit.errors import BadInput
from labkit.options import Converted, HasOptions, option, options_of


@dataclass(frozen=True)
class Link(HasOptions):
    """A link between two nodes.

    It is first-in first-out.

    Parameters
    ----------
    ends : tuple of str
        The names of the two nodes.

    Examples
    --------
    >>> Link(latency=0.5).latency
    0.5
    """

    latency: float = option(0.0, low=0.0, high=1e7, unit="s", help="time of a message")
    ends: tuple[str, ...] = field(default_factory=tuple)
    order: str = option("fifo", choices=("fifo", "random"), live=True, help="order of the messages")
    hidden: int = 3


@dataclass(frozen=True, kw_only=True)
class Cable(Link):
    length: int = option(low=1, high=2**31 - 1, help="metres")


@dataclass(frozen=True, kw_only=True)
class Fibre(Cable):
    """A cable of glass."""


def test_the_docstring_lists_options_and_keeps_entries_of_other_fields():
    assert Link.__doc__ == dedent("""\
        A link between two nodes.

        It is first-in first-out.

        Parameters
        ----------
        latency : float, default: 0.0
            Time of a message. From 0 to 10**7 s.
        ends : tuple of str
            The names of the two nodes.
        order : {'fifo', 'random'}, default: 'fifo'
            Order of the messages. Can change during a run.

        Examples
        --------
        >>> Link(latency=0.5).latency
        0.5""")


def test_a_subclass_lists_inherited_options_and_a_required_one_has_no_default():
    assert Fibre.__doc__.startswith("A cable of glass.\n\nParameters\n----------\nlatency : float, default: 0.0\n")
    assert Fibre.__doc__.endswith("length : int\n    Metres. From 1 to 2**31 - 1.")


def test_values_are_checked_when_an_instance_is_made():
    assert Link(latency=1).latency == 1.0
    with pytest.raises(BadInput, match="Link: latency=-1 is not allowed"):
        Link(latency=-1)


def test_instances_have_the_docstring_and_can_be_pickled():
    assert pickle.loads(pickle.dumps(Link(0.5))) == Link(0.5)
    assert Link(0.5).__doc__ == Link.__doc__


@dataclass(frozen=True)
class Paced(HasOptions):
    """A link with a pace."""

    pace: "Converted[Link | None, float | str]" = option(None, read=float, write=str, help="time of a message")


def test_converted_fields_show_the_types_that_they_accept():
    assert str(inspect.signature(Paced)) == "(pace: 'Link | float | str | None' = None) -> None"
    assert "pace : Link | float | str | None, default: None" in Paced.__doc__


def test_the_class_checks_the_values_of_converted_fields():
    k = options_of(Paced)["pace"]
    assert (k.type, k.optional) == (object, True)
    assert Paced(3).pace == 3
