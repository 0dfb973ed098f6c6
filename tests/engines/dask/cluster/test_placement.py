"""Placement of nodes: a pure function, one Dask worker a node; a placement request is met or refused with a reason."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.engines.dask.cluster.placement import check_checkpoint_location, check_rule, host_of, next_worker, place
from labkit.errors import BadInput
from labkit.roles.layout import RoleSpec


def layout(servers=2, workers=3, backups=0):
    roles = [RoleSpec(f"server-{i}", "server", i, f"server-{i}") for i in range(servers)]
    roles += [RoleSpec(f"backup-{i}", "backup", i, f"backup-{i}") for i in range(backups)]
    roles += [RoleSpec(f"worker-{i}", "worker", i, f"worker-{i}", computes=True) for i in range(workers)]
    return [*roles, RoleSpec("chief", "chief", 0, "chief")]


def at(**hosts):
    return [f"tcp://{host}:{9000 + i}" for host, count in hosts.items() for i in range(count)]


def placed(roles, addresses, rule=None, usage=None):
    return place([role.node for role in roles], roles, addresses, usage or Counter(), rule)


def hosts_of(found, kind=""):
    return [host_of(address) for node, address in found.items() if node.startswith(kind)]


@settings(max_examples=200, deadline=None)
@given(
    servers=st.integers(1, 3), workers=st.integers(1, 5), backups=st.integers(0, 3),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=5), rule=st.sampled_from([None, "spread", "pack"]),
    used=st.lists(st.integers(0, 3), min_size=30, max_size=30),
)  # fmt: skip
def test_every_node_has_a_dask_worker_of_its_own(servers, workers, backups, counts, rule, used):
    roles = layout(servers, workers, min(backups, servers))
    there = at(**{f"h{i}": count for i, count in enumerate(counts)})
    if len(there) < len(roles):
        with pytest.raises(BadInput, match=f"has {len(roles)} nodes .* and there are {len(there)}"):
            placed(roles, there, rule)
        return
    found = placed(roles, there, rule, dict(zip(there, used)))
    assert list(found) == [role.node for role in roles]
    assert len(set(found.values())) == len(roles)
    assert set(found.values()) <= set(there)
    if rule == "spread":  # at most one server per host, unless there are fewer hosts than servers
        most = max(Counter(hosts_of(found, "server")).values())
        assert most == 1 or len(counts) < servers
    if rule == "pack":  # as few hosts as possible, the largest first
        least = next(k for k in range(1, len(counts) + 1) if sum(sorted(counts)[-k:]) >= len(roles))
        assert len(set(hosts_of(found))) == least


def test_the_least_used_dask_workers_are_taken_first():
    there = at(a=3, b=3)
    usage = Counter({there[0]: 1, there[1]: 2})
    assert set(placed(layout(1, 2), there, None, usage).values()) == set(there[2:])
    assert list(placed(layout(1, 2), there).values()) == there[:4]  # in the given order


def test_a_backup_is_kept_away_from_its_server():
    found = placed(layout(2, 2, backups=2), at(a=4, b=4), "spread")
    for i in range(2):
        assert host_of(found[f"server-{i}"]) != host_of(found[f"backup-{i}"])


def test_spread_evens_out():
    found = placed(layout(1, 4), at(a=4, b=2, c=2), "spread")
    assert Counter(hosts_of(found)) == {"a": 2, "b": 2, "c": 2}


def test_rules_by_role_take_precedence_over_rules_by_kind():
    there = at(a=3, b=3, c=2)
    found = placed(layout(2, 3), there, {"server-0": there[1], "server": "c", "worker": "b"})
    assert found["server-0"] == there[1]
    assert hosts_of(found, "server-1") == ["c"]
    assert hosts_of(found, "worker") == ["b"] * 3
    tight = placed(layout(2, 1), at(a=2, b=2), {"worker": "a", "server-1": "tcp://a:9000"})
    assert tight["server-1"] == "tcp://a:9000"  # the node with only one choice is placed first
    assert tight["worker-0"] == "tcp://a:9001"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"servre-0": "a"}, "Did you mean 'server-0'"),
        ({"server": "nowhere"}, r"'server' is to be on 'nowhere', where no Dask worker is. .* a \(3\), b \(3\)"),
        ({"worker": "a", "server": "a"}, r"is to be on a, as 5 of this run's nodes are, .* a \(3\), b \(3\)"),
        ({"server-0": "tcp://a:9000", "server-1": "tcp://a:9000"}, "server-1 is to be on tcp://a:9000, as 2"),
    ],
)
def test_invalid_placements_are_refused(rule, message):
    with pytest.raises(BadInput, match=message):
        placed(layout(2, 3), at(a=3, b=3), rule)


def test_two_roles_of_one_node_have_one_place():
    roles = [RoleSpec("worker-0", "worker", 0, "chief"), RoleSpec("chief", "chief", 0, "chief")]
    assert placed_one(roles, {"worker": "b"}) == {"chief": "tcp://b:9000"}
    with pytest.raises(BadInput, match="worker-0 on b, chief on a; these roles share a node"):
        placed_one(roles, {"worker": "b", "chief": "a"})


def placed_one(roles, rule):
    return place(["chief"], roles, at(a=1, b=1), Counter(), rule)


@pytest.mark.parametrize("rule", [None, "spread", "pack", {"worker": "a"}])
def test_valid_placement_rules_are_returned_unchanged(rule):
    assert check_rule(rule) == rule


@pytest.mark.parametrize(
    ("rule", "message"),
    [("spred", "Did you mean 'spread'"), (3, 'give place="spread"'), ({"worker": 2}, "is not allowed"),
     (["a"], "is not allowed"), ({"worker": ""}, "is not allowed")],
)  # fmt: skip
def test_invalid_placement_rules_are_refused(rule, message):
    with pytest.raises(BadInput, match=message):
        check_rule(rule)


@pytest.mark.parametrize(
    ("address", "host"),
    [("tcp://10.0.0.2:345", "10.0.0.2"), ("tls://node.example.org:345", "node.example.org"), ("tcp://[fe80::1]:345", "fe80::1"),
     ("inproc://192.168.1.2/77/3", "192.168.1.2"), ("inproc://192.168.1.2/77/14", "192.168.1.2"),
     ("inproc://fe80::1/7/3", "fe80::1"),
     ("10.0.0.2", "10.0.0.2")],
)  # fmt: skip
def test_hosts_of_addresses(address, host):
    assert host_of(address) == host


def test_dask_workers_in_threads_are_on_one_host_which_reaches_its_folders():
    check_checkpoint_location("folder", {host_of(f"inproc://10.0.0.2/77/{i}") for i in range(5)})


# lost nodes -------------------------------------------------------------------------------------------------------------


def test_a_replacement_is_a_free_and_least_used_dask_worker():
    roles, usage = layout(2, 3), Counter({"tcp://b:9000": 1})
    others = {"server-1": "tcp://a:9000"}
    assert next_worker("server-0", roles, [], others, usage, None) is None
    assert next_worker("server-0", roles, at(b=2), others, usage, None) == "tcp://b:9001"
    assert host_of(next_worker("server-0", roles, at(a=3, b=2), others, usage, "spread")) == "b"
    assert host_of(next_worker("server-0", roles, at(a=3, b=4), others, usage, "pack")) == "a"


def test_the_next_worker_observes_the_rule_if_possible():
    roles = layout(2, 3)
    rule = {"server": "c", "worker-0": "tcp://b:1"}
    assert host_of(next_worker("server-0", roles, at(a=3, c=1), {}, Counter(), rule)) == "c"
    assert host_of(next_worker("server-0", roles, at(a=3), {}, Counter(), rule)) == "a"  # c is gone
    assert (
        host_of(next_worker("worker-0", roles, at(a=3, b=1), {}, Counter(), rule)) == "b"
    )  # another port: the same host
    assert host_of(next_worker("worker-1", roles, at(a=1, b=1), {}, Counter(), rule)) == "a"


# where roles store checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "hosts"),
    [("runs/1", ["a"]), (None, ["a", "a"]), (False, ["a", "b"]), ("s3://bucket/run", ["a", "b"]),
     ("file:///shared/run", ["a", "b", "c"])],
)  # fmt: skip
def test_shared_checkpoint_locations_are_accepted(where, hosts):
    check_checkpoint_location(where, hosts)


@pytest.mark.parametrize("where", [None, True, "runs/1", "/shared/run"])
def test_a_folder_of_one_machine_is_refused(where):
    with pytest.raises(BadInput, match=r"Roles run on 3 hosts.*reachable from all of them; give checkpoint='s3://"):
        check_checkpoint_location(where, ["a", "b", "c", "a"])
