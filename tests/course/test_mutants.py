"""The checks of the masters, hidden ones included, refuse answers with one small mistake."""

import json
from pathlib import Path

import pytest
from mutants import combinations, folded, in_variant, mutants, outputs_of, survives

from labkit.course.schema import parse
from labkit.course.variants import with_variant

MASTERS = Path(__file__).with_name("masters")


def drawn(name):
    """(master, its values) for variants in which every choice occurs."""
    notebook = json.loads(next(MASTERS.glob(f"{name}*")).read_text())
    for values in combinations(parse(notebook, name)):
        yield with_variant(parse(in_variant(notebook, values), name), None), values


OLD = """            while True:
                ready = next((r for r in waiting if may_go_on(r.sender, clocks, self.s)), None)
                if ready is None:
                    break
                waiting = [r for r in waiting if r is not ready]
"""
NEW = """            for ready in waiting:
                if not may_go_on(ready.sender, clocks, self.s):
                    continue
                waiting.remove(ready)
"""


@pytest.mark.parametrize("number", range(2))
def test_removing_from_a_list_while_iterating_over_it_loses_points(number):
    """It passes over the second of two workers that a single slow one has held back."""
    master, _ = list(drawn("04"))[number]
    answer = next(cell.source for cell in master.of_kind("solution") if cell.id == "q2")
    assert OLD in answer
    outputs = outputs_of(master)
    assert survives(master, {"q2": answer}, outputs)
    assert not survives(master, {"q2": answer.replace(OLD, NEW)}, outputs)


# (cell, what stands in the description, choice or ""): why such a mutant is the same answer
EQUIVALENT = {
    ("q1", "", "gpipe"): "ahead is then all micro-batches, so the loop is not entered, and min changes nothing",
    ("q2", "line 5 before line 4", ""): "a schedule ends with a backward, so the largest number is seen one step later",
}


@pytest.mark.slow
def test_every_mutant_of_the_pipelines_schedule_loses_points():
    for master, values in drawn("06"):
        outputs = outputs_of(master)
        for cell in master.of_kind("solution"):
            source = folded(cell.source, values)
            for what, text in mutants(source):
                same = any(
                    cell.id == where and words in what and (not choice or choice in values.values())
                    for where, words, choice in EQUIVALENT
                )
                assert same or not survives(master, {cell.id: text}, outputs), (cell.id, values, what)
