"""`python -m tests.seeded`: takes repairs of the past back, one at a time, and names the test that notices it.

Each patch is applied to a copy of the sources. The tests of its header run first, then the quick suite, then, for those that
survive, the slow suites. A test notices the defect if it fails with the patch, again, and passes without it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import click

from tests.seeded import ROOT, CodeGone, Seed, seeds

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "venv", ".*_cache", ".hypothesis", "*.egg-info", "build", "dist", "_build"
)
QUICK, SLOW = "not slow", "slow"
# a line of pytest's summary; pytest-xdist appends the group to the name
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?:@[\w/.]+)?(?: - .*)?$", re.MULTILINE)
NO_TESTS = 5  # pytest's exit code if no test was selected


class Verdict(NamedTuple):
    """What became of a patch: it was "caught", "survived", or its code is "gone"."""

    outcome: str
    text: str


class Run(NamedTuple):
    """A run of pytest in `tree`. `failed`: the first test that failed, or None; `seconds`: until then."""

    failed: str | None
    seconds: float


class Unclear(Exception):
    """pytest has ended with an error, and no test has failed."""


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the sources of `tree`, also in the processes that it starts."""
    environment = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "1000"}  # names of tests are not cut
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)


def run_tests(tree: Path, workers: int, mark: str, selected: Sequence[str] = (), but: Sequence[str] = ()) -> Run:
    """Run tests until one fails. `selected`: files or names, empty: all; `but`: names of tests that do not run.

    A test that hangs or ends its process is named only by pytest-xdist: without `workers`, the tests then run again with one.
    """
    began = time.monotonic()
    made = python(
        tree, "-m", "pytest", "-x", "-n", str(workers), "-rfE", "--tb=no", "-p", "no:cacheprovider", "-m", mark,
        "--ignore=tests/test_seeded.py", *(f"--deselect={name}" for name in but), *selected,
    )  # fmt: skip
    found = FAILED.search(made.stdout)
    if found is None and made.returncode not in (0, NO_TESTS):
        if not workers:
            return run_tests(tree, 1, mark, selected, but)
        raise Unclear(f"pytest ended with exit code {made.returncode}: {(made.stdout + made.stderr)[-2000:]}")
    return Run(found and found[1], time.monotonic() - began)


def fails(tree: Path, test: str) -> bool:
    """Run one test alone."""
    return run_tests(tree, 0, "", [test]).failed is not None


def examine(seed: Seed, unchanged: Path, folder: Path, workers: int, marks: Sequence[str]) -> Verdict:
    """Apply a patch to a copy of `unchanged` in `folder`, and run tests until one notices it."""
    try:
        texts = seed.changed(unchanged)
    except CodeGone as gone:
        return Verdict("gone", f"the code is gone: {str(gone).partition(':')[0]}")
    tree = folder / seed.name
    shutil.copytree(unchanged, tree, ignore=LEFT_OUT)
    try:
        for path, text in texts.items():
            (tree / path.relative_to(unchanged)).write_text(text)
        imported = python(tree, "-c", f"import labkit, {', '.join(seed.modules)}")
        if imported.returncode:
            return Verdict("survived", f"cannot be imported, which proves nothing: {imported.stderr[-500:]}")
        for mark in marks:
            for selected, number in ((seed.tests, 0), ((), workers)):
                but: list[str] = []
                while (run := run_tests(tree, number, mark, selected, but)).failed is not None:
                    if fails(tree, run.failed) and not fails(unchanged, run.failed):
                        slow = "" if mark == QUICK else ", which is slow"
                        return Verdict("caught", f"caught in {run.seconds:4.0f} s by {run.failed}{slow}")
                    but.append(run.failed)
    except Unclear as error:
        return Verdict("survived", str(error))
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return Verdict("survived", f"SURVIVED: {seed.fields['Repair']}")


def verdicts(chosen: Sequence[Seed], jobs: int, marks: Sequence[str]) -> Iterator[tuple[Seed, Verdict]]:
    """Yield patches with their verdicts, as they end."""
    workers = max(1, (os.cpu_count() or 1) // jobs)
    with tempfile.TemporaryDirectory(prefix="seeded-") as name, ThreadPoolExecutor(jobs) as pool:
        unchanged = Path(name) / "unchanged"
        shutil.copytree(ROOT, unchanged, ignore=LEFT_OUT)
        examined = {pool.submit(examine, seed, unchanged, Path(name), workers, marks): seed for seed in chosen}
        try:
            for future in as_completed(examined):
                yield examined[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List the patches, and run nothing.")
@click.option("--quick", is_flag=True, help="Do not run the slow suites for patches that survive the quick one.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Patches that are examined at a time."
)
def main(names: tuple[str, ...], listed: bool, quick: bool, jobs: int) -> None:
    """Take repairs of the past back, and name the test that notices each.

    NAMES are names of patches or areas, also with wildcards: ledger, recovery_*. By default all patches are applied to copies of
    the sources, one after the other. The exit code is 1 if one of them is not noticed.
    """
    known = seeds()
    chosen = [s for s in known if not names or any(fnmatch(s.name, n) or s.fields["Area"] == n for n in names)]
    if not chosen:
        raise click.ClickException(f"No patch is called {' or '.join(names)}; --list shows all names.")
    width = max(len(seed.name) for seed in chosen)
    if listed:
        for seed in chosen:
            click.echo(f"{seed.name:<{width}}  {seed.fields['Engine']:<12}  {seed.fields['Repair']}")
        return
    outcomes: Counter[str] = Counter()
    for seed, verdict in verdicts(chosen, jobs, (QUICK,) if quick else (QUICK, SLOW)):
        click.echo(f"{seed.name:<{width}}  {verdict.text}")
        outcomes[verdict.outcome] += 1
    click.echo(", ".join(f"{outcomes[name]} {name}" for name in ("caught", "survived", "gone")))
    sys.exit(1 if outcomes["survived"] else 0)


if __name__ == "__main__":
    main()
