"""Seeded defects: each `*.patch` takes one repair of the past back, and the tests have to notice it.

A patch is a unified diff of `labkit/` (`git diff -U2 labkit`) below a header:

    Repair: what holds since the repair, in a sentence
    Commit: the commit of the repair
    Area:   one of `AREAS`
    Engine: processes, virtual time, both, or any if there is no run
    Tests:  files or folders that probably notice it, separated by spaces; they run first

Its hunks are found by their lines, not by the line numbers. Whoever changes this place changes the patch, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
AREAS = ("ledger", "recovery", "transport", "staleness", "advice", "grader", "page", "files", "data", "tasks", "models")
ENGINES = ("processes", "virtual time", "both", "any")
FIELDS = ("Repair", "Commit", "Area", "Engine", "Tests")


class CodeGone(Exception):
    """The lines that a patch changes are not in the code any more, or are there several times."""


class Hunk(NamedTuple):
    """One change: `file`, relative to the root, has the lines `before`, and gets `after`."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Seed:
    """One patch. `fields`: the header."""

    name: str
    fields: dict[str, str]
    hunks: tuple[Hunk, ...]

    @classmethod
    def read(cls, path: Path) -> Seed:
        """Read a patch."""
        header, _, diff = path.read_text().partition("\n\n")
        fields = dict(re.findall(r"^(\w+): *(.*)$", header, re.MULTILINE))
        return cls(path.stem, fields, tuple(_hunks(diff)))

    @property
    def tests(self) -> list[str]:
        """The tests that run first."""
        return self.fields["Tests"].split()

    @property
    def modules(self) -> list[str]:
        """The names of the modules that it changes."""
        files = {hunk.file for hunk in self.hunks}
        return sorted(file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files)

    def changed(self, root: Path) -> dict[Path, str]:
        """Return {file: its text after the change} of the sources at `root`. Raises `CodeGone`."""
        texts: dict[Path, str] = {}
        for file, before, after in self.hunks:
            path = root / file
            text = texts.get(path) or (path.read_text() if path.exists() else "")
            found = f"\n{text}".count(f"\n{before}")
            if found != 1:
                what = f"has these lines {found} times" if found else "does not have these lines"
                raise CodeGone(f"{file} {what}:\n{before}")
            texts[path] = f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:]
        return texts


def _hunks(diff: str) -> Iterator[Hunk]:
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        head, *bodies = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        file = re.search(r"^\+\+\+ b/(\S+)", head, re.MULTILINE)
        for body in bodies:
            lines = [line for line in body.splitlines() if line[:1] in ("-", "+", " ", "")]
            before, after = (
                "".join(f"{line[1:]}\n" for line in lines if line[:1] != left_out) for left_out in ("+", "-")
            )
            yield Hunk(file[1] if file else "", before, after)


def seeds() -> list[Seed]:
    """Return all patches, by name."""
    return [Seed.read(path) for path in sorted(FOLDER.glob("*.patch"))]
