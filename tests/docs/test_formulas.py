"""Formulas of the documentation site are MathML."""

from xml.etree import ElementTree

from docs._ext.formulas import mathml


def test_a_fraction_has_its_numerator_and_its_denominator():
    for tex, over, under in [
        (r"\tfrac12 + x", "1", "2"), (r"\frac MP", "M", "P"), (r"\frac1N", "1", "N"), (r"\frac{1}{2}", "1", "2"),
    ]:  # fmt: skip
        fraction = ElementTree.fromstring(mathml(tex, as_block=True)).find(".//{*}mfrac")
        assert ["".join(part.itertext()).strip() for part in fraction] == [over, under], tex
