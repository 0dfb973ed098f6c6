"""Formulas as MathML, which browsers display without a script; Sphinx's own renderer loads one from the network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

__all__ = ["setup"]

FRACTION = re.compile(r"\\([dt]?frac)(?:\s+(\w)|(\d))\s*(\w)")  # a fraction of two characters without braces


def mathml(tex: str, as_block: bool) -> str:
    """Return a formula in TeX as MathML.

    docutils does not know `\\dots`, the dots of amsmath, and reads `\\frac12` as a fraction with the numerator 12.
    """
    tex = FRACTION.sub(r"\\\1{\2\3}{\4}", tex.replace(r"\dots", r"\ldots"))
    return str(tex2mathml(tex, as_block=as_block))


def visit_math(translator: Any, node: nodes.math) -> None:
    """Write a formula in a sentence."""
    translator.body.append(mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def visit_math_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer "mathml"."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
