"""`labkit calibrate` and `labkit forecast`: measure the costs of processes, and forecast runs with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from .options import OF_ENGINE, SECTIONS, RunCommand, check_file, given_options, run_specs
from .run_commands import json_option
from .sweep_commands import fail_if_any_failed, result_files, show, write

# Options of a run that have no effect here: calibration decides about its runs, and a forecast about its clusters.
NOT_CALIBRATED = (
    SECTIONS[0][0], SECTIONS[2][0], OF_ENGINE[0], "faults", "pace", "servers", "server_time", "slow", "replicas", "max_workers",
    "checkpoint_every",
)  # fmt: skip
NOT_FORECAST = ("workers", "compute", "cores", "costs", "scheduler", "evaluation_time", "faults")


@click.command(cls=RunCommand, without=NOT_CALIBRATED, short_help="Measure the costs of a cluster's processes.")
@click.option(
    "--for", "duration", metavar="SECONDS", type=float, default=10.0, help="Time of all measurements (default 10 s)."
)
@click.option("--out", metavar="FILE.json", help="The file for the calibration, which labkit forecast reads.")
@click.option("--figure", metavar="FILE.png", help="A figure of the costs.")
@json_option
def calibrate(duration: float, out: str | None, figure: str | None, as_json: bool, **options: Any) -> None:
    """Measure gradients, updates, messages and waiting on a cluster, on which nothing else should run.

    \b
    labkit calibrate --dataset digits --hidden 128 --out cluster.json
    """
    from ..forecasts.calibration import calibrate as measure
    from ..spec import make_cluster

    for name, file in (("out", out), ("figure", figure)):
        if file is not None:
            check_file(name, file)
    (spec,) = run_specs(("async-ps",), "dask", given_options(options))
    with make_cluster(spec.cluster) as cluster:
        found = measure(cluster, spec.problem, duration)
    click.echo(str(found), err=as_json)
    if as_json:
        click.echo(json.dumps(found.to_dict(), allow_nan=False))
    if out is not None:
        found.save(out)
    if figure is not None:
        from ..views import save

        save(found.figure(), figure)


@click.command(cls=RunCommand, without=NOT_FORECAST, short_help="Forecast runs with measured costs.")
@click.argument("names", metavar="STRATEGY ...", nargs=-1)
@click.option("--calibration", metavar="FILE.json", required=True, help="The file that labkit calibrate has written.")
@click.option(
    "--workers",
    "sizes",
    metavar="N,N,...",
    default="2,4,8,16,32,64",
    help="Numbers of workers (default 2,4,8,16,32,64).",
)
@click.option("--hosts", metavar="N", type=int, help="Hosts like the measured one (default: as many as were measured).")
@click.option("--seeds", metavar="N", type=int, default=3, help="Number of seeds, from --seed on (default 3).")
@click.option("--client", metavar="ADDRESS", help="A Dask scheduler whose workers execute the simulated runs.")
@click.option(
    "--out", metavar="FILE.jsonl", help="Keep every run in this file, from which an interrupted forecast continues."
)
@click.option("--csv", metavar="FILE.csv", help="A table with one line per run.")
@click.option("--parquet", metavar="FILE.parquet", help="The same as Parquet (needs pandas and pyarrow).")
@click.option("--figure", metavar="FILE.png", help="Throughput, staleness, bytes and time to accuracy.")
@json_option
def forecast(
    names: tuple[str, ...], calibration: str, sizes: str, hosts: int | None, seeds: int, client: str | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Forecast throughput, staleness, bytes and time to accuracy of strategies on clusters of several sizes.

    \b
    labkit forecast async-ps ring-all-reduce --calibration cluster.json --workers 2,8,32 --updates 2000
    """
    from ..errors import BadInput
    from ..forecasts.calibration import Calibration
    from ..forecasts.calibration.calibration import MEASURED
    from ..forecasts.forecast import forecast as simulate

    files = result_files(options)
    if not names:
        raise BadInput(
            "forecast takes at least one strategy, as in: labkit forecast async-ps --calibration cluster.json."
        )
    try:
        workers = [int(text) for text in sizes.split(",")]
    except ValueError:
        raise BadInput(f"--workers {sizes}: give numbers of workers, as --workers 2,4,8.") from None
    known = Calibration.load(calibration)
    given = given_options(options)
    values = {{"pace": "compute"}.get(name, name): text for name, text in given.values.items()}
    specs = run_specs(names, "simulated", replace(given, values={"workers": str(max(workers))} | values))
    cluster = specs[0].cluster
    more = {declared: getattr(cluster, declared) for _, part, section in SECTIONS if part == "cluster"
            for declared in section.values() if declared in values and declared not in ("servers", "compute")}  # fmt: skip
    made = simulate(
        specs[0].problem, [spec.strategy for spec in specs], known, workers,
        servers=next((spec.cluster.servers for spec in specs if spec.cluster.servers is not None), None),
        pace=cluster.compute if "compute" in values else MEASURED, hosts=hosts, budget=specs[0].budget, seeds=seeds,
        client=client, path=files["out"], **more,
    )  # fmt: skip
    show(made.sweep, str(made), {"doubts": made.doubts}, as_json)
    write(made.sweep, files, made.figure)
    fail_if_any_failed(made.sweep)
