"""Frequency of checkpoints of a shard, with a clock and a storage duration that the test sets."""

import errno
from itertools import chain, repeat

import pytest

from labkit.engines.dask.worker.checkpointing import Checkpointing


class Shard:
    generation = version = 0

    def to_state(self):
        return {"version": self.version}


def kept(durations, seconds, every=None):
    """[(when, how long)] of the checkpoints of a shard that changes all the time; `due` is called ten times a second."""
    now, found, durations = [0.0], [], iter(durations)

    class Slow:
        def all_tags(self, role):
            return []

        def write(self, role, state, tag):
            took = next(durations)
            found.append((now[0], took))
            now[0] += took

    checkpoints, shard = Checkpointing("server-0", 0, Slow(), every, lambda text: None, lambda: now[0]), Shard()
    while now[0] < seconds:
        shard.version += 1
        checkpoints.save_if_due(shard, round(now[0] * 1e9))
        now[0] += 0.1
    return found


def gaps(found):
    return [after - before for (before, _), (after, _) in zip(found, found[1:])]


@pytest.mark.parametrize("slow", [0, 1, 2, 5])
def test_one_checkpoint_that_was_held_up_does_not_delay_the_next(slow):
    """A pause of nineteen times 0.8 s would be 15 s without a checkpoint, which a loss would cost."""
    durations = chain(repeat(0.01, slow), [0.8], repeat(0.01))
    assert max(gaps(kept(durations, 40))) < 2.2


@pytest.mark.parametrize("took", [0.1, 0.5, 2.0])
def test_checkpoints_that_always_take_long_take_a_twentieth_of_the_time(took):
    found = kept(repeat(took), 400)
    assert found[-1][0] > 300
    later = found[1:]
    share = sum(duration for _, duration in later[:-1]) / (later[-1][0] - later[0][0])
    assert 0.03 < share <= 0.0501


def test_short_checkpoints_are_written_once_a_second_or_at_the_given_interval():
    assert all(1.0 <= gap < 1.2 for gap in gaps(kept(repeat(0.001), 20))[1:])
    assert all(5.0 <= gap < 5.2 for gap in gaps(kept(repeat(0.5), 60, every=5.0)))


class Disk:
    """A store whose disk is full for a while."""

    full = True

    def write(self, role, state, tag):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", f"/somewhere/.draft-{tag}")

    def all_tags(self, role):
        return []


def test_a_checkpoint_that_fails_is_reported_once_and_again_when_it_works():
    reported, disk = [], Disk()
    checkpoints = Checkpointing("chief", 0, disk, None, reported.append)
    for step in range(43):
        checkpoints.request({"step": step}, None, 0)
        checkpoints.save(None, 0)
    assert len(reported) == 1
    assert "No space left" in reported[0]
    disk.full = False
    checkpoints.save(None, 0)
    checkpoints.save(None, 0)
    assert len(reported) == 2
    assert reported[1].startswith("saves its checkpoints again, after ")
    disk.full = True
    checkpoints.save(None, 0)
    assert len(reported) == 3
