"""Pipeline schedules: times and memory by an independent exact oracle, and invariants of every order."""

from fractions import Fraction
from itertools import islice, product

import pytest

from labkit.roles.model_parallel.partitioning import balanced
from labkit.roles.model_parallel.schedules import BACKWARD, FORWARD, SCHEDULES, WEIGHTS, pipe_dream

SHAPES = [(1, 1), (1, 4), (2, 2), (2, 4), (3, 9), (4, 4), (4, 8), (4, 3), (5, 2), (8, 16)]


def allowed(order, stages, micro):
    return order != "interleaved" or (stages > 1 and micro % stages == 0)


CASES = [(order, *shape) for order in SCHEDULES for shape in SHAPES if allowed(order, *shape)]


def played(order, stages, micro, tf, tb, chunks=1, tw=0):
    """End time of each stage and the most micro-batches it has held, if it executes its list in order and waits for its
    inputs: a table of finishing times, filled until it is complete.
    """
    lists = [SCHEDULES[order](stages, micro, k, chunks) for k in range(stages)]
    done, clock, place = {}, [Fraction(0)] * stages, [0] * stages
    held, most = [0] * stages, [0] * stages
    before = None
    while place != before:
        before = list(place)
        for k, works in enumerate(lists):
            for work in works[place[k] :]:
                piece, last = work.chunk * stages + k, chunks * stages - 1
                if work.kind == FORWARD:
                    need = (FORWARD, work.micro, piece - 1) if piece else None
                elif work.kind == BACKWARD:
                    need = (BACKWARD, work.micro, piece + 1) if piece < last else (FORWARD, work.micro, piece)
                else:
                    need = (BACKWARD, work.micro, piece)
                if need is not None and need not in done:
                    break
                length = {FORWARD: tf, BACKWARD: tb - tw if work.split else tb, WEIGHTS: tw}[work.kind]
                clock[k] = max(clock[k], done.get(need, Fraction(0))) + Fraction(length) / chunks
                done[work.kind, work.micro, piece] = clock[k]
                held[k] += (work.kind == FORWARD) - (work.kind == WEIGHTS or (work.kind == BACKWARD and not work.split))
                most[k] = max(most[k], held[k])
                place[k] += 1
    assert place == [len(works) for works in lists], "a deadlock"
    return max(clock), most


def test_every_piece_is_executed_once_and_in_order():
    for order, stages, micro in CASES:
        chunks = 2 if order == "interleaved" else 1
        for k in range(stages):
            works = SCHEDULES[order](stages, micro, k, chunks)
            pieces = [(work.kind, work.micro, work.chunk) for work in works]
            assert len(set(pieces)) == len(pieces), (order, stages, micro)
            kinds = (FORWARD, BACKWARD, WEIGHTS) if order == "zb-h1" else (FORWARD, BACKWARD)
            assert set(pieces) == {(kind, m, c) for kind in kinds for m in range(micro) for c in range(chunks)}
            for kind in kinds:  # gradients are added in one order, for every schedule
                for c in range(chunks):
                    assert [m for what, m, chunk in pieces if (what, chunk) == (kind, c)] == list(range(micro))
            assert all(work.split == (order == "zb-h1") for work in works if work.kind == BACKWARD), (
                order,
                stages,
                micro,
            )


def test_neighbours_hand_on_in_the_order_in_which_they_take():
    """A link is first-in first-out: what one sends next must be what the other expects next."""
    for order, stages, micro in CASES:
        chunks = 2 if order == "interleaved" else 1
        last = chunks * stages - 1
        lists = [SCHEDULES[order](stages, micro, k, chunks) for k in range(stages)]
        for k in range(stages):
            for kind, step in ((FORWARD, 1), (BACKWARD, -1)):
                other = (k + step) % stages
                sent = [(w.micro, w.chunk * stages + k + step) for w in lists[k] if w.kind == kind]
                taken = [(w.micro, w.chunk * stages + other) for w in lists[other] if w.kind == kind]
                mine = {p for _, p in sent}
                assert [x for x in sent if 0 <= x[1] <= last] == [x for x in taken if x[1] in mine], (
                    order,
                    stages,
                    micro,
                )


