"""Digests of simulated runs from the command line, in the folder of the project:

python tests/digests check [PATTERN ...]      compare with what is expected; names what differs (exit code 1)
python tests/digests list [PATTERN ...]       the names of the runs (with * in front of those of the quick set)
python tests/digests register NAME --reason TEXT --test NODE_ID --runs PATTERN ... --sections SECTION ...
                                              record an intended change, or record it again (reason, test, runs and
                                              sections are kept where they are not given); it becomes the last one
python tests/digests baseline                 record everything from the beginning (only on the commit of the baseline)
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from digest_adapter import FLOATS, SECTIONS, digests
from digest_runs import QUICK, RUNS
from digest_store import BASELINE, CHANGES, Change, baseline, changes, computed, expected, floats_comparable


def main() -> int:
    """Run the command named on the command line."""
    parser = argparse.ArgumentParser(prog="python tests/digests", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "list"):
        commands.add_parser(name).add_argument("patterns", nargs="*", default=["*"])
    register = commands.add_parser("register")
    register.add_argument("name")
    register.add_argument("--reason")
    register.add_argument("--test", help="node id of the test that shows that the new result is right")
    register.add_argument("--runs", nargs="+", help="patterns of the names of the runs that change")
    register.add_argument("--sections", nargs="+", help="the sections that change; all: those of new runs")
    register.add_argument("--all", action="store_true", help="carry out all runs, not these and the quick set only")
    commands.add_parser("baseline")
    commands.add_parser("compute", help="for the suite itself: names on standard input, digests on standard output")
    given = parser.parse_args()
    done = {"check": check, "list": names, "register": record, "baseline": begin, "compute": compute}
    return done[given.command](given)


def _matching(patterns: list[str]) -> list[str]:
    return [run.name for run in RUNS if any(fnmatch.fnmatchcase(run.name, pattern) for pattern in patterns)]


def check(given: argparse.Namespace) -> int:
    """Compare."""
    picked, wanted = _matching(given.patterns), expected(changes())
    reason = floats_comparable(baseline().environment)
    if reason:
        print(reason)
    bad = 0
    for run, made in computed(picked).digests.items():
        different = [s for s in made if made[s] != wanted.get(run, {}).get(s) and not (reason and s in FLOATS)]
        bad += bool(different)
        if different:
            print(f"{run}: {' '.join(different)}")
    print(f"{bad} of {len(picked)} runs differ")
    return int(bad > 0)


def names(given: argparse.Namespace) -> int:
    """List."""
    quick = {run.name for run in QUICK}
    for name in _matching(given.patterns):
        print("*" if name in quick else " ", name)
    return 0


def record(given: argparse.Namespace) -> int:
    """Record an intended change."""
    known = {change.name: change for change in changes()}
    old = known.pop(given.name, None)
    values = {
        "reason": given.reason or (old.reason if old else ""),
        "test": given.test or (old.test if old else ""),
        "runs": tuple(given.runs or (old.runs if old else ())),
        "sections": tuple(given.sections or (old.sections if old else ())),
    }
    if values["sections"] == ("all",):
        values["sections"] = SECTIONS
    if not all(values.values()):
        print("A new change needs --reason, --test, --runs and --sections.")
        return 2
    reason = floats_comparable(baseline().environment)
    if reason:
        print(f"An intended change is recorded where the baseline was: {reason}.")
        return 2
    before = expected(known.values())
    unknown = set(values["sections"]) - set(SECTIONS)
    if unknown:
        print(f"Unknown sections: {', '.join(sorted(unknown))}. There are {', '.join(SECTIONS)}.")
        return 2
    change = Change(given.name, max((c.order for c in known.values()), default=0) + 1, **values)
    other = []
    touched = {*_matching(list(values["runs"])), *(run.name for run in QUICK)}
    for run, made in computed(run.name for run in RUNS if given.all or run.name in touched).digests.items():
        different = {s: made[s] for s in made if made[s] != before.get(run, {}).get(s)}
        for section, digest in different.items():
            if change.covers(run, section):
                change.digests.setdefault(run, {})[section] = digest
            else:
                other.append(f"{run} {section}")
    if other:
        print(
            "These differ as well, and are not covered by --runs and --sections; nothing was recorded:",
            *other,
            sep="\n  ",
        )
        return 1
    if not change.digests:
        print("Nothing differs; nothing was recorded.")
        return 1
    change.save()
    count = sum(map(len, change.digests.values()))
    print(f"{CHANGES / given.name}.json: {count} sections of {len(change.digests)} runs")
    return 0


def begin(given: argparse.Namespace) -> int:
    """Record the baseline."""
    computed().save(BASELINE)
    return 0


def compute(given: argparse.Namespace) -> int:
    """Carry out runs in this process."""
    known = {run.name: run for run in RUNS}
    asked = json.loads(sys.stdin.read()) or known
    print(json.dumps({name: digests(known[name]) for name in asked}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
