"""Cables pulled during a run, and put back: connections are not reset, only silent.

The heartbeat timeout is 3 s here: a role that is silent for longer is lost, and its next incarnation runs on another
Dask worker; a role that is reachable again earlier continues. Every call of the client returns within 15 s (checked by
`Client`).
"""

import time

import pytest

PATIENCE = 3.0
TRAIN = (
    "on = cluster.resized(workers={workers}, servers=1, patience={patience}, pace=0.01)\n"
    "run = lk.train(lk.Problem('digits', hidden=(64,), seed=3), {strategy}, on, lk.Budget({budget}), "
    "checkpoint={place!r})"
)


def start(cluster, workers=3, strategy="lk.AsyncPS(learning_rate=0.05)", budget="updates=4000"):
    """A run during training; checkpoints are stored where all hosts can read them."""
    place = f"file://{cluster.folder}/state"
    code = TRAIN.format(workers=workers, patience=PATIENCE, strategy=strategy, budget=budget, place=place)
    cluster.client.do(code, 30)
    assert cluster.client.ask("ledgers.moves(run, 50)")
    return cluster.hosts_of_roles()


def ends_well(cluster, seconds=180):
    """The run reaches its budget; every gradient is accounted for; the accuracy has increased."""
    until = time.monotonic() + seconds
    while cluster.client.ask("run.stopped_by") is None:
        assert time.monotonic() < until, cluster.client.ask("ledgers.events(run, 'lost', 'restarted', 'waits', 'warning')")
        cluster.client.ask("ledgers.moves(run, 400, 5)")
    assert cluster.client.ask("run.stopped_by") == "updates"
    entries = cluster.client.ask("ledgers.book(run)")
    assert entries["closes"], entries
    assert entries["missing"] == 0, entries
    assert cluster.client.ask("run.summary()['accuracy']") > 0.9


def marked(cluster, role, *kinds):
    """The events of these kinds about a role."""
    return [m for m in cluster.client.ask(f"ledgers.events(run, *{list(kinds)!r})") if m.get("name") == role]


def marked_in_time(cluster, role, kind, seconds=15):
    """Wait for the first such event."""
    until = time.monotonic() + seconds
    while not (found := marked(cluster, role, kind)):
        assert time.monotonic() < until, cluster.client.ask(
            "[dict(kind=m.kind, text=str(m)) for m in run.trace.events]"
        )
        cluster.client.ask("ledgers.moves(run, 1, 0.1)")
    return found[0]


def lonely_worker(hosts_by_role):
    """A worker on a host without the server and the chief."""
    taken = {hosts_by_role["server-0"].name, hosts_by_role["chief"].name}
    return next(role for role, host in hosts_by_role.items() if role.startswith("worker") and host.name not in taken)


def test_a_worker_is_cut_off_and_restarted_on_another_host(own_cluster):
    hosts_by_role = start(own_cluster)
    role = lonely_worker(hosts_by_role)
    hosts_by_role[role].unplug()
    assert own_cluster.client.ask("ledgers.moves(run, 20)")  # the others continue
    assert marked_in_time(own_cluster, role, "lost")["incarnation"] == 0
    hosts_by_role[role].plug()
    assert marked_in_time(own_cluster, role, "restarted", 40)["incarnation"] == 1
    assert marked(own_cluster, role, "thawed", "reconnected") == []  # never both
    ends_well(own_cluster)
    assert own_cluster.client.ask("ledgers.incarnations(run)")[role] in ([0, 1], [0, 1, 2])


def test_a_link_restored_before_the_heartbeat_timeout(own_cluster):
    hosts_by_role = start(own_cluster)
    role = lonely_worker(hosts_by_role)
    hosts_by_role[role].unplug()
    own_cluster.client.ask("ledgers.until(lambda: False, 0.7)")
    hosts_by_role[role].plug()
    ends_well(own_cluster)
    assert marked(own_cluster, role, "lost", "restarted", "fenced") == []
    assert own_cluster.client.ask("ledgers.incarnations(run)")[role] == [0]


def test_a_server_is_cut_off_and_restored_on_another_host(own_cluster):
    hosts_by_role = start(own_cluster, workers=2)
    served = hosts_by_role["server-0"]
    own_cluster.add_workers(own_cluster.network.hosts[2], 2)  # the role on the same Dask worker as the server needs a place, too
    own_cluster.client.ask("ledgers.until(lambda: run.engine.now > 3e9, 180)")  # a checkpoint exists by now
    served.unplug()
    back = marked_in_time(own_cluster, "server-0", "restarted", 30)
    assert back["incarnation"] >= 1
    assert "restored" in back["text"]
    assert [file.name for file in (own_cluster.folder / "state").iterdir() if file.name.startswith("server-0")]
    assert own_cluster.hosts_of_roles()["server-0"] is not served
    served.plug()
    ends_well(own_cluster)


@pytest.mark.parametrize("loss", ["wait", "continue"])
def test_a_synchronous_run_waits_or_goes_on(own_cluster, loss):
    hosts_by_role = start(own_cluster, strategy=f"lk.SyncPS(learning_rate=0.2, on_loss={loss!r})", budget="updates=600")
    role = lonely_worker(hosts_by_role)
    hosts_by_role[role].unplug()
    marked_in_time(own_cluster, role, "lost")
    if loss == "continue":
        assert own_cluster.client.ask("ledgers.moves(run, 20)")
    hosts_by_role[role].plug()
    ends_well(own_cluster)


def test_a_waiting_run_on_several_hosts_names_the_awaited_role_and_can_be_stopped(own_cluster):
    """Two workers are cut off, and one Dask worker is left for them: the run waits for the other one."""
    hosts_by_role = start(own_cluster, strategy="lk.SyncPS(learning_rate=0.2, on_loss='wait')", budget="updates=100000")
    cut = [role for role, host in hosts_by_role.items() if host is hosts_by_role[lonely_worker(hosts_by_role)]]
    assert len(cut) == 2
    hosts_by_role[cut[0]].unplug()
    until = time.monotonic() + 40
    while not (waits := own_cluster.client.ask("ledgers.events(run, 'waits')")):
        assert time.monotonic() < until
        own_cluster.client.ask("ledgers.moves(run, 1000000, 0.5)")
    assert waits[0]["name"] in cut
    assert waits[0]["text"].startswith(f"waits for {waits[0]['name']}, which ")
    own_cluster.client.do("run.stop()")  # within 15 s, as every call
    entries = own_cluster.client.ask("ledgers.book(run)")
    assert entries["closes"], entries
