"""Calibrate a cluster of several hosts, measure runs on it, and forecast them. Prints one JSON object per run.

`python -m benchmarks.programs.forecast_on_hosts SCHEDULER DASK_WORKERS SECONDS RUNS`, executed on the host of the client.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import labkit as lk
from benchmarks.forecast import forecast, hosts_grid, measure


def main() -> None:
    address, workers, seconds, runs = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    cluster = lk.DaskCluster(address, workers=2, servers=1, place="spread")
    cluster.client.wait_for_workers(workers, timeout=60)
    points = hosts_grid()[:runs]
    calibration = lk.calibrate(cluster, points[0].problem(), seconds, progress=False)
    print(json.dumps({"latency": calibration.latency, "bandwidth": calibration.bandwidth}), flush=True)
    found = [measure(cluster, point, tries=1) for point in points]
    for point, measured in zip(points, found):
        row = {"point": asdict(point), "measured": asdict(measured), "forecast": asdict(forecast(calibration, point))}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
