"""The checks of the reference notebooks, hidden ones included, refuse answers with one small mistake.

`EQUIVALENT` lists the mutants that are correct answers, too. The quick test tries a few mutants of each assignment, the slow ones
a sixth of two variants, and with `LABKIT_TESTS=whole` all in all. Variants are those of `mutants.combinations`, in which
every choice occurs.
"""

from itertools import groupby
from operator import itemgetter

import pytest

from tests.course.mutants import ENOUGH, SECONDS, Checks, drawn, folded, mutants
from tests.course.wrong_answers import WRONG

SAMPLE = 3  # mutants of every assignment that the quick test tries

# (assignment, cell, text in the description, choice or ""): the reason why such a mutant is equivalent
EQUIVALENT = {
    ("01", "q3", "d for labels in line 9, column 35", "mean"): "d has as many rows as there are labels",
    ("01", "q3", "line 6: 0 becomes -1", ""): "total has one column, which is the last one, too",
    ("01", "q3", "before `rows = np.arange(len(labels))`", ""): "neither line needs the other",
    ("01", "q3", "`d = np.exp(shifted) / total` before", ""): "neither line needs the other",
    ("02", "q1", "`pushes = []` before", ""): "what is sent does not depend on the list of pushes",
    (
        "02",
        "q1",
        "rate, 'mean'): last argument left out",
        "",
    ): "the mean is what a server takes if no argument is given",
    ("02", "q1", "enumerate(ctx.batches(), 1): last", "1"): "of one gradient a step the number is not needed",
    ("02", "q1", "line 21: 1 becomes", "1"): "of one gradient a step the number is not needed",
    ("03", "q1", "shard.drop(request, 'late'): last", "dropped"): "a drop is late if no reason is given",
    ("04", "q2", "before `clocks, waiting = ", "full"): "neither line needs the other",
    ("04", "q2", "0 becomes", ""): "clocks that begin at another number, all at the same, are compared in the same way",
    ("04", "q2", "`waiting.append(request)` before", "reply"): "the gate is asked after both",
    ("04", "q2", "+= 1` before `await ctx.compute", ""): "the gate is asked after both",
    ("04", "q2", "before `if ready is None:`", ""): "if nothing is ready, nothing is taken out of the list",
    ("04", "q2", "before `waiting = [r for r in", ""): "the list is next read when the loop begins again",
    (
        "04",
        "q2",
        "request for ready in line 16",
        "apply",
    ): "a pull moves no clock, so it lets only its own worker go on",
    ("05", "q2", "`rank = members.index(ctx.name)` before", ""): "neither line needs the other",
    ("05", "q2", "before `for turn in range", ""): "the rate does not depend on what is sent",
    ("05", "q2", "')` before `rate", ""): "the rate does not depend on the gradient",
    ("05", "q2", "np.array(gradient.values): np.array left out", ""): "the worker's own gradient is not needed again",
    ("05", "q2", "n, 'mean'): last argument left out", ""): "the mean is what is taken if no argument is given",
    ("05", "q2", "(rank - side) % n: only", "right"): "-1 is the last member of a list",
    ("05", "q2", "(rank + side) % n: only", "left"): "-1 is the last member of a list",
    ("05", "q2", "rank - side * turn: sides exchanged", ""): "each piece is labelled: another order is as good",
    ("05", "q2", "without sender", ""): "messages come from one neighbour only",
    ("06", "q1", "without `ahead = min", "gpipe"): "ahead is all micro-batches, and min changes nothing",
    ("06", "q1", "before `ahead = min", "gpipe"): "ahead is all micro-batches, and min changes nothing",
    ("06", "q1", "min(ahead, micro_batches): the other", "gpipe"): "of two equal numbers either is both",
    ("06", "q1", "`for i in range(ahead,", "gpipe"): "ahead is then all micro-batches: the loop is not entered",
    ("06", "q1", "range(ahead, micro_batches): arguments", "gpipe"): "the loop is not entered",
    ("06", "q1", "range(ahead, micro_batches): shorter", "gpipe"): "the loop is not entered",
    ("06", "q1", "line 7", "gpipe"): "the loop is not entered",
    ("06", "q1", "micro_batches - ahead: sides exchanged", "gpipe"): "both are 0",
    (
        "06",
        "q2",
        "`most = max(most, now)` before",
        "",
    ): "a schedule ends with a backward: the most is seen a step later",
    ("07", "q1", "hidden for x in line 10, column 43", ""): "hidden has a row per sample, too",
    ("07", "q1", "y for x in line 17, column 29", ""): "there is a label for each sample",
    ("07", "q1", "y for x in line 20, column 17", ""): "there is a label for each sample",
    ("07", "q1", "y for x in line 21, column 53", ""): "there is a label for each sample",
    ("07", "q1", "`rows = np.arange(len(x))` before", ""): "neither line needs the other",
    ("07", "q1", "`d = np.exp(shifted) / total` before", ""): "neither line needs the other",
    ("07", "q1", "`g['output.bias'][...] = d.sum(axis=0)` before", ""): "neither line needs the other",
    ("07", "q1", "before `g['output.bias'][...] = d.sum(axis=0)`", ""): "neither line needs the other",
    ("07", "q1", "before `g['filter.weight'][...] = ", ""): "neither line needs the other",
    ("07", "q1", "(0, 1): elements 0 and 1 exchanged", ""): "a sum over both axes",
    ("07", "q1", "line 27: 0 becomes -1", ""): "total has one column, which is the last one, too",
    ("07", "q2", "zip(samples, gradients): arguments exchanged", "mean"): "a product in another order",
    ("07", "q2", "gradients for parts in line 4", "sum"): "parts are the gradients as they are",
    ("07", "q3", "line 3: 0 becomes", "waiting"): "a difference of two times, which both begin later",
    ("07", "q3", "line 3: 0 becomes", "hidden"): "a difference of two times, which both begin later",
}