def test_gpipe_and_1f1b_take_the_time_of_the_formula():
    for order, stages, micro in [c for c in CASES if c[0] in ("gpipe", "1f1b")]:
        assert played(order, stages, micro, 1, 2)[0] == (micro + stages - 1) * 3, (order, stages, micro)


def test_bubble_of_an_example_pipeline():
    """P=4, M=8, tf=1, tb=2: 33, of which 9 are bubble."""
    for order in ("gpipe", "1f1b"):
        time = played(order, 4, 8, 1, 2)[0]
        assert time == 33
        assert (time - 8 * 3) / time == Fraction(3, 11)


def test_activations_held_by_each_stage():
    for stages, micro in SHAPES:
        assert played("gpipe", stages, micro, 1, 2)[1] == [micro] * stages, (stages, micro)
        assert played("1f1b", stages, micro, 1, 2)[1] == [min(micro, stages - k) for k in range(stages)], (
            stages,
            micro,
        )


def test_memory_of_an_example_pipeline():
    assert played("gpipe", 4, 8, 1, 2)[1] == [8, 8, 8, 8]
    assert played("1f1b", 4, 8, 1, 2)[1] == [4, 3, 2, 1]


def test_interleaving_divides_the_bubble():
    for (stages, micro), chunks in product([(2, 2), (2, 6), (4, 4), (4, 8), (3, 9)], [1, 2, 3, 5]):
        assert played("interleaved", stages, micro, 1, 2, chunks)[0] == micro * 3 + Fraction((stages - 1) * 3, chunks)


def test_interleaving_of_an_example_pipeline():
    assert played("interleaved", 4, 8, 1, 2, 2)[0] == Fraction(57, 2)


def test_zero_bubble_schedule_has_the_published_length():
    """(P-1)(tF + tB - tW) with tF = tB = tW = 1; no stage holds more than stage 0 of 1F1B does."""
    for stages, micro in [shape for shape in SHAPES if shape[1] >= shape[0]]:
        time, held = played("zb-h1", stages, micro, 1, 2, tw=1)
        assert time == micro * 3 + stages - 1, (stages, micro)
        assert max(held) == max(played("1f1b", stages, micro, 1, 2)[1]), (stages, micro)
        assert stages != 4 or micro != 8 or time == 27, (stages, micro)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_pipe_dream_keeps_as_many_under_way_as_there_are_stages(stages):
    for k in range(stages):
        works = list(islice(pipe_dream(stages, k), 101))
        under_way = steps = 0
        for work in works:
            if work.kind == FORWARD:
                under_way += 1
                assert under_way <= stages - k
            else:  # as many steps were made since its forward as there are stages behind this one
                assert work.micro == steps
                steps += 1
                under_way -= 1
        assert steps == (101 - (stages - 1 - k)) // 2


def test_balanced_cuts_are_the_best_of_all():
    for work in [[1, 1, 1, 1], [5, 1, 1, 1], [1, 2, 3, 4, 5, 6], [3], [9, 1, 9, 1, 9, 1]]:
        from itertools import combinations

        for pieces in range(1, len(work) + 1):
            cuts = balanced(work, pieces)
            assert [a for a, _ in cuts[1:]] == [b for _, b in cuts[:-1]], work
            assert (cuts[0][0], cuts[-1][1], len(cuts)) == (0, len(work), pieces), work
            assert all(a < b for a, b in cuts), work
            edges = [(0, *c, len(work)) for c in combinations(range(1, len(work)), pieces - 1)]
            least = min(max(sum(work[a:b]) for a, b in zip(e, e[1:])) for e in edges)
            assert max(sum(work[a:b]) for a, b in cuts) == least, work
