"""Cables pulled during a run, and put back: connections are not reset, only silent.

A role that is silent for longer than the heartbeat timeout is lost, and its next incarnation runs on another Dask worker; a role
that is reachable again earlier continues.
"""

TRAIN = (
    "on = cluster.resized(workers=3, servers=1, heartbeat_timeout={heartbeat_timeout}, pace=0.01)\n"
    "run = lk.train(lk.Problem('digits', hidden=(64,), seed=3), {strategy}, on, lk.Budget({budget}), "
    "checkpoint={place!r})\n"
    "ledgers.moves(run, 50)"
)


def start(cluster, name, strategy="lk.AsyncPS(learning_rate=0.05)", budget="updates=10**9", heartbeat_timeout=3.0):
    """A run during training; checkpoints are stored where all hosts can read them."""
    place = f"file://{cluster.folder}/{name}"
    cluster.client.do(TRAIN.format(heartbeat_timeout=heartbeat_timeout, strategy=strategy, budget=budget, place=place))
    return cluster.hosts_of_roles()


def ends_well(cluster, stopped_by):
    """The run is over; every gradient is accounted for."""
    assert cluster.client.ask("run.stopped_by") == stopped_by
    entries = cluster.client.ask("ledgers.book(run)")
    assert entries["closes"], entries
    assert entries["missing"] == 0, entries


def marked(cluster, role, *kinds):
    """The events of these kinds about a role."""
    return [m for m in cluster.client.ask(f"ledgers.events(run, *{list(kinds)!r})") if m.get("name") == role]


def awaited(cluster, kind, role):
    """Wait for the first such event."""
    return cluster.client.ask(f"ledgers.awaited(run, {kind!r}, {role!r})")


def lonely_worker(hosts_by_role):
    """A worker on a host without the server and the chief."""
    taken = {hosts_by_role["server-0"].name, hosts_by_role["chief"].name}
    return next(role for role, host in hosts_by_role.items() if role.startswith("worker") and host.name not in taken)


def test_hosts_that_are_cut_off_for_a_short_and_for_a_long_time(own_cluster):
    """A worker is back before the heartbeat timeout; then a worker, and the server, are restarted on other hosts."""
    client = own_cluster.client
    hosts_by_role = start(own_cluster, "short", heartbeat_timeout=60.0)
    role = lonely_worker(hosts_by_role)
    hosts_by_role[role].unplug()
    client.do("ledgers.moves(run, 60)")  # the others continue
    hosts_by_role[role].plug()
    client.do(f"ledgers.computes(run, {role!r})")
    client.do("run.stop()")
    ends_well(own_cluster, "user")
    assert marked(own_cluster, role, "lost", "restarted", "fenced") == []
    assert client.ask("ledgers.incarnations(run)")[role] == [0]

    hosts_by_role = start(own_cluster, "long")
    role = lonely_worker(hosts_by_role)
    hosts_by_role[role].unplug()
    assert awaited(own_cluster, "lost", role)["incarnation"] == 0
    client.do("ledgers.moves(run, 20)")
    hosts_by_role[role].plug()
    assert awaited(own_cluster, "restarted", role)["incarnation"] == 1
    assert marked(own_cluster, role, "thawed", "reconnected") == []  # never both
    own_cluster.add_workers(own_cluster.network.hosts[2], 2)  # the role on the host of the server needs a place, too

    served = own_cluster.hosts_of_roles()["server-0"]
    served.unplug()
    back = awaited(own_cluster, "restarted", "server-0")
    assert back["incarnation"] >= 1
    assert back["source"] == "checkpoint"
    assert own_cluster.hosts_of_roles()["server-0"] is not served
    served.plug()
    client.do("ledgers.moves(run, 600)")
    client.do("run.stop()")
    ends_well(own_cluster, "user")
    assert client.ask("run.summary()['accuracy']") > 0.9


def test_a_waiting_run_on_several_hosts_names_the_awaited_role_and_can_be_stopped(own_cluster):
    """Two workers are cut off, and one Dask worker is left for them: the run waits for the other one."""
    own_cluster.client.do("from labkit.engines.dask.client.recovery_policy import absences; absences.GIVE_UP_S = 1.0")
    hosts_by_role = start(own_cluster, "waits", strategy="lk.SyncPS(learning_rate=0.2, on_loss='wait')")
    cut = [role for role, host in hosts_by_role.items() if host is hosts_by_role[lonely_worker(hosts_by_role)]]
    assert len(cut) == 2
    hosts_by_role[cut[0]].unplug()
    waits = awaited(own_cluster, "waits", None)
    assert waits["name"] in cut
    assert waits["text"].startswith(f"waits for {waits['name']}, which ")
    own_cluster.client.do("run.stop()")
    ends_well(own_cluster, "user")
