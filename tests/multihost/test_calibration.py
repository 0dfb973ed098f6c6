"""Calibration of a cluster of three hosts, whose links have a limited bandwidth."""

import pytest

RATE = 100e6 / 8  # bytes per second


def test_a_calibration_measures_hosts_and_the_bandwidth_of_their_links(own_cluster):
    client = own_cluster.client
    try:
        for host in own_cluster.network.hosts:
            host.limit("100mbit")
    except RuntimeError as error:
        pytest.skip(str(error))
    client.do("found = lk.calibrate(cluster, lk.Problem('digits', hidden=(128,)), 2.0, progress=False)", 240)
    assert client.ask("found.costs.hosts") == 3
    assert client.ask("len(found.costs.speeds)") == 3
    # without the limit it is more than tenfold; on a busy machine the slope over sizes is off by tens of per cent
    assert 0.6 * RATE < client.ask("found.bandwidth") < 1.5 * RATE
    assert client.ask("found.cluster(4, 1).bandwidth == found.bandwidth")
    assert client.ask("found.costs.receive(38440)") < 38440 / RATE  # measured within a host
    assert any("share cores" in doubt for doubt in client.ask("found.doubts"))  # too few Dask workers on each host
