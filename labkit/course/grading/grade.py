"""Grades one submission or many, by comparison with the outputs of the tests for the reference notebook's solutions.

A question is graded in two runs: with the student's own answers to the questions before it, and with the reference's
answers to them. The better score counts, so that a mistake costs points only once. If a test fails, its visible part runs
again without hidden tests: from this run is the text that the student is shown. A reference notebook must pass its
own tests twice, with equal outputs; else grading raises `BadInput`. A run that broke (it exceeded the limit of wall
time, or its kernel died) is not a result for the answer, and is repeated when no other notebook runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadInput, LabkitError
from ..regions import released
from ..schema import Assignment, Cell
from .answers import Answers
from .nbval_run import Harness, Interrupted, RunResult, run_notebook
from .rebuild import rebuild, solutions_as_answers
from .scores import QuestionScore, Result, failed_with_text, score_questions, zero_scores
from .submissions import Submission


@dataclass(frozen=True)
class GradingKey:
    """The reference for grading: the base notebook, the outputs of its tests, and the reference's answers.

    `check` uses the release as the base, without `reference_answers`.
    """

    base: Assignment
    outputs: Mapping[str, Sequence[Mapping[str, Any]]]
    reference_answers: Answers | None = None
    variant: str = ""


POLL_S = 0.2  # between two checks of the stop event


class _Broken(LabkitError):
    pass


def record_outputs(base: Assignment, answers: Answers, harness: Harness, where: str) -> dict[str, list[dict[str, Any]]]:
    """Record the outputs of the test cells with the reference's answers, and confirm them by a second run.

    Raises `BadInput` if a cell does not pass, or if the second run gives other outputs.
    """
    first = run_notebook(rebuild(base, answers, None, harness.answers_module), harness)
    _must_pass(base, first, where)
    outputs = {cell.id: [dict(output) for output in first.cells[cell.id].outputs] for cell in base.of_kind("test")}
    second = run_notebook(rebuild(base, answers, outputs, harness.answers_module), harness)
    _must_pass(base, second, f"{where}, run a second time")
    return outputs


def _must_pass(base: Assignment, outcome: RunResult, where: str) -> None:
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
        raise BadInput(f"{where} does not pass its own tests:\n  " + "\n  ".join(wrong))


def make_key(reference: Assignment, variant: str, harness: Harness) -> GradingKey:
    """Make the grading key of a reference notebook with its variant applied. Raises `BadInput` if its solutions do not pass."""
    answers = solutions_as_answers(reference)
    return GradingKey(
        reference, record_outputs(reference, answers, harness, "the reference notebook"), answers, variant
    )


# one submission -------------------------------------------------------------------------------------------------------


def grade_one(key: GradingKey, submission: Submission, harness: Harness, again: bool = False) -> Result:
    """Grade one submission. Raises `_Broken` if a run gave no result.

    `again`: a run of this submission broke before, and no other notebook runs now. If a run breaks again, the submission gets
    no points.
    """
    answers = submission.answers
    if answers is None:
        return replace(_zero(key, submission, submission.problem), broken=submission.broken)
    notes = (*submission.notes, *answers.notes, *_other_variant(key, submission))
    try:
        scores = _scores(key, answers, harness, key.base)
    except _Broken as why:
        if not again:
            raise
        problem = f"the run broke twice, the second time without other runs: {why}"
        return replace(_zero(key, submission, problem), notes=notes, broken=True)
    better = tuple(_better(key, answers, score, harness, again) for score in scores)
    return Result(submission.student, submission.path, better, notes)


def grade_single(key: GradingKey, submission: Submission, harness: Harness) -> Result:
    """Grade one submission; repeat once if a run breaks."""
    try:
        return grade_one(key, submission, harness)
    except _Broken:
        return grade_one(key, submission, harness, again=True)


def _zero(key: GradingKey, submission: Submission, problem: str) -> Result:
    return Result(submission.student, submission.path, zero_scores(key.base), submission.notes, problem)


def _other_variant(key: GradingKey, submission: Submission) -> list[str]:
    released_as = submission.variant
    if not released_as or not key.variant or released_as == key.variant:
        return []
    return [f"it was released as variant {released_as!r} and is graded as {key.variant!r}"]


def _scores(
    key: GradingKey, answers: Answers, harness: Harness, base: Assignment, replaced: Sequence[str] = ()
) -> tuple[QuestionScore, ...]:
    """Return the scores by question, with the reference's answers in the solution cells `replaced`."""
    reference_answers = key.reference_answers if replaced else None
    rebuilt = rebuild(
        base, answers, key.outputs, harness.answers_module, reference_answers=reference_answers, replaced=replaced
    )
    outcome = run_notebook(rebuilt, harness)
    if outcome.broken:
        raise _Broken(outcome.broken)
    shown = outcome if replaced else _shown(key, answers, harness, base, outcome)
    return score_questions(base, outcome, key.outputs, answers.explained, with_reference=bool(replaced), shown=shown)


