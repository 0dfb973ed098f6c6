"""Grading: the reference that answers are compared with, one submission, and a batch of them.

Its law: a question counts as the better of two runs, one with the student's own answers before it and one with the
reference's, so that a mistake is paid for once. The reference is made by the master's own solutions on the same way; a
master that does not get full marks twice, with the same outputs, grades nobody. A run that broke (a limit of wall time, a
dead kernel) says nothing of the answer: it is done again when nothing else runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from ..errors import BadInput, LabkitError
from .intake import Submission
from .marks import QuestionMark, Result, mark_questions, unearned
from .rebuild import Taken, own_answers, rebuild
from .schema import Assignment
from .validation import Harness, Outcome, Stopped, validate

__all__ = ["Key", "grade_all", "grade_one", "grade_single", "make_key", "record"]


@dataclass(frozen=True)
class Key:
    """What a submission is graded with. `check` has the release as its base, and no reference answers."""

    base: Assignment
    outputs: Mapping[str, Sequence[Mapping[str, Any]]]
    reference: Taken | None = None
    variant: str = ""


LOOK_S = 0.2  # seconds between two looks at whether a batch is to end


class _Broken(LabkitError):
    """A run gave no answer."""


def record(base: Assignment, answers: Taken, harness: Harness, where: str) -> dict[str, list[dict[str, Any]]]:
    """Outputs of the test cells under the reference's answers, after a second run has given the same.

    Raises:
        BadInput: a cell does not pass.
    """
    first = validate(rebuild(base, answers, None, harness.judge), harness)
    _must_pass(base, first, where)
    outputs = {cell.id: [dict(output) for output in first.cells[cell.id].outputs] for cell in base.of_kind("test")}
    _must_pass(base, validate(rebuild(base, answers, outputs, harness.judge), harness), f"{where}, run a second time")
    return outputs


def _must_pass(base: Assignment, outcome: Outcome, where: str) -> None:
    numbers = {cell.id: f"cell {cell.number} ({cell.id})" for cell in base.cells if cell.id}
    wrong = [
        f"{numbers.get(name, name)}: {cell.error}: {cell.message.strip() or 'no message'}"
        + (f"\n{cell.detail}" if cell.error == "NbCellError" else "")
        for name, cell in outcome.cells.items()
        if not cell.passed
    ]
    if outcome.broken:
        raise BadInput(f"{where} cannot be run: {outcome.broken}")
    if wrong:
        raise BadInput(f"{where} does not get full marks:\n  " + "\n  ".join(wrong))


def make_key(master: Assignment, variant: str, harness: Harness) -> Key:
    """The key of a master whose variant is chosen.

    Raises:
        BadInput: its own solutions do not get full marks.
    """
    answers = own_answers(master)
    return Key(master, record(master, answers, harness, "the master"), answers, variant)


# one submission -------------------------------------------------------------------------------------------------------


def grade_one(key: Key, submission: Submission, harness: Harness, again: bool = False) -> Result:
    """Grade one submission. `again`: it broke before, and now runs alone; a run that breaks again earns nothing.

    Raises:
        _Broken: a run gave no answer (never if `again`).
        Stopped: the batch was interrupted.
    """
    taken = submission.taken
    if taken is None:
        return replace(_nothing(key, submission, submission.problem), broken=submission.broken)
    notes = (*submission.notes, *taken.notes, *_other_variant(key, submission))
    try:
        marks = _marks(key, taken, harness, key.base)
    except _Broken as why:
        if not again:
            raise
        problem = f"the run broke twice, and was alone the second time: {why}"
        return replace(_nothing(key, submission, problem), notes=notes, broken=True)
    better = tuple(_better(key, taken, mark, harness, again) for mark in marks)
    return Result(submission.student, submission.path, better, notes)


def grade_single(key: Key, submission: Submission, harness: Harness) -> Result:
    """Grade one submission; if a run breaks, once more."""
    try:
        return grade_one(key, submission, harness)
    except _Broken:
        return grade_one(key, submission, harness, again=True)


def _nothing(key: Key, submission: Submission, problem: str) -> Result:
    return Result(submission.student, submission.path, unearned(key.base), submission.notes, problem)


def _other_variant(key: Key, submission: Submission) -> list[str]:
    released_as = submission.variant
    if not released_as or not key.variant or released_as == key.variant:
        return []
    return [f"it was given out as variant {released_as!r} and is graded as {key.variant!r}"]


def _marks(
    key: Key, taken: Taken, harness: Harness, base: Assignment, lent: Sequence[str] = ()
) -> tuple[QuestionMark, ...]:
    """Marks by question; in the solution cells `lent` the reference's answers count instead of the submission's."""
    reference = key.reference if lent else None
    outcome = validate(rebuild(base, taken, key.outputs, harness.judge, reference=reference, lent=lent), harness)
    if outcome.broken:
        raise _Broken(outcome.broken)
    return mark_questions(base, outcome, key.outputs, taken.explained, helped=bool(lent))


def _better(key: Key, taken: Taken, mark: QuestionMark, harness: Harness, again: bool) -> QuestionMark:
    """The question with the reference's answers to those before it, if that earns more.

    Answers after it stay the student's: the reference's would be there to be called.
    """
    solutions = key.base.of_kind("solution")
    own = [cell for cell in solutions if cell.question == mark.question]
    if mark.ok or key.reference is None or all(cell.id in taken.untouched for cell in own):
        return mark
    before = [cell.id for cell in solutions if cell.number < own[0].number]
    if not before:
        return mark
    last = max(cell.number for cell in key.base.of_kind("test") if cell.question == mark.question)
    cells = tuple(cell for cell in key.base.cells if cell.kind != "test" or cell.number <= last)
    try:
        marks = _marks(key, taken, harness, replace(key.base, cells=cells), before)
    except _Broken:
        if not again:
            raise
        return mark
    helped = next(each for each in marks if each.question == mark.question)
    return replace(helped, helped=True) if helped.earned > mark.earned else mark


# a batch --------------------------------------------------------------------------------------------------------------


def grade_all(
    key: Key,
    submissions: Sequence[Submission],
    harness: Harness,
    jobs: int,
    done: Callable[[int, Result], None] = lambda i, result: None,
) -> list[Result]:
    """Grade all, `jobs` at a time, in the order in which they were given.

    `done` is called on this thread as soon as a result is there, with its place among `submissions`.

    Raises:
        Stopped: `harness.stop` was set; nothing is left running.
        KeyboardInterrupt: the same for a signal.
    """
    results: dict[int, Result] = {}
    broken: list[int] = []
    with ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="grade") as pool:
        waiting = {pool.submit(grade_one, key, each, harness): i for i, each in enumerate(submissions)}
        try:
            while waiting:
                if harness.stop.is_set():
                    raise Stopped("Interrupted.")
                for future in wait(waiting, timeout=LOOK_S, return_when=FIRST_COMPLETED).done:
                    i = waiting.pop(future)
                    try:
                        results[i] = future.result()
                    except _Broken:
                        broken.append(i)
                    except (Stopped, KeyboardInterrupt):
                        raise
                    except Exception as why:  # a bug of ours must not cost the others their marks
                        nothing = _nothing(key, submissions[i], f"grading it failed ({type(why).__name__}: {why})")
                        results[i] = replace(nothing, broken=True)
                    if i in results:
                        done(i, results[i])
        except BaseException:
            harness.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for i in sorted(broken):
        results[i] = grade_one(key, submissions[i], harness, again=True)
        done(i, results[i])
    return [results[i] for i in range(len(submissions))]
