"""Variants depend on the seed only."""

import os
import subprocess
import sys

import pytest

from labkit.course.schema import parse
from labkit.course.variants import choose, digest, with_variant
from tests.course import toy_reference as toy

MANY = {f"v{i}": [{"value": j, "words": f"word {j}"} for j in range(5)] for i in range(20)}


def values(variants, seed):
    return {key: choice["value"] for key, choice in choose(parse(toy.notebook(variants=variants), "m"), seed).items()}


def test_without_a_seed_the_first_choices_are_used():
    assert set(values(MANY, None).values()) == {0}


def test_choices_do_not_depend_on_the_order_of_the_metadata():
    backwards = dict(reversed(MANY.items()))
    assert values(backwards, "2026") == values(MANY, "2026")


def test_a_choice_does_not_depend_on_the_other_variants():
    assert values({"v7": MANY["v7"]}, "2026")["v7"] == values(MANY, "2026")["v7"]


def test_seeds_differ_and_every_choice_is_drawn():
    drawn = [tuple(values(MANY, str(seed)).values()) for seed in range(40)]
    assert len(set(drawn)) == 40
    assert {value for row in drawn for value in row} == {0, 1, 2, 3, 4}


@pytest.mark.slow
def test_choices_do_not_depend_on_the_hash_seed():
    script = "from labkit.course.variants import _number as n\nprint([n('a', str(i), 'seed') % 7 for i in range(9)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


def seed_for(value):
    reference = parse(toy.notebook(), "m")
    return next(str(seed) for seed in range(100) if choose(reference, str(seed))["scale"]["value"] == value)


def test_texts_and_values_of_a_variant_are_filled_in():
    raw = toy.notebook()
    raw["cells"][0]["source"] = "{{scale}}, {{ scale.value }}"
    made = with_variant(parse(raw, "m"), seed_for(5))
    assert made.cells[0].source == "five times, 5"
    assert made.cells[1].source == "V = {'scale': 5}"
    assert '"""Return x five times."""' in made.cells[4].source


def test_double_braces_in_code_are_kept():
    raw = toy.notebook()
    raw["cells"][2]["source"] = 'x = f"{{other}}"'
    assert with_variant(parse(raw, "m"), "1").cells[2].source == 'x = f"{{other}}"'


def test_digests_differ_between_seeds_and_do_not_reveal_choices():
    reference = parse(toy.notebook(), "m")
    assert digest(reference, None) == "first"
    assert len({digest(reference, str(seed)) for seed in range(100)}) == 100
