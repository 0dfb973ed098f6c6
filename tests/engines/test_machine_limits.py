"""The default number of workers follows the limits of a container or hub; tested on artificial control groups."""

from __future__ import annotations

import contextlib
import os
import resource
from types import SimpleNamespace

import psutil
import pytest

import labkit as lk
from labkit.engines import machine_limits
from labkit.engines.machine_limits import (
    check_capacity,
    default_local_workers,
    free_memory,
    memory_limit,
    process_capacity,
    usable_cpus,
)

GB = 1_000_000_000
NO_LIMITS = {}  # a hub without limits
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def put(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def version_2(root, cpu="max 100000", memory="max", used=0):
    """Control groups as seen inside a container: its group is the root."""
    put(root / "proc/self", cgroup="0::/")
    put(root / "sys/fs/cgroup", cpu__max=cpu, memory__max=memory, memory__current=used)
    return root


def version_1(root, quota=-1, memory=9223372036854771712, used=0):
    put(root / "proc/self", cgroup="5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc")
    put(root / "sys/fs/cgroup/cpu,cpuacct", **{"cpu__cfs_quota_us": quota, "cpu__cfs_period_us": 100000})
    put(root / "sys/fs/cgroup/memory", **{"memory__limit_in_bytes": memory, "memory__usage_in_bytes": used})
    return root


# CPUs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quota", "expected"), [("50000 100000", 0.5), ("10000 40000", 0.25), ("max 100000", CPUS)])
def test_cpus_of_a_version_2_group(tmp_path, quota, expected):
    assert usable_cpus(version_2(tmp_path, cpu=quota), NO_LIMITS) == expected


@pytest.mark.parametrize(("quota", "expected"), [(50000, 0.5), (25000, 0.25), (-1, CPUS)])
def test_cpus_of_a_version_1_group(tmp_path, quota, expected):
    assert usable_cpus(version_1(tmp_path, quota=quota), NO_LIMITS) == expected


def test_a_cpu_quota_above_the_number_of_cpus_has_no_effect(tmp_path):
    assert usable_cpus(version_2(tmp_path, cpu="10000000 100000"), {"CPU_LIMIT": "64"}) == CPUS


@pytest.mark.parametrize("line", ["", "0", "0:", "nonsense", "0::/\nnonsense"])
def test_malformed_lines_of_the_control_group_file_set_no_limit(tmp_path, line):
    root = version_2(tmp_path)
    put(root / "proc/self", cgroup=line)
    put(root / "sys/fs/cgroup", memory__max=8 * GB, memory__current="unknown", memory__stat="inactive_file much")
    assert usable_cpus(root, NO_LIMITS) == CPUS
    assert memory_limit(root, NO_LIMITS) in ((None, 0), (8 * GB, 0))


@pytest.mark.parametrize(
    ("reported", "expected"), [("0.5", 0.5), ("", CPUS), ("0", CPUS), ("-1", CPUS), ("nan", CPUS), ("lots", CPUS)]
)
def test_cpus_of_a_hub(tmp_path, reported, expected):
    assert usable_cpus(version_2(tmp_path), {"CPU_LIMIT": reported}) == expected


def test_the_smallest_limit_holds(tmp_path):
    root = version_2(tmp_path, cpu="50000 100000")
    assert usable_cpus(root, {"CPU_LIMIT": "0.25"}) == 0.25
    assert usable_cpus(root, {"CPU_LIMIT": "1"}) == 0.5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert usable_cpus(tmp_path, NO_LIMITS) == 1


# memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [version_1, version_2])
def test_memory_of_a_group_without_what_is_used_there(tmp_path, monkeypatch, version):
    root = version(tmp_path, memory=2 * GB, used=GB // 2)
    assert memory_limit(root, NO_LIMITS) == (2 * GB, GB // 2)
    for machine, expected in ((8 * GB, 3 * GB // 2), (GB, GB)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda machine=machine: SimpleNamespace(available=machine))
        assert free_memory(root, NO_LIMITS) == expected


def test_memory_of_a_hub(tmp_path):
    assert memory_limit(version_2(tmp_path), {"MEM_LIMIT": str(GB)}) == (GB, 0)
    root = version_2(tmp_path, memory=2 * GB, used=GB // 2)
    assert memory_limit(root, {"MEM_LIMIT": str(GB)}) == (GB, GB // 2)
    assert memory_limit(root, {"MEM_LIMIT": str(3 * GB)}) == (2 * GB, GB // 2)
    assert memory_limit(root, {"MEM_LIMIT": "2G"}) == (2 * GB, GB // 2)  # not bytes: not understood


def test_a_group_that_is_over_its_limit_has_nothing_free(tmp_path):
    assert free_memory(version_2(tmp_path, memory=GB, used=GB + 1), NO_LIMITS) == 0


# workers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "expected"), [(0.01, 1), (0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4), (2.0, 4), (64.0, 4)]
)
def test_workers_follow_the_cpus(cpus, expected):
    assert default_local_workers(cpus, free=8 * GB) == expected


@pytest.mark.parametrize("free", range(0, GB, GB // 16))
def test_workers_follow_the_memory(free):
    """With a server and a chief they fit into the free memory; else the default is 1, and starting is refused with the reason."""
    found = default_local_workers(cpus=4.0, free=free)
    assert 1 <= found <= 4
    if found > 1:
        check_capacity(found + 2, free=free)
    if found < 4 and found + 3 <= process_capacity(free):
        pytest.fail("one more would have fitted")


def test_four_workers_fit_the_resources_of_binder(tmp_path):
    limit, used = memory_limit(version_2(tmp_path, cpu="100000 100000", memory=2 << 30, used=600 << 20), NO_LIMITS)
    assert default_local_workers(usable_cpus(tmp_path, NO_LIMITS), limit - used) == 4


@pytest.mark.slow
def test_default_numbers_of_workers_are_those_that_fit_the_machine(monkeypatch):
    monkeypatch.setenv("CPU_LIMIT", "0.5")
    monkeypatch.delenv("MEM_LIMIT", raising=False)
    monkeypatch.setattr(machine_limits, "free_memory", lambda *where: 8 * GB)
    assert lk.DaskCluster().workers == 2
    assert lk.DaskCluster(workers=3).workers == 3  # an explicit number is used
    assert lk.Lab().settings.cluster.workers == 2
    assert lk.DaskCluster("tcp://10.0.0.1:8786").workers == 4  # the limits of other machines are unknown


def test_a_cluster_that_exceeds_the_memory_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(machine_limits, "free_memory", lambda *where: 600 << 20)
    cluster = lk.DaskCluster(workers=20)
    with pytest.raises(lk.BadInput, match=r"22 nodes, .* 600 MiB of free memory .* room for 8 here.* fewer workers"):
        cluster.open()
    assert not cluster.is_open


def test_processes_that_are_there_need_no_more_room():
    check_capacity(6, running=6, free=0)
    with pytest.raises(lk.BadInput, match="room for 6"):
        check_capacity(7, running=6, free=0)


@pytest.fixture(params=[0, 80], ids=["few are open", "more are open than the limit allows"])
def few_files(request):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        for _ in range(request.param):
            opened.enter_context(open(os.devnull))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_of_open_files_that_is_too_low_is_named_before_anything_starts(few_files):
    with pytest.raises(
        lk.BadInput, match=r"^The limit of open files is 64 here, and starting \d+ processes takes about"
    ):
        machine_limits.check_capacity(6, 0, free=1 << 40)
    machine_limits.check_capacity(6, 6, free=1 << 40)  # existing ones need no more
