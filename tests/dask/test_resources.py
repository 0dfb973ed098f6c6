"""Table of a cluster's resources and speeds; shares of the data in proportion to them."""

import html

import pytest
from distributed import Client

import labkit as lk
from labkit.engines.dask.cluster.placement import place
from labkit.engines.dask.cluster.resources import Resource, Resources, measure_speed, resources, shares_of_speed
from tests.dask.helpers import addresses


def row(**more):
    plain = {
        "address": "tcp://10.0.0.2:1", "host": "10.0.0.2", "threads": 1, "cores": 4, "memory_limit": 3 << 30,
        "memory_free": 2 << 30, "roles": ("worker-0",), "requested": 1, "allocated": 1, "speed": 12345.0,
    }  # fmt: skip
    return Resource(**{**plain, **more})


def test_the_table_in_a_terminal_and_a_notebook():
    table = Resources([row(), row(memory_limit=None, cores=None, memory_free=None, roles=(), speed=None)])
    lines = str(table).splitlines()
    assert lines[0].split("  ")[0] == "Dask worker"
    assert "3,072 MiB" in lines[1]
    assert "2,048 MiB" in lines[1]
    assert lines[1].endswith("12,345")
    assert lines[2].split()[-1] == "–"
    assert "none" in lines[2]
    page = table._repr_html_()
    assert page.count("<tr") == 3
    assert html.escape("<b>") in Resources([row(host="<b>")])._repr_html_()
    assert len(table) == 2


def test_the_speed_of_a_share_is_that_of_its_slowest_role():
    roles = lk.AsyncPS().layout(lk.Problem("moons"), lk.SimulatedCluster(workers=3))
    placed = {node: f"tcp://{node}" for node in roles.nodes}
    speeds = {f"tcp://{node}": float(10 + i) for i, node in enumerate(roles.nodes)}
    at = [speeds[f"tcp://worker-{i}"] for i in range(3)]
    assert shares_of_speed(roles, placed, speeds, {}) == tuple(at)
    assert shares_of_speed(roles, placed, speeds, {"worker-1": 4}) == (at[0], at[1] / 4, at[2])
    del speeds["tcp://worker-2"]
    with pytest.raises(lk.ClusterError, match="The speed of worker-2 could not be measured"):
        shares_of_speed(roles, placed, speeds, {})


def test_stages_of_a_pipeline_share_their_data():
    problem = lk.Problem("digits", hidden=(32, 32))
    roles = lk.Pipeline().layout(problem, lk.SimulatedCluster(workers=2, servers=0))
    placed = {node: node for node in roles.nodes}
    speeds = {node: 5.0 if node == "worker-1" else 9.0 for node in roles.nodes}
    assert set(shares_of_speed(roles, placed, speeds, {})) == {5.0}


def test_a_cluster_of_processes(cluster, started):
    run = started()
    table = resources(cluster.client, cluster.runs, speeds=False)
    where = run.engine.members.where
    assert [r.address for r in table.rows] == addresses(cluster.client)
    for r in table.rows:
        assert (r.host, r.threads, r.requested) == ("127.0.0.1", 1, len(r.roles))
        assert set(r.roles) == {role for role, address in where.items() if address == r.address}
        assert r.memory_limit is None  # labkit's own processes have none
        assert r.memory_free > 1 << 20
        assert r.speed is None


@pytest.mark.slow
def test_speeds_are_measured_and_dealt_by(cluster):
    layout = lk.AsyncPS().layout(lk.Problem("digits", hidden=(32,)), cluster)
    known = addresses(cluster.client)
    speeds = measure_speed(cluster.client, [*known, "tcp://127.0.0.1:1"])
    assert sorted(speeds) == known  # no process listens at port 1
    assert min(speeds.values()) > 10
    weights = shares_of_speed(layout, place(layout.nodes, layout.roles, known, {}, None), speeds, {"worker-0": 3})
    sizes = [len(share) for share in lk.partitions.ByWeight(weights).split(1000, 2, 0)]
    assert sum(sizes) == 1000
    assert abs(sizes[0] - 1000 * weights[0] / sum(weights)) <= 1


def test_a_scheduler_that_is_gone(cluster):
    client = Client(cluster.client.scheduler.address, security=cluster.client.security, set_as_default=False)
    client.close()
    with pytest.raises(lk.ClusterError, match="did not list its Dask workers"):
        resources(client)


def test_unequal_shares():
    """Every sample in one share, three times as many in one as in the other; the model learns, and the ledger balances."""
    problem = lk.Problem("moons", hidden=(16,), partition="by-weight:1,3")
    run = lk.train(
        problem, lk.AsyncPS(learning_rate=0.2), lk.SimulatedCluster(workers=2), lk.Budget(updates=600)
    ).wait()
    one, three = (len(part) for part in problem.partition.split(problem.dataset.n_train, 2, 0))
    assert abs(three - 3 * one) <= 3
    assert run.summary()["accuracy"] > 0.9
    assert lk.ledger(run.trace)["closes"]


@pytest.mark.slow
def test_a_cluster_lists_its_resources(cluster):
    table = cluster.resources()
    assert {r.speed > 0 for r in table.rows} == {True}
    weights = cluster.speeds(lk.Problem("moons"), lk.AsyncPS())
    assert len(weights) == 2
    assert min(weights) > 0
    slowed = cluster.resized(slow={"worker-0": 1000}).speeds(lk.Problem("moons"), lk.AsyncPS())
    assert slowed[0] < slowed[1] / 10
