"""Simulated runs are unchanged to the last bit: the digests of several hundred runs are compared with recorded ones.

A digest has sections (`digest_adapter.SECTIONS`: ledger, counters, spans, messages, parameters, ...), so that a change shows
where it is. Displayed text is in none of them; names are translated in `digest_adapter`, the only module to edit when labkit
renames something.

**A section differs and should not**: the change has altered behaviour; find out why. `python tests/digests check` (or `check
'kill/*'`) lists the runs and sections.

**A section differs and should**: write the test that shows, independently, that the new behaviour is right. Then register the
change, which carries out these runs and the quick set (`--all`: all runs) and stores the new digests in `changes/NAME.json`:

    python tests/digests register ledger-of-replicas --reason "Rounds are no longer counted for roles that compute nothing." \\
        --test tests/trace/test_x.py::test_y --runs 'kill/*' 'random/*' --sections ledger counters

Registration is refused if anything outside of `--runs` and `--sections` differs. After a merge or a rebase in which two changes
list the same section of the same run, register the newer one again (`register NAME`, with the change it has). The baseline
is never edited. New runs (a new option needs one) are added at the end of their list in `digest_runs`, and registered as a
separate change, with all sections.

**Floating-point sections** are compared where NumPy, BLAS, C library and machine are those of the recording, and are skipped with
the reason elsewhere. All runs are made with kernels that every x86-64 processor has, one thread, and without NumPy's
processor-specific loops: another choice of kernels (`OPENBLAS_CORETYPE=Haswell`) rounds differently, therefore it is fixed.
"""

import ast
from pathlib import Path

import digest_store as store
import pytest
from digest_adapter import FLOATS, PUBLIC, SECTIONS, today
from digest_runs import QUICK, RUNS

from labkit.options import options_of
from labkit.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
INTEGERS = tuple(section for section in SECTIONS if section not in FLOATS)


def differing(runs, record, sections):
    """["run: section section", ...] of what is not as expected."""
    wanted, found = store.expected(store.changes()), []
    for run in runs:
        made = record.digests[run.name]
        bad = [section for section in sections if made[section] != wanted.get(run.name, {}).get(section)]
        if bad:
            found.append(f"{run.name}: {' '.join(bad)}")
    return found


def check_integers(runs, record):
    reason = store.floats_comparable(store.baseline().environment)
    assert differing([r for r in runs if not (reason and r.times_follow_floats)], record, INTEGERS) == []


def check_floats(runs, record):
    reason = store.floats_comparable(store.baseline().environment)
    if reason:
        pytest.skip(reason)
    assert differing(runs, record, sorted(FLOATS)) == []


# the quick set -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick():
    return store.computed([run.name for run in QUICK])


def test_integers_of_the_quick_set(quick):
    check_integers(QUICK, quick)


def test_floats_of_the_quick_set(quick):
    check_floats(QUICK, quick)


def test_the_hash_seed_and_the_order_of_the_runs_change_nothing(quick):
    some = [run.name for run in QUICK][::12]
    again = store.computed(some[::-1], {"PYTHONHASHSEED": "1"})
    assert list(again.digests) == some[::-1]
    assert again.digests == {name: quick.digests[name] for name in some}


# the others ---------------------------------------------------------------------------------------------------------


OTHERS = [run for run in RUNS if run not in QUICK]


@pytest.fixture(scope="module")
def others():
    return store.computed([run.name for run in OTHERS])


@pytest.mark.slow
def test_integers_of_the_other_runs(others):
    check_integers(OTHERS, others)


@pytest.mark.slow
def test_floats_of_the_other_runs(others):
    check_floats(OTHERS, others)


# recorded data -------------------------------------------------------------------------------------------------------


def test_every_run_has_a_digest_of_every_section():
    assert len(RUNS) >= 300
    recorded = store.expected(store.changes())
    assert set(store.baseline().digests) <= set(recorded) == {run.name for run in RUNS}
    assert all(tuple(sections) == SECTIONS for sections in recorded.values())


def test_every_strategy_and_each_of_its_own_options_is_in_a_run():
    seen = {}
    for run in RUNS:
        kind, given = today(run.strategy.kind, run.strategy.options)
        seen.setdefault(PUBLIC.get(kind, kind), set()).update(PUBLIC.get(option, option) for option in given)
    assert set(seen) == {kind.__name__ for kind in STRATEGIES.values()}
    anywhere = set().union(*seen.values())
    for kind in STRATEGIES.values():
        assert set(options_of(kind)) <= anywhere, kind
        own = {name for name in options_of(kind) if name in vars(kind).get("__annotations__", {})}
        assert own - {"learning_rate"} <= seen[kind.__name__], kind


def test_the_quick_set_has_every_feature_of_all_runs():
    assert frozenset().union(*(run.features() for run in QUICK)) == frozenset().union(*(run.features() for run in RUNS))
    assert len(QUICK) < len(RUNS) / 4


# intended changes ----------------------------------------------------------------------------------------------------


def defined(node_id):
    """Whether this test exists: a file, and in it the class and function that follow the colons."""
    path, *names = node_id.partition("[")[0].split("::")
    if not (ROOT / path).is_file() or not names:
        return False
    scope = ast.parse((ROOT / path).read_text()).body
    for name in names:
        found = [node for node in scope if getattr(node, "name", None) == name]
        if not found:
            return False
        scope = found[0].body
    return True


def test_a_test_that_is_not_there_is_not_found():
    here = "tests/digests/test_digests.py"
    assert defined(f"{here}::test_a_test_that_is_not_there_is_not_found[x-1]")
    assert not any(map(defined, [here, f"{here}::test_of_nothing", "tests/digests/nothing.py::defined"]))


def test_each_intended_change_has_a_reason_and_a_test_and_is_a_change():
    before, runs = store.expected(()), {run.name for run in RUNS}
    for change in store.changes():
        assert len(change.reason) > 20, change.name
        assert defined(change.test), f"{change.name}: there is no test {change.test}"
        assert change.digests, change.name
        assert set(change.sections) == {s for made in change.digests.values() for s in made}, f"{change.name}: sections"
        for run, made in change.digests.items():
            assert run in runs, f"{change.name}: {run}"
            for section, digest in made.items():
                assert change.covers(run, section), f"{change.name}: {run} {section} is not what it says it changes"
                assert digest != before.get(run, {}).get(section), (
                    f"{change.name}: {run} {section} is what it was; register it again"
                )
        for run, made in change.digests.items():
            before.setdefault(run, {}).update(made)
