"""Data sets by name: `load("digits")`, `load("spirals", arms=3)`.

A name refers to a recipe, and the options of the recipe are the options of `load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import lacks, nearest
from ..options import Option, options_of
from .checks import check_dtype, check_fraction, check_seed
from .clicks import Clicks
from .dataset import Dataset
from .digits import Digits
from .synthetic import Circles, LinearRegression, Moons, Quadratic, Recipe, Spirals

RECIPES: Mapping[str, type[Recipe]] = MappingProxyType(
    {recipe.name: recipe for recipe in (Digits, Moons, Circles, Spirals, Quadratic, LinearRegression, Clicks)}
)
NAMES: tuple[str, ...] = tuple(RECIPES)
OWN = "Data of your own: lk.Problem(lk.from_arrays(x, y)), or lk.from_csv(path)."

ALWAYS = ("seed", "test_fraction", "standardize", "dtype")


def dataset_options(name: str) -> dict[str, Option]:
    if not isinstance(name, str) or name not in RECIPES:
        raise nearest("data set", name, NAMES, OWN)
    return options_of(RECIPES[name])


def recipe_of(name: str, options: Mapping[str, Any]) -> Recipe:
    """Return the recipe that `load(name, **options)` uses.

    Raises `BadInput` if a name or an option is unknown, or a value is out of its limits.
    """
    known = dataset_options(name)
    for option in options:
        if option not in known:
            raise lacks(name, "option", option, [*known, *ALWAYS])
    return RECIPES[name](**options)


def load(
    name: str,
    *,
    seed: int = 0,
    test_fraction: float = 0.2,
    standardize: bool = True,
    dtype: Any = None,
    **options: Any,
) -> Dataset:
    """Make a data set by name, split by the seed and standardised by its training part.

    name: one of `NAMES`. test_fraction: the part that is held out. dtype: "float32" or "float64"; None is the data
    set's default: float32, and float64 for the quadratic. options: see `dataset_options(name)`.
    Raises `BadInput` if the name or an option is unknown (the message names the nearest), or a value is out of its
    limits.
    """
    recipe = recipe_of(name, options)
    kind = check_dtype(recipe.dtype if dtype is None else dtype)
    return recipe.build(check_seed(seed), check_fraction(test_fraction), bool(standardize), kind)