def equivalent(name, cell, values, what):
    """The key in `EQUIVALENT` of a mutant, None if it has none."""
    for key in EQUIVALENT:
        assignment, where, words, choice = key
        if (
            (name, cell) == (assignment, where)
            and words in what
            and (not choice or choice in map(str, values.values()))
        ):
            return key
    return None


def changed(name, reference, values):
    """(cell, description, source, key in EQUIVALENT or None) of every mutant of a reference notebook's answers."""
    for cell in reference.of_kind("solution"):
        for what, text in mutants(folded(cell.source, values)):
            yield cell.id, what, text, equivalent(name, cell.id, values, what)


PARTS = 6  # of the mutants of a variant
SETS = [(name, number, part) for name in WRONG for number, _ in enumerate(drawn(name)) for part in range(PARTS)]


@pytest.mark.slow
@pytest.mark.sample(slow=2)
@pytest.mark.parametrize(("name", "number", "part"), SETS)
def test_every_incorrect_mutant_loses_points(name, number, part):
    reference, values = list(drawn(name))[number]
    checks, wrong = Checks(reference), []
    for cell, found in groupby(list(changed(name, reference, values))[part::PARTS], key=itemgetter(0)):
        checks.before(cell)
        for _, what, text, key in found:
            if checks.accept(text, SECONDS if key is None else ENOUGH) != (key is not None):
                wrong.append((cell, what))
    assert wrong == []  # mutants that survive and are not listed, or are listed and lose points


@pytest.mark.slow
def test_every_equivalent_mutant_exists():
    found = {key for name in WRONG for drawing in drawn(name) for *_, key in changed(name, *drawing)}
    assert found - {None} == set(EQUIVALENT)


@pytest.mark.slow
def test_a_sample_of_mutants_loses_points():
    for number, name in enumerate(WRONG):
        variants = list(drawn(name))
        reference, values = variants[number % len(variants)]
        checks = Checks(reference)
        wrong = [(cell, what, text) for cell, what, text, key in changed(name, reference, values) if key is None]
        for cell, what, text in (wrong[(3 * k + 1) * len(wrong) // (3 * SAMPLE)] for k in range(SAMPLE)):
            checks.before(cell)
            assert not checks.accept(text), (name, cell, values, what)


OLD = """            while True:
                ready = next((r for r in waiting if may_proceed(r.sender, clocks, self.s)), None)
                if ready is None:
                    break
                waiting = [r for r in waiting if r is not ready]
"""
NEW = """            for ready in waiting:
                if not may_proceed(ready.sender, clocks, self.s):
                    continue
                waiting.remove(ready)
"""


def test_removing_from_a_list_while_iterating_over_it_loses_points():
    """It skips the second of two workers that are blocked by a single slow one."""
    reference, _ = next(drawn("04"))
    answer = next(cell.source for cell in reference.of_kind("solution") if cell.id == "q2")
    assert OLD in answer
    checks = Checks(reference)
    checks.before("q2")
    assert checks.accept(answer, ENOUGH)
    assert not checks.accept(answer.replace(OLD, NEW))