def _shown(key: GradingKey, answers: Answers, harness: Harness, base: Assignment, outcome: RunResult) -> RunResult:
    """Return the results whose texts the student is shown: of a run without hidden tests.

    In the run of all tests, submitted code could tell by its text what a hidden test passed before: even if it keeps
    nothing, a function can take a time that depends on its arguments, and a later one can read the clock.
    """
    failed = failed_with_text(base, outcome)
    tests = {cell.id: released(cell.source, "test") for cell in base.of_kind("test")}
    if not failed or all(tests[cell.id] == cell.source for cell in base.of_kind("test")):
        return outcome
    cells = tuple(replace(cell, source=tests.get(cell.id, cell.source)) for cell in _up_to(base, failed[-1].number))
    outputs = {cell.id: key.outputs[cell.id] for cell in base.of_kind("test") if tests[cell.id] == cell.source}
    shown = run_notebook(rebuild(replace(base, cells=cells), answers, outputs, harness.answers_module), harness)
    if shown.broken:
        raise _Broken(shown.broken)
    return shown


def _up_to(base: Assignment, last: int) -> tuple[Cell, ...]:
    """Return the cells without the tests after number `last`."""
    return tuple(cell for cell in base.cells if cell.kind != "test" or cell.number <= last)


def _better(key: GradingKey, answers: Answers, score: QuestionScore, harness: Harness, again: bool) -> QuestionScore:
    """Return the better of two scores of a question: `score`, and with the reference's answers to the questions before it.

    The student's answers to later questions are not replaced, because the student's code could call the reference's.
    """
    solutions = key.base.of_kind("solution")
    own = [cell for cell in solutions if cell.question == score.question]
    if score.ok or key.reference_answers is None or all(cell.id in answers.untouched for cell in own):
        return score
    before = [cell.id for cell in solutions if cell.number < own[0].number]
    if not before:
        return score
    last = max(cell.number for cell in key.base.of_kind("test") if cell.question == score.question)
    try:
        scores = _scores(key, answers, harness, replace(key.base, cells=_up_to(key.base, last)), before)
    except _Broken:
        if not again:
            raise
        return score
    improved = next(each for each in scores if each.question == score.question)
    return replace(improved, with_reference=True) if improved.earned > score.earned else score


# a batch --------------------------------------------------------------------------------------------------------------


def grade_all(
    key: GradingKey,
    submissions: Sequence[Submission],
    harness: Harness,
    jobs: int,
    done: Callable[[int, Result], None] = lambda i, result: None,
) -> list[Result]:
    """Grade all submissions, `jobs` at a time, and return the results in the order of `submissions`. `done(i, result)` is
    called on this thread after each result.

    Raises `Interrupted` if `harness.stop` was set, and KeyboardInterrupt if a signal arrived; all runs have ended then.
    """
    results: dict[int, Result] = {}
    broken: list[int] = []
    with ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="grade") as pool:
        waiting = {pool.submit(grade_one, key, each, harness): i for i, each in enumerate(submissions)}
        try:
            while waiting:
                if harness.stop.is_set():
                    raise Interrupted("Interrupted.")
                for future in wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED).done:
                    i = waiting.pop(future)
                    try:
                        results[i] = future.result()
                    except _Broken:
                        broken.append(i)
                    except (Interrupted, KeyboardInterrupt):
                        raise
                    except Exception as why:  # an error in labkit must not end the batch
                        zero = _zero(key, submissions[i], f"grading it failed ({type(why).__name__}: {why})")
                        results[i] = replace(zero, broken=True)
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
