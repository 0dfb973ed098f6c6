"""Checkpoints of a shard: their frequency, with a clock and a storage duration that the test sets, and damaged ones."""

import errno
import itertools
from itertools import chain, repeat

import pytest

import labkit as lk
from labkit.engines.dask.client.checkpoints import RunCheckpoints
from labkit.engines.dask.client.resume import resumed_states
from labkit.engines.dask.worker.checkpointing import Checkpointing
from labkit.engines.plan import copied_shard, make_plan
from labkit.engines.storage.store import Store
from labkit.trace.events import RoleRestarted


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


# damaged checkpoints --------------------------------------------------------------------------------------------------

PLAN = make_plan(lk.Problem("moons", hidden=(3,)), lk.AsyncPS(), lk.SimulatedCluster(workers=2, servers=2).spec)


def server(version=0):
    shard = copied_shard(PLAN, PLAN.layout.roles[0], lambda: 0, PLAN.problem.objective(), PLAN.strategy)
    shard.version = version
    return shard


@pytest.fixture
def store(tmp_path):
    """Two checkpoints of both servers, at updates 5 and 9."""
    made = Store(tmp_path)
    for role, version in itertools.product(("server-0", "server-1"), (5, 9)):
        made.write(role, copied_shard(
            PLAN, PLAN.layout.roles[PLAN.role_ids[role]], lambda: 0, PLAN.problem.objective(), PLAN.strategy
        ).to_state() | {"version": version}, version)  # fmt: skip
    return made


def damage(store, role, version, contents=None):
    """Cut off a checkpoint, or write it with other contents; returns its name."""
    name = f"{role}.{version:012d}.ckpt"
    if contents is None:
        store.files.put(name, [store.files.get(name)[:-1]])
    else:
        store.write(role, store.read_all(role)[0][version] | contents, version)
    return name


def test_a_restarted_role_names_damaged_checkpoints_and_begins_from_the_one_before(store):
    warnings, shard = [], server()
    newest = damage(store, "server-0", 9, {"samples": "many"})
    requested, begins = Checkpointing("server-0", 1, store, None, warnings.append).restore(shard, None, None)
    assert (shard.version, requested, warnings) == (5, None, [])
    remark = f"{newest} is damaged (samples is 'many', not a whole number from 0 to 4.61169e+18)"
    assert begins == ["checkpoint", 5, remark]
    text = str(RoleRestarted(0, "server-0", 1, *begins[:2], remark=begins[2]))
    assert text == f"server-0 restarted, restored from update 5 ({remark})"


def test_a_restarted_role_without_intact_checkpoint_begins_from_the_first_weights_and_says_why(store):
    shard = server()
    names = [damage(store, "server-0", version) for version in (9, 5)]
    _, begins = Checkpointing("server-0", 1, store, None, print).restore(shard, None, None)
    assert begins == ["first weights", None, ", ".join(f"{name} is damaged (truncated)" for name in names)]
    text = str(RoleRestarted(0, "server-0", 1, "first weights", remark=begins[2]))
    assert text.startswith(f"server-0 restarted, restored from the first weights ({names[0]} is damaged")


def test_a_resumed_run_names_damaged_checkpoints_and_what_is_used_instead(store):
    name = damage(store, "server-1", 9)
    states, notes = resumed_states(PLAN, store)
    assert {role: state["version"] for role, (state, _) in states.items() if state} == {"server-0": 9, "server-1": 5}
    assert notes == [f"server-1 starts from its checkpoint of update 5: {name} is damaged (truncated)"]
    damage(store, "server-1", 5)
    with pytest.raises(
        lk.BadInput, match=r"no checkpoint of server-1 is left \(server-1\.000000000009\.ckpt is damaged"
    ):
        resumed_states(PLAN, store)


def test_the_client_names_damaged_checkpoints_once(store):
    warnings = []
    checkpoints = RunCheckpoints(store, None, warnings.append)
    name = damage(store, "server-0", 9)
    assert list(checkpoints.states("server-0")) == list(checkpoints.states("server-0")) == [5]
    assert warnings == [f"{name} is damaged (truncated); an older checkpoint is used"]
