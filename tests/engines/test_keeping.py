"""How often a shard is kept: by a clock of the test's own, and a store that takes as long as the test says."""

import types
from itertools import chain, repeat

import pytest

from labkit.engines.dask import keeping
from labkit.engines.dask.keeping import Keeper


class Shard:
    generation = version = 0

    def to_state(self):
        return {"version": self.version}


def kept(monkeypatch, tmp_path, durations, seconds, every=None):
    """[(when, how long)] of the checkpoints of a shard that never stops changing; looked at ten times a second."""
    now, found, durations = [0.0], [], iter(durations)
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(keeping, "time", clock)

    class Slow:
        def __init__(self, *_, **__):
            pass

        def known(self, role):
            return []

        def write(self, role, state, tag):
            took = next(durations)
            found.append((now[0], took))
            now[0] += took

    monkeypatch.setattr(keeping, "Store", Slow)
    spec = types.SimpleNamespace(name="server-0")
    ticket = types.SimpleNamespace(spec=spec, incarnation=0, every=every, folder=str(tmp_path), age=0)
    keeper, shard = Keeper(ticket, lambda what: None), Shard()
    while now[0] < seconds:
        shard.version += 1
        keeper.look(shard, round(now[0] * 1e9))
        now[0] += 0.1
    return found


def gaps(found):
    return [after - before for (before, _), (after, _) in zip(found, found[1:])]


@pytest.mark.parametrize("slow", [0, 1, 2, 5])
def test_one_checkpoint_that_was_held_up_does_not_delay_the_next(monkeypatch, tmp_path, slow):
    """Nineteen times 0.8 s would be 15 s without a checkpoint, which a loss would cost."""
    durations = chain(repeat(0.01, slow), [0.8], repeat(0.01))
    assert max(gaps(kept(monkeypatch, tmp_path, durations, 40))) < 2.2


@pytest.mark.parametrize("took", [0.1, 0.5, 2.0])
def test_checkpoints_that_always_take_long_take_a_twentieth_of_the_time(monkeypatch, tmp_path, took):
    found = kept(monkeypatch, tmp_path, repeat(took), 400)
    assert found[-1][0] > 300
    later = found[1:]
    share = sum(duration for _, duration in later[:-1]) / (later[-1][0] - later[0][0])
    assert 0.03 < share <= 0.0501


def test_quick_ones_come_once_a_second_or_as_often_as_was_asked_for(monkeypatch, tmp_path):
    assert all(1.0 <= gap < 1.2 for gap in gaps(kept(monkeypatch, tmp_path, repeat(0.001), 20))[1:])
    assert all(5.0 <= gap < 5.2 for gap in gaps(kept(monkeypatch, tmp_path, repeat(0.5), 60, every=5.0)))
