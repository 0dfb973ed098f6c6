"""Makes the release of an assignment: reads a reference notebook, writes the students' files.

Before anything is written, the reference notebook's solutions must pass all its tests, and also the visible tests in
the released notebook. This guarantees that every release can be solved and that `labkit check` can be passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..bundle import ReleaseFiles, write_release
from ..grading.grade import record_outputs
from ..grading.nbval_run import Harness
from ..grading.rebuild import solutions_as_answers
from ..schema import Assignment, parse, read_notebook
from ..variants import digest, with_variant
from .reference_checks import check_reference
from .release import points_by_question, release


@dataclass(frozen=True)
class Released:
    """The files that `assign` has written, and the points (`by_hand`: those of cells graded by hand)."""

    files: ReleaseFiles
    name: str
    points: float
    by_hand: float


def read_reference(path: Path, seed: str | None) -> Assignment:
    """Read and check a reference notebook, and return it with the choices of `seed`. Raises `BadInput` with the violations of
    rules, each with the number of the cell.
    """
    reference = parse(read_notebook(path), str(path))
    check_reference(reference, str(path))
    return with_variant(reference, seed)


def assign(path: Path, folder: Path, seed: str | None, harness: Harness) -> Released:
    """Write the release of the reference notebook at `path`, with its bundle and the configuration for pytest, into `folder`.

    Raises `BadInput` if the reference notebook breaks a rule or does not pass its own tests; then nothing is written.
    """
    reference = read_reference(path, seed)
    answers = solutions_as_answers(reference)
    record_outputs(reference, answers, harness, "the reference notebook")
    notebook = release(reference, digest(reference, seed))
    base = parse(notebook, "the release")
    outputs = record_outputs(
        base,
        answers,
        harness,
        "the reference notebook's solutions in the release (which has no variant cell and no hidden tests)",
    )
    points = points_by_question(reference)
    files = write_release(folder, notebook, outputs, points)
    total, by_hand = (sum(row[name] for row in points.values()) for name in ("points", "by hand"))
    return Released(files, name=reference.name, points=total, by_hand=by_hand)
