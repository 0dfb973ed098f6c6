"""Hosts that reach the scheduler and the client, and not each other: the log names their roles, and no run waits for ever."""

import pytest

from tests.multihost.client import Refused

TRAIN = (
    "on = cluster.resized(workers=3, servers=1, pace=0.01, place={place!r})\n"
    "run = lk.train(lk.Problem('digits', hidden=(64,), seed=3), lk.{strategy}, on, lk.Budget(updates=10**9), checkpoint=False)"
)


def start(cluster, strategy):
    """A run with two workers on the first host, the server on the second one, and a worker and the chief on the third one."""
    roles = {"worker-0": 0, "worker-1": 0, "server-0": 1, "worker-2": 2, "chief": 2}
    place = {role: cluster.network.hosts[number].address for role, number in roles.items()}
    cluster.client.do(TRAIN.format(place=place, strategy=strategy))


def says(cluster, text):
    """Wait until the log contains a text."""
    cluster.client.do(f"run.wait_for(lambda run: any({text!r} in str(event) for event in run.trace.events))")


def test_a_run_in_which_all_wait_for_unreachable_roles_ends_with_an_error(cluster):
    workers, server, _ = cluster.network.hosts
    workers.close_to(server)
    start(cluster, "SyncPS()")
    with pytest.raises(Refused) as refused:
        cluster.client.do("run.wait()")
    assert refused.value.kind == "ClusterError"
    pair = f"worker-0 and worker-1 on {workers.address} cannot reach server-0 on {server.address} (no answer"
    assert f"because all roles wait: {pair}" in str(refused.value)
    assert cluster.client.ask("ledgers.book(run)")["closes"]
    workers.open_to(server)
    start(cluster, "SyncPS()")
    cluster.client.do("ledgers.moves(run, 20)")
    cluster.client.do("run.stop()")


def test_a_link_that_closes_during_a_run_and_opens_again(cluster):
    client, (workers, server, others) = cluster.client, cluster.network.hosts
    start(cluster, "AsyncPS()")
    client.do("ledgers.moves(run, 20)")
    for role in ("worker-0", "worker-1", "worker-2"):
        client.do(f"ledgers.computes(run, {role!r})")
    workers.close_to(server)
    says(cluster, f"worker-0 and worker-1 on {workers.address} cannot reach server-0 on {server.address} (no answer")
    client.do("ledgers.moves(run, 20)")  # the third worker continues
    workers.open_to(server)
    says(cluster, f"on {workers.address} can reach server-0 on {server.address} again")
    for role in ("worker-0", "worker-1"):
        client.do(f"ledgers.computes(run, {role!r})")
    assert client.ask("ledgers.events(run, 'lost', 'restarted', 'fenced')") == []
    others.close_to(server)  # the chief is on this host, and without it no model can be evaluated
    chief, shard = f"chief on {others.address}", f"server-0 on {server.address}"  # neither gets an answer of the other
    with pytest.raises(Refused, match=f"because ({chief} cannot reach {shard}|{shard} cannot reach {chief})"):
        client.do("run.wait()")
    assert client.ask("run.stopped_by") == "error"
    others.open_to(server)
