"""The data sets by name, from their recipes."""

from __future__ import annotations

import inspect

from docs._ext.markdown import escaped, option_rows, plain_docstring, table
from labkit.data.registry import RECIPES, load
from labkit.options import options_of

__all__ = ["data_sets"]


def data_sets() -> str:
    """Return a table of all data sets with their sizes, and a section for each with its formula and options."""
    rows, parts = [], []
    for name, recipe in RECIPES.items():
        made = load(name)
        shape = " x ".join(map(str, made.image_shape)) if made.image_shape else str(made.x_train.shape[1])
        classes = f"{made.classes} classes" if made.classes else f"{made.y_train.shape[1]} number"
        rows.append(
            [f"[`{name}`](#data-{name})", f"{made.n_train:,}", f"{made.n_test:,}", shape, classes, str(made.dtype)]
        )
        parts += [f"(data-{name})=\n## {name}", escaped(made.about), plain_docstring(_formula(recipe))]
        options = options_of(recipe)
        if options:
            parts.append(
                table(["option", "default", "meaning", "allowed values"], option_rows(recipe, options.values()))
            )
    head = ["name", "training samples", "held-out samples", "features", "target", "dtype"]
    return "\n\n".join([table(head, rows), *filter(None, parts)])


def _formula(recipe: type) -> str:
    """Return the docstring of a recipe without its first paragraph, which the data set repeats, and without its options."""
    paragraphs = inspect.cleandoc(recipe.__doc__ or "").partition("\n\nParameters\n")[0].split("\n\n")
    return "\n\n".join(paragraphs[1:])
