"""Giving an assignment out: a master in, the students' notebook and its bundle out.

Its law: what is written has been proved first: the master's own solutions get full marks with all tests, and the same
solutions, in the students' version with only the tests that students see, get them again. So `check` can be passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .grading import record
from .rebuild import own_answers
from .release import points_of, release, write_release
from .rules import check_master
from .schema import Assignment, parse, read_notebook
from .validation import Harness
from .variants import digest, with_variant

__all__ = ["Released", "assign", "read_master"]


@dataclass(frozen=True)
class Released:
    """What `assign` has written."""

    notebook: Path
    bundle: Path
    name: str
    points: float
    by_hand: float


def read_master(path: Path, seed: str | None) -> Assignment:
    """A master with the choices of `seed` in it, every rule checked.

    Raises:
        BadInput: it breaks a rule; each is named with its cell.
    """
    master = parse(read_notebook(path), str(path))
    check_master(master, str(path))
    return with_variant(master, seed)


def assign(path: Path, folder: Path, seed: str | None, harness: Harness) -> Released:
    """Write the students' version of the master at `path` and its bundle into `folder`.

    Raises:
        BadInput: the master breaks a rule or does not get full marks; nothing is written then.
    """
    master = read_master(path, seed)
    answers = own_answers(master)
    record(master, answers, harness, "the master")
    notebook = release(master, digest(master, seed))
    base = parse(notebook, "the students' version")
    outputs = record(
        base,
        answers,
        harness,
        "the master's solutions in the students' version (which has no V cell and no hidden tests)",
    )
    points = points_of(master)
    files = write_release(folder, notebook, outputs, points)
    total, by_hand = (sum(row[name] for row in points.values()) for name in ("points", "by hand"))
    return Released(*files, name=master.name, points=total, by_hand=by_hand)
