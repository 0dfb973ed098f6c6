"""What the simulator is measured against is the same model: as many updates, as stale, over at the same nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit as lk

ROOT = Path(__file__).resolve().parents[1]
LAWS = (lk.Deterministic(0.01), lk.Exponential(0.01))


@pytest.mark.parametrize("links", [False, True], ids=["no links", "links"])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
@pytest.mark.parametrize("workers", [1, 8, 30])
def test_simpy_ends_where_labkit_ends(workers: int, law: object, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simpy")
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.simulator import Case, labkit_run, simpy_outcome

    case = Case(workers, 20 * workers, law, links)
    ours, theirs = labkit_run(case).wait(), simpy_outcome(case)
    server = ours.trace.counters[0]
    assert theirs.virtual == ours.trace.ending["time"]
    assert sum(theirs.staleness.values()) == server.updates == case.updates
    assert theirs.staleness == server.staleness
    if law == lk.Deterministic(0.01):
        mean = sum(value * count for value, count in theirs.staleness.items()) / case.updates
        assert mean == pytest.approx(workers - 1, rel=0.05)  # less than N - 1 in the first round only
